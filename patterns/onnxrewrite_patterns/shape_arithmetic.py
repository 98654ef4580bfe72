"""Shape tensors by the fewest operators: what is a size of some value is read off it, however it was computed.

Where it comes from: exporters compute sizes like data, Shape, Gather, Mul, Div, Unsqueeze, Concat, Equal, Where, and do
so for every use, from whatever value is at hand.  What they come to is known (``ir.symbolic_elements``), mostly sizes
of a value that is there anyway.

Why: each of these nodes takes next to no time to compute, but as long to start as any; in a decoder that makes one
token at a time that is most of the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

WITH_BOUNDS = 15
"""The opset since which Shape takes a part of the shape."""

READING = frozenset(("Shape", "Identity", *operators("gather select join view", marks="shapes", but="sizes")))
"""Operators that read sizes and put them in a row, without computing others."""

_MOST = 48
"""No more nodes are looked at."""

_FAR = 32
"""Earlier values are looked for in so many steps; from there on, equal shape tensors find each other."""


def holds_sizes(node: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: a node computes integers that are all known, and not all numbers."""
    elements = facts.elements(node.outputs[0]) if len(node.outputs) == 1 else None
    if elements is None or all(isinstance(e, int) for e in elements):
        return "its elements are not sizes"
    return all(isinstance(e, int) or e.value is not None for e in elements) or "not all its elements are known"


# -- parts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of a shape tensor: sizes of a value, from one axis to another; numbers; or a tensor that is there.

    Attributes:
        value: The value whose sizes are read; None for others.
        start: The first axis.
        end: The axis after the last.
        numbers: The numbers.
        tensor: The tensor, of rank 0 or 1.
    """

    value: Value | None = None
    start: int = 0
    end: int = 0
    numbers: tuple[int, ...] = ()
    tensor: Value | None = None

    def built(self, m: Match, build: Builder) -> Value:
        """The part, of rank 1."""
        if self.tensor is not None:
            return self.tensor if m.rank(self.tensor) else build.Unsqueeze(self.tensor, axes=[0])
        if self.value is None:
            return build.const(np.array(self.numbers, np.int64))
        if (self.start, self.end) == (0, m.rank(self.value)):
            return build.Shape(self.value)
        if build.opset >= WITH_BOUNDS:
            return build.Shape(self.value, start=self.start, end=self.end)
        if self.end - self.start > 1:  # as a Gather of them is written, too
            return build.Slice(build.Shape(self.value), starts=[self.start], ends=[self.end], axes=[0])
        return build.Gather(build.Shape(self.value), np.array([self.start]), axis=0)

    def cost(self, m: Match, opset: int, dying: Collection[ir.Node]) -> int:
        """The number of new nodes that the part takes; a Shape that stays is not made again."""
        if self.tensor is not None:
            return 0 if m.rank(self.tensor) else 1
        if self.value is None:
            return 0
        whole = (0, m.rank(self.value) or 0)
        if opset >= WITH_BOUNDS or (self.start, self.end) == whole:
            return int(not _is_read(m, self.value, (self.start, self.end), dying))
        return 1 + (not _is_read(m, self.value, whole, dying))


def _is_read(m: Match, value: Value, axes: tuple[int, int], dying: Collection[ir.Node]) -> bool:
    """True if a node that stays reads these sizes of a value."""
    return any(is_shape(n) and n not in dying and _bounds(m, n) == axes for n in readers(value, within=1))


def is_shape(node: ir.Node) -> bool:
    """True if a node is a Shape."""
    return node.op_type == "Shape" and not node.domain


def _bounds(m: Match, node: ir.Node) -> tuple[int, int]:
    """The first axis that a Shape reads, and the axis after its last."""
    rank = m.rank(m.operand(node)) or 0
    attributes = node.attributes
    start, end, _ = slice(attributes.get_int("start", 0), attributes.get_int("end", rank)).indices(rank)
    return start, end


def origin(m: Match, value: Value) -> Value:
    """The earliest value above, along inputs of the same shape."""
    graph, wanted = m.nodes[0].graph, m.shape(value)

    def keeps_shape(node: ir.Node) -> Value | None:
        data = (v for v in inputs_of(node) if m.facts.tensor(v) is None) if node.graph is graph else ()
        return next((v for v in data if same_shape(m.shape(v), wanted)), None)

    return path_through(value, keeps_shape, most=_FAR).source


def _above(m: Match, node: ir.Node) -> tuple[list[Value], list[Value]]:
    """The values whose sizes may be read, the graph's inputs first, and the shape tensors that the node is made of."""

    def integers(each: ir.Node) -> list[Value]:
        return [v for v in inputs_of(each) if m.dtype(v) in (*INTS, ir.DataType.BOOL) and not is_shape(each)]

    made_of = upstream(node, integers, most=_MOST)
    asked = [origin(m, m.operand(n)) for n in made_of if is_shape(n)]
    inputs = node.graph.inputs if isinstance(node.graph, ir.Graph) else ()
    return list(dict.fromkeys((*inputs, *asked))), [n.outputs[0] for n in made_of if n is not node]


