"""Rules of sums, extremes and orders."""

from __future__ import annotations

from typing import Any

from benchmarks.handwritten import right
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Assumption, Attr, Const, Scalar, Var, op

x, z = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS)
axes, axis, keep, shape, c, perm = (
    Attr[Any]("axes"),
    Attr[Any]("axis"),
    Attr[Any]("keepdims", 1),
    Var("shape"),
    Scalar("c"),
    Attr[Any]("perm"),
)
k, w, expanded = Var("k"), Const("w"), op.Expand(x, shape)
FINITE = (Assumption.FINITE,)
WHOLE = (Assumption.FINITE, Assumption.NOT_EMPTY)

RULES = [
    right("smallest-by-largest", op.Neg(op.ReduceMax(op.Neg(x), axes=axes, keepdims=keep)),
          lambda m, b: b.ReduceMin(m[x], axes=m[axes], keepdims=m[keep]), assumes=WHOLE),
    right("mean-of-expanded", op.ReduceMean(expanded, axes=axes, keepdims=1),
          lambda m, b: b.ReduceMean(m[x], axes=m[axes], keepdims=1), assumes=WHOLE, when=lambda m: m.rank(x) == m.rank(expanded)),
    right("largest-of-expanded", op.ReduceMax(expanded, axes=axes, keepdims=1),
          lambda m, b: b.ReduceMax(m[x], axes=m[axes], keepdims=1), assumes=WHOLE, when=lambda m: m.rank(x) == m.rank(expanded)),
    right("scaled-sum", op.ReduceSum(op.Mul(x, c), axes=axes, keepdims=keep),
          lambda m, b: b.Mul(b.ReduceSum(m[x], axes=m[axes], keepdims=m[keep]), b.const(m[c], like=x)), assumes=FINITE),
    right("squares-summed", op.ReduceSum(op.Mul(x, x), axes=axes, keepdims=keep),
          lambda m, b: b.ReduceSumSquare(m[x], axes=m[axes], keepdims=m[keep])),
    right("absolutes-summed", op.ReduceSum(op.Abs(x), axes=axes, keepdims=keep),
          lambda m, b: b.ReduceL1(m[x], axes=m[axes], keepdims=m[keep])),
    right("largest-of-exponential", op.ReduceMax(op.Exp(x), axes=axes, keepdims=keep),
          lambda m, b: b.Exp(b.ReduceMax(m[x], axes=m[axes], keepdims=m[keep])), assumes=WHOLE),
    right("argument-of-negative", op.ArgMin(op.Neg(x), axis=axis, keepdims=keep),
          lambda m, b: b.ArgMax(m[x], axis=m[axis], keepdims=m[keep]), assumes=FINITE),
    right("mean-by-matmul", op.ReduceMean(op.MatMul(x, w), axes=(-2,), keepdims=1),
          lambda m, b: b.MatMul(b.ReduceMean(m[x], axes=(-2,), keepdims=1), m.value(w)), assumes=WHOLE,
          when=lambda m: m[w].ndim == 2 and (m.rank(x) or 0) >= 2),
    right("mean-by-pooling", op.ReduceMean(x, axes=(2, 3), keepdims=1), lambda m, b: b.GlobalAveragePool(m[x]),
          when=lambda m: m.rank(x) == 4, assumes=WHOLE),
    right("extremes-apart", op.Sub(op.Max(x, z), op.Min(x, z)), lambda m, b: b.Abs(b.Sub(m[x], m[z])), assumes=FINITE),
]  # fmt: skip
