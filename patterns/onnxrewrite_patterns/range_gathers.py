"""Indexing by ranges: x[arange(n)[:, None], arange(s)[None, :]] is x itself, or its first elements along an axis.

Where it comes from: masks of transformers are made by a function of indices, ``mask[batch, key]``, which is called with
all of them.  Exporters write such an index as a GatherND of all combinations, or flatten x and gather at
``b · size + k``.

Why: a dozen nodes that make indices, and a gather one by one, are a new axis of what is there.

Where a range is not shown to be as long as its axis, that axis alone is gathered from, so that a range that is too long
is an error as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxrewrite.rules import *

_FAR = 12
"""Indices are made by no more nodes in a row."""


@dataclass(frozen=True)
class Count:
    """``stride · arange(length)`` along one axis of an index tensor.

    Attributes:
        axis: Counted from the back: -1 is the last.
        stride: The factor.
        range: The Range, of rank 1.
    """

    axis: int
    stride: Dim
    range: Value


def counts(m: Match, value: Value, used: list[ir.Node], far: int = _FAR) -> list[Count]:
    """The sum that an index tensor is, each addend along an axis of its own; refuses any other.

    The nodes that make it are added to ``used``.
    """
    elements = m.facts.elements(value)
    if elements is not None and all(e == 0 for e in elements):
        return []
    used += passed(value)
    node = resolve(value).producer()
    if node is None or node.domain or far == 0:
        m.refuse("the indices are not made of ranges", at=value)
    used.append(node)
    if node.op_type == "Range":
        plain = m.facts.elements(m.operand(node, 0)) == (0,) and m.facts.elements(m.operand(node, 2)) == (1,)
        m.require(plain, "a range does not count 0, 1, 2, ...", at=value)
        return [Count(-1, 1, resolve(value))]
    if node.op_type in ("Cast", "Expand"):
        return counts(m, m.operand(node), used, far - 1)
    if node.op_type in ("Unsqueeze", "Reshape", "Squeeze"):
        return _moved(m, counts(m, m.operand(node), used, far - 1), m.operand(node), value)
    if node.op_type == "Add":
        both = [c for i in (0, 1) for c in counts(m, m.operand(node, i), used, far - 1)]
        m.require(len({c.axis for c in both}) == len(both), "two ranges along one axis are added", at=value)
        return both
    m.require(node.op_type == "Mul", f"the indices are not made of ranges, but by {node.op_type}", at=value)
    return _scaled(m, node, used, far)


def _scaled(m: Match, node: ir.Node, used: list[ir.Node], far: int) -> list[Count]:
    """A sum times a number."""
    factors = [m.facts.elements(m.operand(node, index)) for index in (0, 1)]
    index = next((i for i, f in enumerate(factors) if f is not None and len(f) == 1), None)
    if index is None:
        m.refuse("no factor of an index is a number", at=m.operand(node))
    (factor,) = factors[index] or (1,)
    inner = counts(m, m.operand(node, 1 - index), used, far - 1)
    return [replace(c, stride=c.stride * factor) for c in inner]


def _moved(m: Match, inner: Sequence[Count], before: Value, after: Value) -> list[Count]:
    """The same where axes of size 1 come or go."""
    old, new = m.shape(before), m.shape(after)
    if old is None or new is None:
        m.refuse("the rank of an index is not known", at=after)
    places = [axis - len(old) for axis, size in enumerate(old) if size != 1]
    others = [axis - len(new) for axis, size in enumerate(new) if size != 1]
    same = len(places) == len(others) and all(same_dim(old[a], new[b]) for a, b in zip(places, others, strict=True))
    m.require(same, "an index is reshaped", at=after)
    moved = dict(zip(places, others, strict=True))
    m.require(all(c.axis in moved for c in inner), "an index is reshaped", at=after)
    return [replace(c, axis=moved[c.axis]) for c in inner]


def everything(m: Match, build: Builder, x: Value, found: Sequence[Count], out: Value, rank: int) -> Value:
    """``x``, its first axes indexed by the ranges ``found``, in their order, as a value of the shape of ``out``, the
    first ``rank`` axes of which are those of the index."""
    sizes, wanted = m.shape(x), m.shape(out)
    if sizes is None or wanted is None:
        m.refuse("a rank is not known", at=x)
    axes = [c.axis + rank for c in found]
    index = m.operand(m.nodes[0], 1)
    m.require(axes == sorted(axes), "the ranges are in another order than the axes", at=index)
    made, indexed = x, [axis for axis, size in enumerate(sizes) if size != 1][: len(found)]
    for axis, count in zip(indexed, found, strict=True):
        if not same_dim(m.dim(count.range, 0) or 0, sizes[axis]):
            made = build.Gather(made, count.range, axis=axis)
    new = new_axes(m.shape(made), wanted)
    m.require(new is not None, "the result is not shown to be that with new axes", at=out)
    m.require(not set(new or ()) & set(axes), "the ranges go along other axes", at=out)
    return build.Unsqueeze(made, axes=new) if new else made


# -- Gather from what was flattened --------------------------------------------------------------------------

gather = AnyNode(op_types=("Gather",))


@rule(
    "gather-of-all-flat",
    CANONICALIZE,
    gather,
    benefit=40,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "bool[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  f = Flatten<axis=2>(x)"
            "  r = Range(0, p, 1)  t = Range(0, q, 1)  a = Unsqueeze(r, {1, 2, 3})  b = Unsqueeze(t, {0, 1, 2})"
            "  c = Mul(a, q)  i = Add(b, c)  g = Gather(f, i)  y = Squeeze(g, {4})",
            to="bool[n,s] x; g = Unsqueeze(x, {1, 2, 4})  y = Squeeze(g, {4})",
        ),
        Rewrites(
            "float[n,s] x; float[k] z; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  l = Shape(z)"
            "  k = Squeeze(l)  f = Reshape(x, {-1})  r = Range(0, p, 1)  t = Range(0, k, 1)"
            "  a = Unsqueeze(r, {1})  c = Mul(a, q)  i = Add(c, t)  y = Gather(f, i)",
            to="float[n,s] x; float[k] z; l = Shape(z)  k = Squeeze(l)  t = Range(0, k, 1)  y = Gather<axis=1>(x, t)",
        ),
        Rejects(
            "float[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  f = Reshape(x, {-1})"
            "  r = Range(0, p, 1)  t = Range(0, q, 1)  a = Unsqueeze(r, {1})  c = Mul(a, p)  i = Add(c, t)"
            "  y = Gather(f, i)",
            because="a stride of the index",
        ),
        Rejects(
            "float[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  f = Reshape(x, {-1})"
            "  r = Range(0, p, 1)  t = Range(0, q, 1)  a = Unsqueeze(t, {1})  c = Mul(r, q)  i = Add(c, a)"
            "  y = Gather(f, i)",
            because="a stride of the index",
        ),
        Rejects(
            "float[n,s] x; float[k] z; h = Shape(x)  q = Gather(h, 1)  l = Shape(z)  k = Squeeze(l)"
            "  f = Reshape(x, {-1})  r = Range(0, k, 1)  t = Range(0, q, 1)  a = Unsqueeze(r, {1})  c = Mul(a, q)"
            "  i = Add(c, t)  y = Gather(f, i)",
            because="reaches into what comes next",
        ),
        Rejects(
            "float[n,s] x; h = Shape(x)  p = Gather(h, 0)  f = Reshape(x, {-1})  r = Range(1, p, 1)  y = Gather(f, r)",
            because="does not count 0, 1, 2",
        ),
        Rejects("float[n,s] x; int64[k] i; f = Reshape(x, {-1})  y = Gather(f, i)", because="not made of ranges"),
        Rejects("float[n] x; int64[k] i; y = Gather(x, i)", because="is not flattened"),
    ),
)
def gather_of_all_flat(m: Match, build: Builder) -> Value:
    """Gather(Flatten(x), arange(n)·s + arange(s)) ⟶ x with new axes, or the first of its elements."""
    node, used = m.node(gather), list[ir.Node]()
    flat, index = m.operand(node), m.operand(node, 1)
    view = m.made_by(flat, "Flatten", "Reshape", because="what is gathered from is not flattened")
    m.require(m.axis(node, m.rank(flat)) == 0, "another axis than the first is gathered from")
    x, rank = m.operand(view), m.rank(index)
    m.require(rank is not None, "the rank of the indices is not known", at=index)
    found = sorted(counts(m, index, used), key=lambda c: c.axis)
    sizes = [d for d in m.shape(x) or () if d != 1]
    m.require(found and len(found) <= len(sizes), "there are other ranges than axes", at=index)
    stride: Dim = 1
    for count, size in zip(found[::-1], sizes[: len(found)][::-1], strict=True):
        m.require(same_dim(count.stride, stride), "a stride of the index is not that of the axis", at=index)
        stride = stride * size
    m.require(same_dim(m.dim(flat, 0) or 0, stride), "other axes are flattened than are indexed", at=flat)
    whole = [same_dim(m.dim(c.range, 0) or 0, d) for c, d in zip(found, sizes, strict=False)]
    m.require(all(whole[:-1]), "a range that may be too long reaches into what comes next", at=index)
    m.cover(view, *passed(flat), *used)
    return everything(m, build, x, found, m[gather], rank or 0)


# -- GatherND ------------------------------------------------------------------------------------------------

gather_nd = AnyNode(op_types=("GatherND",))


@rule(
    "gather-of-all",
    CANONICALIZE,
    gather_nd,
    benefit=40,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "bool[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  r = Range(0, p, 1)  t = Range(0, q, 1)"
            "  a = Unsqueeze(r, {1, 2})  b = Unsqueeze(t, {0, 1})  w = Max(a, b)  k = Shape(w)  c = Expand(a, k)"
            "  d = Expand(b, k)  e = Unsqueeze(c, {-1})  f = Unsqueeze(d, {-1})  i = Concat<axis=-1>(e, f)"
            "  y = GatherND(x, i)",
            to="bool[n,s] x; y = Unsqueeze(x, {1})",
        ),
        Rejects(
            "float[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  r = Range(0, p, 1)  t = Range(0, q, 1)"
            "  a = Unsqueeze(r, {0})  b = Unsqueeze(t, {1})  w = Max(a, b)  k = Shape(w)  c = Expand(a, k)"
            "  d = Expand(b, k)  e = Unsqueeze(c, {-1})  f = Unsqueeze(d, {-1})  i = Concat<axis=-1>(e, f)"
            "  y = GatherND(x, i)",
            because="in another order",
        ),
        Rejects(
            "bool[4,s] x; h = Shape(x)  q = Gather(h, 1)  r = Range(int64 3, int64 -1, int64 -1)  t = Range(0, q, 1)"
            "  a = Unsqueeze(r, {1, 2})  b = Unsqueeze(t, {0, 1})  w = Max(a, b)  k = Shape(w)  c = Expand(a, k)"
            "  d = Expand(b, k)  e = Unsqueeze(c, {-1})  f = Unsqueeze(d, {-1})  i = Concat<axis=-1>(e, f)"
            "  y = GatherND(x, i)",
            because="does not count 0, 1, 2",
        ),
        Rejects("float[n,s] x; int64[k,2] i; y = GatherND(x, i)", because="not joined"),
        Rejects(
            "float[n,s] x; int64[n,1] i; j = Concat<axis=-1>(i, i)  y = GatherND(x, j)",
            because="not made of ranges",
        ),
    ),
)
def gather_of_all(m: Match, build: Builder) -> Value:
    """GatherND(x, all combinations of arange(n) and arange(s)) ⟶ x with new axes, or the first of its elements."""
    node, used = m.node(gather_nd), list[ir.Node]()
    x, index = m.operand(node), m.operand(node, 1)
    m.require(node.attributes.get_int("batch_dims", 0) == 0, "it has batch_dims")
    rank, joined = m.rank(index), m.made_by(index, "Concat", because="the indices are not joined")
    if rank is None:
        m.refuse("the rank of the indices is not known", at=index)
    m.require(m.axis(joined, rank) == rank - 1, "the indices are joined along another axis", at=index)
    found = list[Count]()
    for place, part in enumerate(inputs_of(joined)):
        m.require(m.dim(part, -1) == 1, "an operand has more than one index", at=part)
        one = counts(m, part, used)
        m.require(len(one) == 1 and one[0].stride == 1, f"index {place} is not one range", at=part)
        found.append(replace(one[0], axis=one[0].axis + 1))  # the last axis tells the indices apart
    sizes = m.shape(x) or ()
    m.require(all(d != 1 for d in sizes[: len(found)]), "an axis of size 1 is indexed", at=x)
    m.cover(joined, *passed(index), *used)
    return everything(m, build, x, found, m[gather_nd], rank - 1)
