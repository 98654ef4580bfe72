"""``quantize``: every mode, the gate, exclusion, models that cannot be quantized."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from suite.quantization.models import GOLDEN, conv, external, lookup, mlp, operators, patches, samples, words

from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.runtime.installed import saturates
from onnxrewrite.suite.quality.data import Sample
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantizer import quantize

MODES = [
    QuantizeSettings(),
    QuantizeSettings(per_channel=False, weights="uint8", reduce_range=True),
    QuantizeSettings(mode="static"),
    QuantizeSettings(mode="static", format="qoperator"),
    QuantizeSettings(mode="static", format="qoperator", per_channel=False, activations="int8"),
    QuantizeSettings(mode="static", calibration="entropy"),
    QuantizeSettings(mode="static", calibration="percentile", percentile=99.9),
    QuantizeSettings(mode="static", moving_average=0.5),
    QuantizeSettings(mode="static", activations="int8", symmetric_activations=True),
    QuantizeSettings(mode="static", activations="int16", symmetric_activations=True),
    QuantizeSettings(mode="static", activations="uint16"),
    QuantizeSettings(mode="static", weights="uint8", symmetric_weights=False),
    QuantizeSettings(mode="static", weights="int4"),
    QuantizeSettings(mode="weights"),
    QuantizeSettings(mode="weights", weights="int4", block_size=16),
    QuantizeSettings(mode="weights", weights="uint4", symmetric_weights=False, block_size=16),
    QuantizeSettings(mode="weights", weights="int4", algorithm="k-quant", block_size=16),
    QuantizeSettings(mode="weights", weights="int4", algorithm="gptq", block_size=16),
]


@pytest.mark.parametrize("settings", MODES, ids=lambda s: s.name)
def test_every_mode_quantizes_and_comes_close(settings: QuantizeSettings) -> None:
    model = mlp()
    found = quantize(model, settings, data=samples(model), gate=Gate(max_drop=0.05))
    assert set(found.nodes) - {"relu"} == {"first", "second", "last"}
    assert found.quality is not None
    assert 0.95 < found.quality.worst.cosine < 1
    assert isinstance(found.model, onnx.ModelProto)
    onnx.checker.check_model(found.model, full_check=False)
    assert not any(
        t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1 and min(t.dims) > 8
        for t in found.model.graph.initializer
    )


@pytest.mark.parametrize("settings", [MODES[2], MODES[3], MODES[9]], ids=lambda s: s.name)
def test_convolutions(settings: QuantizeSettings) -> None:
    model = conv()
    found = quantize(model, settings, data=samples(model))
    assert found.operators == {"Conv": 3, "Relu": 1}
    assert "BatchNormalization" not in operators(found.model)  # type: ignore[arg-type]
    assert not found.floats.get("BatchNormalization")


def test_dynamic_leaves_chains_of_convolutions_alone() -> None:
    with pytest.raises(
        UsageError, match="nothing to quantize: Conv norm: a chain of convolutions is slower with weights"
    ):
        quantize(conv(), data=samples(conv()))


def test_dynamic_stores_the_weights_of_a_lone_convolution() -> None:
    """ConvInteger would be slow; the weights take a quarter, with a scale for each channel."""
    model = patches()
    given = samples(model)
    found = quantize(model, QuantizeSettings(reduce_range=saturates()), data=given, lower="fused")
    assert isinstance(found.model, onnx.ModelProto)
    assert found.operators["Conv"] == 1
    graph = found.model.graph
    assert {"Conv", "DequantizeLinear"} <= {n.op_type for n in graph.node}
    assert "ConvInteger" not in {n.op_type for n in graph.node}
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in graph.initializer}
    (stored,) = [w for w in weights.values() if w.dtype == np.int8 and w.ndim == 4]
    original = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert stored.shape == original.shape
    assert np.abs(stored).max(axis=(1, 2, 3)).tolist() == [127] * len(stored)
    assert found.quality is not None
    assert found.quality.worst.cosine > 0.999
    kept = quantize(model, QuantizeSettings(exclude=("op:Conv",)), data=given, lower="fused")
    assert "Conv" not in kept.operators


def test_every_row_of_a_table_has_a_scale_of_its_own() -> None:
    data = [{"i": np.random.default_rng(n).integers(0, 50, (2, 7))} for n in range(4)]
    found = quantize(words(), data=data, lower="fused")
    assert isinstance(found.model, onnx.ModelProto)
    assert "GatherBlockQuantized" in operators(found.model)
    (rows,) = [w for w in found.model.graph.initializer if w.name == "t/rows"]
    assert list(rows.dims) == [50, 1]
    with pytest.raises(CheckError, match=r"the cosine similarity of y is 0\.[0-8]"):
        quantize(words(), QuantizeSettings(per_channel=False), data=data, lower="fused")


def test_what_is_left_and_why() -> None:
    found = quantize(mlp(), data=samples(mlp()))
    assert [(left.name, left.reason) for left in found.left] == [("scores", "its second operand is no constant")]
    found = quantize(mlp(), QuantizeSettings(exclude=("sec*",)), data=samples(mlp()))
    assert set(found.nodes) == {"first", "last"}
    assert ("second", "excluded") in [(left.name, left.reason) for left in found.left]
    found = quantize(mlp(), QuantizeSettings(include=("second",)), data=samples(mlp()))
    assert set(found.nodes) == {"second"}
    found = quantize(mlp(), QuantizeSettings(exclude=("op:MatMul",)), data=samples(mlp()))
    assert found.nodes == {"first": "Gemm"}


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("settings", MODES, ids=lambda s: s.name)
def test_what_is_told_to_be_quantized_is(settings: QuantizeSettings, prepare: bool) -> None:
    """Every weight of a node that is named has few bits, and every other one is in float."""
    model = lookup()
    given = [{"i": np.arange(start, start + 7)} for start in (0, 20, 40)]
    found = quantize(model, settings, data=given, gate=None, prepare=prepare, lower="fused")
    assert isinstance(found.model, onnx.ModelProto)
    weights = [(node.name, name) for node in model.graph.node for name in node.input]
    before, after = elements(model), elements(found.model).values()
    floats = {node for node, name in weights if name in before and before[name] in after}
    assert floats == {left.name for left in found.left}
    assert set(found.nodes) - {"relu", "relu of both"} == {n for n, name in weights if name in before} - floats


def elements(model: onnx.ModelProto) -> dict[str, bytes]:
    """The constants in float by name, whatever their shapes."""
    return {
        t.name: np.sort(onnx.numpy_helper.to_array(t), axis=None).tobytes()
        for t in model.graph.initializer
        if t.data_type == onnx.TensorProto.FLOAT
    }


def test_what_has_no_form_in_blocks() -> None:
    given = [{"i": np.arange(7)}]
    found = quantize(lookup(), QuantizeSettings(mode="weights"), data=given, gate=None)
    assert set(found.nodes) == {"by a matrix"}
    assert {left.name: left.reason for left in found.left} == {
        "look up": "tables in blocks have 4 bits",
        "look up one": "tables in blocks have 4 bits",
        "by two": "its weights are no matrix",
        "by a vector": "its weights are no matrix",
        "turned": "it has a factor, or its first operand transposed; take static",
    }
    found = quantize(lookup(), QuantizeSettings(mode="weights", weights="int4"), data=given, gate=None)
    assert set(found.nodes) == {"look up", "by a matrix"}
    assert {left.name: left.reason for left in found.left}["look up one"] == "its table has one dimension"


def test_nodes_without_names_get_some() -> None:
    found = quantize(mlp(names=False), data=samples(mlp()))
    assert len(found.nodes) == 3
    name = next(iter(found.nodes))
    assert name
    again = quantize(mlp(names=False), QuantizeSettings(exclude=(name,)), data=samples(mlp()))
    assert name not in again.nodes
    assert len(again.nodes) == 2


@pytest.mark.parametrize(
    "settings", [QuantizeSettings(), QuantizeSettings(mode="static"), QuantizeSettings(mode="weights")]
)
def test_the_same_bytes_twice(settings: QuantizeSettings) -> None:
    first, second = (quantize(mlp(), settings, data=samples(mlp())).model for _ in range(2))
    assert isinstance(first, onnx.ModelProto)
    assert isinstance(second, onnx.ModelProto)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


@pytest.mark.slow
def test_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """onnxruntime.quantization goes through sets of names."""
    onnx.save(conv(), tmp_path / "m.onnx")
    code = (
        "import sys, hashlib, onnxrewrite as rw\n"
        "q = rw.deploy.quantize(sys.argv[1], rw.deploy.QuantizeSettings(mode='static'), samples=2, lower='fused')\n"
        "print(hashlib.sha256(q.model.SerializeToString(deterministic=True)).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "m.onnx")],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_the_gate_refuses_bad_calibration(tmp_path: Path) -> None:
    """Ranges of data that are a thousandth of the real ones clip everything."""
    model, real = mlp(), samples(mlp())

    def shrunk(sample: Sample) -> Iterator[Sample]:
        yield Sample({n: v * 1e-3 for n, v in sample.inputs.items()})

    out = tmp_path / "q.onnx"
    with pytest.raises(CheckError, match=r"not good enough, and nothing was written: .* of y "):
        quantize(model, QuantizeSettings(mode="static"), data=real, augment=shrunk, out=out)
    assert not list(tmp_path.iterdir())
    quantize(model, QuantizeSettings(mode="static"), data=real, augment=shrunk, out=out, gate=None)
    assert out.is_file()


def test_a_metric_decides() -> None:
    def metric(outputs: Any, samples: Any) -> float:
        return float(-np.mean([np.abs(o["y"]).mean() for o in outputs]))

    found = quantize(mlp(), data=samples(mlp()), metric=metric, gate=Gate(max_drop=10))
    assert found.quality is not None
    assert found.quality.metric is not None


def test_an_augmentation_that_fails_is_told() -> None:
    def broken(sample: Sample) -> Iterator[Sample]:
        raise RuntimeError("no flips today")

    with pytest.raises(UsageError, match="the augmentation fails: no flips today"):
        quantize(mlp(), QuantizeSettings(mode="static"), data=samples(mlp()), augment=broken)


def test_an_old_opset_is_raised_and_told() -> None:
    found = quantize(mlp(opset=9), QuantizeSettings(mode="static"), data=samples(mlp()))
    assert any(note.startswith("raised from opset 9 to 20") for note in found.notes)
    wide = quantize(mlp(), QuantizeSettings(mode="static", activations="int16"), data=samples(mlp()))
    assert "raised from opset 17 to 21 for 4 and 16 bits" in wide.notes


def test_a_quantized_model_is_refused() -> None:
    found = quantize(mlp(), data=samples(mlp()))
    with pytest.raises(UsageError, match=r"the model is quantized already: node .* give the float model"):
        quantize(found.model)  # type: ignore[arg-type]


def test_nothing_to_quantize() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    with pytest.raises(UsageError, match="nothing to quantize: the model has no"):
        quantize(model)
    with pytest.raises(UsageError, match="nothing to quantize: Gemm first: excluded, and 3 more"):
        quantize(mlp(), QuantizeSettings(exclude=("*",)))


def test_data_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="lacks input x"):
        quantize(mlp(), QuantizeSettings(mode="static"), data=[{"z": np.zeros((4, 16), np.float32)}])


def test_generated_data_are_told_of() -> None:
    found = quantize(mlp(), samples=2)
    assert found.quality is not None
    assert found.quality.generated
    assert any("made up (2 samples)" in note for note in found.notes)


def test_the_quantizer_is_silent_and_leaves_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = set(Path(tempfile.gettempdir()).glob("ort.quant.*"))
    quantize(mlp(), QuantizeSettings(mode="static", calibration="entropy"), data=samples(mlp()))
    out, err = capfd.readouterr()
    assert (out, err, caplog.records) == ("", "", [])
    assert set(Path(tempfile.gettempdir()).glob("ort.quant.*")) <= before


def test_its_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("two\nlines")

    monkeypatch.setattr("onnxruntime.quantization.quantize_static", fails)
    with pytest.raises(ModelError, match="fails on the model: two lines"):
        quantize(mlp(), QuantizeSettings(mode="static"), data=samples(mlp()))


@pytest.mark.parametrize(
    "settings", [QuantizeSettings(), QuantizeSettings(mode="static"), QuantizeSettings(mode="weights")]
)
def test_weights_in_another_file(tmp_path: Path, settings: QuantizeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with models of 2 GB and more, which are written by way of files."""
    path = external(mlp(), tmp_path / "m.onnx")
    before = path.read_bytes()
    small = quantize(path, settings, data=samples(mlp()))
    monkeypatch.setattr("onnxrewrite.io.external.INLINE_LIMIT", 10)
    found = quantize(path, settings, data=samples(mlp()), out=tmp_path / "q.onnx")
    assert found.model == tmp_path / "q.onnx"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data", "q.onnx", "q.onnx.data"]
    assert path.read_bytes() == before
    assert set(small.nodes) - {"relu"} == set(found.nodes) - {"relu"}
    assert found.quality is not None
    assert found.quality.worst.cosine > 0.98


