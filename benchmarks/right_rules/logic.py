"""Rules of truth values and of choices."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.handwritten import right
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Assumption, Scalar, Var, op

D = ir.DataType
a, e, g = (Var(n, dtype=D.BOOL) for n in "aeg")
x, z, y = (Var(n, dtype=FLOATS) for n in "xzy")
n, k, c, d = Var("n", dtype=D.INT64), Var("k", dtype=D.INT64), Scalar("c"), Scalar("d")

RULES = [
    right("neither", op.And(op.Not(a), op.Not(e)), lambda m, b: b.Not(b.Or(m[a], m[e]))),
    right("where-negated", op.Where(op.Not(a), x, z), lambda m, b: b.Where(m[a], m[z], m[x])),
    right("where-where", op.Where(a, op.Where(a, x, z), y), lambda m, b: b.Where(m[a], m[x], m[y]),
          when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z)),
    right("two-masks-at-once", op.Where(a, op.Where(e, x, c), c), lambda m, b: b.Where(b.And(m[a], m[e]), m[x], b.const(m[c], like=x))),
    right("exclusive-or-by-equal", op.Not(op.Equal(a, e)), lambda m, b: b.Xor(m[a], m[e])),
    right("not-less-of-integers", op.Not(op.Less(n, k)), lambda m, b: b.GreaterOrEqual(m[n], m[k])),
    right("truth-through-numbers", op.Cast(op.Cast(a, to=1), to=9), lambda m, b: m[a]),
    right("greater-turned", op.Greater(x, z), lambda m, b: b.Less(m[z], m[x])),
    right("absolute-by-choice", op.Where(op.Less(x, 0.0), op.Neg(x), x), lambda m, b: b.Abs(m[x]), assumes=(Assumption.FINITE,)),
    right("zero-by-product", op.Mul(x, op.Cast(op.Not(a), to=1)), lambda m, b: b.Where(m[a], b.const(0.0, like=x), m[x]),
          when=lambda m: m.dtype(x) == D.FLOAT, assumes=(Assumption.FINITE,)),
]  # fmt: skip
