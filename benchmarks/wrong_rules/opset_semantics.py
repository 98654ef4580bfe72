"""The meaning of an axis, which changed with opset 13: before, an operator took all axes from there on."""

from __future__ import annotations

from benchmarks.handwritten import Rewrite, wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Attr, Builder, Match, Term, Value, Var, op

x, z, i = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Var("i")
LAST = (0, 2, 1)
axis = Attr[int]("axis")
CUBE = [[[1, 2], [3, 4]], [[5, 6], [7, 9]]]
soft = op.Softmax(x)


def at_last(op_type: str) -> Rewrite:
    """Transpose(f(Transpose(x))) ⟶ f(x) along axis 1."""
    return lambda m, build: build.node(op_type, [m[x]], {"axis": 1})[0]


def turned(op_type: str) -> Term:
    """Transpose(f(Transpose(x)))."""
    return op.Transpose(op[op_type](op.Transpose(x, perm=LAST), axis=2), perm=LAST)


def lowered(m: Match, build: Builder) -> Value:
    """Softmax(x, axis=1) ⟶ Transpose(Softmax(Transpose(x)))."""
    m.require(m.rank(x) == 3, "the rank is not 3")
    inner = build.Softmax(build.Transpose(m[x], perm=LAST), axis=2)
    return build.Transpose(inner, perm=LAST)


normalized = op.Softmax(x, axis=axis)

RULES = [
    wrong(
        "softmax-to-last", op.Softmax(x, axis=1), lowered, opset=11,
        on="float[2,2,2] x; y = Softmax(x, axis=1)", at={"x": CUBE}, why="before opset 13 it is over both last axes",
    ),
    wrong(
        "softmax-sums-to-one", op.Div(soft, op.ReduceSum(soft, axes=(-1,), keepdims=1)), lambda m, b: m.value(soft),
        opset=11, on="float[2,2,2] x; s = Softmax(x)  t = ReduceSum<axes=[-1]>(s)  y = Div(s, t)", at={"x": CUBE},
        why="before opset 13 the rows of a tensor of rank 3 sum to one together",
    ),
    wrong(
        "log-softmax-by-difference", op.Sub(x, op.ReduceLogSumExp(x, axes=(1,), keepdims=1)),
        lambda m, b: b.LogSoftmax(m[x], axis=1), opset=11,
        on="float[2,2,2] x; l = ReduceLogSumExp<axes=[1]>(x)  y = Sub(x, l)", at={"x": CUBE},
        why="before opset 13 LogSoftmax is over both last axes",
    ),
    wrong(
        "softmax-of-shifted-channels", op.Softmax(op.Sub(x, op.ReduceMax(x, axes=(1,), keepdims=1)), axis=1),
        lambda m, b: b.Softmax(m[x], axis=1), opset=11,
        on="float[2,2,2] x; t = ReduceMax<axes=[1]>(x)  d = Sub(x, t)  y = Softmax(d, axis=1)", at={"x": CUBE},
        why="before opset 13 what is taken off differs within what is normalized",
    ),
    wrong(
        "softmax-from-last", turned("Softmax"), at_last("Softmax"), opset=12,
        on="float[2,2,2] x; t = Transpose(x, perm=[0, 2, 1])  s = Softmax(t, axis=2)  y = Transpose(s, perm=[0, 2, 1])",
        at={"x": CUBE}, why="before opset 13 axis 1 means both last axes",
    ),
    wrong(
        "log-softmax-from-last", turned("LogSoftmax"), at_last("LogSoftmax"), opset=12,
        on="float[2,2,2] x; t = Transpose(x, perm=[0, 2, 1])  s = LogSoftmax(t, axis=2)  y = Transpose(s, perm=[0, 2, 1])",
        at={"x": CUBE}, why="before opset 13 axis 1 means both last axes",
    ),
    wrong(
        "hardmax-from-last", turned("Hardmax"), at_last("Hardmax"), opset=12,
        on="float[2,2,2] x; t = Transpose(x, perm=[0, 2, 1])  s = Hardmax(t, axis=2)  y = Transpose(s, perm=[0, 2, 1])",
        at={"x": CUBE}, why="before opset 13 axis 1 means both last axes",
    ),
    wrong(
        "gather-of-softmax", op.Gather(op.Softmax(x, axis=1), i, axis=2),
        lambda m, b: b.Softmax(b.Gather(m[x], m[i], axis=2), axis=1), opset=11,
        on="float[2,2,2] x; s = Softmax(x, axis=1)  y = Gather(s, {1}, axis=2)", at={"x": CUBE},
        why="before opset 13 the columns that are left out take part",
    ),
    wrong(
        "concat-of-softmax", op.Concat(op.Softmax(x, axis=1), op.Softmax(z, axis=1), axis=2),
        lambda m, b: b.Softmax(b.Concat(m[x], m[z], axis=2), axis=1), opset=11,
        on="float[1,2,2] x; float[1,2,2] z; s = Softmax(x, axis=1)  t = Softmax(z, axis=1)  y = Concat(s, t, axis=2)",
        at={"x": CUBE[:1], "z": CUBE[1:]}, why="before opset 13 each is normalized as a whole",
    ),
    wrong(
        "softmax-is-invariant", op.Softmax(op.Add(x, op.ReduceMean(z, axes=(1,), keepdims=1)), axis=1),
        lambda m, b: b.Softmax(m[x], axis=1), opset=11,
        on="float[2,2,2] x; float[2,2,2] z; t = ReduceMean<axes=[1]>(z)  d = Add(x, t)  y = Softmax(d, axis=1)",
        at={"x": CUBE, "z": CUBE}, why="before opset 13 what is added differs within what is normalized",
        when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z),
    ),
]  # fmt: skip
