"""Slices, and Gathers of one element, that divide an axis among them, as one Split; Split by sizes.

Why: each Slice reads its bounds and starts anew; Split copies all pieces in one go.  In the lower stage, for patterns
know pieces as Slices.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

PIECES = ("Slice", "Gather")
slice_ = AnyNode(op_types=PIECES)


def _span(m: Match, node: ir.Node) -> Span | None:
    """The span of a Slice that cuts one axis, by one step, or of a Gather that keeps its axis; None for any other."""
    if node.op_type == "Gather":
        index, rank = m.facts.constant(m.operand(node, 1)), m.rank(m.operand(node))
        is_one = index is not None and index.shape == (1,) and index[0] >= 0 and rank is not None
        return Span(m.axis(node, rank), int(index[0]), int(index[0]) + 1, 1) if is_one and index is not None else None
    found = slice_of(m.facts, node)
    spans = () if isinstance(found, str) else found.spans
    return spans[0] if len(spans) == 1 and spans[0].step == 1 else None


@rule(
    "slices-into-split",
    LOWER,
    slice_,
    examples=(
        Rewrites(
            "float[n,6] x; a = Slice(x, {0}, {2}, {1})  b = Slice(x, {2}, {9223372036854775807}, {-1})"
            "  c = Neg(b)  y = Concat<axis=1>(c, a)",
            to="float[n,6] x; a, b = Split<axis=1>(x, {2, 4})  c = Neg(b)  y = Concat<axis=1>(c, a)",
        ),
        Rewrites(
            "float[n,3] x; a = Gather<axis=1>(x, {2})  b = Slice(x, {0}, {2}, {1})  y = Concat<axis=1>(a, b)",
            to="float[n,3] x; b, a = Split<axis=1>(x, {2, 1})  y = Concat<axis=1>(a, b)",
        ),
        Rejects(
            "float[n,2] x; a = Gather<axis=1>(x, 0)  b = Gather<axis=1>(x, 1)  y = Sub(b, a)",
            because="takes an axis away",
        ),
        Rejects(
            "float[n,6] x; a = Slice(x, {0}, {2}, {1})  b = Slice(x, {3}, {6}, {1})  y = Concat<axis=1>(b, a)",
            because="begins at 2",
        ),
        Rejects(
            "float[n,s] x; a = Slice(x, {0}, {2}, {1})  b = Slice(x, {2}, {9}, {1})  y = Concat<axis=1>(b, a)",
            because="the size of the axis is not known",
        ),
        Rejects(
            "float[n,6] x; a = Slice(x, {0}, {6}, {1}, {2})  b = Slice(x, {1}, {6}, {1}, {2})  y = Add(b, a)",
            because="by steps",
        ),
        Rejects("float[n,6] x; y = Slice(x, {2}, {6}, {1})", because="not the first piece"),
    ),
)
def slices_into_split(m: Match, build: Builder) -> list[Value]:
    """x[:2], x[2:] ⟶ Split(x, {2, 4}), all pieces of an axis at once."""
    node = m.node(slice_)
    source = m.operand(node)
    starts = parameter(m.facts, node, "starts")
    m.require(not isinstance(starts, tuple) or max(starts, default=0) <= 0, "it is not the first piece")
    first = _span(m, node)
    if first is None:
        m.refuse("it cuts more than one axis, by steps, or by bounds that are not constant, or it takes an axis away")
    size = m.dim(source, first.axis)
    if not isinstance(size, int):
        m.refuse("the size of the axis is not known", at=source)
    beside = (n for n in readers(source, within=1) if n.op_type in PIECES and not n.domain and n.graph is node.graph)
    spans = ((n, _span(m, n)) for n in beside if input_of(n) is source)
    pieces = {n: range(size)[s.start : s.end] for n, s in spans if s is not None and s.axis == first.axis}
    m.require(pieces[node].start == 0, "it is not the first piece")
    chosen, place = [node], pieces[node].stop
    while place < size:
        following = [n for n, piece in pieces.items() if piece and piece.start == place]
        m.require(len(following) == 1, f"no piece, or more than one, begins at {place}", at=source)
        chosen += following
        place = pieces[following[0]].stop
    m.require(len(chosen) > 1, "it is not cut into pieces", at=source)
    sizes = [len(pieces[n]) for n in chosen]
    m.widen(chosen)
    made: tuple[Value, ...] = build.Split(source, split=np.array(sizes, np.int64), axis=first.axis, outputs=len(sizes))
    return list(made)


split = AnyNode(op_types=("Split",))


@rule(
    "split-by-sizes",
    CANONICALIZE,
    split,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,7] x; a, b = Split<axis=1, num_outputs=2>(x)  c = Neg(b)  y = Concat<axis=1>(c, a)",
            to="float[n,7] x; a, b = Split<axis=1>(x, {4, 3})  c = Neg(b)  y = Concat<axis=1>(c, a)",
            opset=18,
        ),
        Rewrites(
            "float[n,6] x; a, b = Split<axis=-1>(x)  y = Sub(b, a)",
            to="float[n,6] x; a, b = Split<axis=-1>(x, {3, 3})  y = Sub(b, a)",
        ),
        Rejects("float[n,6] x; a, b = Split<axis=1>(x, {3, 3})  y = Sub(b, a)", because="given already"),
        Rejects("float[n,s] x; a, b = Split<axis=1>(x)  y = Sub(b, a)", because="is not known"),
    ),
)
def split_by_sizes(m: Match, build: Builder) -> list[Value]:
    """Split(x, num_outputs=2) ⟶ Split(x, {3, 3}), the one spelling that every opset has."""
    node = m.node(split)
    m.require(parameter(m.facts, node, "split") is None, "the sizes are given already")
    axis = parameter(m.facts, node, "axis") or 0
    sizes = [m.dim(piece, axis) for piece in node.outputs]
    m.require(all(isinstance(size, int) for size in sizes), "the size of a piece is not known", at=m[split])
    m.widen([node])
    made: tuple[Value, ...] = build.Split(
        m.operand(node), split=np.array(sizes, np.int64), axis=axis, outputs=len(sizes)
    )
    return list(made)
