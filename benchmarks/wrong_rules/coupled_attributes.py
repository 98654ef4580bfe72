"""Attributes of two nodes that agree where the author looked, or that agree and need more than that."""

from __future__ import annotations

from typing import Any

from benchmarks.handwritten import wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Attr, Builder, Const, Match, Value, Var, op

x, q, z, s = Var("x", dtype=FLOATS), Var("q"), Var("z"), Var("s")
perm, perm2, axes, axes2 = (Attr[Any](n) for n in ("perm", "perm2", "axes", "axes2"))
axis, axis2, axis3 = Attr[int]("axis", -1), Attr[int]("axis2", -1), Attr[int]("axis3", -1)
kernel, strides, block, mode = Attr[Any]("kernel"), Attr[Any]("strides"), Attr[Any]("block"), Attr[Any]("mode", "DCR")
alpha, p, scale, scale2, resizing = (
    Attr[Any]("alpha", 0.01),
    Attr[Any]("p", 2),
    Const("scale"),
    Const("scale2"),
    Attr[Any]("mode", "nearest"),
)
shifted = op.Sub(x, op.ReduceMax(x, axes=axes, keepdims=1))


def wider_pool(m: Match, build: Builder) -> Value:
    """MaxPool(MaxPool(x, k, s), k, s) ⟶ MaxPool(x, 2k - 1, s²)."""
    sizes, steps = [2 * k - 1 for k in m[kernel]], [s * s for s in m[strides]]
    return build.MaxPool(m[x], kernel_shape=sizes, strides=steps)


def transposed_softmax(m: Match, build: Builder) -> Value:
    """Softmax(Transpose(x, p), axis) ⟶ Transpose(Softmax(x, axis′), p)."""
    place = list(m[perm]).index(m[axis] % len(m[perm]))
    return build.Transpose(build.Softmax(m[x], axis=place), perm=m[perm])


def one_sum(m: Match, build: Builder) -> Value:
    """Σ(Σ(x, a), a) ⟶ Σ(x, {a, a + 1}), for the axis that comes next after the first is gone."""
    m.require(len(m[axes]) == 1 and m[axes] == m[axes2], "not the same axis twice")
    return build.ReduceSum(m[x], axes=(m[axes][0], m[axes][0] + 1), keepdims=0)


RULES = [
    wrong(
        "transpose-twice-alike", op.Transpose(op.Transpose(x, perm=perm), perm=perm2), lambda m, b: m[x],
        when=lambda m: m[perm] == m[perm2],
        on="float[2,2,2] x; t = Transpose(x, perm=[1, 2, 0])  y = Transpose(t, perm=[1, 2, 0])",
        at={"x": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]}, why="a rotation of three axes takes three turns",
    ),
    wrong(
        "pool-twice-alike",
        op.MaxPool(op.MaxPool(x, kernel_shape=kernel, strides=strides), kernel_shape=kernel, strides=strides), wider_pool,
        on="float[1,1,7] x; a = MaxPool(x, kernel_shape=[3], strides=[2])  y = MaxPool(a, kernel_shape=[3], strides=[2])",
        at={"x": [[[1, 2, 3, 4, 5, 6, 9]]]}, why="with strides the windows reach further",
    ),
    wrong(
        "leaky-twice-alike", op.LeakyRelu(op.LeakyRelu(x, alpha=alpha), alpha=alpha),
        lambda m, b: b.LeakyRelu(m[x], alpha=m[alpha] ** 2),
        on="float[3] x; a = LeakyRelu(x, alpha=-0.5)  y = LeakyRelu(a, alpha=-0.5)", at={"x": [1, -1, -8]},
        why="a negative slope makes a positive number, which stays as it is",
    ),
    wrong(
        "depth-and-back", op.DepthToSpace(op.SpaceToDepth(x, blocksize=block), blocksize=block, mode=mode), lambda m, b: m[x],
        on="float[1,2,2,2] x; a = SpaceToDepth(x, blocksize=2)  y = DepthToSpace(a, blocksize=2, mode=\"CRD\")",
        at={"x": [[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]]}, why="in the mode CRD it is another order of channels",
    ),
    wrong(
        "softmax-of-transpose", op.Softmax(op.Transpose(x, perm=perm), axis=axis), transposed_softmax,
        on="float[2,2,2] x; t = Transpose(x, perm=[1, 2, 0])  y = Softmax(t, axis=0)",
        at={"x": [[[1, 2], [3, 4]], [[5, 6], [7, 9]]]}, why="for a rotation the permutation's inverse is another one",
    ),
    wrong(
        "sum-twice-alike",
        op.ReduceSum(op.ReduceSum(x, axes=axes, keepdims=0), axes=axes2, keepdims=0), one_sum,
        on="float[2,2,3] x; a = ReduceSum<keepdims=0>(x, {-1})  y = ReduceSum<keepdims=0>(a, {-1})",
        at={"x": [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]}, why="after -1 comes -2, not 0",
    ),
    wrong(
        "normalize-twice", op.LpNormalization(op.LpNormalization(x, axis=axis, p=p), axis=axis2, p=p),
        lambda m, b: b.LpNormalization(m[x], axis=m[axis], p=m[p]),
        on="float[2,2] x; a = LpNormalization(x, axis=0)  y = LpNormalization(a, axis=1)", at={"x": [[1, 2], [3, 5]]},
        why="the second normalizes another axis",
    ),
    wrong(
        "softmax-of-shifted-otherwise", op.Softmax(shifted, axis=axis), lambda m, b: b.Softmax(m[x], axis=m[axis]),
        on="float[2,2] x; t = ReduceMax<axes=[0]>(x)  d = Sub(x, t)  y = Softmax(d, axis=1)", at={"x": [[1, 2], [3, 5]]},
        why="the maximum is taken along another axis",
    ),
    wrong(
        "resize-twice", op.Resize(op.Resize(x, None, scale, mode=resizing), None, scale2, mode=resizing),
        lambda m, b: b.Resize(m[x], None, b.const(m[scale] * m[scale2], like=scale), mode=m[resizing]),
        on="float[1,1,1,2] x; a = Resize(x, , {1.0, 1.0, 2.0, 2.0}, mode=\"linear\")"
        "  y = Resize(a, , {1.0, 1.0, 2.0, 2.0}, mode=\"linear\")",
        at={"x": [[[[1, 5]]]]}, why="what is interpolated twice is smoother",
    ),
    wrong(
        "argmax-of-softmax", op.ArgMax(op.Softmax(x, axis=axis), axis=axis2, keepdims=axis3),
        lambda m, b: b.ArgMax(m[x], axis=m[axis2], keepdims=m[axis3]),
        on="float[2,2] x; a = Softmax(x, axis=1)  y = ArgMax(a, axis=0)", at={"x": [[1, 2], [3, 9]]},
        why="the softmax keeps the order along its own axis only",
    ),
]  # fmt: skip
