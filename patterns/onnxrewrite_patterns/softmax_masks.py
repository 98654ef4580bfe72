"""Softmax that is masked afterwards: what is hidden is set to zero, and the rest is divided by its sum again.

Why: it is the softmax of the scores that are shown, six passes later; attention has a mask for that.
"""

from __future__ import annotations

import math

import numpy as np

from onnxrewrite.rules import *

x, keep = Var("x", dtype=FLOATS), Const("keep")
axis = Attr[int]("axis", default=-1)
weights = op.Softmax(x, axis=axis)
shown = weights * keep
total = op.ReduceSum(shown, axes=Attr[tuple[int, ...]]("axes"), keepdims=1)
some = op.Greater(total, 0.0)
divided = any_of(shown / op.Where(some, total, 1.0), shown / total)
again = any_of(op.Where(some, divided, 0.0), divided)


@rule(
    "softmax-masked-afterwards",
    RAISE,
    again,
    assumes=(Assumption.IN_RANGE, Assumption.FINITE),
    examples=(
        Rewrites(
            "float[2,3] x; p = Softmax(x)  s = Mul(p, float[2,3] {1, 0, 0, 1, 1, 0})  t = ReduceSum(s, {-1})"
            "  g = Greater(t, 0.0)  d = Where(g, t, 1.0)  q = Div(s, d)  y = Where(g, q, 0.0)",
            to="float[2,3] x; w = Where(bool[2,3] {1, 0, 0, 1, 1, 0}, x, -inf)  y = Softmax<axis=-1>(w)",
        ),
        Rewrites(
            "float[n,3] x; p = Softmax(x)  s = Mul(float[3] {1, 0, 1}, p)  t = ReduceSum(s, {1})  y = Div(s, t)",
            to="float[n,3] x; w = Where(bool[3] {1, 0, 1}, x, -inf)  y = Softmax<axis=-1>(w)",
        ),
        Rejects(
            "float[n,3] x; p = Softmax(x)  s = Mul(p, {1., 0., 2.})  t = ReduceSum(s, {-1})  y = Div(s, t)",
            because="other numbers than 0 and 1",
        ),
        Rejects(
            "float[2,3] x; p = Softmax(x)  s = Mul(p, float[2,3] {1, 0, 0, 0, 0, 0})  t = ReduceSum(s, {-1})"
            "  y = Div(s, t)",
            because="hides a row throughout",
        ),
        Rejects(
            "float[2,3] x; p = Softmax(x)  s = Mul(p, float[3] {1, 0, 1})  t = ReduceSum(s, {0})  y = Div(s, t)",
            because="another axis",
        ),
        Rejects(
            "float[n,3] x; p = Softmax(x)  s = Mul(p, float[1,1,3] {1, 0, 1})  t = ReduceSum(s, {-1})  y = Div(s, t)",
            because="more dimensions",
        ),
    ),
)
def softmax_masked_afterwards(m: Match, build: Builder) -> Value:
    """softmax(x)·k/Σ(softmax(x)·k) ⟶ softmax(x where k, else -∞), for k of 0 and 1 that shows something of each row."""
    rank, wide = m.rank(x), m.shape(keep)
    m.require(rank is not None and wide is not None and len(wide) <= rank, "the mask has more dimensions", at=keep)
    last, summed = m.axis(m.node(weights), rank), reduce_of(m.facts, m.node(total))
    along = not isinstance(summed, str) and summed.axes == (last,) and last == (rank or 0) - 1
    m.require(along, "the sum runs along another axis than the softmax, or not the last", at=total)
    array = m[keep]
    m.require(bool(np.isin(array, (0.0, 1.0)).all()), "the mask has other numbers than 0 and 1", at=keep)
    m.require(bool(array.ndim and array.any(axis=-1).all()), "the mask hides a row throughout", at=keep)
    hidden = build.const(-math.inf, like=x)
    return build.Softmax(build.Where(build.const(array.astype(np.bool_)), m[x], hidden), axis=m[axis])
