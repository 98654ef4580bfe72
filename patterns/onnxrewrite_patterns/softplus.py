"""Softplus, log(1 + exp(x)), spelled so that it does not overflow: max(x, 0) + log(1 + exp(-|x|)), or beside a choice.

Why: six passes over memory become one kernel, which computes the same.  JAX writes it for log(exp(x) + exp(0)), with
x + 0 where x is no number.  PyTorch leaves large numbers as they are: from 17 on, ln(1 + exp(-x)) is less than half a
unit in the last place of a number of single precision.
"""

from __future__ import annotations

import onnx_ir as ir

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

narrow, bound = Var("x", dtype=FLOATS - {ir.DataType.DOUBLE}), Const("bound", rank=0)
is_large = any_of(op["Greater", "GreaterOrEqual"](narrow, bound), op["Less", "LessOrEqual"](bound, narrow))
_EXACT = 17.0


@rule(
    "softplus-below-bound",
    RAISE,
    op.Where(is_large, narrow, op.Softplus(narrow)),
    examples=(
        Rewrites(
            "float[n] x; s = Softplus(x)  c = Greater(x, 20.0)  y = Where(c, x, s)", to="float[n] x; y = Softplus(x)"
        ),
        Rewrites(
            "float[n] x; s = Softplus(x)  c = Less(20.0, x)  y = Where(c, x, s)", to="float[n] x; y = Softplus(x)"
        ),
        Rejects("float[n] x; s = Softplus(x)  c = Greater(x, 5.0)  y = Where(c, x, s)", because="is less than 17"),
        Rejects("double[n] x; s = Softplus(x)  c = Greater(x, 20.0)  y = Where(c, x, s)", because="dtype"),
        Rejects("float[n] x; s = Softplus(x)  c = Greater(x, 20.0)  y = Where(c, s, x)", because="same value"),
    ),
)
def softplus_below_bound(m: Match, build: Builder) -> Value:
    """Where(x > 20, x, Softplus(x)) ⟶ Softplus(x)."""
    m.require(float(m[bound]) >= _EXACT, f"the bound of {float(m[bound]):g} is less than {_EXACT:g}", at=bound)
    return build.Softplus(m[narrow])
