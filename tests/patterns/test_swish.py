"""Swish, HardSigmoid, HardSwish and Mish before and after, as exporters spell them; and their traps."""

from __future__ import annotations

import numpy as np
import pytest
from onnxrewrite_patterns import constants, swish
from sides import SPECIAL, Formula, rewrite, run, same_everywhere, samples

from onnxrewrite.rewrite.registry import rules_of

RULES = (*rules_of(constants), *rules_of(swish))
QUICK = ["com.microsoft.QuickGelu"]


def by(beta: float) -> Formula:
    return lambda x: x / (1 + np.exp(-beta * x))


SWISH = {
    "silu": ("s = Sigmoid(x)  y = Mul(x, s)", 1.0),
    "silu, sigmoid first": ("s = Sigmoid(x)  y = Mul(s, x)", 1.0),
    "quick gelu": ("b = Mul(x, 1.702)  s = Sigmoid(b)  y = Mul(x, s)", 1.702),
    "quick gelu, constant first": ("b = Mul(1.702, x)  s = Sigmoid(b)  y = Mul(s, x)", 1.702),
    "divided": ("b = Div(x, 2.0)  s = Sigmoid(b)  y = Mul(s, x)", 0.5),
    "negative": ("n = Neg(x)  s = Sigmoid(n)  y = Mul(s, x)", -1.0),
    "shape [1]": ("b = Mul(x, {1.702})  s = Sigmoid(b)  y = Mul(x, s)", 1.702),
    "identities between": ("i = Identity(x)  s = Sigmoid(i)  j = Cast<to = 1>(s)  y = Mul(x, j)", 1.0),
    "by exp": ("n = Neg(x)  e = Exp(n)  d = Add(e, 1.0)  y = Div(x, d)", 1.0),
    "by exp, reciprocal": ("n = Neg(x)  e = Exp(n)  d = Add(1.0, e)  r = Reciprocal(d)  y = Mul(x, r)", 1.0),
    "by exp, 1/": ("n = Neg(x)  e = Exp(n)  d = Add(1.0, e)  r = Div(1.0, d)  y = Mul(r, x)", 1.0),
    "by exp of a product": ("n = Mul(x, -1.702)  e = Exp(n)  d = Add(e, 1.0)  y = Div(x, d)", 1.702),
}


@pytest.mark.parametrize("opset", [9, 13, 17, 22, 24])
@pytest.mark.parametrize("spelling", SWISH)
def test_swish(spelling: str, opset: int) -> None:
    graph, beta = SWISH[spelling]
    sides = rewrite(f"float[n] x; {graph}", RULES, opset=opset)
    assert sides.operators == QUICK
    (node,) = sides.driver.model.graph
    assert node.attributes["alpha"].as_float() == np.float32(beta)
    if "exp" in spelling:  # ONNX Runtime's Sigmoid is good to 1e-7 of 1, not of itself
        for x in (samples()["normal"], SPECIAL):
            np.testing.assert_allclose(
                run(sides.after, {"x": x})[0],
                run(sides.before, {"x": x})[0],
                rtol=1e-6,
                atol=4e-6,
                equal_nan=True,
            )
    else:
        same_everywhere(sides, by(beta))


