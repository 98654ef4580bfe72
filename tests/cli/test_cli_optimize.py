"""``onnxrewrite optimize``: options, exit status, what is printed and written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from suite.deploy.models import chain, saved, slow

from onnxrewrite.cli import main

QUICK = ["--seconds", "0.1", "--no-memory", "--samples", "2", "--threads", "1", "--stages", "rewrite"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path, slow(chain()))


def test_it_writes_a_folder_and_tells(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), *QUICK, "--target-speedup", "1000"]) == 0
    shown = capsys.readouterr()
    out = tmp_path / "model.deploy"
    assert {f.name for f in out.iterdir()} >= {"model.onnx", "report.json", "run.py"}
    assert "original" in shown.out
    assert "rewrite" in shown.out
    assert "Target  1000 times as fast: missed" in shown.out
    assert "the data are made up" in shown.out
    assert "Traceback" not in shown.err


@pytest.mark.slow
def test_the_report_for_machines(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*QUICK, "--stages", "rewrite,session", "-o", str(tmp_path / "out"), "--json", "-"]
    assert main(["optimize", str(model), *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["stage"] for s in found["steps"]] == ["rewrite", "session"]
    assert found["data"]["generated"] is True
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == found


def test_options_overrule_the_configuration(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((5, 1, 64), np.float32))
    (tmp_path / "p.toml").write_text(
        'stages = ["rewrite"]\nsamples = 1\nmemory = false\nseconds = 0.1\ndata = "d.npz"\n[rewrite]\nlower = "fused"'
    )
    given = ["--config", str(tmp_path / "p.toml"), "--samples", "4", "-o", str(tmp_path / "out"), "--json", "-"]
    assert main(["optimize", str(model), *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"] == {"generated": False, "samples": 4, "source": str(tmp_path / "d.npz")}
    assert [s["stage"] for s in found["steps"]] == ["rewrite"]


def test_quiet_is_one_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), *QUICK, "-o", str(tmp_path / "out"), "-q"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'model.onnx'}\n"


def test_below_the_gate_nothing_is_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), *QUICK, "-o", str(tmp_path / "out"), "--max-drop", "-1"]) == 1
    assert "does not pass the gate and nothing was written" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_why_nothing_was_written_is_in_the_report_for_machines(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["optimize", str(model), *QUICK, "-o", str(tmp_path / "out"), "--max-drop", "-1"]
    assert main([*given, "--json", str(tmp_path / "told.json")]) == 1
    read = json.loads((tmp_path / "told.json").read_text())
    assert (read["model"], read["output"]) == (str(model), None)
    assert read["error"] in capsys.readouterr().err
    assert main([*given, "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out) == read


def test_the_report_for_machines_replaces_no_other_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    for name in (model, tmp_path / "out" / "model.onnx", tmp_path / "out" / "run.py"):
        assert main(["optimize", str(model), *QUICK, "-o", str(tmp_path / "out"), "--json", str(name)]) == 2
        assert "--json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--stages", "rewrit"], "no stage is called 'rewrit'"),
        (["--stages", "rewrite,rewrite"], "names a stage twice"),
        (["--config", "nowhere.toml"], "nowhere.toml: No such file"),
        (["--data", "nowhere.npz"], "nowhere.npz: no such file or folder"),
        (["--metric", "nowhere"], "write module:function"),
        (["--provider", "tpu"], "tpu"),
        (["--dim", "batch"], "write NAME=SIZE"),
        (["--samples", "0"], "samples"),
    ],
)
def test_mistakes_are_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], message: str
) -> None:
    assert main(["optimize", str(model), "-o", str(tmp_path / "out"), *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_text("rubbish")
    assert main(["optimize", str(tmp_path / "m.onnx")]) == 2
    assert main(["optimize", str(tmp_path / "none.onnx")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert not (tmp_path / "m.deploy").exists()


def test_a_model_that_does_not_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = chain()
    broken.graph.node[0].op_type, broken.graph.node[0].domain = "NoSuchOperator", "nobody"
    broken.opset_import.append(onnx.helper.make_opsetid("nobody", 1))
    assert main(["optimize", str(saved(tmp_path, broken)), *QUICK]) == 2
    assert "does not open in ONNX Runtime" in capsys.readouterr().err


@pytest.mark.slow
def test_a_first_look(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), "--quick", "-o", str(tmp_path / "out"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["stage"] for s in found["steps"]] == ["rewrite", "quantize"]
    assert [t["how"].split()[0] for t in found["steps"][1]["trials"]] == ["dynamic"]
    assert found["final"]["metrics"]["memory"] is None
