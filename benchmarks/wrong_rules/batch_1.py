"""Equalities that hold for one sample and not for two."""

from __future__ import annotations

from benchmarks.handwritten import Condition, wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Const, Var, op

x, z, shape, shape2 = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Var("shape"), Var("shape2")
SAME = lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z)  # noqa: E731
target, repeats = Const("target"), Const("repeats")
centred = op.Sub(x, op.ReduceMean(x, keepdims=1))
TWO, FOUR = [[1, 2], [3, 5]], [[[[1, 2]], [[3, 5]]], [[[7, 8]], [[9, 0]]]]


def ranked(rank: int) -> Condition:
    """A guard: the rank is known, and this."""
    return lambda m: m.rank(x) == rank


RULES = [
    wrong(
        "difference-from-all", centred, lambda m, b: b.Sub(m[x], b.ReduceMean(m[x], axes=(1,), keepdims=1)), when=ranked(2),
        on="float[b,2] x; t = ReduceMean(x)  y = Sub(x, t)", at={"x": TWO}, why="the mean is that of all samples",
    ),
    wrong(
        "normalized-by-all", op.Div(x, op.ReduceL2(x, keepdims=1)), lambda m, b: b.LpNormalization(m[x], axis=1, p=2),
        when=ranked(2), on="float[b,2] x; t = ReduceL2(x)  y = Div(x, t)", at={"x": TWO},
        why="the length is that of all samples together",
    ),
    wrong(
        "statistics-of-the-batch", op.Sub(x, op.ReduceMean(x, axes=(0, 2, 3), keepdims=1)),
        lambda m, b: b.Sub(m[x], b.GlobalAveragePool(m[x])),
        on="float[b,2,1,2] x; t = ReduceMean(x, axes=[0, 2, 3])  y = Sub(x, t)", at={"x": FOUR},
        why="the mean is over samples, too",
    ),
    wrong(
        "softmax-of-row", op.Reshape(op.Softmax(op.Reshape(x, shape), axis=-1), shape2), lambda m, b: b.Softmax(m[x], axis=-1),
        when=lambda m: m.rank(x) == 2,
        on="float[2,2] x; r = Reshape(x, {1, -1})  s = Softmax(r, axis=-1)  y = Reshape(s, {2, 2})", at={"x": TWO},
        why="all samples are one row",
    ),
    wrong(
        "shifted-by-largest", op.Sub(x, op.ReduceMax(x, keepdims=1)),
        lambda m, b: b.Sub(m[x], b.ReduceMax(m[x], axes=(-1,), keepdims=1)), when=ranked(2),
        on="float[b,2] x; t = ReduceMax(x)  y = Sub(x, t)", at={"x": TWO}, why="the largest is that of all samples",
    ),
    wrong(
        "time-first-and-flat", op.Reshape(op.Transpose(x, perm=(1, 0, 2)), target), lambda m, b: b.Reshape(m[x], m.value(target)),
        on="float[2,2,1] x; t = Transpose(x, perm=[1, 0, 2])  y = Reshape(t, {-1, 1})", at={"x": [[[1], [2]], [[3], [4]]]},
        why="exchanging the first two axes moves nothing only where one has the size 1",
    ),
    wrong(
        "first-of-batch", op.Add(x, op.Unsqueeze(op.Gather(z, 0, axis=0), axes=(0,))), lambda m, b: b.Add(m[x], m[z]),
        when=SAME, on="float[2,2] x; float[2,2] z; g = Gather(z, 0, axis=0)  u = Unsqueeze(g, {0})  y = Add(x, u)",
        at={"x": TWO, "z": TWO}, why="the first is added to all",
    ),
    wrong(
        "first-mask-for-all", op.Add(x, op.Slice(z, starts=(0,), ends=(1,), axes=(0,))), lambda m, b: b.Add(m[x], m[z]),
        when=SAME, on="float[2,2] x; float[2,2] z; g = Slice(z, {0}, {1}, {0})  y = Add(x, g)", at={"x": TWO, "z": TWO},
        why="the first is added to all",
    ),
    wrong(
        "each-twice", op.Reshape(op.Tile(op.Unsqueeze(x, axes=(1,)), repeats), target),
        lambda m, b: b.Tile(m[x], b.const([m[repeats][1], 1])),
        when=lambda m: m.rank(x) == 2 and m[repeats].tolist() == [1, m[repeats][1], 1],
        on="float[2,2] x; u = Unsqueeze(x, {1})  t = Tile(u, {1, 2, 1})  y = Reshape(t, {4, 2})", at={"x": TWO},
        why="each sample twice is not all samples twice",
    ),
    wrong(
        "reversed-batch", op.Slice(x, starts=(-1,), ends=(-1000,), axes=(0,), steps=(-1,)), lambda m, b: m[x],
        on="float[2,2] x; y = Slice(x, {-1}, {-1000}, {0}, {-1})", at={"x": TWO}, why="two samples change places",
    ),
]  # fmt: skip
