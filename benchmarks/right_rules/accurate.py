"""Rules after which less is lost than before: what overflowed, underflowed or cancelled does no longer."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.handwritten import right
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Assumption, Attr, Builder, Const, Match, Scalar, Value, Var, op

x, z, w, b = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Const("w"), Const("b", default=None)
axes, keep, axis, c, d = Attr[Any]("axes"), Attr[int]("keepdims", 1), Attr[int]("axis", -1), Scalar("c"), Scalar("d")
FINITE = (Assumption.FINITE,)
IN_RANGE = (Assumption.FINITE, Assumption.IN_RANGE)
ONCE = (Assumption.FINITE, Assumption.NOT_EMPTY)
conv = op.Conv(x, w, b)
sigmoid2 = op.Sigmoid(op.Mul(x, 2.0))


def conv_scaled(m: Match, build: Builder) -> Value:
    """Conv(x, w, b)·c ⟶ Conv(x, c·w, c·b)."""
    bias = build.const(m[b] * m[c], like=w) if b in m else None
    return build.node("Conv", [m[x], build.const(m[w] * m[c], like=w), bias], m.attrs(conv))[0]


RULES = [
    right("log-of-sum-of-exp", op.Log(op.ReduceSum(op.Exp(x), axes=axes, keepdims=keep)),
          lambda m, b: b.ReduceLogSumExp(m[x], axes=m[axes], keepdims=m[keep]), assumes=IN_RANGE),
    right("tanh-by-sigmoid", op.Sub(op.Mul(sigmoid2, 2.0), 1.0), lambda m, b: b.Tanh(m[x])),
    right("softplus-by-log", op.Log(op.Add(op.Exp(x), 1.0)), lambda m, b: b.Softplus(m[x]), assumes=(Assumption.IN_RANGE,)),
    right("log-of-softmax", op.Log(op.Softmax(x, axis=axis)), lambda m, b: b.LogSoftmax(m[x], axis=m[axis]), assumes=IN_RANGE),
    right("mean-of-means", op.ReduceMean(op.ReduceMean(x, axes=(-1,), keepdims=1), axes=(-2,), keepdims=1),
          lambda m, b: b.ReduceMean(m[x], axes=(-2, -1), keepdims=1), assumes=ONCE),
    right("sum-of-sums", op.ReduceSum(op.ReduceSum(x, axes=(-1,), keepdims=1), axes=(-2,), keepdims=1),
          lambda m, b: b.ReduceSum(m[x], axes=(-2, -1), keepdims=1), assumes=FINITE),
    right("tanh-by-exponentials", op.Div(op.Sub(op.Exp(x), op.Exp(op.Neg(x))), op.Add(op.Exp(x), op.Exp(op.Neg(x)))),
          lambda m, b: b.Tanh(m[x]), assumes=IN_RANGE),
    right("sigmoid-by-exponential", op.Div(op.Exp(x), op.Add(op.Exp(x), 1.0)), lambda m, b: b.Sigmoid(m[x]), assumes=IN_RANGE),
    right("length-by-squares", op.Sqrt(op.ReduceSum(op.Mul(x, x), axes=axes, keepdims=keep)),
          lambda m, b: b.ReduceL2(m[x], axes=m[axes], keepdims=m[keep]), assumes=FINITE),
    right("softsign-by-parts", op.Div(x, op.Add(op.Abs(x), 1.0)), lambda m, b: b.Softsign(m[x]), assumes=FINITE),
    right("added-and-taken-off", op.Sub(op.Add(x, c), c), lambda m, b: m[x], assumes=FINITE),
    right("scaled-and-back", op.Mul(op.Mul(x, c), d), lambda m, b: m[x], when=lambda m: m[c] * m[d] == 1, assumes=FINITE),
    right("conv-scaled", op.Mul(conv, c), conv_scaled, assumes=FINITE),
    right("square-root-of-square", op.Sqrt(op.Mul(x, x)), lambda m, b: b.Abs(m[x]), assumes=(Assumption.IN_RANGE,)),
    right("hyperbolic-sine", op.Mul(op.Sub(op.Exp(x), op.Exp(op.Neg(x))), 0.5), lambda m, b: b.Sinh(m[x]), assumes=FINITE,
          when=lambda m: m.dtype(x) in (1, 11)),
    right("erf-by-halves", op.Mul(op.Mul(x, 0.5), op.Add(op.Erf(op.Div(x, float(np.sqrt(2)))), 1.0)), lambda m, b: b.Gelu(m[x])),
    right("softmax-unshifted", op.Div(op.Exp(x), op.ReduceSum(op.Exp(x), axes=(-1,), keepdims=1)),
          lambda m, b: b.Softmax(m[x], axis=-1), when=lambda m: m.rank(x) == 2, assumes=IN_RANGE),
    right("mish-by-log", op.Mul(x, op.Tanh(op.Log(op.Add(op.Exp(x), 1.0)))), lambda m, b: b.Mul(m[x], b.Tanh(b.Softplus(m[x]))),
          assumes=IN_RANGE),
]  # fmt: skip
