"""What is on record survives whatever interrupts the sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxrewrite.errors import ModelError
from onnxrewrite.suite.sweeping.journal import FILE, Record, Row, outputs

DONE = Row("zoo/a.onnx", "a.onnx", "done", nodes={"before": 3, "after": 1}, key="k", files={"a.onnx": "0"})


def test_rows_come_back(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.begin([Row("zoo/a.onnx", "a.onnx"), Row("zoo/b.onnx", "b.onnx")])
    record.remember(DONE)
    again = Record(tmp_path)
    assert again["a.onnx"] == DONE
    assert again["b.onnx"] == Row("zoo/b.onnx", "b.onnx")
    assert again["c.onnx"] is None
    assert outputs(tmp_path) == {(tmp_path / name).resolve() for name in ("a.onnx", "b.onnx")}


def test_what_is_done_stays_done_and_lines_do_not_pile_up(tmp_path: Path) -> None:
    for _ in range(3):
        record = Record(tmp_path)
        record.begin([Row("zoo/a.onnx", "a.onnx")])
        record.remember(DONE)
    record.begin([Row("zoo/a.onnx", "a.onnx")])
    assert Record(tmp_path)["a.onnx"] == DONE
    assert len((tmp_path / FILE).read_text().splitlines()) == 1


@pytest.mark.parametrize("damage", ["", '{"model": "zoo/b', "\0\0\n", "[]\n", '{"model": 1, "output": "b"}\n'])
def test_a_damaged_line_is_none(tmp_path: Path, damage: str) -> None:
    record = Record(tmp_path)
    record.begin([])
    record.remember(DONE)
    with (tmp_path / FILE).open("a") as file:
        file.write(damage)
    again = Record(tmp_path)
    assert again["a.onnx"] == DONE
    again.begin([])
    assert len((tmp_path / FILE).read_text().splitlines()) == 1


def test_a_record_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(ModelError, match="cannot be written"):
        Record(tmp_path).begin([])
