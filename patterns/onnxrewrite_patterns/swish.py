"""Swish and its relatives: x·sigmoid(βx), and what takes the place of sigmoid: HardSigmoid, tanh∘softplus.

Why: two to five elementwise passes over memory become one kernel, or one kernel and a product.
Swish: Ramachandran et al., 2017, arXiv:1710.05941 (β = 1 is SiLU, β = 1.702 "quick GELU").
HardSwish: Howard et al., 2019, arXiv:1905.02244.   Mish: Misra, 2019, arXiv:1908.08681.

ONNX Runtime computes ``Swish`` by the standard's function body, slower than x·sigmoid(x) itself, and
``QuickGelu`` by a kernel for any β, faster and equal to the last bit, also at ±Inf and NaN.  So Swish is
always lowered to it.

ln(1 + eˣ) stays as it is: above x = 88 it is +Inf, where Softplus is x.  Inside Mish, tanh hides the
difference.
"""

from __future__ import annotations

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)
beta = Scalar("beta", default=1.0)

SWISH = rule(
    "swish",
    RAISE,
    any_of(x * op.Sigmoid(beta * x), x / (1 + op.Exp(-beta * x))),
    op.Swish(x, alpha=beta),
    examples=(
        Rewrites("s = Sigmoid(x)  y = Mul(x, s)", to="y = Swish<alpha = 1.0>(x)"),
        Rewrites("b = Mul(x, 1.702)  s = Sigmoid(b)  y = Mul(s, x)", to="y = Swish<alpha = 1.702>(x)"),
        Rewrites("n = Neg(x)  e = Exp(n)  d = Add(e, 1.0)  y = Div(x, d)", to="y = Swish<alpha = 1.0>(x)"),
        Rejects("s = Sigmoid(x)  y = Mul(z, s)", because="x must be the same value in both places"),
        Rejects("s = Sigmoid(x)  y = Mul(x, s)  z = Neg(s)", because="`s` inside the match is also used by Neg"),
    ),
)

swish = op.Swish(x, alpha=(alpha := Attr[float]("alpha")))

SWISH_LOWER = rule(
    "swish-lower",
    LOWER,
    swish,
    microsoft.QuickGelu(x, alpha=alpha),
    examples=(
        Rewrites("y = Swish(x)", to="y = com.microsoft.QuickGelu<alpha = 1.0>(x)"),
        Rewrites("y = Swish<alpha = 0.5>(x)", to="y = com.microsoft.QuickGelu<alpha = 0.5>(x)", opset=24),
        Rejects("y = Swish(x)", opset=24, target="onnx", because="standard operators only"),
    ),
)

low = Attr[float]("low", default=0.0)


def clipped(value: Term, high: float) -> Term:
    """``value`` between 0 and ``high``, in every spelling."""
    return any_of(
        op.Clip(value, min=0.0, max=high),
        op.Min(op.Max(value, 0.0), high),
        op.Max(op.Min(value, high), 0.0),
        op.Min(op.Relu(value), high),
        op.Relu(op.Min(value, high)),
        op.Clip(op.Relu(value), min=low, max=high),
    )


slope, offset, shift = Scalar("slope", default=1.0), Scalar("offset"), Scalar("shift")
ramp = any_of(slope * x + offset, slope * (x + shift))
to_one, to_six = clipped(ramp, 1.0), clipped(ramp, 6.0) / 6
gate = any_of(to_one, to_six)


@rule(
    "hard-sigmoid",
    RAISE,
    gate,
    examples=(
        Rewrites(
            "d = Div(x, 6.0)  a = Add(d, 0.5)  y = Clip(a, 0.0, 1.0)",
            to="y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
        ),
        Rewrites(
            "a = Add(x, 3.0)  c = Clip<max = 6.0, min = 0.0>(a)  y = Div(c, 6.0)",
            to="y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
            opset=10,
        ),
        Rewrites(
            "a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  m = Mul(x, c)  y = Div(m, 6.0)",
            to="h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)  y = Mul(h, x)",
        ),
        Rewrites(
            "a = Add(x, 3.0)  n = Min(a, 6.0)  c = Relu(n)  y = Div(c, 6.0)",
            to="y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
        ),
        Rejects(
            "a = Add(x, 3.0)  r = Relu(a)  c = Clip(r, 1.0, 6.0)  y = Div(c, 6.0)",
            because="the lower bound of Clip is above 0",
        ),
        Rejects("a = Add(x, 3.0)  c = Clip(a, 0.0, 6.0)  y = Div(c, 5.0)", because="expected constant 6, found 5"),
        Rejects("a = Add(x, 3.0)  c = Clip(a, 1.0, 6.0)  y = Div(c, 6.0)", because="expected min=0.0, found 1.0"),
        Rejects("y = Clip(x, 0.0, 1.0)", because="expected a sum"),
    ),
)
def to_hard_sigmoid(m: Match, build: Builder) -> Value:
    """Clip(αx + β, 0, 1), or Clip(6αx + 6β, 0, 6)/6 ⟶ HardSigmoid(x, alpha=α, beta=β)."""
    m.require(low not in m or m[low] <= 0, "the lower bound of Clip is above 0")
    high = 6.0 if m.alternative(gate) is to_six else 1.0
    start = m[offset] if offset in m else m[slope] * m[shift]
    return build.HardSigmoid(m[x], alpha=m[slope] / high, beta=start / high)


hard_sigmoid = op.HardSigmoid(x, alpha=1 / 6, beta=0.5)

HARD_SWISH = rule(
    "hard-swish",
    RAISE,
    x * hard_sigmoid,
    op.HardSwish(x),
    examples=(
        Rewrites("h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)  y = Mul(x, h)", to="y = HardSwish(x)"),
        Rejects("h = HardSigmoid<alpha = 0.2, beta = 0.5>(x)  y = Mul(x, h)", because="expected alpha=0.16"),
        Rejects(
            "h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)  y = Mul(x, h)",
            opset=13,
            because="HardSwish needs opset 14",
        ),
    ),
)

softplus = any_of(op.Softplus(x), op.Log(1 + op.Exp(x)))

MISH = rule(
    "mish",
    RAISE,
    x * op.Tanh(softplus),
    op.Mish(x),
    examples=(
        Rewrites("s = Softplus(x)  t = Tanh(s)  y = Mul(x, t)", to="y = Mish(x)", opset=18),
        Rewrites("e = Exp(x)  a = Add(e, 1.0)  s = Log(a)  t = Tanh(s)  y = Mul(t, x)", to="y = Mish(x)", opset=18),
        Rejects("s = Softplus(z)  t = Tanh(s)  y = Mul(x, t)", opset=18, because="x must be the same value"),
        Rejects("s = Softplus(x)  t = Tanh(s)  y = Mul(x, t)", because="Mish needs opset 18"),
    ),
)
