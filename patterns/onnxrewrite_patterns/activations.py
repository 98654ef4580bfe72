"""Activations from their parts: those of the Relu family, of the Elu family, Sigmoid and Softsign.

Why: three to six elementwise passes over memory become one kernel, which ONNX Runtime may fuse into a layer.
LeakyRelu: Maas et al., 2013.   PRelu: He et al., 2015, arXiv:1502.01852.   Elu: Clevert et al., 2015,
arXiv:1511.07289.   Selu: Klambauer et al., 2017, arXiv:1706.02515.

Where the parts choose by comparing, the operator chooses alike, also for NaN and infinities (tried, ONNX Runtime 1.31).
So Where(x > 0, x, 0) is ThresholdedRelu(x, alpha=0), and not Relu, which keeps NaN.  Max(x, 0) is no Relu, either, for
the sign of zero; nor is Clip(x, min=0), which changes infinity.  Sigmoid is 0 where 1/(1 + exp(-x)) is below 10⁻⁸.

The parts of Celu stay: ONNX Runtime's kernel took 1.3 times as long as they, at 50,000 elements.
Spellings of tanh stay: 2·sigmoid(2x) - 1 is exactly zero where tanh is tiny, quotients of exponentials are NaN where
these overflow.  And ln(1 + eˣ) stays for the reason that ``swish.py`` gives, where Swish, HardSigmoid, HardSwish and
Mish are.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)

positive = any_of(op["Greater", "GreaterOrEqual"](x, 0.0), op["Less", "LessOrEqual"](0.0, x))
negative = any_of(op["Less", "LessOrEqual"](x, 0.0), op["Greater", "GreaterOrEqual"](0.0, x))


def by_sign(above: Term, below: Term) -> Term:
    """``above`` where x is positive, ``below`` where it is negative; at zero both are zero."""
    return any_of(op.Where(positive, above, below), op.Where(negative, below, above))


# -- Relu and relatives --------------------------------------------------------------------------------------


no_less = any_of(op.Relu(x), op.Max(x, 0.0))
slope, negated = Const("slope"), Const("negated slope")
larger, smaller = op.Max(x, slope * x), op.Min(x, slope * x)
leaky = any_of(
    by_sign(x, slope * x),
    larger,
    smaller,
    no_less + slope * op.Min(x, 0.0),
    no_less - slope * op.Relu(-x),
    no_less + negated * op.Relu(-x),
)


@rule(
    "leaky-relu",
    RAISE,
    leaky,
    examples=(
        Rewrites("p = Greater(x, 0.0)  a = Mul(x, 0.1)  y = Where(p, x, a)", to="y = LeakyRelu<alpha=0.1>(x)"),
        Rewrites("p = Less(x, 0.0)  a = Mul(x, 0.1)  y = Where(p, a, x)", to="y = LeakyRelu<alpha=0.1>(x)"),
        Rewrites("a = Mul(x, 0.1)  y = Max(a, x)", to="y = LeakyRelu<alpha=0.1>(x)"),
        Rewrites("a = Mul(x, 2.0)  y = Min(a, x)", to="y = LeakyRelu<alpha=2.0>(x)"),
        Rewrites(
            "float[n,2,5] x; r = Relu(x)  n = Neg(x)  q = Relu(n)  a = Mul(q, float[2,1] {-0.1, -0.2})  y = Add(r, a)",
            to="float[n,2,5] x; y = PRelu(x, float[2,1] {0.1, 0.2})",
        ),
        Rewrites(
            "float[n,2] x; r = Relu(x)  n = Neg(x)  q = Relu(n)  a = Mul(q, {0.1, 0.2})  y = Sub(r, a)",
            to="float[n,2] x; y = PRelu(x, {0.1, 0.2})",
        ),
        Rewrites(
            "float[n,2] x; r = Relu(x)  q = Min(x, 0.0)  a = Mul(q, {0.1, 0.2})  y = Add(r, a)",
            to="float[n,2] x; y = PRelu(x, {0.1, 0.2})",
        ),
        Rejects("a = Mul(x, 1.5)  y = Max(a, x)", because="slope·x is not always the smaller"),
        Rejects("a = Mul(x, 0.5)  y = Min(a, x)", because="slope·x is not always the larger"),
        Rejects("p = Greater(z, 0.0)  a = Mul(x, 0.1)  y = Where(p, x, a)", because="x must be the same value"),
        Rejects("p = Greater(x, 1.0)  a = Mul(x, 0.1)  y = Where(p, x, a)", because="expected constant 0, found 1"),
        Rejects("p = Greater(x, 0.0)  a = Div(x, 0.0)  y = Where(p, x, a)", because="a slope is not finite"),
        Rejects("float[n] x; a = Mul(x, float[1,2] {0.1, 0.2})  y = Max(a, x)", because="more dimensions than x"),
    ),
)
def leaky_relu(m: Match, build: Builder) -> Value:
    """Where(x > 0, x, slope·x) ⟶ LeakyRelu(x, alpha=slope), or PRelu(x, slope) of many slopes."""
    slopes, dtype = -m[negated] if negated in m else m[slope], m.dtype(x)
    assert dtype is not None
    with np.errstate(over="ignore"):
        finite = np.isfinite(slopes.astype(dtype.numpy())).all()
    m.require(finite, "a slope is not finite, and makes NaN of zero", at=x)
    m.require(larger not in m or ((slopes > 0) & (slopes <= 1)).all(), "slope·x is not always the smaller", at=x)
    m.require(smaller not in m or (slopes >= 1).all(), "slope·x is not always the larger", at=x)
    if slopes.size == 1:
        return build.LeakyRelu(m[x], alpha=float(slopes.reshape(())))
    rank = m.rank(x)
    m.require(rank is not None and slopes.ndim <= rank, "the slopes may have more dimensions than x", at=x)
    return build.PRelu(m[x], build.const(slopes, like=x))


threshold = Scalar("threshold")
thresholded = op.Where(any_of(op.Greater(x, threshold), op.Less(threshold, x)), x, 0.0)

THRESHOLDED_RELU = rule(
    "thresholded-relu",
    RAISE,
    thresholded,
    op.ThresholdedRelu(x, alpha=threshold),
    doc="Where(x > θ, x, 0) ⟶ ThresholdedRelu(x, alpha=θ).",
    examples=(
        Rewrites("p = Greater(x, 0.5)  y = Where(p, x, 0.0)", to="y = ThresholdedRelu<alpha=0.5>(x)"),
        Rewrites("p = Less(0.5, x)  y = Where(p, x, 0.0)", to="y = ThresholdedRelu<alpha=0.5>(x)"),
        Rejects("p = GreaterOrEqual(x, 0.5)  y = Where(p, x, 0.0)", because="expected Greater"),
        Rejects("p = Greater(x, 0.5)  y = Where(p, x, 1.0)", because="expected constant 0, found 1"),
        Rejects("p = Greater(x, 0.5)  y = Where(p, z, 0.0)", because="x must be the same value"),
    ),
)

# -- Elu and relatives ---------------------------------------------------------------------------------------

alpha, gamma = Scalar("alpha", default=1.0), Scalar("gamma")
below = alpha * (op.Exp(x) - 1)
cut = op.Min(below, 0.0)
exponential = any_of(by_sign(x, below), no_less + cut)


@rule(
    "elu",
    RAISE,
    exponential,
    examples=(
        Rewrites(
            "p = Greater(x, 0.0)  e = Exp(x)  m = Sub(e, 1.0)  a = Mul(m, 0.5)  y = Where(p, x, a)",
            to="y = Elu<alpha=0.5>(x)",
        ),
        Rewrites(
            "r = Relu(x)  e = Exp(x)  m = Sub(e, 1.0)  c = Min(m, 0.0)  y = Add(r, c)",
            to="y = Elu<alpha=1.0>(x)",
        ),
        Rejects(
            "p = Greater(x, 0.0)  d = Div(x, 2.0)  e = Exp(d)  m = Sub(e, 1.0)  y = Where(p, x, m)",
            because="x must be the same value",
        ),
        Rejects(
            "r = Relu(x)  e = Exp(x)  m = Sub(e, 1.0)  a = Mul(m, -2.0)  c = Min(a, 0.0)  y = Add(r, c)",
            because="what is cut at zero is positive below",
        ),
        Rejects("p = Greater(x, 0.0)  e = Exp(x)  m = Sub(e, 2.0)  y = Where(p, x, m)", because="expected constant"),
    ),
)
def to_elu(m: Match, build: Builder) -> Value:
    """Where(x > 0, x, α·(exp(x) - 1)) ⟶ Elu(x, alpha=α)."""
    m.require(cut not in m or m[alpha] > 0, "what is cut at zero is positive below", at=x)
    return build.Elu(m[x], alpha=m[alpha])


elu = op.Elu(x, alpha=(scale := Attr[float]("alpha")))

SELU = rule(
    "selu",
    RAISE,
    gamma * elu,
    op.Selu(x, alpha=scale, gamma=gamma),
    examples=(
        Rewrites("e = Elu<alpha=1.6732632>(x)  y = Mul(e, 1.0507)", to="y = Selu<alpha=1.6732632, gamma=1.0507>(x)"),
        Rejects("e = Elu(x)  y = Mul(e, {1.0, 2.0})", because="expected"),
    ),
)

# -- Sigmoid, Softsign ---------------------------------------------------------------------------------------

TELLS_TINY = frozenset(operators(marks="tiny"))
"""Readers to which a tiny number is not the same as zero."""

half = op.Tanh(0.5 * x)


@rule(
    "sigmoid",
    RAISE,
    any_of(1 / (1 + op.Exp(-x)), 0.5 * (1 + half), 0.5 + 0.5 * half),
    examples=(
        Rewrites("n = Neg(x)  e = Exp(n)  a = Add(e, 1.0)  y = Div(1.0, a)", to="y = Sigmoid(x)"),
        Rewrites("n = Mul(x, -1.0)  e = Exp(n)  a = Add(1.0, e)  y = Reciprocal(a)", to="y = Sigmoid(x)"),
        Rewrites("h = Mul(x, 0.5)  t = Tanh(h)  a = Add(t, 1.0)  y = Mul(a, 0.5)", to="y = Sigmoid(x)"),
        Rewrites("h = Div(x, 2.0)  t = Tanh(h)  a = Mul(t, 0.5)  y = Add(a, 0.5)", to="y = Sigmoid(x)"),
        Rejects("e = Exp(x)  a = Add(e, 1.0)  y = Div(1.0, a)", because="expected"),
        Rejects("t = Tanh(x)  a = Add(t, 1.0)  y = Mul(a, 0.5)", because="expected"),
        Rejects("n = Neg(x)  e = Exp(n)  a = Add(e, 2.0)  y = Div(1.0, a)", because="expected constant 1, found 2"),
        Rejects("n = Neg(x)  e = Exp(n)  a = Add(e, 1.0)  s = Div(1.0, a)  y = Log(s)", because="Log may tell a tiny"),
    ),
)
def sigmoid(m: Match, build: Builder) -> Value:
    """1/(1 + exp(-x)), or ½·(1 + tanh(½x)) ⟶ Sigmoid(x), which is zero for x below -18."""
    reader = next((r for r in readers(m.anchor, within=1) if r.op_type in TELLS_TINY), None)
    m.require(reader is None, f"{reader and reader.op_type} may tell a tiny number from zero", at=m.anchor)
    return build.Sigmoid(m[x])


SOFTSIGN = rule(
    "softsign",
    RAISE,
    x / (1 + op.Abs(x)),
    op.Softsign(x),
    examples=(
        Rewrites("a = Abs(x)  b = Add(a, 1.0)  y = Div(x, b)", to="y = Softsign(x)"),
        Rejects("a = Abs(x)  b = Add(a, 2.0)  y = Div(x, b)", because="expected constant 1, found 2"),
        Rejects("a = Abs(z)  b = Add(a, 1.0)  y = Div(x, b)", because="x must be the same value"),
    ),
)