Sources: TypeAlias = tuple[Sequence[Value], Sequence[Value]]
"""Values whose sizes may be read, and shape tensors that are there."""


def parts_of(m: Match, sources: Sources, elements: Sequence[Dim], opset: int, dying: Collection[ir.Node]) -> list[Part]:
    """The elements as few parts, made of these: from the front, the longest, of several the cheapest."""
    made: list[Part] = []
    place = 0
    values, tensors = sources
    while place < len(elements):
        rest = elements[place:]
        found = [*_numbers(rest), *(run for v in values for run in _runs(m, v, rest))] or _there(m, rest, tensors)
        if not found:
            m.refuse(f"no value above has a size of {elements[place]}")
        length = max(run for _, run in found)
        made.append(min((part for part, run in found if run == length), key=lambda part: part.cost(m, opset, dying)))
        place += length
    return made


def _numbers(elements: Sequence[Dim]) -> Iterator[tuple[Part, int]]:
    """The numbers that the elements begin with."""
    found = tuple(int(e) for e in itertools.takewhile(lambda e: isinstance(e, int), elements))  # type: ignore[arg-type]
    if found:
        yield Part(numbers=found), len(found)


def _agreeing(a: Iterable[Dim], b: Iterable[Dim]) -> int:
    """The number of elements that two sequences begin with alike."""
    length = 0
    for one, other in zip(a, b, strict=False):
        if not same_dim(one, other):
            break
        length += 1
    return length


def _runs(m: Match, value: Value, elements: Sequence[Dim]) -> Iterator[tuple[Part, int]]:
    """The longest runs of a value's sizes that the elements begin with, from each axis."""
    shape = m.shape(value) or ()
    for start in range(len(shape)):
        length = _agreeing(shape[start:], elements)
        if length:
            yield Part(value, start, start + length), length


def _there(m: Match, elements: Sequence[Dim], tensors: Iterable[Value]) -> list[tuple[Part, int]]:
    """The tensors that the elements begin with."""
    found = [(Part(tensor=t), m.facts.elements(t) or ()) for t in tensors if m.dtype(t) == ir.DataType.INT64]
    return [(part, len(own)) for part, own in found if own and _agreeing(own, elements) == len(own)]


def _same_spelling(m: Match, one: Value, other: Value) -> bool:
    """True if two shape tensors are made of the same values by the same nodes."""
    a, b = resolve(one).producer(), resolve(other).producer()
    known, wanted = m.facts.constant(one), m.facts.constant(other)
    if known is not None and wanted is not None:
        return np.array_equal(known, wanted)
    if resolve(one) is resolve(other):
        return True
    if a is None or b is None or (a.op_type, len(a.inputs)) != (b.op_type, len(b.inputs)):
        return False
    if is_shape(a) and is_shape(b) and _bounds(m, a) != _bounds(m, b):
        return False
    return all(_same_spelling(m, v, w) for v, w in zip(inputs_of(a), inputs_of(b), strict=True))


