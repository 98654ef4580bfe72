"""``tune``: from one machine's database to another, and to a run that measures nothing."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite.cli import main
from onnxrewrite.deploy import Apply, sweep
from onnxrewrite.measure.database import store

GELU = """<ir_version: 8, opset_import: ["": 20]> gelu (float[batch, 64] x) => (float[batch, 64] y) {
  root = Constant <value_float = 1.4142135> () one = Constant <value_float = 1.0> ()
  half = Constant <value_float = 0.5> ()
  d = Div(x, root)  e = Erf(d)  a = Add(e, one)  m = Mul(x, a)  y = Mul(m, half)
}"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, and a machine of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    store._left_alone.clear()
    onnx.save(parser.parse_model(GELU), "gelu.onnx")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(arguments) == status
    found = capsys.readouterr()
    return found.err if status else found.out


def exported(capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "apply", "gelu.onnx", "-o", "first.onnx", "--lower", "fastest", "--threads", "1")
    assert told(capsys, "tune", "key", "k") == "Wrote k, which nobody else may see, and k.pub\n"
    assert "Wrote m.jsonl" in told(capsys, "tune", "export", "m.jsonl", "--key", "k")


FILE = ("--measurements", "m.jsonl", "--signed-by", "k.pub")


@pytest.mark.slow
def test_measurements_travel(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    exported(capsys)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "there"))
    count = len(Path("m.jsonl").read_text().splitlines())
    assert count >= 2
    assert f"{count} of them new" in told(capsys, "tune", "import", "m.jsonl", "--signed-by", "k.pub")
    told(capsys, "tune", "list", "--json", "list.json")
    assert sum(each["rows"] for each in json.loads(Path("list.json").read_text())["groups"]) == count
    assert f"{count} measurements, 0 of" in told(
        capsys, "tune", "merge", "m.jsonl", "-o", "m.jsonl", "--signed-by", "k.pub"
    )
    assert f"Forgot {count} measurements" in told(capsys, "tune", "forget", "--all")
    assert "say what is forgotten" in told(capsys, "tune", "forget", status=2)


@pytest.mark.slow
def test_with_a_file_nothing_is_measured_and_bytes_are_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(capsys)
    monkeypatch.setattr("onnxrewrite.measure.region_timing.interleave", None)
    monkeypatch.setattr("onnxrewrite.measure.ab_timing.interleave", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "there"))
    for name in ("second.onnx", "third.onnx"):
        told(capsys, "apply", "gelu.onnx", "-o", name, "--lower", "fastest", "--threads", "1", *FILE)
    first, second, third = (Path(f"{name}.onnx").read_bytes() for name in ("first", "second", "third"))
    assert first == second == third
    monkeypatch.setenv("ONNXREWRITE_MEASUREMENTS", "m.jsonl")
    monkeypatch.setenv("ONNXREWRITE_SIGNED_BY", "k.pub")
    done = rw.apply("gelu.onnx", lower="fastest", threads=1)
    assert done.speed.ratio is not None
    assert all(each.remembered for each in done.speed.weighed)
    other = rw.apply("gelu.onnx", lower="fastest", threads=2)
    assert other.speed.weighed == []
    assert other.speed.ratio is None, "it is not in the file"


def test_a_file_without_a_key_or_of_nothing_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.jsonl").write_text("{}\n")
    told(capsys, "tune", "key", "k")
    for option, why in (
        ((), "--signed-by KEY.pub"),
        (("--signed-by", "k.pub"), "no row that can be used: 1 no envelope"),
    ):
        line = told(capsys, "apply", "gelu.onnx", "--lower", "fastest", "--measurements", "m.jsonl", *option, status=2)
        assert why in line


@pytest.mark.slow
def test_a_sweep_with_a_file_measures_nothing_and_may_do_several_at_a_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(capsys)
    work = Apply(lower="fastest", threads=1, measurements="m.jsonl", signed_by=("k.pub",))
    assert not work.measures
    done = sweep("gelu.onnx", work, "out", jobs=2)
    assert done.ok
    assert Path("out/gelu.onnx").read_bytes() == Path("first.onnx").read_bytes()
    before = work.state()
    Path("m.jsonl").write_text("")
    assert work.state() != before
    line = told(capsys, "sweep", "gelu.onnx", "-o", "o", "--command", "optimize", *FILE, status=2)
    assert "--measurements: is an option of apply" in line
