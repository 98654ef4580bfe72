"""Which models a sweep finds, and where their outputs go."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.sweeping.find import find
from onnxrewrite.suite.sweeping.journal import Record, Row


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes empty files: finding reads none."""
    monkeypatch.chdir(tmp_path)
    for name in ("zoo/b.onnx", "zoo/a/m.onnx", "zoo/c/m.onnx", "zoo/notes.txt", "zoo/.hidden/x.onnx", "zoo/.y.onnx"):
        make(Path(name))
    return tmp_path


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def places(*given: str | Path, out: str = "out") -> dict[str, str]:
    return {str(f.path): f.place.as_posix() for f in find(given, Path(out))[0]}


def test_a_folder_is_mirrored(tree: Path) -> None:
    assert places("zoo") == {"zoo/b.onnx": "b.onnx", "zoo/a/m.onnx": "a/m.onnx", "zoo/c/m.onnx": "c/m.onnx"}


def test_a_pattern_is_mirrored_from_its_first_star(tree: Path) -> None:
    assert places("zoo/*/m.onnx") == {"zoo/a/m.onnx": "a/m.onnx", "zoo/c/m.onnx": "c/m.onnx"}
    assert places("zoo/**/m.onnx") == places("zoo/*/m.onnx")
    assert places("z*") == {f"zoo/{p}": f"zoo/{p}" for p in ("b.onnx", "a/m.onnx", "c/m.onnx")}


def test_a_name_that_exists_is_no_pattern(tree: Path) -> None:
    make(Path("x[1].onnx"))
    assert places("x[1].onnx") == {"x[1].onnx": "x[1].onnx"}


def test_files_of_one_name_get_their_folders(tree: Path) -> None:
    assert places("zoo/a/m.onnx", "zoo/c/m.onnx", "zoo/b.onnx") == {
        "zoo/a/m.onnx": "a/m.onnx",
        "zoo/c/m.onnx": "c/m.onnx",
        "zoo/b.onnx": "b.onnx",
    }
    make(Path("two/a/m.onnx"))
    assert set(places("zoo", "two").values()) == {"b.onnx", "zoo/a/m.onnx", "two/a/m.onnx", "c/m.onnx"}


def test_names_that_differ_in_case_only_are_told_apart(tree: Path) -> None:
    make(Path("zoo/a/M.onnx"))
    if len(list(Path("zoo/a").iterdir())) < 2:
        pytest.skip("this file system takes them for one")
    found = [f.place.as_posix().casefold() for f in find(["zoo/a"], Path("out"))[0]]
    assert len(set(found)) == 2


def test_a_stem_is_unique_where_it_names_a_folder(tree: Path) -> None:
    make(Path("zoo/a/m.ONNX"))
    found, _ = find(["zoo/a"], Path("out"), lambda p: p.with_suffix("") / "model.onnx")
    assert len({f.place for f in found}) == 2


def test_the_same_file_is_taken_once(tree: Path) -> None:
    os.symlink("b.onnx", "zoo/link.onnx")
    found, left_out = find(["zoo/b.onnx", "zoo", Path("zoo/a/../b.onnx")], Path("out"))
    assert len(found) == 3
    assert [str(each.path) for each in left_out] == ["zoo/b.onnx", "zoo/link.onnx", "zoo/a/../b.onnx"]
    assert {each.reason for each in left_out} == {"the same file as zoo/b.onnx"}


def test_loops_of_links_end(tree: Path) -> None:
    os.symlink("..", "zoo/a/loop")
    os.symlink(".", "zoo/again")
    os.symlink("self.onnx", "zoo/self.onnx")
    assert set(places("zoo")) == {"zoo/b.onnx", "zoo/self.onnx", "zoo/a/m.onnx", "zoo/c/m.onnx"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["empty"], "no model in empty"),
        (["zoo/*.tflite"], r"nothing matches zoo/\*\.tflite"),
        (["nowhere"], "nowhere: no such file or folder"),
        ([], "no model in nothing"),
    ],
)
def test_nothing_to_do_is_told(tree: Path, given: list[str], told: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(UsageError, match=told):
        find(given, Path("out"))


def test_an_unreadable_folder_is_told(tree: Path) -> None:
    os.chmod("zoo/a", 0)
    try:
        if os.access("zoo/a", os.R_OK):
            pytest.skip("this user may read everything")
        found, left_out = find(["zoo"], Path("out"))
    finally:
        os.chmod("zoo/a", 0o700)
    assert len(found) == 2
    assert [(each.path, each.reason) for each in left_out] == [(Path("zoo/a"), "Permission denied")]


def test_outputs_are_no_inputs(tree: Path) -> None:
    """Of the same sweep, where the output folder lies among the inputs, and of an earlier one."""
    for out in ("zoo/now", "zoo/before"):
        make(Path(out, "b.onnx"))
    make(Path("zoo/before/mine.onnx"))
    Record(Path("zoo/before")).begin([Row("zoo/b.onnx", "b.onnx")])
    found, left_out = find(["zoo"], Path("zoo/now"))
    assert {f.place.as_posix() for f in found} == {"b.onnx", "a/m.onnx", "c/m.onnx", "before/mine.onnx"}
    assert [(str(e.path), e.reason) for e in left_out] == [("zoo/before/b.onnx", "an earlier sweep wrote it")]
    with pytest.raises(UsageError, match="an earlier sweep wrote it"):
        find(["zoo/before/b.onnx"], Path("out"))


@pytest.mark.parametrize("out", ["zoo", ".", "zoo/a"])
def test_inputs_in_the_output_folder_are_refused(tree: Path, out: str) -> None:
    with pytest.raises(UsageError, match="lies there and is to be read"):
        find(["zoo/a"], Path(out))


def test_a_link_back_to_the_inputs_is_refused(tree: Path) -> None:
    Path("out").mkdir()
    os.symlink("../zoo/a", "out/a")
    with pytest.raises(UsageError, match=r"a/m\.onnx there is the input zoo/a/m\.onnx"):
        find(["zoo"], Path("out"))


def test_what_is_no_file_is_passed_over(tree: Path) -> None:
    os.mkfifo("zoo/pipe.onnx")
    Path("zoo/folder.onnx").mkdir()
    make(Path("zoo/folder.onnx/in.onnx"))
    found = {f.place for f in find(["zoo"], Path("out"))[0]}
    assert PurePath("pipe.onnx") not in found
    assert PurePath("folder.onnx/in.onnx") in found
