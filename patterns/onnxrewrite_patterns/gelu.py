"""GELU, the Gaussian error linear unit, in the three forms that exporters write.

Why: five to nine elementwise passes over memory become one kernel.   Hendrycks & Gimpel, 2016, arXiv:1606.08415.
"""

from __future__ import annotations

import math

from onnxrewrite import FLOATS, SQRT2, Attr, Builder, Match, Rejects, Rewrites, Rule, Stage, Value, Var, op

x = Var("x", dtype=FLOATS)


def to_gelu(m: Match, build: Builder) -> Value:
    """½·x·(1 + erf(x/√2)) ⟶ Gelu(x)."""
    return build.Gelu(m[x])


GELU_ERF = Rule(
    name="gelu-erf",
    stage=Stage.RAISE,
    pattern=0.5 * x * (1 + op.Erf(x / SQRT2)),
    rewrite=to_gelu,
    examples=(
        Rewrites(
            "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)", to="y = Gelu(x)"
        ),
        Rewrites(
            "d = Mul(x, 0.70710678)  e = Erf(d)  a = Add(1.0, e)  h = Mul(a, 0.5)  y = Mul(h, x)", to="y = Gelu(x)"
        ),
        Rejects(
            "d = Div(x, 1.5)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            because="expected constant 1.41421, found 1.5",
        ),
        Rejects(
            "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.6)",
            because="expected constant 0.5, found 0.6",
        ),
    ),
)


def to_gelu_tanh(m: Match, build: Builder) -> Value:
    """½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) ⟶ Gelu(x, approximate="tanh")."""
    return build.Gelu(m[x], approximate="tanh")


GELU_TANH = Rule(
    name="gelu-tanh",
    stage=Stage.RAISE,
    pattern=0.5 * x * (1 + op.Tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    rewrite=to_gelu_tanh,
)


gelu = op.Gelu(x, approximate=(kind := Attr[str]("approximate")))


def to_microsoft_gelu(m: Match, build: Builder) -> Value:
    """Gelu(x) ⟶ com.microsoft.Gelu(x), or FastGelu(x) for the tanh form, in models older than opset 20."""
    m.require(m.is_newer(gelu), "the model's own opset has Gelu")
    if m[kind] == "tanh":
        return build.microsoft.FastGelu(m[x])
    return build.microsoft.Gelu(m[x])


GELU_LOWER = Rule(name="gelu-lower", stage=Stage.LOWER, pattern=gelu, rewrite=to_microsoft_gelu)

RULES = (GELU_ERF, GELU_TANH, GELU_LOWER)