@pytest.mark.parametrize("mode", ["dynamic", "static", "weights"])
def test_few_weights_outside_of_the_model(tmp_path: Path, mode: str) -> None:
    """PyTorch writes them so, however few there are."""
    folder = tmp_path / "in"
    folder.mkdir()
    settings = QuantizeSettings(mode=mode)  # type: ignore[arg-type]
    found = quantize(external(mlp(21), folder / "m.onnx"), settings, data=samples(mlp()), lower="fused")
    inside = quantize(mlp(21), settings, data=samples(mlp()), lower="fused")
    assert isinstance(found.model, onnx.ModelProto)
    assert isinstance(inside.model, onnx.ModelProto)
    assert found.model.graph == inside.model.graph


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mobilenet_hardswish", QuantizeSettings(mode="static")),
        ("vit", QuantizeSettings()),
        ("bert", QuantizeSettings()),
        ("bert", QuantizeSettings(mode="weights")),
    ],
)
@pytest.mark.slow
def test_golden_models(name: str, settings: QuantizeSettings) -> None:
    settings = replace(settings, reduce_range=saturates() and settings.mode != "weights")
    found = quantize(GOLDEN / name / "model.onnx", settings, samples=4)
    assert found.quality is not None
    assert found.quality.worst.cosine > 0.99
    assert found.after < 0.95 * found.before


