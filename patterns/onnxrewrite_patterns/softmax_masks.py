"""Softmax that is masked afterwards: what is hidden is set to zero, and the rest is divided by its sum again.

Why: it is the softmax of the scores that are shown, six passes later; attention has a mask for that.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x, keep, flags = Var("x", dtype=FLOATS), Const("keep"), Var("flags", dtype=ir.DataType.BOOL)
axis = Attr[int]("axis", default=-1)
weights = op.Softmax(x, axis=axis)
as_numbers = op.Cast(flags, to=Attr[int]("to"))
chosen = any_of(op.Mul(weights, as_numbers), op.Where(flags, weights, 0.0))
shown = any_of(weights * keep, chosen)
total = op.ReduceSum(shown, axes=Attr[tuple[int, ...]]("axes"), keepdims=1)
some = op.Greater(total, 0.0)
instead = Scalar("divisor of nothing")
safely = op.Div(shown, op.Where(some, total, instead))
divided = any_of(safely, op.Div(shown, total))
or_zero = op.Where(some, divided, 0.0)
again = any_of(or_zero, divided)


@rule(
    "softmax-masked-afterwards",
    RAISE,
    again,
    allow_shared=True,
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
        Rewrites(
            "float[n,s] x; bool[n,s] k; p = Softmax(x)  c = Cast<to=1>(k)  s = Mul(p, c)  t = ReduceSum(s, {-1})"
            "  g = Greater(t, 0.0)  d = Where(g, t, 1.0)  q = Div(s, d)  y = Where(g, q, 0.0)",
            to="float[n,s] x; bool[n,s] k; w = Where(k, x, float -inf)  p = Softmax<axis=-1>(w)  n = IsNaN(p)"
            "  y = Where(n, 0.0, p)",
        ),
        Rewrites(
            "float[n,s] x; bool[s] k; p = Softmax(x)  s = Where(k, p, 0.0)  t = ReduceSum(s, {-1})  y = Div(s, t)",
            to="float[n,s] x; bool[s] k; w = Where(k, x, float -inf)  y = Softmax<axis=-1>(w)",
        ),
        Rejects(
            "float[n,s] x; bool[s] k; p = Softmax(x)  s = Where(k, p, 0.0)  t = ReduceSum(s, {-1})  y = Div(s, t)"
            "  z = Neg(t)",
            because="needed elsewhere",
        ),
        Rejects(
            "float[n,s] x; bool[s] k; p = Softmax(x)  s = Where(k, p, 0.0)  t = ReduceSum(s, {-1})"
            "  g = Greater(t, 0.0)  d = Where(g, t, 0.0)  y = Div(s, d)",
            because="divided by nothing",
        ),
        Rejects(
            "float[1,s] x; bool[n,s] k; p = Softmax(x)  s = Where(k, p, 0.0)  t = ReduceSum(s, {-1})  y = Div(s, t)",
            because="one row for several masks",
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
    """softmax(x)·k/Σ(softmax(x)·k) ⟶ softmax(x where k, else -∞), for k of 0 and 1; a row hidden throughout stays."""
    free = {m.anchor, m.value(as_numbers)}
    leaking = next((v for v, _ in leaks(m.nodes, set(m.nodes)) if v not in free), None)
    m.require(leaking is None, f"`{leaking and leaking.name}` inside the match is needed elsewhere, too")
    rank = m.rank(x)
    if keep in m:
        m.require(len(m.shape(keep) or ()) <= (rank or 0), "the mask has more dimensions", at=keep)
    last, summed = m.axis(m.node(weights), rank), reduce_of(m.facts, m.node(total))
    along = not isinstance(summed, str) and summed.axes == (last,) and last == (rank or 0) - 1
    m.require(along, "the sum runs along another axis than the softmax, or not the last", at=total)
    if safely in m:
        m.require(m[instead] and math.isfinite(m[instead]), "nothing is divided by nothing", at=instead)
    hidden = build.const(-math.inf, like=x)
    if keep in m:
        return build.Softmax(build.Where(_constant_flags(m, build), m[x], hidden), axis=m[axis])
    m.require(same_shape(m.shape(shown), m.shape(x)), "there is one row for several masks", at=flags)
    made: Value = build.Softmax(build.Where(m[flags], m[x], hidden), axis=m[axis])
    return build.Where(build.IsNaN(made), 0.0, made) if or_zero in m or safely in m else made


def _constant_flags(m: Match, build: Builder) -> Value:
    """The mask of ones and zeros as truth values; refuses one that hides a row throughout."""
    array = m[keep]
    m.require(bool(np.isin(array, (0.0, 1.0)).all()), "the mask has other numbers than 0 and 1", at=keep)
    m.require(bool(array.ndim and array.any(axis=-1).all()), "the mask hides a row throughout", at=keep)
    return build.const(array.astype(np.bool_))
