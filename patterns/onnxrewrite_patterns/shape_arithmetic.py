"""Shape tensors by the fewest operators: what is a size of some value is read off it, however it was computed.

Where it comes from: exporters compute sizes like data, Shape, Gather, Mul, Div, Unsqueeze, Concat, Equal, Where, and do
so for every use.  What they come to is known (``ir.symbolic_elements``), mostly sizes of a value that is there anyway.

Why: each of these nodes takes next to no time to compute, but as long to start as any; in a decoder that makes one
token at a time that is most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")

WITH_BOUNDS = 15
"""The opset since which Shape takes a piece of the shape."""

# -- a piece of a shape --------------------------------------------------------------------------------------

shape_of = op.Shape(x)
index = Const("index", rank=1)
gathered = op.Gather(shape_of, index)


def _bounds(m: Match) -> tuple[int, int]:
    """The first axis of a Shape, and the axis after its last."""
    rank = m.rank(x)
    if rank is None:
        m.refuse("the rank is not known", at=x)
    start, end, _ = slice(m.attr(shape_of, "start"), m.attr(shape_of, "end")).indices(rank)
    return start, end


@rule(
    "gather-of-shape",
    CANONICALIZE,
    gathered,
    benefit=20,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  y = Gather(h, {1, 2})",
            to="float[n,s,t] x; y = Shape<start=1, end=3>(x)",
        ),
        Rewrites(
            "float[n,s,t] x; h = Shape<start=1>(x)  y = Gather(h, {-1})",
            to="float[n,s,t] x; y = Shape<start=2, end=3>(x)",
        ),
        Rejects("float[n,s] x; h = Shape(x)  y = Gather(h, {1, 0})", because="one after the other"),
        Rejects("float[n,s] x; h = Shape(x)  y = Gather(h, {1})", because="since opset 15", opset=14),
    ),
)
def gather_of_shape(m: Match, build: Builder) -> Value:
    """Gather(Shape(x), {1, 2}) ⟶ Shape(x, start=1, end=3), since opset 15."""
    m.require(build.opset >= WITH_BOUNDS, f"Shape takes bounds since opset {WITH_BOUNDS}")
    start, end = _bounds(m)
    m.node(gathered)
    indices = [int(i) + (end - start if i < 0 else 0) for i in m[index]]
    run = bool(indices) and indices == list(range(indices[0], indices[0] + len(indices)))
    m.require(run and end - start > indices[-1], "the indices are not one after the other")
    return build.Shape(m[x], start=start + indices[0], end=start + indices[-1] + 1)


sliced = AnyNode(op_types=("Slice",))


@rule(
    "slice-of-shape",
    CANONICALIZE,
    sliced,
    benefit=20,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  y = Slice(h, {-2}, {9223372036854775807}, {0})",
            to="float[n,s,t] x; y = Shape<start=1, end=3>(x)",
        ),
        Rejects("float[n,s,t] x; h = Shape(x)  y = Slice(h, {2}, {0}, {0}, {-1})", because="not one run"),
        Rejects("float[n,s] x; h = Shape(x)  y = Slice(h, {0}, {1})", because="since opset 15", opset=14),
        Rejects("int64[n] h; y = Slice(h, {0}, {1})", because="no whole shape"),
    ),
)
def slice_of_shape(m: Match, build: Builder) -> Value:
    """Shape(x)[1:3] ⟶ Shape(x, start=1, end=3), since opset 15."""
    m.require(build.opset >= WITH_BOUNDS, f"Shape takes bounds since opset {WITH_BOUNDS}")
    node = m.node(sliced)
    above = m.made_by(m.operand(node), "Shape", because="what is sliced is no whole shape")
    m.require(not above.attributes, "what is sliced is no whole shape", at=m.operand(node))
    value, (cut,) = m.operand(above), m.slice(node).spans or (None,)
    rank = m.rank(value)
    if rank is None or cut is None:
        m.refuse("the rank is not known", at=value)
    start, end, step = slice(cut.start, cut.end, cut.step).indices(rank)
    m.require(step == 1 and start < end, "the piece is not one run of sizes")
    m.cover(above)
    return build.Shape(value, start=start, end=end)


# -- a shape tensor made anew --------------------------------------------------------------------------------

COMPUTING = operators(marks="shapes")
_MOST = 48
"""No more nodes are looked at."""


def is_shape_tensor(node: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: a node computes sizes that are all known, and not all numbers."""
    out = node.outputs[0]
    if facts.dtype(out) != ir.DataType.INT64 or facts.rank(out) not in (0, 1):
        return "it makes no shape tensor"
    elements = facts.elements(out)
    if elements is None or all(isinstance(e, int) for e in elements):
        return "its elements are not sizes"
    return all(isinstance(e, int) or e.value is not None for e in elements) or "not all its elements are known"