@pytest.mark.parametrize(
    "calibration", ["percentile", *(pytest.param(each, marks=pytest.mark.slow) for each in ("minmax", "entropy"))]
)
def test_samples_of_different_lengths(calibration: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = GOLDEN / "bert" / "model.onnx"
    mask = np.zeros((6, 12), np.int64)
    for row, length in zip(mask, (12, 3, 7, 12, 5, 9), strict=True):
        row[:length] = 1
    np.savez(
        tmp_path / "d.npz",
        input_ids=rng.integers(1, 60, mask.shape),
        attention_mask=mask,
        token_type_ids=np.zeros_like(mask),
    )
    found = quantize(
        model, QuantizeSettings(mode="static", calibration=calibration), data=tmp_path / "d.npz", gate=None
    )
    assert found.operators["MatMul"] == 12


STATIC = QuantizeSettings(mode="static")


def test_static_quantization_is_judged_on_what_it_was_not_calibrated_on() -> None:
    model = conv()
    data = samples(model, 12)
    found = quantize(model, STATIC, data=data)
    assert found.quality is not None
    assert found.quality.data == "samples (3 of 12 samples, kept from calibration)"
    same = quantize(model, STATIC, data=data[3::4], calibration=[d for n, d in enumerate(data) if n % 4 != 3])
    assert same.quality is not None
    assert same.quality.outputs == found.quality.outputs
    dynamic = quantize(mlp(), data=samples(mlp(), 12)).quality
    assert dynamic is not None
    assert dynamic.data == "samples", "ranges are found anew in each run"


def test_ranges_that_are_often_left_are_told() -> None:
    model = conv()
    small = samples(model, scale=0.02)
    with pytest.raises(
        CheckError, match=r"9\d% of x leave the range that it was calibrated to, -0.* to 0.*, and \d more"
    ):
        quantize(model, STATIC, data=samples(model), calibration=small)
    assert not any("leave" in note for note in quantize(model, STATIC, data=samples(model, 12)).notes)


BAD: dict[str, Any] = {
    "scaled": ({"data": samples(conv(), 12, scale=0.02)}, "which is little for images"),
    "scaled up": ({"data": samples(conv(), 12, scale=50)}, "which is much for normalized images"),
    "scaled calibration": (
        {"data": samples(conv()), "calibration": samples(conv(), scale=0.02)},
        "leave the range that it was calibrated to",
    ),
    "scaled up calibration": (
        {"data": samples(conv()), "calibration": samples(conv(), scale=900)},
        "not good enough",
    ),
    "NaN": ({"data": samples(conv(), 12, scale=np.nan)}, "numbers are NaN or infinite"),
    "infinite": ({"data": samples(conv(), 12, scale=np.inf)}, "numbers are NaN or infinite"),
    "constant": ({"data": samples(conv(), 12, scale=0)}, "input x is -?0 throughout"),
    "equal": ({"data": samples(conv(), 1) * 12}, "samples are equal"),
    "one": ({"data": samples(conv(), 1)}, "judged on 1 sample only"),
    "few": ({"data": samples(conv(), 5)}, "calibrated and judged on the same data"),
    "one alike": (
        {"data": [{"x": samples(conv(), 1)[0]["x"] + np.float32(1e-4 * n)} for n in range(12)]},
        "hardly differs between samples",
    ),
    "another layout": ({"data": [{"x": np.ones((1, 12, 12, 3), np.float32)}]}, r"has shape \[1, 12, 12, 3\]"),
}


@pytest.mark.parametrize("way", BAD)
def test_bad_data_are_refused_or_doubted(way: str) -> None:
    given, said = BAD[way]
    try:
        found = quantize(conv(), STATIC, **given)
    except (UsageError, CheckError) as error:
        told = [str(error)]
    else:
        assert found.quality is not None
        told = [*found.quality.doubts, *found.notes]
    assert re.search(said, "\n".join(told))


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_the_plain_form_is_what_the_quantizer_makes_by_itself(mode: Any, tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic, quantize_static

    from onnxrewrite.suite.quantization.engine import Reader

    model, data = words(), [{"i": np.full((2, 7), n)} for n in range(9)]
    found = quantize(model, QuantizeSettings(mode=mode, plain=True), data=data, calibration=data, gate=None)
    onnx.save(model, tmp_path / "m.onnx")
    if mode == "dynamic":
        quantize_dynamic(tmp_path / "m.onnx", tmp_path / "q.onnx")
    else:
        quantize_static(tmp_path / "m.onnx", tmp_path / "q.onnx", Reader([Sample(each) for each in data]))
    assert isinstance(found.model, onnx.ModelProto)
    assert operators(found.model) == operators(onnx.load(tmp_path / "q.onnx"))
    assert found.nodes == {"words": "Gather", "product": "MatMul"}
    assert found.settings.name == f"plain {mode}"


def test_the_plain_form_has_no_settings() -> None:
    with pytest.raises(UsageError, match="plain is of mode dynamic or static, and has no other settings"):
        QuantizeSettings(plain=True, exclude=("a",))
    with pytest.raises(UsageError, match="plain is of mode dynamic or static"):
        QuantizeSettings(mode="weights", plain=True)
    only = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    )
    with pytest.raises(UsageError, match="takes nothing of the model by itself"):
        quantize(only, QuantizeSettings(plain=True))


def test_data_are_read_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxrewrite.suite.quantization.workbench.rewritten", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(UsageError, match="--data nowhere: no such file or folder"):
        quantize(mlp(), data="nowhere")
    with pytest.raises(UsageError, match="--calibration-data nowhere: no such file or folder"):
        quantize(mlp(), QuantizeSettings(mode="static"), data=samples(mlp()), calibration="nowhere")
