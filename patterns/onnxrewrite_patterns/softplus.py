"""Softplus, log(1 + exp(x)), spelled so that it does not overflow: max(x, 0) + log(1 + exp(-|x|)).

Why: six passes over memory become one kernel, which computes the same.  JAX writes it for log(exp(x) + exp(0)), with
x + 0 where x is no number.
"""

from __future__ import annotations

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)
stable = any_of(op.Relu(x), op.Max(x, 0.0)) + op.Log(1.0 + op.Exp(-op.Abs(x)))
of_numbers = op.Where(op.Equal(x, x), op.Softplus(x), any_of(x, x + 0.0))

_STABLE = "a = Abs(x)  n = Neg(a)  e = Exp(n)  o = Add(e, 1.0)  l = Log(o)"

SOFTPLUS = rule(
    "softplus",
    RAISE,
    stable,
    op.Softplus(x),
    doc="max(x, 0) + log(1 + exp(-|x|)) ⟶ Softplus(x).",
    examples=(
        Rewrites(f"float[n] x; {_STABLE} r = Relu(x)  y = Add(r, l)", to="float[n] x; y = Softplus(x)"),
        Rewrites(f"float[n] x; {_STABLE} r = Max(x, 0.0)  y = Add(l, r)", to="float[n] x; y = Softplus(x)"),
        Rejects(f"float[n] x; {_STABLE} r = Max(x, 1.0)  y = Add(r, l)", because="expected"),
        Rejects(f"float[n] x; {_STABLE} r = Neg(x)  s = Relu(r)  y = Add(s, l)", because="same value"),
    ),
)

OF_NUMBERS = rule(
    "softplus-of-numbers",
    RAISE,
    of_numbers,
    op.Softplus(x),
    doc="Softplus(x) where x is a number, else x ⟶ Softplus(x), which is no number there either.",
    examples=(
        Rewrites(
            "float[n] x; s = Softplus(x)  c = Equal(x, x)  z = Add(x, 0.0)  y = Where(c, s, z)",
            to="float[n] x; y = Softplus(x)",
        ),
        Rejects("float[n] x; float[n] z; s = Softplus(x)  c = Equal(x, z)  y = Where(c, s, x)", because="same value"),
    ),
)