computed = AnyNode(op_types=COMPUTING, where=is_shape_tensor)


@dataclass(frozen=True)
class Run:
    """A part of a shape tensor: sizes of a value, from one axis to another; or numbers.

    Attributes:
        value: The value; None for numbers.
        start: The first axis.
        end: The axis after the last.
        numbers: The numbers.
    """

    value: Value | None
    start: int = 0
    end: int = 0
    numbers: tuple[int, ...] = ()

    def is_whole(self, m: Match) -> bool:
        """True if it is the whole shape of the value."""
        return self.value is not None and (self.start, self.end) == (0, m.rank(self.value))


def _sources(m: Match, node: ir.Node) -> list[Value]:
    """The values whose sizes may be read: those that are asked for theirs above the node, then the graph's inputs."""

    def integers(each: ir.Node) -> list[Value]:
        return [v for v in inputs_of(each) if m.dtype(v) in (*INTS, ir.DataType.BOOL) and not _is_shape(each)]

    asked = [m.operand(n) for n in upstream(node, integers, most=_MOST) if _is_shape(n)]
    graph = node.graph
    return [*dict.fromkeys(asked), *(graph.inputs if isinstance(graph, ir.Graph) else ())]


def _is_shape(node: ir.Node) -> bool:
    return node.op_type == "Shape" and not node.domain


def _pieces(m: Match, elements: Sequence[Dim], sources: Sequence[Value]) -> Iterator[Run]:
    """The elements as few pieces: from the front, the longest run of sizes, or numbers up to the next size."""
    place = 0
    while place < len(elements):
        runs = [r for v in sources for r in _runs(m, v, elements[place:])]
        best = max(runs, key=lambda r: r.end - r.start, default=None)
        numbers = tuple(_leading_numbers(elements[place:]))
        if best is not None and best.end - best.start > len(numbers):
            yield best
            place += best.end - best.start
        elif numbers:
            yield Run(None, numbers=numbers)
            place += len(numbers)
        else:
            m.refuse(f"no value above has a size of {elements[place]}")


def _leading_numbers(elements: Sequence[Dim]) -> Iterator[int]:
    for element in elements:
        if not isinstance(element, int):
            return
        yield element


def _runs(m: Match, value: Value, elements: Sequence[Dim]) -> Iterator[Run]:
    """The longest runs of a value's sizes that the elements begin with, from each axis."""
    shape = m.shape(value) or ()
    for start in range(len(shape)):
        length = 0
        for size, element in zip(shape[start:], elements, strict=False):
            if not same_dim(size, element):
                break
            length += 1
        if length:
            yield Run(value, start, start + length)


def _cost(m: Match, pieces: Sequence[Run], dying: Sequence[ir.Node], takes_bounds: bool, is_scalar: bool) -> int:
    """The number of nodes that the pieces take."""
    read = [p for p in pieces if p.value is not None]
    nodes = len(read) + (len(pieces) > 1) + is_scalar
    if takes_bounds:
        return nodes
    whole = {p.value for p in read if not p.is_whole(m)}
    return nodes + sum(not _has_shape(v, dying) for v in whole if v is not None)


def _has_shape(value: Value, dying: Sequence[ir.Node]) -> bool:
    """True if a node that stays computes the whole shape of a value."""
    return any(_is_shape(n) and not n.attributes and n not in dying for n in readers(value, within=1))


def _built(m: Match, build: Builder, piece: Run, takes_bounds: bool) -> Value:
    if piece.value is None:
        return build.const(np.array(piece.numbers, np.int64))
    if piece.is_whole(m):
        return build.Shape(piece.value)
    if takes_bounds:
        return build.Shape(piece.value, start=piece.start, end=piece.end)
    return build.Gather(build.Shape(piece.value), np.arange(piece.start, piece.end), axis=0)


