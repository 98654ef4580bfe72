"""Activations of the Relu and Elu families, Sigmoid, Softsign and Softmax before and after, and their traps."""

from __future__ import annotations

import numpy as np
import pytest
from onnxrewrite_patterns import activations, constants, softmax
from sides import SPECIAL, Formula, rewrite, run, same_everywhere, samples

from onnxrewrite.rewrite.registry import rules_of

RULES = (*rules_of(constants), *rules_of(activations), *rules_of(softmax))


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.1 * x)


SPELLED: dict[str, tuple[str, str, Formula]] = {
    "leaky, where": ("p = Greater(x, 0.0)  a = Mul(x, 0.1)  y = Where(p, x, a)", "LeakyRelu", leaky),
    "leaky, where negative": ("p = Less(x, 0.0)  a = Mul(0.1, x)  y = Where(p, a, x)", "LeakyRelu", leaky),
    "leaky, max": ("a = Mul(x, 0.1)  y = Max(x, a)", "LeakyRelu", leaky),
    "leaky, divided": ("a = Div(x, 10.0)  y = Max(a, x)", "LeakyRelu", leaky),
    "leaky, two relus": ("r = Relu(x)  n = Neg(x)  q = Relu(n)  a = Mul(q, 0.1)  y = Sub(r, a)", "LeakyRelu", leaky),
    "leaky, min": ("r = Max(x, 0.0)  q = Min(x, 0.0)  a = Mul(q, 0.1)  y = Add(a, r)", "LeakyRelu", leaky),
    "thresholded": ("p = Greater(x, 0.5)  y = Where(p, x, 0.0)", "ThresholdedRelu", lambda x: np.where(x > 0.5, x, 0)),
    "elu, where": (
        "p = Greater(x, 0.0)  e = Exp(x)  m = Sub(e, 1.0)  y = Where(p, x, m)",
        "Elu",
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    ),
    "softsign": ("a = Abs(x)  b = Add(1.0, a)  y = Div(x, b)", "Softsign", lambda x: x / (1 + np.abs(x))),
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_activation(spelling: str) -> None:
    graph, operator, formula = SPELLED[spelling]
    sides = rewrite(f"float[n] x; {graph}", RULES)
    assert sides.operators == [operator]
    same_everywhere(sides, formula)
    (old,), (new,) = run(sides.before, {"x": SPECIAL}), run(sides.after, {"x": SPECIAL})
    np.testing.assert_array_equal(np.isnan(new), np.isnan(old))
    np.testing.assert_array_equal(np.isinf(new), np.isinf(old))


@pytest.mark.parametrize(
    "graph",
    [
        "y = Max(x, 0.0)",
        "y = Clip(x, 0.0)",
        "p = Greater(x, 0.0)  a = Mul(x, 0.1)  y = Where(p, a, x)",
        "a = Mul(x, -0.1)  y = Max(x, a)",
        "a = Mul(x, 0.0)  y = Max(x, a)",
        "p = LessOrEqual(x, 0.5)  y = Where(p, 0.0, x)",
        "e = Exp(x)  a = Add(e, 1.0)  y = Log(a)",
        "s = Softmax(x)  y = Log(s)",
        "n = Neg(x)  e = Exp(n)  a = Add(e, 1.0)  s = Div(1.0, a)  y = Log(s)",
        "d = Mul(x, 2.0)  s = Sigmoid(d)  t = Mul(s, 2.0)  y = Sub(t, 1.0)",
    ],
)
def test_trap_what_differs_somewhere_stays(graph: str) -> None:
    sides = rewrite(f"float[n] x; {graph}", RULES)
    assert len(sides.driver.trace.applied) == 0
    sides.same({"x": samples()["normal"]})


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("shift", [True, False])
def test_softmax(shift: bool, opset: int) -> None:
    axes = "m = ReduceMax<axes=[2]>(x)" if opset < 18 else "m = ReduceMax(x, {2})"
    total = "t = ReduceSum<axes=[2]>(e)" if opset < 13 else "t = ReduceSum(e, {2})"
    start = f"{axes}  d = Sub(x, m)  e = Exp(d)" if shift else "e = Exp(x)"
    sides = rewrite(f"float[b,s,7] x; {start}  {total}  y = Div(e, t)", RULES, opset=opset)
    assert sides.operators == ["Softmax"]
    rng = np.random.default_rng(0)
    sides.same({"x": rng.standard_normal((2, 3, 7)).astype(np.float32)})
