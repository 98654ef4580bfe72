"""``onnxrewrite quantize``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from small_models import RELU, write
from suite.quantization.models import mlp, samples

from onnxrewrite.cli import main, options
from onnxrewrite.cli.quantize import Activations, Axis, Calibration, Format, Weights
from onnxrewrite.measure.model_times import model_times
from onnxrewrite.suite.quantization import modes, quantize_settings
from onnxrewrite.suite.quantization.modes import AXES


@pytest.fixture(autouse=True)
def timed_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks for a figure of time that can be relied upon."""
    briefly = lambda openers, settings, *, seconds: model_times(openers, settings, seconds=seconds / 20)  # noqa: E731
    monkeypatch.setattr(modes, "model_times", briefly)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, sample in enumerate(samples(mlp())):
        np.savez(folder / f"{number}.npz", **sample)
    return folder


@pytest.mark.parametrize(
    ("choices", "known"),
    [
        (options.Mode, quantize_settings.Mode),
        (options.Rounding, quantize_settings.Algorithm),
        (Format, quantize_settings.Format),
        (Calibration, quantize_settings.Calibration),
        (Activations, quantize_settings.Activations),
        (Weights, quantize_settings.Weights),
    ],
)
def test_choices_are_the_librarys(choices: Any, known: Any) -> None:
    assert tuple(choices) == get_args(known)
    assert tuple(Axis) == AXES


def test_a_model_is_written_and_told_of(cli: Callable[..., Any], model: Path, data: Path) -> None:
    done = cli("quantize", model, "--data", data, "--exclude", "second")
    assert done.code == 0, done
    assert model.with_name("mlp.quant.onnx").is_file()
    for text in ("dynamic per channel", "excluded", "its second operand is no constant", "cosine", "Size", "Speed"):
        assert text in done.out
    assert "made up" not in done.out


def test_json_and_quiet(cli: Callable[..., Any], model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    done = cli("quantize", model, "-o", out, "--data", data, "--mode", "static", "--json", "-")
    assert done.code == 0, done
    found = json.loads(done.out)
    assert found["settings"]["mode"] == "static"
    assert found["output"] == str(out)
    assert found["quality"]["data"] == f"{data} (6 of 24 samples, kept from calibration)"
    assert set(found["quantized"]) >= {"first", "second", "last"}
    done = cli("quantize", model, "-o", out, "--data", data, "-q")
    assert done.out == f"{out}\n"


def test_bad_calibration_writes_nothing(refused: Callable[..., str], model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "shrink.py").write_text(
        "def shrink(sample):\n    yield {n: v / 1000 for n, v in sample.inputs.items()}\n", encoding="utf-8"
    )
    out, report = tmp_path / "q.onnx", tmp_path / "q.json"
    options = ["--mode", "static", "--data", data, "--augment", f"{tmp_path / 'shrink.py'}:shrink", "-o", out]
    said = refused("quantize", model, *options, "--json", report, code=1)
    assert "not good enough, and nothing was written" in said
    assert not out.exists()
    assert "not good enough" in json.loads(report.read_text())["error"]


def test_no_gate_writes_it_all_the_same(cli: Callable[..., Any], model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "shrink.py").write_text(
        "def shrink(sample):\n    yield {n: v / 1000 for n, v in sample.inputs.items()}\n", encoding="utf-8"
    )
    options = ["--mode", "static", "--data", data, "--augment", f"{tmp_path / 'shrink.py'}:shrink"]
    assert cli("quantize", model, *options, "--no-gate", "-o", tmp_path / "q.onnx").code == 0
    assert cli("quantize", model, *options, "--max-drop", "1", "-o", tmp_path / "r.onnx").code == 0


def test_a_metric_of_the_users_own(cli: Callable[..., Any], model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def size(outputs, samples):\n    return float(len(outputs))\n", encoding="utf-8")
    done = cli("quantize", model, "--data", data, "--metric", f"{tmp_path / 'own.py'}:size", "--samples", "3")
    assert done.code == 0, done
    assert "3; the original has 3" in done.out


@pytest.mark.slow
def test_compare_prints_one_table(cli: Callable[..., Any], model: Path, data: Path) -> None:
    done = cli("quantize", model, "--data", data, "--compare", "--json", model.with_name("c.json"))
    assert done.code == 0, done
    assert "candidate" in done.out
    assert "kept" in done.out
    found = json.loads(model.with_name("c.json").read_text())
    assert len(found["candidates"]) == 10
    assert found["name"] in [c["name"] for c in found["candidates"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere"], "--data nowhere: no such file or folder"),
        (["--metric", "nothing"], "--metric nothing: write module:function"),
        (["--augment", "no.such:thing"], "--augment no.such:thing"),
        (["--block-size", "7"], "block_size must be"),
        (["--activations", "int16"], "dynamic quantization has uint8 only"),
        (["--mode", "magic"], "'magic' is not one of"),
        (["--vary", "channels"], "--vary is for --compare"),
        (["--exclude", "*"], "nothing to quantize"),
        (["-o", "/"], "-o"),
    ],
)
def test_bad_arguments(refused: Callable[..., str], model: Path, options: list[str], message: str) -> None:
    assert message in refused("quantize", model, *options)
    assert [p.name for p in model.parent.iterdir() if p.suffix == ".onnx"] == ["mlp.onnx"]


def test_rubbish(refused: Callable[..., str], tmp_path: Path) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("hello", encoding="utf-8")
    assert "is a text file" in refused("quantize", text)
    assert "no such file" in refused("quantize", tmp_path / "none.onnx")
    assert "nothing to quantize" in refused("quantize", write(tmp_path / "relu.onnx", RELU))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["relu.onnx", "text.onnx"]


def test_data_of_another_model(refused: Callable[..., str], model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", z=np.zeros((2, 16), np.float32))
    assert "lacks input x" in refused("quantize", model, "--data", tmp_path / "other.npz", "--mode", "static")


def test_weights_of_the_model_are_not_overwritten(refused: Callable[..., str], tmp_path: Path) -> None:
    from suite.quantization.models import external

    path = external(mlp(), tmp_path / "m.onnx")
    assert "the weights of the model lie there" in refused("quantize", path, "-o", tmp_path / "m.onnx.data")


@pytest.mark.slow
def test_a_bad_calibration_is_refused(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it is calibrated on is a thousandth of what it is judged on."""
    folder = model.parent
    bad = {name: [sample[name] * np.float32(1e-3) for sample in samples(mlp())] for name in samples(mlp())[0]}
    np.savez(folder / "bad.npz", **{name: np.stack(values) for name, values in bad.items()})
    given = ["quantize", str(model), "--mode", "static", "--data", str(data), "--lower", "fused"]
    assert main([*given, "--calibration-data", str(folder / "bad.npz"), "-o", str(folder / "bad.onnx")]) == 1
    assert "not good enough, and nothing was written: the cosine similarity" in capsys.readouterr().err
    assert not (folder / "bad.onnx").exists()
    assert main([*given, "-o", str(folder / "good.onnx"), "-q"]) == 0
    assert (folder / "good.onnx").exists()
