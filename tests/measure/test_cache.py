"""What was measured is remembered; what cannot be is measured again."""

from __future__ import annotations

from pathlib import Path

from onnxrewrite.measure.cache import Cache, key
from onnxrewrite.measure.sessions import Setting


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    Cache(tmp_path).put("a", {"ratio": 0.5})
    Cache(tmp_path).put("a", {"ratio": 0.7})
    assert Cache(tmp_path).get("a") == {"ratio": 0.7}
    assert Cache(tmp_path).get("b") is None


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    found = Cache(tmp_path)
    found.path.write_bytes(b"this is no database" * 100)
    found.put("a", {"ratio": 0.5})
    assert found.get("a") is None


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = Cache(tmp_path / "file")
    found.put("a", {"ratio": 0.5})
    assert found.get("a") is None


def test_a_figure_depends_on_how_it_was_run() -> None:
    settings = [Setting(), Setting(threads=1), Setting(level="basic"), Setting("CUDAExecutionProvider")]
    assert len({key("x", s) for s in settings} | {key("y", Setting())}) == 5
    assert key("x", Setting()) == key("x", Setting())
