"""What was measured is remembered; what cannot be is measured again."""

from __future__ import annotations

from pathlib import Path

from onnxrewrite.measure.memory import Memory, key
from onnxrewrite.measure.sessions import Setting


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    Memory(tmp_path).put("a", {"ratio": 0.5})
    Memory(tmp_path).put("a", {"ratio": 0.7})
    assert Memory(tmp_path).get("a") == {"ratio": 0.7}
    assert Memory(tmp_path).get("b") is None


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.path.write_bytes(b"this is no database" * 100)
    memory.put("a", {"ratio": 0.5})
    assert memory.get("a") is None


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = Memory(tmp_path / "file")
    memory.put("a", {"ratio": 0.5})
    assert memory.get("a") is None


def test_a_figure_depends_on_how_it_was_run() -> None:
    settings = [Setting(), Setting(threads=1), Setting(level="basic"), Setting("CUDAExecutionProvider")]
    assert len({key("x", s) for s in settings} | {key("y", Setting())}) == 5
    assert key("x", Setting()) == key("x", Setting())
