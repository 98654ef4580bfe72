from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from corpus import SHARED_MODELS

from onnxrewrite.checks.model import Baseline, compare_models
from onnxrewrite.errors import UsageError
from onnxrewrite.reference.judgement import ROUNDED
from onnxrewrite.runtime.session import open_session

SHARED = SHARED_MODELS
SOME = [
    "hf_ts/bert__ts17_sdpa_dyn",
    "plain/nhwc_tf_like__ts17",
    "plain/qdq_bert",
    "plain/unet_groupnorm__ts17",
    "hf_ts/llama_past__ts17_eager_dyn",
]
BASE = (
    "g (float[batch, seq, 8] x) => (float[batch, seq, 8] y, int64[batch, seq] i)"
    " <float[8, 8] w = {%s}, float c = {%s}>"
    "{ m = MatMul(x, w) s = Mul(m, c) y = Tanh(s) i = ArgMax<axis=-1, keepdims=0>(y) }"
)
WEIGHT = ",".join(str(v) for v in np.random.default_rng(0).standard_normal(64).round(3))


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (["b=1: bad_alloc", "b=2: bad_alloc"], "the original cannot be run: memory does not suffice"),
        (["b=1: GRU operator does not support double yet", "b=2: bad_alloc"], ""),
    ],
)
def test_memory_is_the_reason_where_nothing_else_is(
    failed: list[str], told: str, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many sizes that are tried some are large: that those fail is not why the others do."""
    monkeypatch.setattr("onnxrewrite.checks.model.usable", lambda *_: ([], failed))
    baseline = Baseline(model(BASE % (WEIGHT, "0.5")))
    assert baseline.trials == []
    assert baseline.hindrance == told


def test_equal_models(model: Any) -> None:
    a = model(BASE % (WEIGHT, "0.5"))
    found = compare_models(a, a)
    assert found.ok
    assert found.identical
    assert found.reference == "not needed"
    assert (found.runs, found.samples) == (6, 3)
    assert [b["batch"] for b in found.bindings] == [2, 1]
    json.dumps(found.to_json())


def test_a_model_is_compared_on_a_device_too(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has no kernel for a Tanh whose operand is a product."""
    a, folded = (
        model(BASE % (WEIGHT, "1.0")),
        model(BASE.replace("s = Mul(m, c) y = Tanh(s)", "y = Tanh(m) s = Mul(m, c)") % (WEIGHT, "1.0")),
    )

    def opened(given: Any, *, provider: str = "", **settings: Any) -> Any:
        is_refused = provider == "DeviceExecutionProvider" and given is folded
        return "no kernel of Tanh" if is_refused else open_session(given, **settings)

    monkeypatch.setattr("onnxrewrite.checks.model.open_session", opened)
    baseline = Baseline(a).too_on("DeviceExecutionProvider")
    assert baseline.check(a).ok
    assert Baseline(a).check(folded).ok
    assert baseline.check(folded).failures == [
        "on DeviceExecutionProvider: the rewritten model does not open: no kernel of Tanh"
    ]


def test_what_the_original_does_not_run_on_is_told(model: Any) -> None:
    a = model(BASE % (WEIGHT, "0.5"))
    found = Baseline(a).too_on("DeviceExecutionProvider").check(a)
    assert found.ok
    assert any(note.startswith("not compared on DeviceExecutionProvider: ") for note in found.notes)


def test_what_is_compared_in_segments_is_not_compared_on_a_device(model: Any) -> None:
    baseline = Baseline(model(BASE % (WEIGHT, "0.5")))
    baseline.in_segments = True
    assert baseline.too_on("DeviceExecutionProvider").on_device is None
    assert "not compared on DeviceExecutionProvider: the model is compared in segments" in baseline.notes


def test_folded_constant_is_accepted_and_a_wrong_one_is_not(model: Any) -> None:
    a = model(BASE % (WEIGHT, "0.3"))
    folded = ",".join(repr(float(np.float32(v) * np.float32(0.3))) for v in map(float, WEIGHT.split(",")))
    baseline = Baseline(a)
    good, bad = baseline.check(model(BASE % (folded, "1.0"))), baseline.check(model(BASE % (folded, "1.01")))
    assert good.ok, good.failures
    assert good.reference == "not needed", "no reference could make a difference of so few roundings wrong"
    assert bad.reference == "float64"
    assert "original's error" in bad.tolerance
    assert {o.name for o in good.outputs} == {"y", "i"}
    assert not bad.ok
    assert "output y" in bad.failures[0]
    assert "allowed" in bad.failures[0]


def test_the_interface_must_stay(model: Any) -> None:
    a = model("g (float[n] x, float[n] unused) => (float[n] y) { y = Neg(x) }")
    for text in (
        "g (float[n] x) => (float[n] y) { y = Neg(x) }",
        "g (float[n] x, float[n] unused) => (float[n] z) { z = Neg(x) }",
        "g (float[n] unused, float[n] x) => (float[n] y) { y = Neg(x) }",
        "g (float[n] x, float[n] unused) => (double[n] y) { z = Neg(x) y = Cast<to=11>(z) }",
    ):
        assert not compare_models(a, model(text)).ok


def test_overridden_initializers_are_compared(model: Any) -> None:
    a = model("g (float[n, 2] x, float[2] w) => (float[n, 2] y) <float[2] w = {2.0, 3.0}> { y = Mul(x, w) }")
    frozen = model(
        "g (float[n, 2] x, float[2] w) => (float[n, 2] y)"
        " <float[2] w = {2.0, 3.0}, float[2] k = {2.0, 3.0}> { y = Mul(x, k) }"
    )
    assert compare_models(a, a).runs == 8
    found = compare_models(a, frozen)
    assert not found.ok
    assert "overridden" in found.failures[0]


def test_random_models_are_only_checked_for_structure(model: Any) -> None:
    a = model("g (float[n] x) => (float[n] y) { r = RandomNormalLike(x) y = Add(x, r) }")
    found = compare_models(a, a)
    assert found.ok
    assert found.skipped is not None
    assert "random" in found.skipped
    wrong = model("g (float[n] x) => (float[m] y) { r = RandomNormalLike(x) y = Concat<axis=0>(x, r) }")
    assert not compare_models(a, wrong).ok


def test_what_cannot_run_is_skipped_with_a_reason(model: Any) -> None:
    a = model("g (float[n, m] x) => (float[n, m] y) <int64[1] k = {999983}> { r = Reshape(x, k) y = Reshape(r, k) }")
    found = compare_models(a, a)
    assert found.skipped is not None
    assert "--input" in found.skipped
    assert any("Reshape" in note for note in found.notes)
    sequence = model("g (seq(float[n]) x) => (float[n] y) <int64 z = {0}> { y = SequenceAt(x, z) }")
    found = compare_models(sequence, sequence)
    assert found.skipped is not None
    assert any("--input" in note for note in found.notes)


def test_user_inputs_and_dims(model: Any) -> None:
    a = model(BASE % (WEIGHT, "0.5"))
    given = Baseline(a, inputs={"x": np.ones((3, 5, 8), np.float32)}).check(a)
    assert given.bindings == [{"batch": 3, "seq": 5}]
    sized = Baseline(a, dims={"batch": 4}).check(a)
    assert {b["batch"] for b in sized.bindings} == {4}
    assert len({b["seq"] for b in sized.bindings}) == 2
    with pytest.raises(UsageError, match="--dim nothing"):
        Baseline(a, dims={"nothing": 1})


def test_a_candidate_that_does_not_run(model: Any) -> None:
    a = model("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    assert "does not open" in compare_models(a, model("g (float[n] x) => (float[n] y) { y = NoSuch(x) }")).failures[0]
    stuck = model("g (float[n] x) => (float[n] y) <int64[1] k = {13}> { r = Reshape(x, k) y = Neg(r) }")
    assert "fails" in compare_models(a, stuck).failures[0]


def test_discontinuous_outputs_do_not_loosen_the_tolerance(model: Any) -> None:
    text = "g (float[b, 64] x) => (float[b, 64] y) <float k = {%s}> { h = Mul(x, k) y = Floor(h) }"
    assert not compare_models(model(text % "3000.0"), model(text % "3000.1")).ok


def test_order_of_checks_does_not_matter(model: Any) -> None:
    a, b = model(BASE % (WEIGHT, "0.3")), model(BASE % (WEIGHT, "0.31"))
    one, two = Baseline(a), Baseline(a)
    assert two.check(a).ok
    assert one.check(b).failures == two.check(b).failures


def test_by_path_with_external_data(model: Any, tmp_path: Path) -> None:
    a = model(BASE % (WEIGHT, "0.5"))
    path = tmp_path / "m.onnx"
    onnx.save(a, path, save_as_external_data=True, location="w.data", size_threshold=0)
    found = compare_models(path, onnx.load(path))
    assert found.ok, found.failures


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not here")
@pytest.mark.parametrize("name", SOME)
def test_orts_own_optimizer_is_accepted(name: str, tmp_path: Path) -> None:
    path = SHARED / f"{name}.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = compare_models(path, tmp_path / "o.onnx")
    assert found.ok, found.failures
    assert found.skipped is None


def quantized_sum(scale: str) -> onnx.ModelProto:
    """Two bytes that are added and rounded: half of the numbers lie on a half."""
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (uint8[8,16] p, uint8[16] q) => (uint8[8,16] y)'
        f"<float s = {{0.5}}, float t = {{{scale}}}, uint8 z = {{7}}>"
        "{ a = DequantizeLinear(p, s) b = DequantizeLinear(q, s) c = Add(a, b) y = QuantizeLinear(c, t, z) }"
    )


def kernel_sum(scale: str, zero: int = 7) -> onnx.ModelProto:
    """The same by a kernel on integers."""
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (uint8[8,16] p, uint8[16] q) => (uint8[8,16] y)'
        f"<float s = {{0.5}}, uint8 n = {{0}}, float t = {{{scale}}}, uint8 z = {{{zero}}}>"
        "{ y = com.microsoft.QLinearAdd(p, s, n, q, s, n, t, z) }"
    )


