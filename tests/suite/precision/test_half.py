"""Half precision: right on graphs on which converters are wrong, islands where values do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from suite.precision.graphs import golden, mlp, parsed

from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.precision.half_precision import to_half
from onnxrewrite.suite.quality.data import load_data
from onnxrewrite.suite.quality.gate import Gate

GRAPHS = {
    "an island whose inner values are too large": (
        "g (float[2,4] x) => (float[2,4] y) { c = Constant<value_float=100000.0>()  m = Mul(x, c)  n = Neg(m)"
        "  d = Div(n, c)  y = Relu(d) }"
    ),
    "an inner graph that reads an outer value": (
        "g (float[2,4] x, bool c) => (float[2,4] y) { a = Neg(x)  z = If(c) <then_branch = t () => (float[2,4] p)"
        " { p = Relu(a) }, else_branch = e () => (float[2,4] q) { q = Exp(a) }>  y = Abs(z) }"
    ),
    "an epsilon that would vanish": (
        "g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}> { a = Mul(x, x)  b = Sub(a, a)  c = Add(b, e)"
        "  s = Sqrt(c)  y = Div(s, e) }"
    ),
    "a weight that callers may override": (
        "g (float[2,4] x, float[4] w) => (float[2,4] y) <float[4] w = {1.0001,2.0002,3.0003,4.0004}>"
        " { a = Mul(x, w)  y = Neg(a) }"
    ),
    "scales that are always float": (
        "g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1,1,2,2}> { a = Neg(x)  y = Resize(a, , s) }"
    ),
    "a result that says its own dtype": (
        "g (float[2,4] x) => (float[2,4] y) { r = RandomNormalLike<seed = 1.0>(x)  z = Sub(r, r)  y = Add(z, x) }"
    ),
    "a Cast from integers and a constant without a tensor": (
        "g (int64[2,4] n) => (float[2,4] y) { r = Cast<to = 1>(n)  q = Constant<value_floats = [1.0,2.0,3.0,4.0]>()"
        "  y = Mul(r, q) }"
    ),
    "an output that is an input": "g (float[2,4] x) => (float[2,4] x, float[2,4] y) { y = Neg(x) }",
    "an output that is read": "g (float[2,4] x) => (float[2,4] a, float[2,4] y) { a = Neg(x)  y = Exp(a) }",
    "statistics of their own dtype": (
        "g (float[2,4] x) => (float[2,4] y, float[2,1] m) <float[4] w = {1,2,3,4}> { y, m = LayerNormalization(x, w) }"
    ),
    "two outputs of one value": "g (float[2,4] x) => (float[2,4] y, float[2,4] y) { y = Neg(x) }",
    "nothing to convert": "g (int64[2,4] n) => (int64[2,4] y) { y = Neg(n) }",
}


def feeds_of(model: onnx.ModelProto) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        if kind == onnx.TensorProto.BOOL:
            made[value.name] = np.array(True)
        elif kind == onnx.TensorProto.INT64:
            made[value.name] = rng.integers(0, 9, shape)
        elif value.name != "w":
            made[value.name] = rng.normal(size=shape).astype(np.float32)
    return made


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = open_session(model)
    assert not isinstance(session, str), session
    return session.handle.run(None, {n: v for n, v in feeds.items() if n in session.inputs})


@pytest.mark.parametrize("what", GRAPHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_graphs_on_which_converters_are_wrong(what: str, dtype: str) -> None:
    model = parsed(GRAPHS[what])
    feeds = feeds_of(model)
    found = to_half(model, dtype, data=[feeds], target="onnxruntime-cpu")
    made = found.to_proto()
    onnx.checker.check_model(made, full_check=True)
    for got, wanted in zip(run(made, feeds), run(model, feeds), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-2 if dtype == "bfloat16" else 2e-3, atol=1e-2)


def test_islands_are_told_with_their_reasons() -> None:
    model = parsed(GRAPHS["an island whose inner values are too large"])
    found = to_half(model, data=[feeds_of(model)])
    assert found.converted == ["y"]
    assert "1e+05" in found.kept["m"]
    assert "65504" in found.kept["m"]
    casts = [n for n in found.to_proto().graph.node if n.op_type == "Cast"]
    assert len(casts) == 2, "none inside the island, where a value would become infinite"


def test_what_is_asked_for_stays() -> None:
    found = to_half(mlp(), keep=["fc1/MatMul", "Relu"])
    assert set(found.kept) == {"fc1/MatMul", *(f"fc{i}/Relu" for i in range(4))}
    assert found.kept["fc1/MatMul"] == "asked for (fc1/MatMul)"
    weights = {t.name: t.data_type for t in found.to_proto().graph.initializer}
    assert weights["w1"] == onnx.TensorProto.FLOAT
    assert weights["w0_float16"] == onnx.TensorProto.FLOAT16
    assert "w0" not in weights


def test_only_what_is_asked_for_is_converted() -> None:
    assert to_half(mlp(scopes=True), only=["block.2"]).converted == ["/net/block.2/fc/MatMul", "/net/block.2/fc/Relu"]


def test_a_weight_that_both_read_is_kept_twice_and_not_rounded_for_float32() -> None:
    model = parsed(
        "g (float[2,4] x) => (float[2,4] y) <float[4] w = {1.0001,2.0002,3.0003,4.0004}> { a = Mul(x, w)  y = Add(a, w) }"
    )
    found = to_half(model, keep=["a"], data=[feeds_of(model)]).to_proto()
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in found.graph.initializer}
    np.testing.assert_array_equal(arrays["w"], np.float32([1.0001, 2.0002, 3.0003, 4.0004]))
    assert arrays["w_float16"].dtype == np.float16


def test_the_interface_may_become_half() -> None:
    made = to_half(mlp(), keep_io=False).to_proto()
    assert {v.type.tensor_type.elem_type for v in (*made.graph.input, *made.graph.output)} == {onnx.TensorProto.FLOAT16}
    assert not [n for n in made.graph.node if n.op_type == "Cast"]
    onnx.checker.check_model(made, full_check=True)


def test_a_model_is_half_as_large() -> None:
    before, after = to_half(mlp(layers=3, width=64)).sizes
    assert after < 0.6 * before


def test_what_does_not_run_here_is_judged_with_rounded_values() -> None:
    found = to_half(mlp(), "bfloat16", target="onnx")
    assert len(found.converted) == 8
    assert found.quality is not None
    assert 30 < found.quality.worst.snr < 60, "bfloat16 has 8 bits"
    assert "rounded to bfloat16" in found.notes[0]


def test_the_cpu_has_no_product_of_bfloat16() -> None:
    found = to_half(mlp(), "bfloat16")
    assert found.kept["fc0/MatMul"] == "no CPU kernel of MatMul for bfloat16"


def test_native_converts_what_has_a_kernel_only() -> None:
    model = parsed("g (float[2,4] x) => (float[4,2] y) { a = Neg(x)  b = Erf(a)  y = Transpose<perm = [1,0]>(b) }")
    assert "b" in to_half(model).converted
    assert "b" in to_half(model, native=True).kept


def test_what_is_not_close_is_not_returned() -> None:
    with pytest.raises(CheckError, match="float16 is not close enough: the signal-to-noise ratio of y is"):
        to_half(mlp(), gate=Gate(min_snr=120))


def test_without_running_only_weights_are_looked_at() -> None:
    model = parsed("g (float[2,4] x) => (float[2,4] y) <float[4] w = {1,2,3,1e6}> { a = Mul(x, w)  y = Neg(a) }")
    found = to_half(model, check=False)
    assert found.quality is None
    assert "1e+06" in found.kept["a"]
    assert found.converted == ["y"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be float16 or bfloat16, not 'float8'"),
        (
            {"keep": ["fc1/MatMull"]},
            "keep fc1/MatMull: no node, scope or operator is called so; the nearest is fc1/MatMul",
        ),
        ({"target": "toaster"}, "unknown target 'toaster'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        to_half(mlp(), **options)


def test_the_same_model_gives_the_same_bytes() -> None:
    first, second = (
        to_half(golden("vit"), check=False).to_proto().SerializeToString(deterministic=True) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_golden_models(name: str) -> None:
    found = to_half(golden(name), data=load_data(None, golden(name), most=2))
    assert found.quality is not None
    assert found.quality.worst.snr > 50
    assert len(found.converted) > 9 * len(found.kept)
    onnx.checker.check_model(found.to_proto(), full_check=True)
