"""GELU before and after, in every spelling that exporters have; and the traps around its constants."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from onnxrewrite_patterns import constants, gelu
from sides import rewrite, run, same_everywhere

from onnxrewrite.rewrite.registry import rules_of

RULES = (*rules_of(constants), *rules_of(gelu))
erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def exact(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * erfc(-x / math.sqrt(2))


def approximate(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


E = "d = Div(x, 1.41421356)  e = Erf(d)"
A = "a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"
CUBE = "c = Pow(x, 3.0)  k = Mul(c, 0.044715)"
ERF = {
    "transformers": f"{E}  {A}",
    "half first": f"{E}  a = Add(e, 1.0)  h = Mul(x, 0.5)  y = Mul(h, a)",
    "half of the cdf": f"{E}  a = Add(1.0, e)  h = Mul(0.5, a)  y = Mul(x, h)",
    "divided by two": f"{E}  a = Add(e, 1.0)  m = Mul(a, x)  y = Div(m, 2.0)",
    "times the reciprocal": f"d = Mul(0.70710678, x)  e = Erf(d)  {A}",
    "a node for the root": f"r = Sqrt(2.0)  d = Div(x, r)  e = Erf(d)  {A}",
    "reciprocal of a root": "r = Sqrt(2.0)  q = Reciprocal(r)  d = Mul(x, q)  e = Erf(d)  a = Add(e, 1.0)"
    "  m = Mul(x, a)  y = Mul(m, 0.5)",
    "tensorflow": "r = Sqrt(2.0)  d = Div(x, r)  e = Erf(d)  a = Add(1.0, e)  c = Mul(0.5, a)  y = Mul(x, c)",
    "jax, by erfc": "n = Neg(x)  d = Mul(n, 0.70710678)  e = Erf(d)  c = Sub(1.0, e)  m = Mul(x, c)  y = Mul(m, 0.5)",
    "erfc of a product": "d = Mul(x, -0.70710678)  e = Erf(d)  c = Sub(1.0, e)  h = Mul(x, 0.5)  y = Mul(h, c)",
    "normal cdf": "s = Sub(x, 0.0)  d = Div(s, 1.41421356)  e = Erf(d)  h = Mul(e, 0.5)"
    "  c = Add(h, 0.5)  y = Mul(x, c)",
    "multiplied out": f"{E}  h = Mul(x, 0.5)  m = Mul(h, e)  y = Add(h, m)",
    "all of it": f"{E}  m = Mul(x, e)  s = Add(x, m)  y = Mul(s, 0.5)",
    "constants of shape [1]": "d = Div(x, {1.41421356})  e = Erf(d)  a = Add(e, {1.0})  m = Mul(x, a)"
    "  y = Mul(m, {0.5})",
    "Constant nodes": "r = Constant<value = float {1.41421356}>()  d = Div(x, r)  e = Erf(d)"
    "  o = Constant<value_float = 1.0>()  a = Add(e, o)  m = Mul(x, a)  y = Mul(m, 0.5)",
    "identities between": "i = Identity(x)  d = Div(i, 1.41421356)  e = Erf(d)  j = Identity(e)"
    "  a = Add(j, 1.0)"
    "  c = Cast<to = 1>(a)  m = Mul(x, c)  y = Mul(m, 0.5)",
    "Sum of two": f"{E}  a = Sum(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
}


@pytest.mark.parametrize("opset", [13, 17, 20, 22])
@pytest.mark.parametrize("spelling", ERF)
def test_erf(spelling: str, opset: int) -> None:
    sides = rewrite(f"float[n] x; {ERF[spelling]}", RULES, opset=opset)
    if spelling == "normal cdf":
        assert "Sub" in sides.operators  # x - 0 is another family's
        return
    assert sides.operators == (["Gelu"] if opset >= 20 else ["com.microsoft.Gelu"])
    same_everywhere(sides, exact)


T = "t = Tanh(u)  a = Add(t, 1.0)  h = Mul(x, 0.5)  y = Mul(h, a)"
TANH = {
    "transformers": f"c = Pow(x, 3.0)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.7978845608)  {T}",
    "products": f"q = Mul(x, x)  c = Mul(q, x)  k = Mul(0.044715, c)  s = Add(k, x)  u = Mul(0.79788456, s)  {T}",
    "x times its square": f"q = Pow(x, 2.0)  c = Mul(x, q)  k = Mul(0.044715, c)  s = Add(k, x)"
    f"  u = Mul(s, 0.79788456)  {T}",
    "Horner": f"a1 = Mul(x, 0.044715)  a2 = Mul(a1, x)  a3 = Mul(a2, x)  s = Add(x, a3)  u = Mul(s, 0.79788456)  {T}",
    "Megatron": f"k = Mul(x, 0.044715)  q = Mul(k, x)  s = Add(1.0, q)  w = Mul(x, 0.79788456)  u = Mul(w, s)  {T}",
    "Megatron, x outside": f"q = Mul(x, x)  k = Mul(q, 0.044715)  s = Add(k, 1.0)  v = Mul(s, x)"
    f"  u = Mul(v, 0.79788456)  {T}",
    "constants merged": f"q = Mul(x, x)  k = Mul(q, 0.035677408)  s = Add(k, 0.79788456)  u = Mul(x, s)  {T}",
    "multiplied out": f"c = Pow(x, 3.0)  k = Mul(c, 0.035677408)  w = Mul(x, 0.79788456)  u = Add(w, k)  {T}",
    "half of the cdf": "c = Pow(x, 3.0)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.79788456)"
    "  t = Tanh(u)"
    "  b = Mul(t, 0.5)  a = Add(b, 0.5)  y = Mul(x, a)",
    "integer exponent": f"c = Pow(x, int64 3)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.7978845608)  {T}",
}


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("spelling", TANH)
def test_tanh(spelling: str, opset: int) -> None:
    sides = rewrite(f"float[n] x; {TANH[spelling]}", RULES, opset=opset)
    assert sides.operators == (["Gelu"] if opset >= 20 else ["com.microsoft.FastGelu"])
    same_everywhere(sides, approximate)


@pytest.mark.parametrize("opset", [9, 10, 11, 12])
def test_old_opsets(opset: int) -> None:
    assert rewrite(f"float[n] x; {ERF['transformers']}", RULES, opset=opset).operators == ["com.microsoft.Gelu"]
    assert rewrite(f"float[n] x; {TANH['transformers']}", RULES, opset=opset).operators == ["com.microsoft.FastGelu"]


@pytest.mark.parametrize(
    ("graph", "named"),
    [
        (f"d = Div(x, 1.5)  e = Erf(d)  {A}", "found 1.5"),
        (f"d = Div(x, 1.41)  e = Erf(d)  {A}", "found 1.41"),
        (f"{E}  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.6)", "found 0.6"),
        (f"{E}  a = Add(e, 1.1)  m = Mul(x, a)  y = Mul(m, 0.5)", "found 1.1"),
        (f"{E}  a = Sub(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)", "found -1"),
        (f"{E}  a = Add(e, 1.0)  m = Mul(x, a)  y = Div(m, 0.5)", "found 0.5"),
        (f"{E}  a = Add(e, {{1.0, 1.0}})  m = Mul(x, a)  y = Mul(m, 0.5)", "expected"),
    ],
)
def test_trap_a_constant_that_is_off_stays_and_is_named(graph: str, named: str) -> None:
    sides = rewrite(f"float[n] x; {graph}", RULES)
    assert "Erf" in sides.operators
    assert named in sides.why_not(gelu.GELU_ERF)


ROUNDED = {
    "float16": (1.4140625, 0.70703125),
    "bfloat16": (1.4140625, 0.70703125),
    "double": (math.sqrt(2), math.sqrt(0.5)),
}


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("reciprocal", [False, True])
def test_trap_root_two_rounded_to_the_tensors_own_dtype(dtype: str, reciprocal: bool) -> None:
    root, inverse = ROUNDED[dtype]
    divided = f"Mul(x, {inverse!r})" if reciprocal else f"Div(x, {root!r})"
    graph = f"{dtype}[n] x; d = {divided}  e = Erf(d)  {A}"
    assert rewrite(graph, RULES, opset=20, runs_on="onnx").operators == ["Gelu"]
    # ONNX Runtime has neither Gelu for these dtypes: what it can run it keeps.
    for opset in (17, 20):
        assert "Erf" in rewrite(graph, RULES, opset=opset).operators


def test_trap_float32_root_two_is_off_in_double() -> None:
    graph = f"double[n] x; d = Div(x, 1.4142135381698608)  e = Erf(d)  {A}"
    sides = rewrite(graph, RULES, opset=20, runs_on="onnx")
    assert "Erf" in sides.operators
    assert "found 1.41421354" in sides.why_not(gelu.GELU_ERF)


@pytest.mark.parametrize(
    ("x", "fused"), [("float[n]", False), ("float[]", False), ("float[2,n]", True), ("float", False)]
)
def test_trap_a_constant_of_shape_1_1_raises_the_rank(x: str, fused: bool) -> None:
    declared = f"{x} x;" if x != "float" else ""  # without a declaration the rank is unknown
    sides = rewrite(f"{declared} {E}  a = Add(e, {{1.0}})  m = Mul(x, a)  y = Mul(m, float[1,1] {{0.5}})", RULES)
    assert ("com.microsoft.Gelu" in sides.operators) == fused
    shape = (2, 3) if "2" in x else (3,)
    if x != "float[]":
        sides.same({"x": np.ones(shape, np.float32)})


def test_trap_a_half_that_may_be_overridden_is_no_constant() -> None:
    sides = rewrite(
        f"float[n] x; input half = float {{0.5}}; {E}  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, half)",
        RULES,
    )
    assert "Erf" in sides.operators
    assert "graph input" in sides.why_not(gelu.GELU_ERF)
    x, other = np.ones(3, np.float32), np.array(7, np.float32)
    sides.same({"x": x})
    sides.same({"x": x, "half": other})


def test_mixed_precision_casts_around_stay() -> None:
    gelu_of_x = ERF["transformers"].replace("y =", "f =")
    sides = rewrite(f"float16[n] h; x = Cast<to = 1>(h)  {gelu_of_x}  y = Cast<to = 10>(f)", RULES)
    assert sides.operators == ["Cast", "Cast", "com.microsoft.Gelu"]
    sides.same({"h": np.linspace(-4, 4, 99).astype(np.float16)})


def test_mixed_precision_casts_inside_are_kept() -> None:
    graph = (
        "float16[n] x; d = Div(x, 1.4140625)  f = Cast<to = 1>(d)  e = Erf(f)  g = Cast<to = 10>(e)"
        "  a = Add(g, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"
    )
    sides = rewrite(graph, RULES)
    assert "Erf" in sides.operators
    sides.same({"x": np.linspace(-4, 4, 99).astype(np.float16)})


def test_the_bias_before_stays() -> None:
    sides = rewrite(f"float[n,4] z; float[4] b; x = Add(z, b)  {ERF['transformers']}", RULES)
    assert sides.operators == ["Add", "com.microsoft.Gelu"]


def test_a_gate_in_the_middle_of_the_product_is_left_over() -> None:
    sides = rewrite(
        f"float[n] x; float[n] g; {E}  a = Add(e, 1.0)  m = Mul(x, g)  k = Mul(m, a)  y = Mul(k, 0.5)", RULES
    )
    assert sides.operators == ["Mul", "com.microsoft.Gelu"]
    rng = np.random.default_rng(1)
    sides.same({"x": rng.standard_normal(50).astype(np.float32), "g": rng.standard_normal(50).astype(np.float32)})


@pytest.mark.parametrize("inner", ["d", "e", "a", "m"])
def test_trap_an_inner_value_that_is_an_output_is_still_computed(inner: str) -> None:
    graph = f"(float[n] x) => (float[n] y, float[n] {inner}) {{ {ERF['transformers']} }}"
    sides = rewrite(graph, RULES)
    assert "Erf" in sides.operators
    assert "is a graph output" in sides.why_not(gelu.GELU_ERF)
    sides.same({"x": np.ones(3, np.float32)})


def test_trap_an_inner_value_read_inside_an_if_is_still_computed() -> None:
    graph = (
        f"float[n] x; bool c; {ERF['transformers']}"
        "  z = If(c)<then_branch = t () => (float[n] p) { p = Neg(a) },"
        " else_branch = f () => (float[n] q) { q = Abs(a) }>"
    )
    sides = rewrite(graph, RULES)
    assert "Erf" in sides.operators
    sides.same({"x": np.ones(3, np.float32), "c": np.array(True)})


def test_inside_an_if_it_is_fused() -> None:
    graph = (
        "float[n] x; bool c; y = If(c)<then_branch = t () => (float[n] p) {"
        f" {ERF['transformers'].replace('y =', 'p =')} }},"
        " else_branch = f () => (float[n] q) { q = Abs(x) }>"
    )
    sides = rewrite(graph, RULES)
    assert sides.operators == ["Abs", "If", "com.microsoft.Gelu"]
    for c in (True, False):
        sides.same({"x": np.linspace(-3, 3, 7, dtype=np.float32), "c": np.array(c)})


def test_trap_half_of_the_argument_lies_outside_the_subgraph() -> None:
    graph = (
        f"float[n] x; bool c; {E} y = If(c)<then_branch = t () => (float[n] p) {{"
        " a = Add(e, 1.0)  m = Mul(x, a)  p = Mul(m, 0.5) },"
        " else_branch = f () => (float[n] q) { q = Abs(x) }>"
    )
    sides = rewrite(graph, RULES)
    assert "Erf" in sides.operators
    sides.same({"x": np.ones(3, np.float32), "c": np.array(True)})


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 5, 7)])
def test_shapes(shape: tuple[int, ...]) -> None:
    dims = ",".join(map(str, shape))
    sides = rewrite(f"float[{dims}] x; {ERF['transformers']}", RULES)
    assert sides.operators == ["com.microsoft.Gelu"]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sides.same({"x": x})
    assert run(sides.after, {"x": x})[0].shape == shape


def test_gelu_of_a_newer_opset_is_no_contrib_operator() -> None:
    sides = rewrite('float[n] x; y = Gelu<approximate = "tanh">(x)', RULES, opset=20)
    assert sides.operators == ["Gelu"]
    assert ml_dtypes.bfloat16(1.4140625) == np.float32(ROUNDED["bfloat16"][0])


def test_a_root_of_two_with_six_digits_is_a_gelu_scaled() -> None:
    sides = rewrite(f"float[n] x; d = Div(x, 1.41421)  e = Erf(d)  {A}", RULES)
    assert sides.operators == ["Mul", "Mul", "com.microsoft.Gelu"]
    same_everywhere(sides, lambda x: 0.5 * x * erfc(-x / np.float64(np.float32(1.41421))))
