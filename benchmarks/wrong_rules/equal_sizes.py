"""Two axes of one size: a number of that size says not which of them is meant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.handwritten import wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Attr, Builder, Const, Match, Scalar, Value, Var, op

x, q, k, v = Var("x", dtype=FLOATS), *(Var(n, dtype=FLOATS, rank=4) for n in "qkv")
w, b, s, g, c, perm = Const("w"), Const("b"), Const("s"), Const("g"), Scalar("c"), Attr[Any]("perm")
conv = op.Conv(x, w)
X, IMAGE = [[1, 2], [3, 5]], [[[[1, 2], [3, 4]], [[5, 6], [7, 9]]]]
KERNEL = "float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}"


def into_bias(m: Match, build: Builder) -> Value:
    """Conv(x, w) + b ⟶ Conv(x, w, b), where there is a number for each channel."""
    m.require(m[b].size == m[w].shape[0], "not a number for each channel")
    return build.node("Conv", [m[x], m.value(w), build.const(m[b].ravel(), like=b)], m.attrs(conv))[0]


def into_weight(m: Match, build: Builder) -> Value:
    """Conv(x, w)·s ⟶ Conv(x, s·w), where there is a number for each channel."""
    m.require(m[s].size == m[w].shape[0], "not a number for each channel")
    weight = m[w] * m[s].reshape(-1, *[1] * (m[w].ndim - 1))
    return build.node("Conv", [m[x], build.const(weight, like=w)], m.attrs(conv))[0]


def to_batch_norm(m: Match, build: Builder) -> Value:
    """x·s ⟶ BatchNormalization(x), where there is a number for each channel."""
    m.require(m.rank(x) == 3 and m[s].shape == (m.dim(x, 1),), "not a number for each channel")
    zeros, ones = (build.const(np.full(len(m[s]), f), like=s) for f in (0.0, 1.0))
    return build.BatchNormalization(m[x], m.value(s), zeros, zeros, ones, epsilon=0.0)


def to_norm(m: Match, build: Builder) -> Value:
    """LayerNormalization(x)·g ⟶ LayerNormalization(x, g), where g has as many numbers as a row."""
    m.require(m[g].size == m.dim(x, -1), "not a number for each element")
    return build.LayerNormalization(m[x], build.const(m[w] * m[g].ravel(), like=w))


RULES = [
    wrong(
        "mean-by-size", op.Div(op.ReduceSum(x, axes=(-1,), keepdims=1), c), lambda m, b: b.ReduceMean(m[x], axes=(-1,), keepdims=1),
        when=lambda m: m.rank(x) == 2 and m[c] == m.dim(x, 0),
        on="float[2,3] x; t = ReduceSum<keepdims=1>(x, {-1})  y = Div(t, 2.0)", at={"x": [[1, 2, 3], [4, 5, 7]]},
        why="the size is that of the other axis",
    ),
    wrong(
        "scale-by-length", op.MatMul(op.Softmax(op.Div(op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2))), c), axis=-1), v),
        lambda m, b: b.Attention(m[q], m[k], m[v]),
        when=lambda m: isinstance(length := m.dim(q, 2), int) and abs(m[c] - math.sqrt(length)) < 1e-3,
        on="float[1,1,4,2] x; t = Transpose(x, perm=[0, 1, 3, 2])  p = MatMul(x, t)  d = Div(p, 2.0)  s = Softmax(d)"
        "  y = MatMul(s, x)",
        at={"x": [[[[1, 2], [3, 4], [5, 6], [7, 8]]]]}, why="the scale is that of the length of the sequence",
    ),
    wrong(
        "bias-by-size", op.Add(conv, b), into_bias,
        on=f"float[1,2,2,2] x; a = Conv(x, {KERNEL})  y = Add(a, {{1.0, 2.0}})", at={"x": IMAGE},
        why="a vector is added along the last axis, which is the width",
    ),
    wrong(
        "scale-by-size", op.Mul(conv, s), into_weight,
        on=f"float[1,2,2,2] x; a = Conv(x, {KERNEL})  y = Mul(a, float[2,1] {{1.0, 2.0}})", at={"x": IMAGE},
        why="a column is multiplied along the height",
    ),
    wrong(
        "norm-by-size", op.Mul(op.LayerNormalization(x, w), g), to_norm,
        on="float[2,2] x; n = LayerNormalization(x, {1.0, 1.0})  y = Mul(n, float[2,1] {1.0, 2.0})", at={"x": X},
        why="a column is multiplied by rows",
    ),
    wrong(
        "channels-by-size", op.Mul(x, s), to_batch_norm,
        on="float[1,2,2] x; y = Mul(x, {1.0, 2.0})", at={"x": [[[1, 2], [3, 4]]]}, why="a vector is multiplied along the last axis",
    ),
    wrong(
        "slope-by-size", op.PRelu(x, s), lambda m, b: b.PRelu(m[x], b.const(m[s].reshape(-1, 1), like=s)),
        when=lambda m: m.rank(x) == 3 and m[s].shape == (m.dim(x, 1),),
        on="float[1,2,2] x; y = PRelu(x, {0.1, 0.2})", at={"x": [[[-1, -2], [-3, -4]]]},
        why="a vector of slopes is along the last axis",
    ),
    wrong(
        "transpose-of-sum", op.Transpose(op.Add(x, b), perm=perm), lambda m, build: build.Add(build.Transpose(m[x], perm=m[perm]), m.value(b)),
        when=lambda m: m[b].ndim == 1,
        on="float[2,2] x; a = Add(x, {1.0, 2.0})  y = Transpose(a, perm=[1, 0])", at={"x": X},
        why="the last axis is another one afterwards",
    ),
    wrong(
        "sum-before-product", op.MatMul(op.Add(x, b), w),
        lambda m, build: build.Add(build.MatMul(m[x], m.value(w)), build.const(m[b].ravel() @ m[w], like=b)),
        when=lambda m: m[w].ndim == 2 and m[b].size == m[w].shape[0],
        on="float[2,2] x; a = Add(x, float[2,1] {1.0, 2.0})  y = MatMul(a, float[2,2] {1.0, 2.0, 3.0, 4.0})", at={"x": X},
        why="a column adds to rows",
    ),
    wrong(
        "softmax-over-size", op.Div(op.Exp(x), op.ReduceSum(op.Exp(x), axes=(1,), keepdims=0)),
        lambda m, b: b.Softmax(m[x], axis=-1), when=lambda m: m.rank(x) == 2,
        on="float[2,2] x; e = Exp(x)  t = ReduceSum<keepdims=0>(e, {1})  y = Div(e, t)", at={"x": X},
        why="without its axis the sum divides columns",
    ),
]  # fmt: skip
