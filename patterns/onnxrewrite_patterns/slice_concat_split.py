"""Taking apart and putting together: Slice, Split and Concat that undo or repeat one another.

Why: every one of them copies its data.  Two slices are one, what is split and joined again was there before,
and a piece cut out of a Concat is one of its operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxrewrite.rules import *

x = Var("x")

# -- Slice of Slice ------------------------------------------------------------------------------------------


def one_cut(a: Span, b: Span, size: Dim | None) -> Span | None:
    """``x[a][b]`` as one cut of an axis; None where it depends on its size.

    With a known size it is computed.  With any size, bounds that count from the front add up; an end that
    counts from the back stays where the other cut goes to the end.
    """
    if isinstance(size, int):
        first = a.of(size)
        second = b.of(len(first))
        if isinstance(first, str) or isinstance(second, str):
            return None
        chosen = first[second.start : second.stop if second.stop >= 0 else None : second.step]
        if not chosen:
            return Span(a.axis, 0, 0, 1)
        return Span(a.axis, chosen.start, chosen.stop if chosen.stop >= 0 else -END, chosen.step)
    if a.step != 1 or b.step < 1 or a.start < 0 or b.start < 0:
        return None
    start = a.start + b.start
    if a.end >= FAR:
        end = END if b.end >= FAR else b.end + (a.start if b.end >= 0 else 0)
    elif b.end >= FAR:
        end = a.end
    elif a.end >= 0 and b.end >= 0:
        end = min(a.end, a.start + b.end)
    else:
        return None
    return Span(a.axis, start, end, b.step)


inner = op.Slice(x, Each("inner_bounds", at_least=0))
outer = op.Slice(inner, Each("outer_bounds", at_least=0))


@rule(
    "slice-of-slice",
    CANONICALIZE,
    outer,
    examples=(
        Rewrites(
            "float[n,s] x; a = Slice(x, {0}, {2}, {0})  y = Slice(a, {1}, {-1}, {-1})",
            to="float[n,s] x; y = Slice(x, {0, 1}, {2, -1}, {0, 1})",
        ),
        Rewrites(
            "float[n] x; a = Slice(x, {2}, {9})  y = Slice(a, {1}, {4}, {0}, {2})",
            to="float[n] x; y = Slice(x, {3}, {6}, {0}, {2})",
        ),
        Rewrites(
            "float[8] x; a = Slice(x, {-1}, {-9}, {0}, {-1})  y = Slice(a, {1}, {5}, {0}, {2})",
            to="float[8] x; y = Slice(x, {6}, {2}, {0}, {-2})",
        ),
        Rewrites(  # ONNX Runtime takes the largest integers for the front
            "float[8] x; a = Slice(x, {0}, {5})  y = Slice(a, {3}, {2147483647}, {0}, {-1})",
            to="float[8] x; y = Slice(x, {3}, {-9223372036854775807}, {0}, {-1})",
        ),
        Rewrites(  # a start in front of all is the first, backwards, too
            "float[1] x; a = Slice(x, {-2}, {-9}, {0}, {-1})  y = Slice(a, {0}, {5}, {0})",
            to="float[1] x; y = Slice(x, {0}, {-9223372036854775807}, {0}, {-1})",
        ),
        Rejects("float[n] x; a = Slice(x, {0}, {-1})  y = Slice(a, {0}, {4})", because="depends on its size"),
        Rejects("float[n] x; a = Slice(x, {-3}, {9})  y = Slice(a, {1}, {4})", because="depends on its size"),
        Rejects("float[n] x; int64[1] e; a = Slice(x, {0}, e)  y = Slice(a, {0}, {4})", because="not constant"),
    ),
)
def slice_of_slice(m: Match, build: Builder) -> Value:
    """x[a:b][c:d] ⟶ x[a+c:min(b, a+d)]."""
    shape = m.shape(x)
    by_axis = {cut.axis: cut for cut in m.slice(m.node(inner)).spans}
    for cut in m.slice(m.node(outer)).spans:
        earlier = by_axis.get(cut.axis)
        merged = cut if earlier is None else one_cut(earlier, cut, shape[cut.axis] if shape is not None else None)
        if merged is None:
            m.refuse(f"what both cut of axis {cut.axis} depends on its size", at=inner)
        by_axis[cut.axis] = merged
    made = list(by_axis.values())
    bounds = {"starts": [c.start for c in made], "ends": [c.end for c in made], "axes": [c.axis for c in made]}
    if any(c.step != 1 for c in made):
        bounds["steps"] = [c.step for c in made]
    sliced: Value = build.Slice(m[x], **{name: np.array(b, np.int64) for name, b in bounds.items()})
    return sliced


# -- Concat --------------------------------------------------------------------------------------------------

concat = AnyNode(op_types=("Concat",))


def _join_constants(m: Match, build: Builder, parts: Sequence[Value], axis: int) -> Iterator[Value]:
    """Small constants side by side as one."""
    run: list[Value] = []
    for part in [*parts, None]:
        tensor = m.facts.tensor(part) if part is not None else None
        if part is not None and tensor is not None and tensor.size <= 64:
            run.append(part)
            continue
        if len(run) == 1:
            yield run[0]
        elif run:
            arrays = [m.facts.constant(v) for v in run]
            yield build.const(np.concatenate([a for a in arrays if a is not None], axis=axis), like=run[0])
        run = []
        if part is not None:
            yield part


@rule(
    "concat-of-concat",
    CANONICALIZE,
    concat,
    benefit=40,
    examples=(
        Rewrites(
            "float[n,s] a; float[n,t] b; c = Concat<axis=1>(a, b)  y = Concat<axis=-1>(c, a)",
            to="float[n,s] a; float[n,t] b; y = Concat<axis=1>(a, b, a)",
        ),
        Rewrites(
            "float[n,s] a; float[n,0] b; float[n,t] c; y = Concat<axis=1>(a, b, c)",
            to="float[n,s] a; float[n,0] b; float[n,t] c; y = Concat<axis=1>(a, c)",
        ),
        Rewrites(
            "int64[2] a; y = Concat<axis=0>(a, {1}, {2, 3})",
            to="int64[2] a; y = Concat<axis=0>(a, {1, 2, 3})",
        ),
        Rejects(
            "float[n,s] a; c = Concat<axis=0>(a, a)  y = Concat<axis=1>(c, c)",
            because="no operand is a Concat",
        ),
    ),
)
def concat_of_concat(m: Match, build: Builder) -> Value:
    """Concat(Concat(a, b), c) ⟶ Concat(a, b, c) along one axis; empty operands go, constants join."""
    node, rank = m.node(concat), m.rank(concat)
    axis = m.axis(node, rank)
    parts, kept_apart = list[Value](), list[str | None]()
    for value in inputs_of(node):
        inner = made_by(value, "Concat")
        if inner is None or inner.graph is not node.graph:
            parts.append(value)
        elif is_read_once(value) and m.axis(inner, rank) == axis:
            parts += inputs_of(inner)
            m.cover(inner, *passed(value))
        else:
            parts.append(value)
            kept_apart.append(value.name)
    lengths = [m.dim(p, axis) for p in parts]
    kept = [p for p, length in zip(parts, lengths, strict=True) if length != 0] or parts[:1]
    joined = list(_join_constants(m, build, kept, axis))
    if len(joined) == len(inputs_of(node)) and len(m.nodes) == 1:
        m.require(kept_apart, "no operand is a Concat of the same axis, empty, or constant next to one")
        m.refuse(f"`{kept_apart[0]}` is used by others too, or joined along another axis")
    made: Value = joined[0] if len(joined) == 1 else build.Concat(*joined, axis=axis)
    return made


@rule(
    "concat-of-split",
    CANONICALIZE,
    concat,
    benefit=60,
    examples=(
        Rewrites(
            "float[n,6] x; a, b = Split<axis=1>(x, {2, 4})  c = Concat<axis=-1>(a, b)  y = Relu(c)",
            to="float[n,6] x; y = Relu(x)",
        ),
        Rejects(
            "float[n,6] x; a, b = Split<axis=1>(x, {2, 4})  y = Concat<axis=1>(b, a)",
            because="in their order",
        ),
        Rejects(
            "float[4,6] x; a, b = Split<axis=1>(x, {3, 3})  y = Concat<axis=0>(a, b)",
            because="different axes",
        ),
    ),
)
def concat_of_split(m: Match, build: Builder) -> Value:
    """Concat(Split(x)) ⟶ x, all pieces in their order along the same axis."""
    node = m.node(concat)
    pieces = [resolve(v) for v in inputs_of(node)]
    split = made_by(pieces[0], "Split") if len({made_by(piece, "Split") for piece in pieces}) == 1 else None
    if split is None:
        m.refuse("the operands are not the pieces of one Split")
    source = m.operand(split)
    m.require(pieces == list(split.outputs), "not all pieces in their order")
    m.require(m.axis(node, m.rank(source)) == m.axis(split, m.rank(source)), "Split and Concat go along different axes")
    return source


piece = AnyNode(op_types=("Split", "Slice"))


def _at(values: Sequence[Value], sizes: Sequence[Dim | None], start: int, end: int) -> Value | None:
    """The one of ``values``, which lie side by side, that goes from ``start`` to ``end``; None if none does."""
    offset = 0
    for value, size in zip(values, sizes, strict=True):
        if not isinstance(size, int):
            return None
        if (offset, offset + size) == (start, end):
            return value
        offset += size
    return None


@rule(
    "piece-of-concat",
    CANONICALIZE,
    piece,
    benefit=60,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,2] a; float[n,4] b; c = Concat<axis=1>(a, b)  p, q = Split<axis=1>(c, {2, 4})"
            "  y = Relu(p)  z = Abs(q)",
            to="float[n,2] a; float[n,4] b; y = Relu(a)  z = Abs(b)",
        ),
        Rewrites(
            "float[n,2] a; float[n,4] b; c = Concat<axis=1>(a, b)  p = Slice(c, {-4}, {6}, {1})  y = Relu(p)",
            to="float[n,2] a; float[n,4] b; y = Relu(b)",
        ),
        Rejects(
            "float[n,2] a; float[n,4] b; c = Concat<axis=1>(a, b)  y = Slice(c, {1}, {3}, {1})",
            because="no operand",
        ),
        Rejects(
            "float[n,s] a; float[n,t] b; c = Concat<axis=1>(a, b)  y = Slice(c, {0}, {2}, {1})",
            because="no operand",
        ),
        Rejects(
            "float[n,2] a; float[n,4] b; c = Concat<axis=1>(a, b)  y = Slice(c, {2}, {6}, {1}, {2})",
            because="leaves out elements",
        ),
        Rejects("float[n,6] x; y = Slice(x, {0}, {2}, {1})", because="not a Concat"),
    ),
)
def piece_of_concat(m: Match, build: Builder) -> Value:
    """Split(Concat(a, b)) ⟶ a, b where the pieces are the operands, and likewise Slice."""
    node = m.node(piece)
    whole, because = m.operand(node), "the input is not a Concat"
    joined = m.made_by(whole, "Concat", because=because)
    m.require(joined.graph is node.graph, because, at=whole)
    axis, parts = m.axis(joined, m.rank(whole)), inputs_of(joined)
    found = m.piece(m[piece], axis)
    m.require(found.step == 1, "the Slice leaves out elements in between", at=whole)
    value = _at(parts, [m.dim(part, axis) for part in parts], found.start, found.stop)
    if value is None:
        m.refuse(f"elements {found.start} to {found.stop} are no operand of the Concat", at=whole)
    return value
