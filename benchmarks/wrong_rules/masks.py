"""A mask that hides everything, nothing, or is no mask of zeros and ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from benchmarks.handwritten import wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Builder, Match, Scalar, Value, Var, op

D = ir.DataType
x, v = Var("x", dtype=FLOATS), Var("v", dtype=FLOATS)
mask, other = Var("mask", dtype=D.BOOL), Var("other", dtype=D.BOOL)
ids, weights = Var("ids", dtype=frozenset({D.INT32, D.INT64})), Var("weights", dtype=FLOATS)
c, low = Scalar("c"), Scalar("low")
hidden = op.Where(mask, x, c)
SAME = lambda m: m.shape(x) is not None and m.shape(x) == m.shape(mask)  # noqa: E731
ROW, NONE = [[1, 2, 4], [3, 5, 9]], [[0, 0, 0], [1, 0, 1]]


def added(m: Match, build: Builder) -> Value:
    """Softmax(Where(mask, x, -10³⁰)) ⟶ Softmax(x + (1 - mask)·(-10⁴))."""
    m.require(m[c] < -1e4, "nothing is hidden", at=x)
    one, least = build.const(1.0, like=x), build.const(-1e4, like=x)
    off = build.Sub(one, build.Cast(m[mask], to=int(m.dtype(x) or 0)))
    return build.Softmax(build.Add(m[x], build.Mul(off, least)), axis=-1)


def hidden_before(m: Match, build: Builder) -> Value:
    """Softmax(x)·mask ⟶ Softmax(Where(mask, x, -∞))."""
    shown = build.Cast(m[weights], to=int(D.BOOL))
    return build.Softmax(build.Where(shown, m[x], build.const(-np.inf, like=x)), axis=-1)


total = op.ReduceSum(op.Mul(x, weights), axes=(-1,), keepdims=1)
softmax = op.Softmax(hidden, axis=-1)

RULES = [
    wrong(
        "hidden-by-sum", op.Softmax(op.Where(mask, x, c), axis=-1), added,
        on="float[2,3] x; bool[2,3] mask; w = Where(mask, x, -1e30)  y = Softmax(w, axis=-1)", at={"x": ROW, "mask": NONE},
        why="in a row in which all is hidden the numbers are still told apart",
    ),
    wrong(
        "softmax-times-mask", op.Mul(op.Softmax(x, axis=-1), weights), hidden_before,
        when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(weights),
        on="float[2,3] x; float[2,3] mask; s = Softmax(x, axis=-1)  y = Mul(s, mask)",
        at={"x": ROW, "mask": [[1, 1, 0], [1, 1, 1]]}, why="what is left does not sum to one any more",
    ),
    wrong(
        "rows-of-nothing", op.Where(op.IsNaN(softmax), 0.0, softmax), lambda m, b: m[softmax],
        on="float[2,3] x; bool[2,3] mask; w = Where(mask, x, -inf)  s = Softmax(w, axis=-1)  n = IsNaN(s)"
        "  y = Where(n, 0.0, s)",
        at={"x": ROW, "mask": NONE}, why="a row in which all is hidden is no number",
    ),
    wrong(
        "masked-mean", op.Div(total, op.ReduceSum(weights, axes=(-1,), keepdims=1)),
        lambda m, b: b.ReduceMean(m[x], axes=(-1,), keepdims=1),
        when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(weights),
        on="float[2,3] x; float[2,3] mask; p = Mul(x, mask)  t = ReduceSum<keepdims=1>(p, {-1})"
        "  n = ReduceSum<keepdims=1>(mask, {-1})  y = Div(t, n)",
        at={"x": ROW, "mask": [[1, 1, 0], [1, 1, 1]]}, why="only with a mask of ones it is the mean of all",
    ),
    wrong(
        "two-masks", op.Where(mask, op.Where(other, x, c), c),
        lambda m, b: b.Where(b.Or(m[mask], m[other]), m[x], b.const(m[c], like=x)),
        on="float[2,3] x; bool[2,3] mask; bool[2,3] other; w = Where(other, x, 0.0)  y = Where(mask, w, 0.0)",
        at={"x": ROW, "mask": NONE, "other": [[1, 1, 1], [1, 1, 1]]}, why="both have to show it",
    ),
    wrong(
        "where-by-product", op.Where(mask, x, 0.0), lambda m, b: b.Mul(m[x], b.Cast(m[mask], to=int(m.dtype(x) or 0))),
        when=SAME, on="float[2,3] x; bool[2,3] mask; y = Where(mask, x, 0.0)",
        at={"x": [[1, 2, np.inf], [3, 5, 9]], "mask": NONE}, why="infinity that is hidden becomes NaN",
    ),
    wrong(
        "mask-by-difference", op.Where(op.Equal(ids, 0), low, 0.0),
        lambda m, b: b.Mul(b.Cast(b.Sub(b.const(1, like=ids), m[ids]), to=1), b.const(m[low], like=D.FLOAT)),
        on="int64[2,3] mask; e = Equal(mask, 0)  y = Where(e, -10000.0, 0.0)", at={"mask": [[1, 1, 0], [1, 2, 2]]},
        why="a mask of segments counts further than one",
    ),
    wrong(
        "mask-through-bool", op.Cast(op.Cast(ids, to=int(D.BOOL)), to=int(D.INT64)), lambda m, b: m[ids],
        when=lambda m: m.dtype(ids) == D.INT64,
        on="int64[2,3] mask; b = Cast(mask, to=9)  y = Cast(b, to=7)", at={"mask": [[1, 1, 0], [1, 2, 2]]},
        why="a mask of segments counts further than one",
    ),
    wrong(
        "positions-by-mask", op.CumSum(ids, 1), lambda m, b: b.CumSum(b.Sub(m[ids], b.Sub(m[ids], b.const(1, like=ids))), b.const(1)),
        on="int64[2,3] mask; y = CumSum(mask, 1)", at={"mask": [[1, 1, 0], [1, 1, 1]]},
        why="what is padded counts no position", when=lambda m: m.rank(ids) == 2,
    ),
    wrong(
        "largest-of-shown", op.ReduceMax(op.Where(mask, x, c), axes=(-1,), keepdims=1),
        lambda m, b: b.ReduceMax(b.Sub(m[x], b.Mul(b.Sub(b.const(1.0, like=x), b.Cast(m[mask], to=int(m.dtype(x) or 0))), b.const(100.0, like=x))), axes=(-1,), keepdims=1),
        when=lambda m: m[c] < -1e3,
        on="float[2,3] x; bool[2,3] mask; w = Where(mask, x, -1e9)  y = ReduceMax(w, axes=[-1])", at={"x": ROW, "mask": NONE},
        why="where nothing is shown, or numbers are large, it is another number",
    ),
]  # fmt: skip