@rule(
    "shape-tensor-anew",
    CANONICALIZE,
    computed,
    benefit=5,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  a = Gather(h, 0)  b = Unsqueeze(a, {0})  c = Slice(h, {1}, {2})"
            "  y = Concat<axis=0>(b, c)",
            to="float[n,s,t] x; y = Shape<start=0, end=2>(x)",
        ),
        Rewrites(
            "float[n,s] x; h = Shape(x)  a = Slice(h, {0}, {1})  t = Concat<axis=0>(a, {-1, -1})"
            "  e = Equal(t, {-1})  y = Where(e, {1}, t)",
            to="float[n,s] x; a = Shape<start=0, end=1>(x)  y = Concat<axis=0>(a, {1, 1})",
        ),
        Rewrites(
            "float[n,6] x; h = Shape(x)  a = Gather(h, 0)  b = Mul(a, 2)  y = Div(b, 2)",
            to="float[n,6] x; a = Shape<start=0, end=1>(x)  y = Squeeze(a, {0})",
        ),
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  a = Slice(h, {0}, {1})  b = Slice(h, {1}, {2})  y = Concat<axis=0>(a, b)",
            to="float[n,s,t] x; h = Shape(x)  y = Gather<axis=0>(h, {0, 1})",
            opset=13,
        ),
        Rejects(
            "float[n,s] x; h = Shape(x)  a = Gather(h, 0)  b = Gather(h, 1)  y = Mul(a, b)",
            because="no value above has a size of",
        ),
        Rejects("float[n,s] x; a = Shape<start=0, end=1>(x)  y = Concat<axis=0>(a, {3})", because="nodes to make it"),
        Rejects("int64[2] x; y = Add(x, x)", because="not sizes"),
    ),
)
def shape_tensor_anew(m: Match, build: Builder) -> Value:
    """[n, s] as computed here ⟶ Shape(x, start=0, end=2) for an x of shape [n, s, ...], if that takes fewer nodes."""
    node, elements = m.node(computed), m.facts.elements(m[computed])
    assert elements is not None
    dying = needed_for(node, most=_MOST)
    pieces = list(_pieces(m, elements, _sources(m, node)))
    is_scalar, takes_bounds = m.rank(computed) == 0, build.opset >= WITH_BOUNDS
    cost = _cost(m, pieces, dying, takes_bounds, is_scalar)
    m.require(cost < len(dying), f"it takes {cost} nodes to make it anew, and {len(dying)} as it is")
    m.cover(*dying)
    made = [_built(m, build, p, takes_bounds) for p in pieces]
    if is_scalar:
        return build.Squeeze(made[0], axes=[0])
    return made[0] if len(made) == 1 else build.Concat(*made, axis=0)


# -- ranges --------------------------------------------------------------------------------------------------

limit, offset = Var("limit"), Var("offset", rank=0)
counting = op.Range(0, limit, 1)
moved = op.Add(counting, offset)


def _is_size(dim: Dim) -> bool:
    """True if an element is known to be a size, so that a sum of two stays far from the largest integer."""
    return dim >= 0 if isinstance(dim, int) else dim.value is not None and "-" not in dim.value and at_least(dim) >= 0


@rule(
    "range-plus-offset",
    CANONICALIZE,
    moved,
    examples=(
        Rewrites(
            "float[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  r = Range(0, q, 1)  y = Add(r, p)",
            to="float[n,s] x; h = Shape(x)  p = Gather(h, 0)  q = Gather(h, 1)  l = Add(q, p)  y = Range(p, l, 1)",
        ),
        Rejects(
            "int64[2] a; q = ReduceSum<keepdims=0>(a)  r = Range(0, q, 1)  y = Add(r, q)",
            because="not known to be a size",
        ),
        Rejects("float[n] x; h = Shape(x)  q = Squeeze(h)  r = Range(1, q, 1)  y = Add(r, q)", because="expected"),
    ),
)
def range_plus_offset(m: Match, build: Builder) -> Value:
    """Range(0, n, 1) + k ⟶ Range(k, n + k, 1) for sizes n and k, whose sum is mostly there already."""
    m.node(counting), m.node(moved)
    for value in (m[limit], m[offset]):
        elements = m.facts.elements(value)
        m.require(elements is not None and _is_size(elements[0]), "it is not known to be a size", at=value)
    return build.Range(m[offset], build.Add(m[limit], m[offset]), 1)