def test_the_standard_has_swish_from_opset_24() -> None:
    graph = "float[n] x; s = Sigmoid(x)  y = Mul(x, s)"
    assert rewrite(graph, RULES, opset=24, runs_on="onnx").operators == ["Swish"]
    assert rewrite(graph, RULES, opset=23, runs_on="onnx").operators == ["Mul", "Sigmoid"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_trap_other_dtypes_keep_what_onnx_runtime_runs(dtype: str) -> None:
    graph = f"{dtype}[n] x; b = Mul(x, 1.5)  s = Sigmoid(b)  y = Mul(x, s)"
    assert "Sigmoid" in rewrite(graph, RULES, opset=17).operators
    assert rewrite(graph, RULES, opset=24, runs_on="onnx").operators == ["Swish"]


def test_trap_a_double_that_no_float32_attribute_holds() -> None:
    graph = "double[n] x; b = Mul(x, 1.702)  s = Sigmoid(b)  y = Mul(x, s)"
    sides = rewrite(graph, RULES, opset=24, runs_on="onnx")
    assert "Sigmoid" in sides.operators
    assert "does not fit a float32 attribute" in sides.why_not(swish.SWISH)


def test_trap_minus_infinity_and_nan_are_as_before() -> None:
    sides = rewrite(f"float[n] x; {SWISH['silu'][0]}", RULES)
    np.testing.assert_array_equal(run(sides.after, {"x": SPECIAL})[0], run(sides.before, {"x": SPECIAL})[0])
    assert np.isnan(run(sides.after, {"x": np.array([-np.inf], np.float32)})[0]).all()


def test_trap_a_beta_that_may_be_overridden_or_varies() -> None:
    x = {"x": np.ones(3, np.float32)}
    sides = rewrite("float[n] x; input b = float {1.702}; m = Mul(x, b)  s = Sigmoid(m)  y = Mul(x, s)", RULES)
    assert "Sigmoid" in sides.operators
    sides.same({**x, "b": np.array(3, np.float32)})
    assert (
        "Sigmoid" in rewrite("float[3] x; m = Mul(x, {1.0, 2.0, 3.0})  s = Sigmoid(m)  y = Mul(x, s)", RULES).operators
    )


def test_trap_a_beta_of_shape_1_1_raises_the_rank() -> None:
    graph = "m = Mul(x, float[1,1] {1.702})  s = Sigmoid(m)  y = Mul(x, s)"
    assert rewrite(f"float[2,n] x; {graph}", RULES).operators == QUICK
    assert "Sigmoid" in rewrite(f"float[n] x; {graph}", RULES).operators
    assert "Sigmoid" in rewrite(graph, RULES).operators


@pytest.mark.parametrize(
    "graph",
    [
        "s = Sigmoid(x)  y = Mul(x, s)  z = Add(s, 1.0)",
        "s = Sigmoid(z)  y = Mul(x, s)",
        "s = Sigmoid(x)  y = Add(x, s)",
        "s = Sigmoid(x)  y = Div(x, s)",
        "s = Sigmoid(x)  y = Div(s, x)",
        "n = Neg(x)  e = Exp(n)  d = Add(e, 2.0)  y = Div(x, d)",
        "e = Exp(x)  d = Add(e, 1.0)  y = Div(x, e)",
        "n = Neg(x)  e = Exp(n)  d = Add(e, 1.0)  y = Div(d, x)",
    ],
)
def test_not_swish(graph: str) -> None:
    assert "com.microsoft.QuickGelu" not in rewrite(f"float[n] x; float[n] z; {graph}", RULES).operators


def test_swiglu_and_gates() -> None:
    sides = rewrite("float[n] x; float[n] u; s = Sigmoid(x)  a = Mul(x, u)  y = Mul(a, s)", RULES)
    assert sides.operators == ["Mul", *QUICK]
    rng = np.random.default_rng(3)
    sides.same({n: rng.standard_normal(99).astype(np.float32) for n in "xu"})


def hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


HARD_SIGMOID = {
    "clip": "d = Div(x, 6.0)  a = Add(d, 0.5)  y = Clip(a, 0.0, 1.0)",
    "clip of a product": "d = Mul(x, 0.16666667)  a = Add(0.5, d)  y = Clip(a, 0.0, 1.0)",
    "relu6": "a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  y = Div(c, 6.0)",
    "relu6, times": "a = Add(3.0, x)  c = Clip(a, 0.0, 6.0)  y = Mul(c, 0.16666667)",
    "min of max": "a = Add(x, 3.0)  b = Max(a, 0.0)  c = Min(b, 6.0)  y = Div(c, 6.0)",
    "max of min": "a = Add(x, 3.0)  b = Min(6.0, a)  c = Max(0.0, b)  y = Div(c, 6.0)",
    "min of relu": "a = Add(x, 3.0)  b = Relu(a)  c = Min(b, 6.0)  y = Div(c, 6.0)",
    "relu of min": "a = Add(x, 3.0)  b = Min(a, 6.0)  c = Relu(b)  y = Div(c, 6.0)",
    "clip of relu": "a = Add(x, 3.0)  b = Relu(a)  c = Clip(b, , 6.0)  y = Div(c, 6.0)",
    "ratio": "a = Add(x, 3.0)  d = Div(a, 6.0)  y = Clip(d, 0.0, 1.0)",
}


@pytest.mark.parametrize("opset", [13, 17, 22])
@pytest.mark.parametrize("spelling", HARD_SIGMOID)
def test_hard_sigmoid(spelling: str, opset: int) -> None:
    sides = rewrite(f"float[n] x; {HARD_SIGMOID[spelling]}", RULES, opset=opset)
    assert sides.operators == ["HardSigmoid"]
    same_everywhere(sides, hard_sigmoid)


@pytest.mark.parametrize("opset", [7, 8, 10])
def test_clip_with_attributes(opset: int) -> None:
    graph = "float[n] x; a = Add(x, 3.0)  c = Clip<min = 0.0, max = 6.0>(a)  y = Div(c, 6.0)"
    sides = rewrite(graph, RULES, opset=opset)
    assert sides.operators == ["HardSigmoid"]
    same_everywhere(sides, hard_sigmoid)


@pytest.mark.parametrize(
    "graph",
    [
        "a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  y = Div(c, 5.0)",
        "a = Add(x, 3.0)  c = Clip(a, 1.0, 6.0)  y = Div(c, 6.0)",
        "a = Add(x, 3.0)  c = Clip(a, , 6.0)  y = Div(c, 6.0)",
        "a = Add(x, 3.0)  c = Clip(a, 0.0)  y = Div(c, 6.0)",
        "a = Add(x, 3.0)  b = Relu(a)  c = Clip(b, 2.0, 6.0)  y = Div(c, 6.0)",
        "a = Add(x, 3.0)  b = Max(a, 6.0)  c = Min(b, 0.0)  y = Div(c, 6.0)",
        "a = Add(x, 3.0)  b = Max(a, {0.0, 1.0})  c = Min(b, 6.0)  y = Div(c, 6.0)",
        "input high = float {6.0}; a = Add(x, 3.0)  c = Clip(a, 0.0, high)  y = Div(c, 6.0)",
        "float[n] z; a = Add(x, z)  c = Clip(a, 0.0, 6.0)  y = Div(c, 6.0)",
        "y = Clip(x, 0.0, 1.0)",
    ],
)
def test_not_hard_sigmoid(graph: str) -> None:
    sides = rewrite(f"float[n] x; {graph}", RULES)
    assert "HardSigmoid" not in sides.operators
    feeds = {
        "x": np.array([-4, 9], np.float32),
        "z": np.zeros(2, np.float32),
        "high": np.array(3, np.float32),
    }
    sides.same(feeds)


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_trap_hard_sigmoid_in_other_dtypes_is_kept(dtype: str) -> None:
    sides = rewrite(f"{dtype}[n] x; {HARD_SIGMOID['relu6']}", RULES)
    assert "Clip" in sides.operators


def test_trap_a_sixth_does_not_fit_a_double_models_attribute() -> None:
    sides = rewrite(f"double[n] x; {HARD_SIGMOID['relu6']}", RULES, runs_on="onnx")
    assert "Clip" in sides.operators
    assert "does not fit a float32 attribute" in sides.why_not(swish.to_hard_sigmoid)


def hard_swish(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x + 3, 0, 6) / 6


HARD_SWISH = {
    "mobilenet": "a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  m = Mul(x, c)  y = Div(m, 6.0)",
    "gate first": "a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  g = Div(c, 6.0)  y = Mul(g, x)",
    "sixth first": "a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  s = Mul(x, 0.16666667)  y = Mul(s, c)",
    "min and max": "a = Add(x, 3.0)  b = Max(a, 0.0)  c = Min(b, 6.0)  m = Mul(x, c)  y = Mul(m, 0.16666667)",
    "hard sigmoid": "h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)  y = Mul(x, h)",
}


@pytest.mark.parametrize("opset", [13, 14, 17, 22])
@pytest.mark.parametrize("spelling", HARD_SWISH)
def test_hard_swish(spelling: str, opset: int) -> None:
    sides = rewrite(f"float[n] x; {HARD_SWISH[spelling]}", RULES, opset=opset)
    assert sides.operators == (["HardSwish"] if opset >= 14 else ["HardSigmoid", "Mul"])
    same_everywhere(sides, hard_swish)


@pytest.mark.parametrize("attributes", ["alpha = 0.2, beta = 0.5", "alpha = 0.16666667, beta = 0.4", "beta = 0.5"])
def test_not_hard_swish(attributes: str) -> None:
    sides = rewrite(f"float[n] x; h = HardSigmoid<{attributes}>(x)  y = Mul(x, h)", RULES)
    assert sides.operators == ["HardSigmoid", "Mul"]


MISH = {
    "softplus": "s = Softplus(x)  t = Tanh(s)  y = Mul(x, t)",
    "logarithm": "e = Exp(x)  a = Add(1.0, e)  s = Log(a)  t = Tanh(s)  y = Mul(t, x)",
}


@pytest.mark.parametrize("spelling", MISH)
def test_mish(spelling: str) -> None:
    sides = rewrite(f"float[n] x; {MISH[spelling]}", RULES, opset=18)
    assert sides.operators == ["Mish"]
    same_everywhere(sides, lambda x: x * np.tanh(np.logaddexp(0, x)))
    assert "Tanh" in rewrite(f"float[n] x; {MISH[spelling]}", RULES, opset=17).operators


def test_trap_softplus_of_large_numbers_is_no_logarithm() -> None:
    sides = rewrite("float[n] x; e = Exp(x)  a = Add(e, 1.0)  y = Log(a)", RULES, opset=18)
    assert sides.operators == ["Add", "Exp", "Log"]
    assert np.isinf(run(sides.after, {"x": np.array([100], np.float32)})[0]).all()