def test_integers_are_judged_by_what_was_rounded() -> None:
    check = compare_models(quantized_sum("1.003"), kernel_sum("1.003"))
    assert check.ok
    tied = compare_models(quantized_sum("1.0"), kernel_sum("1.0"))
    assert tied.ok
    assert {o.reference for o in tied.outputs} <= {ROUNDED, "not needed"}


def test_integers_of_another_number_are_refused() -> None:
    check = compare_models(quantized_sum("1.0"), kernel_sum("1.0", zero=8))
    assert not check.ok
    assert "is to be rounded" in check.failures[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(int32[n] x) => (int32[n] y) { a = Abs(x)  y = Relu(a) }", "(int32[n] x) => (int32[n] y) { y = Abs(x) }"),
        (
            "(int16[n] x) => (int16[n] y) <float t = {0.01}, int16 z = {0}> "
            "{ s = Cast<to=10>(t)  d = DequantizeLinear(x, s)  y = QuantizeLinear(d, s, z) }",
            "(int16[n] x) => (int16[n] y) { y = Identity(x) }",
        ),
        (
            "(int64[n] x) => (int64[n] y) { a = Cast<to=1>(x)  y = Cast<to=7>(a) }",
            "(int64[n] x) => (int64[n] y) { y = Identity(x) }",
        ),
        (
            "(int64[n] x) => (int64[n] y) { a = Cast<to=6>(x)  y = Cast<to=7>(a) }",
            "(int64[n] x) => (int64[n] y) { y = Identity(x) }",
        ),
        (
            "(int64[n] x, int64[n] z) => (bool[n] y) { d = Sub(x, z)  o = Sub(d, d)  y = Less(d, o) }",
            "(int64[n] x, int64[n] z) => (bool[n] y) { y = Less(x, z) }",
        ),
    ],
    ids=["no absolute value", "half a step", "above 2**24", "above 2**31", "wraps"],
)
def test_integers_reach_the_ends_of_their_range(before: str, after: str) -> None:
    """Where nothing is wrong with numbers of every day."""
    a, b = (onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}') for text in (before, after))
    found = compare_models(a, b)
    assert not found.ok
    assert "integers at the ends of their range" in found.failures[0]


def test_no_quotient_of_the_least_integer_stops_the_process() -> None:
    text = "(int64[n] x, int64[n] z) => (int64[n] y, int64[n] r) { y = Div(x, z)  r = Mod(x, z) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    assert compare_models(model, model).ok
