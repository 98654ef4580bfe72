"""Temporary files and folders, and those that a process has left that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from onnxrewrite.system import atomic, temporary

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="locks are asked for where there is fcntl")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of which nobody else knows."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed(place: Path, work: str) -> None:
    """What a process leaves that is killed in the middle of ``work``."""
    program = f"""
    import os, signal, sys, tempfile
    from pathlib import Path
    from onnxrewrite.system import temporary
    place = Path(sys.argv[1])
    tempfile.tempdir = str(place)
    {work}
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(place)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_they_are_gone_afterwards(place):
    with temporary.folder() as folder, temporary.beside(place / "model.onnx") as file:
        (folder / "weights").write_text("1")
        file.write_text("2")
        assert len(list(place.iterdir())) == 2
    with pytest.raises(KeyError), temporary.beside(place / "model.onnx"):
        raise KeyError
    assert list(place.iterdir()) == []


def test_a_file_may_be_renamed(place):
    with temporary.beside(place / "model.onnx") as file:
        file.write_text("all of it")
        os.replace(file, place / "model.onnx")
    assert [p.name for p in place.iterdir()] == ["model.onnx"]


def test_what_a_killed_process_left_is_removed_by_the_next_one(place):
    killed(
        place,
        "with temporary.beside(place / 'model.onnx') as file, temporary.folder():\n        file.write_text('half')",
    )
    assert len(list(place.iterdir())) == 2
    with temporary.beside(place / "other.onnx") as file:
        assert {p for p in place.iterdir() if p.is_file()} == {file}
    with temporary.folder() as folder:
        assert list(place.iterdir()) == [folder]


def test_a_folder_is_whole_or_not_there(place):
    with atomic.whole_folder(place / "made") as folder:
        (folder / "weights").write_text("1")
        temporary.sweep_files(place)
        assert folder.is_dir()
    assert [p.name for p in place.rglob("*")] == ["made", "weights"]
    with pytest.raises(KeyError), atomic.whole_folder(place / "other"):
        raise KeyError
    with pytest.raises(OSError, match="not empty"), atomic.whole_folder(place / "made"):
        pass
    assert [p.name for p in place.rglob("*")] == ["made", "weights"]


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next_one(place):
    killed(
        place,
        "with temporary.folder_beside(place / 'made') as made:\n        (made / 'weights').write_text('half')",
    )
    assert len(list(place.iterdir())) == 2
    temporary.sweep_files(place)
    assert list(place.iterdir()) == []


def test_what_a_living_process_needs_stays(place):
    with temporary.folder() as folder, temporary.beside(place / "model.onnx") as file:
        temporary.sweep_folders()
        temporary.sweep_files(place)
        assert sorted(place.iterdir()) == sorted([folder, file])


def test_what_only_looks_alike_stays(place):
    (place / ".model.onnx.1-0.tmp").write_text("another program's")
    (place / "onnxrewrite-notes").mkdir()
    (place / ".model.onnx.1-0.onnxrewrite-tmp").symlink_to(place / ".model.onnx.1-0.tmp")
    before = sorted(p.name for p in place.iterdir())
    temporary.sweep_folders()
    temporary.sweep_files(place)
    assert sorted(p.name for p in place.iterdir()) == before


def test_a_second_name_is_kept_until_the_end(place):
    target = place / "model.onnx"
    target.write_text("old")
    with temporary.second_name(target) as name:
        target.unlink()
        target.write_text("new")
        temporary.sweep_files(place)
        assert name.read_text() == "old"
    assert [p.name for p in place.iterdir()] == ["model.onnx"]


def test_a_folder_that_lasts_as_long_as_an_object(place):
    """As a session keeps the folder that its weights lie in."""
    import contextlib

    keep = contextlib.ExitStack()
    folder = keep.enter_context(temporary.folder())
    assert folder.is_dir()
    del keep
    assert not folder.exists()


def test_a_folder_that_a_sweep_removes_before_it_is_locked_is_made_again(place, monkeypatch):
    make, made = tempfile.mkdtemp, []

    def swept(**how):
        made.append(make(**how))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    with temporary.folder() as folder:
        assert list(place.iterdir()) == [folder]
    assert len(made) == 2


def test_nobody_gets_a_lock_while_what_it_guards_is_removed(place, monkeypatch):
    killed(place, "with temporary.folder():")
    remove = temporary.shutil.rmtree

    def watched(found, **how):
        descriptor = os.open(found / "lock", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            temporary.fcntl.flock(descriptor, temporary.fcntl.LOCK_EX | temporary.fcntl.LOCK_NB)
        os.close(descriptor)
        remove(found, **how)

    monkeypatch.setattr(temporary.shutil, "rmtree", watched)
    temporary.sweep_folders()
    assert not list(place.iterdir())


def test_many_processes_that_make_folders_and_sweep_do_not_disturb_each_other(place):
    work = textwrap.dedent(f"""
        import tempfile
        from onnxrewrite.system import temporary
        tempfile.tempdir = {str(place)!r}
        for _ in range(400):
            with temporary.folder() as folder:
                (folder / "x").write_text("x")
                assert (folder / "lock").exists()
    """)
    running = [subprocess.Popen([sys.executable, "-c", work], stderr=subprocess.PIPE) for _ in range(4)]
    assert [(each.communicate()[1], each.returncode) for each in running] == [(b"", 0)] * 4
    assert not list(place.iterdir())
