from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from onnxrewrite.ir.random_operators import draws, stochastic_ops
from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.reference.tolerance import measure
from onnxrewrite.runtime.session import Session, open_session


def exact(proto: Any, feeds: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    reference = build_reference(proto)
    assert reference.session is not None, reference.reason
    outputs = reference.session.run({k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in feeds.items()})
    assert not isinstance(outputs, str), outputs
    return reference.kind, outputs


def single(proto: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    session = open_session(proto)
    assert isinstance(session, Session), session
    outputs = session.run(feeds)
    assert not isinstance(outputs, str), outputs
    return outputs


UNARY = [
    "Erf", "Tanh", "Softplus", "HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Selu", "Celu", "Softsign",
    "ThresholdedRelu", "Mish", "Sigmoid", "Exp", "Sinh", "Cosh", "Tan", "Gelu", "Softmax",
    "Gelu<approximate=\"tanh\">", "com.microsoft.Gelu", "com.microsoft.FastGelu",
    "com.microsoft.QuickGelu<alpha=1.7>",
    "Elu<alpha=0.3>", "Celu<alpha=2.0>", "HardSigmoid<alpha=0.1,beta=0.4>", "LeakyRelu<alpha=0.3>",
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_activations_compute_in_double(model: Any, op: str, rng: np.random.Generator) -> None:
    name, _, attributes = op.partition("<")
    call = f"{name}<{attributes}(x)" if attributes else f"{name}(x)"
    proto = model(f"g (float[n, m] x) => (float[n, m] y) {{ y = {call} }}", opset=22, ir_version=10)
    feeds = {"x": (rng.standard_normal((5, 40)) * 3).astype(np.float32)}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert outputs["y"].dtype == np.float64
    assert measure(outputs["y"], single(proto, feeds)["y"]).worst < 3e-6
    if "com.microsoft" not in op:
        truth = ReferenceEvaluator(proto).run(None, {"x": feeds["x"]})[0]
        assert measure(outputs["y"], truth.astype(np.float32)).worst < 3e-6
    if op != "ThresholdedRelu":
        assert not np.array_equal(outputs["y"], outputs["y"].astype(np.float32)), "float32 precision only"


def test_erf_to_the_last_digits(model: Any) -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Erf(x) }")
    x = np.concatenate([np.linspace(-7, 7, 2001), [0.0, 1e-3, 40.0, -40.0, 1e30]])
    outputs = build_reference(proto).session.run({"x": x})  # type: ignore[union-attr]
    assert not isinstance(outputs, str)
    assert np.abs(outputs["y"] - [math.erf(v) for v in x]).max() < 1e-14


CONVOLUTIONS = {
    "plain": ("Conv", "<pads=[1,1,1,1]>", (2, 3, 9, 7), (4, 3, 3, 3)),
    "strided": ("Conv", "<strides=[2,3],pads=[0,1,2,1]>", (2, 3, 11, 10), (4, 3, 3, 3)),
    "dilated": ("Conv", "<dilations=[2,1],pads=[2,1,2,1]>", (1, 3, 11, 10), (4, 3, 3, 3)),
    "grouped": ("Conv", "<group=2,pads=[1,1,1,1]>", (2, 4, 6, 6), (6, 2, 3, 3)),
    "depthwise": ("Conv", "<group=4,strides=[2,2]>", (2, 4, 9, 9), (4, 1, 3, 3)),
    "depth multiplier": ("Conv", "<group=2>", (2, 2, 9, 9), (4, 1, 3, 3)),
    "one": ("Conv", "<pads=[2,1]>", (2, 3, 20), (4, 3, 5)),
    "three": ("Conv", "<pads=[0,1,0,0,1,0]>", (1, 2, 5, 6, 7), (3, 2, 2, 3, 2)),
    "same": ("Conv", '<auto_pad="SAME_UPPER">', (1, 3, 8, 9), (2, 3, 3, 2)),
    "same lower": ("Conv", '<auto_pad="SAME_LOWER",strides=[2,2]>', (1, 3, 8, 9), (2, 3, 3, 2)),
    "transposed": (
        "ConvTranspose",
        "<strides=[2,3],pads=[1,0,0,1],output_padding=[1,0]>",
        (2, 4, 5, 6),
        (4, 3, 3, 3),
    ),
    "transposed grouped": ("ConvTranspose", "<group=2,dilations=[2,1]>", (2, 4, 5, 6), (4, 3, 3, 2)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_compute_in_double(model: Any, case: str, rng: np.random.Generator) -> None:
    op, attributes, x, w = CONVOLUTIONS[case]
    channels = w[0] if op == "Conv" else w[1] * (2 if "group=2" in attributes else 1)
    sizes = ",".join("bcdefg"[: len(x)])
    shape_x = (
        ",".join(["n", *map(str, x[1:])])
        if "auto_pad" in attributes
        else ",".join(["n", str(x[1]), *"hwd"[: len(x) - 2]])
    )
    proto = model(
        f"g (float[{shape_x}] x, float[{','.join(map(str, w))}] w, float[{channels}] b)"
        f" => (float[{sizes}] y) {{ y = {op} {attributes}(x, w, b) }}"
    )
    feeds = {"x": rng.standard_normal(x), "w": rng.standard_normal(w), "b": rng.standard_normal(channels)}
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert 0 < measure(outputs["y"], single(proto, feeds)["y"]).worst < 1e-6


FUSED = [
    'com.microsoft.FusedGemm<activation="Relu", transA=1, alpha=0.5, beta=2.0>(m, m, v)',
    'com.microsoft.FusedGemm<activation="Elu", activation_alpha=0.3>(m, m)',
    'com.microsoft.FusedConv<activation="Clip", activation_params=[-5.0, 6.0], pads=[1,1,1,1]>(x, w, v, x)',
    'com.microsoft.FusedConv<activation="HardSigmoid", activation_params=[0.3, 0.4]>(x, w, v)',
    'com.microsoft.FusedConv<activation="LeakyRelu", activation_params=[0.3]>(x, w)',
    'com.microsoft.FusedConv<activation="HardSwish">(x, w)',
]


@pytest.mark.parametrize("call", FUSED)
def test_fused_linear_layers_compute_in_double(model: Any, call: str, rng: np.random.Generator) -> None:
    inputs = {"m": (3, 3), "v": (3,), "x": (2, 3, 8, 9), "w": (3, 3, 3, 3)}
    used = {name: shape for name, shape in inputs.items() if f"({name}" in call or f" {name}" in call}
    declared = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in used.items())
    sizes = "a,b" if "m" in used else "a,b,c,d"
    proto = model(f"g ({declared}) => (float[{sizes}] y) {{ y = {call} }}")
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in used.items()}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert measure(outputs["y"], single(proto, feeds)["y"]).worst < 3e-6


NORMS = [
    "com.microsoft.SkipLayerNormalization<epsilon=0.001>(x, z, g, g, g)",
    "com.microsoft.SkipLayerNormalization(x, z, g)",
    "com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.001>(x, z, g, g)",
    "com.microsoft.EmbedLayerNormalization(i, i, w, p, w, g, g, , i)",
]


@pytest.mark.parametrize("call", NORMS)
def test_fused_normalizations_compute_in_double(model: Any, call: str, rng: np.random.Generator) -> None:
    outputs = "y, n" if "Embed" in call else "y, n, m, t"
    proto = model(
        "g (float[2,3,8] x, float[3,8] z, float[8] g, int32[2,3] i, float[5,8] w, float[4,8] p) => (float[2,3,8] y)"
        f" {{ {outputs} = {call} }}"
    )
    shapes = {"x": (2, 3, 8), "z": (3, 8), "g": (8,), "w": (5, 8), "p": (4, 8)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["i"] = rng.integers(0, 4, (2, 3)).astype(np.int32)
    kind, found = exact(proto, feeds)
    assert kind == "float64"
    assert 0 < measure(found["y"], single(proto, feeds)["y"]).worst < 3e-6


POOLS = [
    "AveragePool<kernel_shape=[3,2],strides=[2,1]>(x)",
    "AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)",
    "AveragePool<kernel_shape=[3,3],pads=[1,1,0,1],count_include_pad=1>(x)",
    "GlobalAveragePool(x)",
    "GlobalMaxPool(x)",
    "MaxPool<kernel_shape=[2,2]>(x)",
    "InstanceNormalization<epsilon=0.001>(x, s, s)",
    "BatchNormalization(x, s, s, s, v)",
]


@pytest.mark.parametrize("call", POOLS)
def test_pools_and_norms_compute_in_double(model: Any, call: str, rng: np.random.Generator) -> None:
    proto = model(f"g (float[n,3,h,w] x, float[3] s, float[3] v) => (float[a,b,c,d] y) {{ y = {call} }}")
    feeds = {"x": rng.standard_normal((2, 3, 8, 9)), "s": rng.standard_normal(3), "v": np.ones(3) * 0.3}
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert measure(outputs["y"], single(proto, feeds)["y"]).worst < 1e-6


RESIZES = [
    'Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(x, , two)',
    'Resize<mode="linear",coordinate_transformation_mode="half_pixel">(x, , two)',
    'Resize<mode="linear",coordinate_transformation_mode="align_corners">(x, , , size)',
    'Resize<mode="cubic",cubic_coeff_a=-0.75>(x, , two)',
]


@pytest.mark.parametrize("call", RESIZES)
def test_resize_computes_in_double(model: Any, call: str, rng: np.random.Generator) -> None:
    proto = model(
        f"g (float[n,3,h,w] x) => (float[a,b,c,d] y)"
        f" <float[4] two = {{1,1,2,3}}, int64[4] size = {{2,3,11,13}}> {{ y = {call} }}"
    )
    feeds = {"x": rng.standard_normal((2, 3, 5, 6)).astype(np.float32)}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert measure(outputs["y"], single(proto, feeds)["y"]).worst < 1e-6


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "GRU linear"])
def test_recurrences_compute_in_double(model: Any, op: str, direction: str, rng: np.random.Generator) -> None:
    name, ways = op.split()[0], 2 if direction == "bidirectional" else 1
    rows = 4 * (4 if name == "LSTM" else 3)
    linear = ", linear_before_reset=1" if "linear" in op else ""
    states, given = ("h, c", ", h0, h0") if name == "LSTM" else ("h", ", h0")
    declared = ", ".join(f"float[d,n,4] {s}" for s in states.split(", "))
    proto = model(
        f"g (float[t,n,3] x, float[{ways},{rows},3] w, float[{ways},{rows},4] r, "
        f"float[{ways},{2 * rows}] b, float[{ways},n,4] h0)"
        f" => (float[t,d,n,4] y, {declared})"
        f' {{ y, {states} = {name}<hidden_size=4,direction="{direction}"{linear}>(x, w, r, b, {given}) }}'
    )
    shapes = {
        "x": (6, 2, 3),
        "w": (ways, rows, 3),
        "r": (ways, rows, 4),
        "b": (ways, 2 * rows),
        "h0": (ways, 2, 4),
    }
    feeds = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    for output, value in single(proto, feeds).items():
        assert outputs[output].shape == value.shape
        assert measure(outputs[output], value).worst < 2e-6


def test_attention_by_its_function_body(model: Any, rng: np.random.Generator) -> None:
    proto = model(
        "g (float[b,2,s,8] q, float[b,2,s,8] k, float[b,2,s,8] v) => (float[b,2,s,8] y)"
        " { y = Attention<is_causal=1>(q, k, v) }",
        opset=23,
        ir_version=10,
    )
    feeds = {n: rng.standard_normal((2, 2, 5, 8)).astype(np.float32) for n in "qkv"}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert measure(outputs["y"], single(proto, feeds)["y"]).worst < 1e-6


def test_bodies_constants_and_casts(model: Any, rng: np.random.Generator) -> None:
    proto = model(
        "g (float[n] x, bool c) => (float[n] y) { half = Constant<value_float = 0.1>() "
        "z = If(c)<then_branch = t () => (float[n] p) { p = Erf(x) },"
        " else_branch = e () => (float[n] q) { q = Neg(x) }> "
        "h = Cast<to=11>(z) f = Cast<to=1>(h) y = Mul(f, half) }"
    )
    x = rng.standard_normal(6).astype(np.float32)
    kind, outputs = exact(proto, {"x": x, "c": np.array(True)})
    assert kind == "float64"
    assert outputs["y"] == pytest.approx(
        [float(np.float32(math.erf(v))) * float(np.float32(0.1)) for v in x.astype(np.float64)], rel=1e-14
    )


ROUNDED = [
    # x, nodes, y, what x is rounded to, whether a number may become either neighbour
    ("float", "h = Cast<to=10>(x) y = Cast<to=1>(h)", "float", np.float16, True),
    ("float", "l = Constant<value = float16 {1}>() h = CastLike(x, l) y = Cast<to=1>(h)", "float", np.float16, True),
    ("float", "h = Cast<to=16>(x) y = Cast<to=1>(h)", "float", ml_dtypes.bfloat16, True),
    ("double", "h = Cast<to=1>(x) y = Cast<to=11>(h)", "double", np.float32, True),
    ("float", "h = Cast<to=11>(x) y = Cast<to=1>(h)", "float", np.float32, True),
    ("float16", "h = Cast<to=1>(x) y = Cast<to=10>(h)", "float16", np.float16, True),
    ("float16", "h = Cast<to=10>(x) y = Cast<to=1>(h)", "float", np.float16, False),
    ("int32", "y = Cast<to=10>(x)", "float16", np.float16, False),
    ("int32", "y = Cast<to=1>(x)", "float", np.float32, False),
]
NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16, "int32": np.int32}