def written(m: Match, build: Builder, old: Value, elements: Sequence[Dim]) -> Value:
    """A shape tensor of these elements, instead of one that goes; refuses where that takes more nodes, or as many and
    the old one is computed."""
    node = resolve(old).producer()
    if node is None or m.dtype(old) != ir.DataType.INT64 or m.rank(old) not in (0, 1):
        m.refuse("it makes no shape tensor", at=old)
    dying, is_scalar = needed_for(node, most=_MOST), m.rank(old) == 0
    parts = parts_of(m, _above(m, node), elements, build.opset, dying)
    kept = _kept(parts, dying)
    cost = sum(p.cost(m, build.opset, dying) for p in {*parts}) + len(kept) + (len(parts) > 1) + is_scalar
    m.require(cost <= len(dying), f"it takes {cost} nodes to make it anew, and {len(dying)} as it is")
    reads = all(n.op_type in READING or n in kept for n in dying)
    m.require(reads or cost < len(dying), f"it takes {cost} nodes to make it anew, too")
    m.cover(*(n for n in dying if n not in kept))
    whole = joined(m, build, parts)
    return build.Squeeze(whole) if is_scalar else whole


def joined(m: Match, build: Builder, parts: Sequence[Part]) -> Value:
    """The shape tensor that these parts make, of rank 1."""
    made = {p: p.built(m, build) for p in dict.fromkeys(parts)}
    whole: Value = made[parts[0]] if len(parts) == 1 else build.Concat(*(made[p] for p in parts), axis=0)
    return whole


def _kept(parts: Iterable[Part], dying: Collection[ir.Node]) -> set[ir.Node]:
    """The nodes that would go with the shape tensor, but for what its parts read."""

    def going(node: ir.Node) -> list[Value]:
        return [v for v in inputs_of(node) if v.producer() in dying]

    makers = {v.producer() for p in parts for v in (p.value, p.tensor) if v is not None}
    return {n for maker in makers if maker is not None and maker in dying for n in upstream(maker, going, most=_MOST)}


# -- a shape tensor made anew --------------------------------------------------------------------------------

computed = AnyNode(where=holds_sizes)


