"""A value that is broadcast counts as often as it is repeated."""

from __future__ import annotations

from benchmarks.handwritten import Rewrite, wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Attr, Const, Var, op

x, z, shape = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Var("shape")
b, w, s = Const("b"), Const("w"), Const("s")
axes, axis, keep = Attr[tuple[int, ...]]("axes"), Attr[int]("axis", -1), Attr[int]("keepdims", 1)
expanded = op.Expand(x, shape)
ROWS = [[1, 2], [3, 5]]


def reduced(op_type: str) -> Rewrite:
    """f(Expand(x)) ⟶ f(x)."""
    return lambda m, build: build.node(op_type, [m[x]], {"axes": m[axes], "keepdims": 1})[0]


EXPANDED = "float[2,1] x; e = Expand(x, {{2, 3}})  y = {}<keepdims=1>(e, {{1}})"
OLDER = "float[2,1] x; e = Expand(x, {{2, 3}})  y = {}(e, axes=[1], keepdims=1)"
COLUMN = {"x": [[1], [2]]}

RULES = [
    wrong(
        "sum-of-sum", op.ReduceSum(op.Add(x, z), axes=axes, keepdims=1),
        lambda m, b: b.Add(b.ReduceSum(m[x], axes=m[axes], keepdims=1), b.ReduceSum(m[z], axes=m[axes], keepdims=1)),
        on="float[2,3] x; float[2,1] z; a = Add(x, z)  y = ReduceSum<keepdims=1>(a, {1})",
        at={"x": [[1, 2, 3], [4, 5, 6]], "z": [[1], [2]]}, why="a column is added three times",
    ),
    wrong(
        "sum-of-expanded", op.ReduceSum(expanded, axes=axes, keepdims=1), reduced("ReduceSum"),
        on=EXPANDED.format("ReduceSum"), at=COLUMN, why="what is repeated is summed as often",
    ),
    wrong(
        "length-of-expanded", op.ReduceL2(expanded, axes=axes, keepdims=1), reduced("ReduceL2"),
        on=OLDER.format("ReduceL2"), at=COLUMN, why="what is repeated counts as often",
    ),
    wrong(
        "product-of-expanded", op.ReduceProd(expanded, axes=axes, keepdims=1), reduced("ReduceProd"),
        on=OLDER.format("ReduceProd"), at=COLUMN, why="what is repeated is multiplied as often",
    ),
    wrong(
        "softmax-of-expanded", op.Softmax(expanded, axis=axis), lambda m, b: b.Expand(b.Softmax(m[x], axis=m[axis]), m[shape]),
        on="float[2,1] x; e = Expand(x, {2, 3})  y = Softmax(e, axis=1)", at=COLUMN,
        why="what is repeated shares the one", when=lambda m: m.rank(x) == m.rank(expanded),
    ),
    wrong(
        "mean-of-factors", op.ReduceMean(op.Mul(x, z), axes=axes, keepdims=1),
        lambda m, b: b.Mul(b.ReduceMean(m[x], axes=m[axes], keepdims=1), b.ReduceMean(m[z], axes=m[axes], keepdims=1)),
        on="float[2,2] x; float[2,2] z; p = Mul(x, z)  y = ReduceMean(p, axes=[1])", at={"x": ROWS, "z": ROWS},
        why="the factor is only taken out where it is the same along the axis",
    ),
    wrong(
        "softmax-is-invariant-to-vectors", op.Softmax(op.Add(x, b), axis=-1), lambda m, build: build.Softmax(m[x], axis=-1),
        when=lambda m: m[b].ndim < 2,
        on="float[2,2] x; a = Add(x, {1.0, 2.0})  y = Softmax(a, axis=-1)", at={"x": ROWS},
        why="a vector of more than one number varies along the axis",
    ),
    wrong(
        "logarithm-of-expanded", op.ReduceLogSumExp(expanded, axes=axes, keepdims=1), reduced("ReduceLogSumExp"),
        on=OLDER.format("ReduceLogSumExp"), at=COLUMN, why="what is repeated is summed as often",
    ),
    wrong(
        "scaled-before-product", op.MatMul(op.Mul(x, s), w), lambda m, b: b.Mul(b.MatMul(m[x], m.value(w)), m.value(s)),
        on="float[2,2] x; a = Mul(x, {1.0, 2.0})  y = MatMul(a, float[2,2] {1.0, 2.0, 3.0, 4.0})", at={"x": ROWS},
        why="a vector scales what is summed over",
    ),
    wrong(
        "norm-of-rows", op.Div(x, op.ReduceL2(x, axes=(1,), keepdims=keep)), lambda m, b: b.LpNormalization(m[x], axis=1, p=2),
        when=lambda m: m[keep] in (0, 1),
        on="float[2,2] x; t = ReduceL2(x, axes=[1], keepdims=0)  y = Div(x, t)", at={"x": ROWS},
        why="without its axis the length divides columns",
    ),
]  # fmt: skip