@pytest.mark.parametrize(("given", "nodes", "made", "rounded", "stepped"), ROUNDED, ids=[r[1] for r in ROUNDED])
def test_what_the_graph_asks_to_be_rounded_is_rounded(
    model: Any, given, nodes, made, rounded, stepped, rng: np.random.Generator
) -> None:
    """An arithmetic in double that forgets a Cast to float16 calls a rewrite that drops it more accurate."""
    found = build_reference(model(f"g ({given}[n] x) => ({made}[n] y) {{ {nodes} }}", opset=19))
    x = (rng.standard_normal(64) * 10000 + 20000).astype(NUMPY[given])
    outputs = found.run({"x": x})
    assert outputs is not None
    assert found.stepped == stepped
    np.testing.assert_array_equal(outputs["y"], x.astype(rounded).astype(np.float64))


def test_quantized_models_have_no_float64_reference(model: Any) -> None:
    proto = model(
        "g (float[n] x) => (float[n] y) <float s = {0.1}> { q = QuantizeLinear(x, s) y = DequantizeLinear(q, s) }"
    )
    found = build_reference(proto)
    assert (found.kind, found.session) == ("float32", None)
    assert "QuantizeLinear" in found.reason


def test_islands_are_named(model: Any, rng: np.random.Generator) -> None:
    proto = model("g (float[n,4,h,w] x) => (float[n,4,h,w] y) { l = LRN<size=3>(x) y = Exp(l) }")
    x = rng.standard_normal((1, 4, 3, 3)).astype(np.float32)
    kind, outputs = exact(proto, {"x": x})
    assert kind == "float64 with float32 islands: LRN"
    assert outputs["y"].dtype == np.float64


