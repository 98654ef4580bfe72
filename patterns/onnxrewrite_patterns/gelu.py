"""GELU, x·Φ(x), the Gaussian error linear unit, and its approximation by tanh.

Why: five to nine elementwise passes over memory become one kernel.   Hendrycks & Gimpel, 2016,
arXiv:1606.08415.

Both forms are one idea: Φ(x) = ½·(1 + odd(x)), where odd is erf(x/√2), or tanh(√(2/π)·(x + 0.044715·x³)).
The third form, x·sigmoid(1.702·x), "quick GELU", is a Swish and lives in ``swish.py``.

ONNX Runtime's kernels are as accurate as the spelled-out forms (against float64, for |x| ≤ 1000, denormals,
±Inf and NaN), but that x·(1 + erf) is +Inf already at half the largest number, where Gelu(x) is still x.
Megatron's ÷1.41421 is no √2: with Gelu(x) its error would be ten times that of the original.  But
½·x·(1 + erf(x/a)) is Gelu(k·x)/k with k = √2/a, and layers before and after take factors in.  Where they do not, ONNX
Runtime is faster, which fuses it all the same; so that is for the lower stage, which measures.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)


def half_plus(odd: Term, minus_odd: Term) -> Term:
    """½·x·(1 + odd), where ``minus_odd`` is -odd: with the product multiplied out, or not."""
    one_plus = any_of(1 + odd, 1 - minus_odd)
    half_of = any_of(0.5 + 0.5 * odd, 0.5 - 0.5 * minus_odd)
    return any_of(0.5 * x * one_plus, x * half_of, 0.5 * x + 0.5 * x * odd, 0.5 * (x + x * odd))


GELU_ERF = rule(
    "gelu-erf",
    RAISE,
    half_plus(op.Erf(x / SQRT2), op.Erf(x / -SQRT2)),
    op.Gelu(x),
    doc="½·x·(1 + erf(x/√2)) ⟶ Gelu(x).",
    examples=(
        Rewrites(
            "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            to="y = Gelu(x)",
        ),
        Rewrites(
            "d = Mul(x, 0.70710678)  e = Erf(d)  a = Add(1.0, e)  h = Mul(a, 0.5)  y = Mul(h, x)",
            to="y = Gelu(x)",
        ),
        Rewrites(
            "n = Neg(x)  d = Mul(n, 0.70710678)  e = Erf(d)  c = Sub(1.0, e)  m = Mul(x, c)  y = Mul(m, 0.5)",
            to="y = Gelu(x)",
        ),
        Rewrites(
            "h = Mul(x, 0.5)  d = Div(x, 1.41421356)  e = Erf(d)  m = Mul(h, e)  y = Add(h, m)",
            to="y = Gelu(x)",
        ),
        Rejects(
            "d = Div(x, 1.5)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="expected constant 1.41421, found 1.5",
        ),
        Rejects(
            "d = Div(x, 1.41421)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="expected constant 1.41421356, found 1.41420996",
        ),
        Rejects(
            "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.6)",
            because="expected constant 0.5, found 0.6",
        ),
        Rejects(
            "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(z, a)  y = Mul(m, 0.5)",
            because="x must be the same value in both places",
        ),
        Rejects(
            "float16 x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="Gelu",
        ),
    ),
)

factor = Scalar("factor")
SIX_DIGITS = 5e-6 / SQRT2
"""The largest relative error of √2 written with six digits, as in Megatron."""


@rule(
    "gelu-six-digits",
    LOWER,
    half_plus(op.Erf(factor * x), op.Erf(-factor * x)),
    examples=(
        Rewrites(
            "d = Div(x, 1.41421)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            to="k = Mul(x, 1.0000025)  g = com.microsoft.Gelu(k)  y = Mul(g, 0.99999744)",
        ),
        Rejects(
            "d = Div(x, 1.5)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="expected constant 0.707107, found 0.666666667",
        ),
        Rejects(
            "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="that is √2 itself",
        ),
        Rejects(
            "d = Div(x, 1.4142)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="expected constant 0.707107, found 0.70711",
        ),
    ),
)
def gelu_six_digits(m: Match, build: Builder) -> Value:
    """½·x·(1 + erf(x/a)) ⟶ Gelu(k·x)/k with k = √2/a, of an a that is √2 written with six digits."""
    scale = m[factor] * SQRT2
    m.require(m.dtype(x) == ir.DataType.FLOAT, "only float32 has a kernel that pays for two products", at=x)
    m.require(abs(scale - 1) > 2**-22, "that is √2 itself", at=x)
    m.require(abs(scale - 1) < SIX_DIGITS, f"expected constant {1 / SQRT2:.6g}, found {m[factor]:.9g}", at=x)
    gelu = build.Gelu if build.opset >= 20 else build.microsoft.Gelu
    return build.Mul(gelu(build.Mul(m[x], scale)), 1 / scale)


K = math.sqrt(2 / math.pi)
CUBIC = 0.044715
argument = any_of(
    K * (x + CUBIC * x**3),
    K * x * (1 + CUBIC * x**2),
    x * (K + K * CUBIC * x**2),
    K * x + K * CUBIC * x**3,
)

GELU_TANH = rule(
    "gelu-tanh",
    RAISE,
    half_plus(op.Tanh(argument), op.Tanh(-argument)),
    op.Gelu(x, approximate="tanh"),
    doc='½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) ⟶ Gelu(x, approximate="tanh").',
    examples=(
        Rewrites(
            "float[n] x; c = Pow(x, 3.0)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.79788456)  t = Tanh(u)"
            "  a = Add(t, 1.0)  h = Mul(x, 0.5)  y = Mul(h, a)",
            to='float[n] x; y = Gelu<approximate = "tanh">(x)',
        ),
        Rewrites(
            "float[n] x; k = Mul(x, 0.044715)  q = Mul(k, x)  s = Add(q, 1.0)  w = Mul(x, 0.79788456)  u = Mul(w, s)"
            "  t = Tanh(u)  a = Add(1.0, t)  h = Mul(0.5, x)  y = Mul(h, a)",
            to='float[n] x; y = Gelu<approximate = "tanh">(x)',
        ),
        Rewrites(
            "float[n] x; q = Mul(x, x)  k = Mul(q, 0.035677408)  s = Add(k, 0.79788456)  u = Mul(x, s)  t = Tanh(u)"
            "  b = Mul(t, 0.5)  a = Add(b, 0.5)  y = Mul(a, x)",
            to='float[n] x; y = Gelu<approximate = "tanh">(x)',
        ),
        Rejects(
            "c = Pow(x, 3.0)  k = Mul(c, 0.04)  s = Add(x, k)  u = Mul(s, 0.79788456)  t = Tanh(u)"
            "  a = Add(t, 1.0)  h = Mul(x, 0.5)  y = Mul(h, a)",
            because="expected constant 0.044715, found 0.04",
        ),
        Rejects(
            "c = Pow(x, 3.0)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.79788456)  t = Tanh(u)"
            "  a = Add(t, 1.0)  h = Mul(z, 0.5)  y = Mul(h, a)",
            because="x must be the same value in both places",
        ),
    ),
)

gelu = op.Gelu(x, approximate=(kind := Attr[str]("approximate")))


@rule(
    "gelu-lower",
    LOWER,
    gelu,
    examples=(
        Rewrites("y = Gelu(x)", to="y = com.microsoft.Gelu(x)"),
        Rewrites('float[n] x; y = Gelu<approximate = "tanh">(x)', to="float[n] x; y = com.microsoft.FastGelu(x)"),
        Rejects("y = Gelu(x)", opset=20, because="the model's own opset has Gelu"),
        Rejects('float[] x; y = Gelu<approximate = "tanh">(x)', because="FastGelu takes no scalar"),
        Rejects("y = Gelu(x)", target="onnx", because="standard operators only"),
    ),
)
def gelu_lower(m: Match, build: Builder) -> Value:
    """Gelu(x) ⟶ com.microsoft.Gelu(x), or FastGelu(x) for the tanh form, in models older than opset 20."""
    m.require(m.is_newer(gelu), "the model's own opset has Gelu")
    if m[kind] == "tanh":
        m.require(m.rank(x), "FastGelu takes no scalar, and this is or may be one", at=x)
        return build.microsoft.FastGelu(m[x])
    return build.microsoft.Gelu(m[x])
