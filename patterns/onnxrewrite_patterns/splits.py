"""Slices that divide an axis among them, as one Split; Split by sizes.

Why: each Slice reads its bounds and starts anew; Split copies all pieces in one go.  In the lower stage, for patterns
know pieces as Slices.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite import AnyNode, Builder, Match, Rejects, Rewrites, Rule, Stage, Value, parameter
from onnxrewrite_patterns.identity import operand
from onnxrewrite_patterns.slice_concat_split import cuts

slice_ = AnyNode(op_types=("Slice",))


def one_split(m: Match, build: Builder) -> list[Value]:
    """x[:2], x[2:] ⟶ Split(x, {2, 4}), all pieces of an axis at once."""
    node = m.node(slice_)
    source = operand(m, node)
    starts = parameter(m.facts, node, "starts")
    m.require(not isinstance(starts, tuple) or max(starts, default=0) <= 0, "it is not the first piece")
    axis = _axis(m, node)
    m.require(axis is not None, "it cuts more than one axis, by steps, or by bounds that are not constant")
    assert axis is not None
    size = m.dim(source, axis)
    if not isinstance(size, int):
        m.refuse("the size of the axis is not known", at=source)
    m.require(_range(m, node, size)[0] == 0, "it is not the first piece")
    beside = [n for n in source.consumers() if n.op_type == "Slice" and not n.domain and n.graph is node.graph]
    pieces = {_range(m, n, size): n for n in beside if n.inputs[0] is source and _axis(m, n) == axis}
    chosen, place = [node], _range(m, node, size)[1]
    while place < size:
        following = [(end, n) for (start, end), n in pieces.items() if start == place and end > start]
        m.require(len(following) == 1, f"no piece, or more than one, begins at {place}", at=source)
        place, piece = following[0]
        chosen.append(piece)
    m.require(len(chosen) > 1, "it is not cut into pieces", at=source)
    sizes = [end - start for start, end in (_range(m, n, size) for n in chosen)]
    m.widen(chosen, [n.outputs[0] for n in chosen])
    made: tuple[Value, ...] = build.Split(source, split=np.array(sizes, np.int64), axis=axis, outputs=len(sizes))
    return list(made)


def _axis(m: Match, node: ir.Node) -> int | None:
    """The only axis that a Slice cuts, by one step; None for any other."""
    rank = m.rank(operand(m, node))
    given = [parameter(m.facts, node, name) for name in ("starts", "ends", "axes", "steps")]
    are_known = None not in given[:2] and all(g is None or isinstance(g, int | tuple) for g in given)
    found = cuts(m, node, rank) if are_known and rank is not None else []
    return found[0].axis if len(found) == 1 and found[0].step == 1 else None


def _range(m: Match, node: ir.Node, size: int) -> tuple[int, int]:
    """The start and the end of a Slice of one axis."""
    (cut,) = cuts(m, node, m.rank(operand(m, node)))
    start, end, _ = slice(cut.start, cut.end).indices(size)
    return start, end


SPLIT = Rule(
    name="slices-into-split",
    stage=Stage.LOWER,
    pattern=slice_,
    rewrite=one_split,
    examples=(
        Rewrites(
            "float[n,6] x; a = Slice(x, {0}, {2}, {1})  b = Slice(x, {2}, {9223372036854775807}, {-1})"
            "  c = Neg(b)  y = Concat<axis=1>(c, a)",
            to="float[n,6] x; a, b = Split<axis=1>(x, {2, 4})  c = Neg(b)  y = Concat<axis=1>(c, a)",
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

split = AnyNode(op_types=("Split",))


def by_sizes(m: Match, build: Builder) -> list[Value]:
    """Split(x, num_outputs=2) ⟶ Split(x, {3, 3}), the one spelling that every opset has."""
    node = m.node(split)
    m.require(parameter(m.facts, node, "split") is None and len(node.inputs) < 2, "the sizes are given already")
    axis = parameter(m.facts, node, "axis") or 0
    sizes = [m.dim(piece, axis) for piece in node.outputs]
    m.require(all(isinstance(size, int) for size in sizes), "the size of a piece is not known", at=m[split])
    m.widen([node], list(node.outputs))
    made: tuple[Value, ...] = build.Split(
        operand(m, node), split=np.array(sizes, np.int64), axis=axis, outputs=len(sizes)
    )
    return list(made)


SIZES = Rule(
    name="split-by-sizes",
    stage=Stage.CANONICALIZE,
    pattern=split,
    rewrite=by_sizes,
    keeps_shared=True,
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

RULES = (SPLIT, SIZES)