@rule(
    "shape-tensor-anew",
    CANONICALIZE,
    computed,
    benefit=20,
    allow_shared=True,
    examples=(
        # sizes that are read one by one, or computed
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  y = Gather(h, {1, 2})",
            to="float[n,s,t] x; y = Shape<start=1, end=3>(x)",
        ),
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  y = Slice(h, {-2}, {9223372036854775807}, {0})",
            to="float[n,s,t] x; y = Shape<start=1, end=3>(x)",
        ),
        Rewrites(
            "float[n,s] x; h = Shape(x)  y = Gather(h, -1)",
            to="float[n,s] x; h = Shape<start=1, end=2>(x)  y = Squeeze(h)",
        ),
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
            to="float[n,6] x; a = Shape<start=0, end=1>(x)  y = Squeeze(a)",
        ),
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  a = Gather(h, 0)  b = Gather(h, 1)  c = Mul(a, b)  d = Unsqueeze(c, {0})"
            "  e = Gather(h, {1})  f = Gather(h, {2})  y = Concat<axis=0>(d, e, f)",
            to="float[n,s,t] x; h = Shape(x)  a = Gather(h, 0)  b = Gather(h, 1)  c = Mul(a, b)  d = Unsqueeze(c, {0})"
            "  e = Shape<start=1, end=3>(x)  y = Concat<axis=0>(d, e)",
        ),
        Rewrites(
            "float[n,s,t] x; h = Shape(x)  a = Slice(h, {0}, {1})  b = Slice(h, {1}, {2})  y = Concat<axis=0>(a, b)",
            to="float[n,s,t] x; h = Shape(x)  y = Slice(h, {0}, {2}, {0})",
            opset=13,
        ),
        # of another value: the first input that has them, or the earliest above
        Rewrites(
            "float[n,s] x; float[n,t] z; y = Shape<start=0, end=1>(z)",
            to="float[n,s] x; float[n,t] z; y = Shape<start=0, end=1>(x)",
        ),
        Rewrites(
            "float[m,n,s] x; float[n,s] z; y = Shape(z)",
            to="float[m,n,s] x; float[n,s] z; y = Shape<start=1, end=3>(x)",
        ),
        Rewrites(
            "float[n,6] x; c = NonZero(x)  a = Relu(c)  b = Abs(a)  y = Shape<start=1>(b)",
            to="float[n,6] x; c = NonZero(x)  y = Shape<start=1, end=2>(c)",
        ),
        # there already
        Rewrites(
            "float[n,s] x; float[s,n] z; h = Shape(x)  a = Gather(h, {0})  k = Shape(z)"
            "  b = Gather(k, {1})  y = Sub(a, b)",
            to="float[n,s] x; float[s,n] z; a = Shape<start=0, end=1>(x)  y = Sub(a, a)",
        ),
        Rejects("float[n,s] x; h = Shape(x)  y = Gather(h, {1, 0})", because="nodes to make it"),
        Rejects("float[n,s] x; h = Shape(x)  a = Gather(h, 1)  y = Div(h, a)", because="nodes to make it"),
        Rejects(
            "float[n,s] x; h = Shape(x)  a = Gather(h, 0)  b = Gather(h, 1)  y = Mul(a, b)",
            because="no value above has a size of",
        ),
        Rejects("float[n,s] x; a = Shape<start=0, end=1>(x)  y = Concat<axis=0>(a, {3})", because="the fewest"),
        Rejects("float[n,s] x; a = Transpose(x)  y = Shape(a)", because="the fewest"),
        Rejects("float[m,n,s] x; float[n,s] z; y = Shape(z)", because="the fewest", opset=14),
        Rejects("int64[2] x; y = Add(x, x)", because="not sizes"),
        Rejects("float[n,3] x; y = Shape<start=1>(x)", because="not sizes"),
        Rejects("float[2,n] x; c = NonZero(x)  y = Shape(c)", because="the fewest"),
    ),
)
def shape_tensor_anew(m: Match, build: Builder) -> Value:
    """[n, s] as computed here ⟶ Shape(x, start=0, end=2) for an x of shape [n, s, ...], if that takes no more nodes.

    One that is there already takes none.  Of several values the first input of the graph that has these sizes is read,
    or the earliest value above.
    """
    m.node(computed)
    there = m.facts.equal_shape_tensor(m[computed])
    if there is not None:
        return there
    made = written(m, build, m[computed], m.facts.elements(m[computed]) or ())
    m.require(not _same_spelling(m, made, m[computed]), "it is made of the fewest nodes")
    return made


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


size = Var("size", rank=1)
filled = op.ConstantOfShape(size)
nonzero = op.NonZero(filled)


@rule(
    "range-of-nonzero",
    CANONICALIZE,
    nonzero,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n] x; h = Shape(x)  o = ConstantOfShape<value=int64[1] {1}>(h)  y = NonZero(o)",
            to="float[n] x; h = Shape(x)  q = Squeeze(h)  r = Range(0, q, 1)  y = Unsqueeze(r, {0})",
        ),
        Rejects("float[n] x; h = Shape(x)  o = ConstantOfShape(h)  y = NonZero(o)", because="all of it is zero"),
        Rejects(
            "float[n,s] x; h = Shape(x)  o = ConstantOfShape<value=int64[1] {1}>(h)  y = NonZero(o)",
            because="there is more than one axis",
        ),
        Rejects("float[n] x; y = NonZero(x)", because="expected"),
    ),
)
def range_of_nonzero(m: Match, build: Builder) -> Value:
    """NonZero(1, 1, ..., 1) ⟶ Unsqueeze(Range(0, n, 1), {0}), as old exporters write positions."""
    m.require(m.dim(size, 0) == 1, "there is more than one axis", at=size)
    given = m.node(filled).attributes.get("value")
    m.require(given is not None and given.as_tensor().numpy().any(), "all of it is zero", at=nonzero)
    return build.Unsqueeze(build.Range(0, build.Squeeze(m[size]), 1), axes=(0,))