def test_a_definition_that_does_not_compute_in_double_is_one_island(model: Any, rng: np.random.Generator) -> None:
    call = "MultiHeadAttention<num_heads=2>(x, x, x)"
    proto = model(f"g (float[2,3,8] x) => (float[2,3,8] y) {{ a = com.microsoft.{call} y = com.microsoft.Gelu(a) }}")
    kind, outputs = exact(proto, {"x": rng.standard_normal((2, 3, 8)).astype(np.float32)})
    assert kind == "float64 with float32 islands: MultiHeadAttention"
    assert outputs["y"].dtype == np.float64


def test_old_opsets_are_raised(model: Any, rng: np.random.Generator) -> None:
    proto = model(
        "g (float[n,3,h,w] x) => (float[n,3,h,w] y)"
        " <float[3,3,1,1] w = {1,2,3,4,5,6,7,8,9}> { c = Conv(x, w) y = Softmax(c) }",
        opset=9, ir_version=4,
    )  # fmt: skip
    feeds = {"x": rng.standard_normal((2, 3, 4, 5)).astype(np.float32)}
    kind, outputs = exact(proto, feeds)
    assert kind == "float64"
    assert measure(outputs["y"], single(proto, feeds)["y"]).worst < 1e-6


def test_random_operators_are_found(model: Any) -> None:
    assert stochastic_ops(model("g (float[n] x) => (float[n] y) { y = RandomNormalLike(x) }")) == ["RandomNormalLike"]
    assert not stochastic_ops(model("g (float[n] x) => (float[n] y) { y = Dropout(x) }"))
    train = model("g (float[n] x) => (float[n] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }")
    assert stochastic_ops(train) == ["Dropout"]


def test_random_numbers_are_counted_where_something_reads_them(model: Any) -> None:
    twice = "g (float[n] x) => (float[n] y) { a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b) }"
    assert draws(model(twice)) == {"RandomNormalLike": 2}
    assert draws(model("g (float[n] x) => (int64[1] y) { a = RandomNormalLike(x) y = Shape(a) }")) == {}
    branch = (
        "g (float[n] x, bool c) => (y) { y = If (c) <then_branch = t () => (a) { a = RandomNormalLike(x) },"
        " else_branch = e () => (b) { b = Identity(x) }> }"
    )
    assert draws(model(branch)) is None
