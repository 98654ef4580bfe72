"""Masks of attention that are the same for the batch and the heads, which Attention broadcasts them to by itself.

Where it comes from: exporters expand a causal mask to the batch, add it to zeros of the size of the scores, or give it
axes of size 1 in front.

Why: each head of each sample gets a copy of a mask that is the same for all; and one mask is the same as another.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.expands import BROADCASTING

q, k, v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v"))
mask = Var("mask")
attention = op.Attention(q, k, v, mask)

VIEWS = operators("view")

_FAR = 6
"""No more nodes are looked at, one above the other."""

_QKV = "float[b,3,5,8] q; float[b,3,7,8] k; float[b,3,7,8] v; bool[5,7] c;"
_END = "y = Attention(q, k, v, m)"


@rule(
    "attention-mask-broadcast",
    RAISE,
    attention,
    allow_shared=True,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"{_QKV} h = Shape<start=0, end=1>(q)  s = Concat<axis=0>(h, {{1, 1, 1}})  m = Expand(c, s)  {_END}",
            to=f"{_QKV} y = Attention(q, k, v, c)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} float[1,3,5,7] p; h = Shape<start=0, end=1>(q)  s = Concat<axis=0>(h, {{1, 1, 1}})"
            f"  e = Expand(c, s)  w = Where(e, 0.0, -1e30)  m = Add(p, w)  {_END}",
            to=f"{_QKV} float[1,3,5,7] p; w = Where(c, 0.0, -1e30)  m = Add(p, w)  y = Attention(q, k, v, m)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} float[5,7] p; h = Shape<start=0, end=1>(q)  s = Concat<axis=0>(h, {{3, 5, 7}})"
            f"  z = ConstantOfShape(s)  m = Add(z, p)  {_END}",
            to=f"{_QKV} float[5,7] p; y = Attention(q, k, v, p)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} n = Cast<to=1>(c)  u = Unsqueeze(n, {{0, 1}})  m = Sub(u, 1.0)  {_END}",
            to=f"{_QKV} n = Cast<to=1>(c)  m = Sub(n, 1.0)  y = Attention(q, k, v, m)",
            opset=23,
        ),
        Rejects(
            "float[b,3,5,8] q; float[b,3,7,8] k; float[b,3,7,8] v; bool[5,1] c; m = Expand(c, {2, 1, 5, 7})  " + _END,
            because="queries or keys",
            opset=23,
        ),
        Rejects(f"{_QKV} {_END.replace('m)', 'c)')}", because="written out for nothing", opset=23),
    ),
)
def attention_mask_broadcast(m: Match, build: Builder) -> Value:
    """Attention(q, k, v, Expand(mask, [batch, heads, s, l])) ⟶ Attention(q, k, v, mask), and likewise in a sum."""
    before = m.shape(mask)
    if before is None or len(before) > 4:
        m.refuse("the mask has more axes than scores, or nobody knows", at=mask)
    narrow = _narrow(m, build, m[mask], _FAR)
    m.require(narrow is not m[mask], "the mask is not written out for nothing", at=mask)
    after = m.shape(narrow)
    same = after is not None and len(after) > 1 and same_shape(before[-2:], after[-2:])
    m.require(same, "the mask is written out for queries or keys", at=mask)
    made: Value = build.Attention(m[q], m[k], m[v], narrow, **m.attrs(attention))
    return made


def _narrow(m: Match, build: Builder, value: Value, far: int) -> Value:
    """A mask without what writes it out, and without axes of size 1 in front of two others; itself where it is so."""
    array, node = m.facts.constant(value), made_by(value, "Expand", *VIEWS, *BROADCASTING)
    if array is not None:
        return _without_copies(build, value, array)
    if node is None or node.graph is not m.node(attention).graph or not far:
        return value
    if node.op_type == "Expand":
        m.cover(node)
        return _narrow(m, build, inputs_of(node)[0], far - 1)
    if node.op_type in VIEWS:
        return _without_axes(m, build, value, inputs_of(node)[0])
    return _narrow_operands(m, build, value, node, far)


def _narrow_operands(m: Match, build: Builder, value: Value, node: ir.Node, far: int) -> Value:
    """An elementwise result of narrower operands; a sum without zeros."""
    before = inputs_of(node)
    operands = [_narrow(m, build, each, far - 1) for each in before]
    rest = [each for each in operands if node.op_type != "Add" or not _is_nothing(m, each)]
    if len(rest) == 1 < len(operands):
        m.cover(node)
        return rest[0]
    if all(new is old for new, old in zip(operands, before, strict=True)):
        return value
    m.cover(node)
    (made,) = build.again(node, *operands)
    return made


def _without_copies(build: Builder, value: Value, array: Array) -> Value:
    """A constant mask without the batch and heads that are all the same."""
    first = array
    for axis in range(array.ndim - 2):
        one = first.take([0], axis) if first.shape[axis] > 1 else first
        first = one if np.array_equal(np.broadcast_to(one, first.shape), first) else first
    if set(first.shape[:-2]) == {1}:
        first = first.reshape(first.shape[-2:])
    return value if first is array else build.const(first, like=value)


def _without_axes(m: Match, build: Builder, value: Value, source: Value) -> Value:
    """The result of a view of its source, without the axes in front of two others, if these are all of size 1."""
    wanted = m.shape(value) or ()
    axes = new_axes(m.shape(source), wanted[-2:]) if len(wanted) > 2 and set(wanted[:-2]) == {1} else None
    if axes is None:
        return value
    return build.Unsqueeze(source, axes=tuple(axes)) if axes else source


def _is_nothing(m: Match, value: Value) -> bool:
    """True for zero throughout."""
    number = uniform(m.facts, value, [])
    return number is not None and number is not False and number == 0
