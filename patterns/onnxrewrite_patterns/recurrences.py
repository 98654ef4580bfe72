"""Recurrences: those that an exporter unrolled as a Scan, and sequences that a Scan takes apart computed inside of it.

Why: an exporter writes the loop of a state space model (Mamba) once for each step, over sequences that were computed as
a whole: the decay of each channel and state at each step, [batch, steps, channels, states].  They are many times
larger than what they are computed of, are written to memory, read again a step at a time, and copied by it.  As a Scan
that computes what it needs at each step it takes a third to three quarters of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

POINTWISE = tuple(operators("pointwise broadcast"))

WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""Dtypes that CPUs compute in.  In fewer bits ONNX Runtime rounds what a Scan carries on, not what nodes pass on."""

IN_RANGE = (Assumption.IN_RANGE,)
"""Where a state overflows, what is infinite depends on the order in which a kernel adds up."""

_LEAST = 4
"""A sequence is computed inside where what it is computed of is so many times smaller."""

_STEPS = 3
"""Of fewer steps a Scan costs more than it saves."""


_GIVEN = "float[n,3,2] d, float[n,3,5] b, float[n,3,5] c, float[n,2,5] h, float[1,1,2,5] t"
_MADE = "d4 = Unsqueeze(d, {3})  e = Mul(t, d4)  a = Exp(e)  b4 = Unsqueeze(b, {2})  u = Mul(d4, b4)"
_STEP = (
    "  a# = Gather<axis=1>(a, #)  p# = Mul(a#, BEFORE)  u# = Gather<axis=1>(u, #)  h# = Add(p#, u#)"
    "  c# = Gather<axis=1>(c, #)  v# = Unsqueeze(c#, {-1})  m# = MatMul(h#, v#)  y# = Reshape(m#, {0, 1, 2})"
)
_LOOP = "".join(_STEP.replace("#", str(n)).replace("BEFORE", f"h{n - 1}" if n else "h") for n in range(3))
_SPELLED = f"({_GIVEN}) => (y) {{ {_MADE}{_LOOP}  y = Concat<axis=1>(y0, y1, y2) }}"
_OTHER = _SPELLED.replace(_MADE, "a = Identity(f)  u = Identity(f)").replace("(float", "(float[n,3,2,5] f, float", 1)
_UNROLLED = (
    Rewrites(
        _SPELLED,
        to=f"({_GIVEN}) => (y) {{ {_MADE}"
        "  l, p = Scan<body = step (float[n,2,5] s, float[n,2,5] i, float[n,2,5] j, float[n,5] k)"
        " => (float[n,2,5] o, float[n,2] w)"
        " { q = Mul(i, s)  o = Add(q, j)  v = Unsqueeze(k, {-1})  r = MatMul(o, v)  w = Squeeze(r, {-1}) },"
        " num_scan_inputs=3, scan_input_axes=[1,1,1]>(h, a, u, c)  y = Transpose<perm=[1,0,2]>(p) }",
    ),
    Rejects(_SPELLED.replace("(y0, y1, y2)", "(y1, y0, y2)"), because="in layer 2 from the last"),
    Rejects(_SPELLED.replace("Gather<axis=1>(a, 1)", "Gather<axis=1>(a, 2)"), because="the steps take other slices"),
    Rejects(_SPELLED.replace("float[n,3,5] c", "float[n,4,5] c"), because="there are more steps in the sequence"),
    Rejects(_OTHER, because="no sequence is much larger"),
    Rejects(_SPELLED.replace("float[n,2,5] h", "float[n,1,5] h"), because="the first state has another shape"),
    Rejects(_SPELLED.replace("=> (y)", "=> (y, h1)"), because="`h1` inside the match is a graph output"),
)
_OPERANDS = "d4 = Unsqueeze(d, {3})  e = Mul(t, d4)  a = Exp(e)"
_BODY = (
    "Scan<body = b (float[n,2,5] s, float[n,2,5] i) => (float[n,2,5] o, float[n,2,5] w) { o = Mul(i, s)  w = Neg(o) }"
)
_COMPUTING = (
    "Scan<body = step (float[n,2,5] s, float[n,2,1] i) => (float[n,2,5] o, float[n,2,5] w)"
    " { x = Mul(q, i)  z = Exp(x)  o = Mul(z, s)  w = Neg(o) }"
)
_TURNED = "f = Transpose<perm=[1,0,2,3]>(a)"
_SCANNED = f"({_GIVEN}) => (l, y) {{ {_OPERANDS}  l, y = {_BODY}, num_scan_inputs=1, scan_input_axes=[1]>(h, a) }}"
_SCANS = (
    Rewrites(
        _SCANNED,
        to=f"({_GIVEN}) => (l, y) {{ d4 = Unsqueeze(d, {{3}})  q = Squeeze(t, {{1}})"
        f"  l, y = {_COMPUTING}, num_scan_inputs=1, scan_input_axes=[1]>(h, d4) }}",
    ),
    Rewrites(
        f"({_GIVEN}) => (l, y) {{ {_OPERANDS}  {_TURNED}  l, y = {_BODY}, num_scan_inputs=1>(h, f) }}",
        to=f"({_GIVEN}) => (l, y) {{ d4 = Unsqueeze(d, {{3}})  q = Squeeze(t, {{1}})"
        f"  l, y = {_COMPUTING}, num_scan_inputs=1, scan_input_axes=[1]>(h, d4) }}",
    ),
    Rejects(_SCANNED.replace("=[1]>", "=[1], scan_input_directions=[1]>"), because="it goes backwards"),
    Rejects(_SCANNED.replace("=> (l, y)", "=> (l, y, a)"), because="no sequence is much larger"),
    Rejects(_SCANNED.replace("Exp(e)", "Concat<axis=1>(e)"), because="no sequence is much larger"),
)


# -- unrolled ----------------------------------------------------------------------------------------------------------

decays, additions, readings = Var("decays", dtype=WIDE), Var("additions"), Var("readings")
along_a, along_b, along_c = (Attr[int](f"axis of {name}", default=0) for name in "abc")
at_a, at_b, at_c = (Scalar(f"step of {name}") for name in "abc")
a, b, c = (
    op.Gather(decays, at_a, axis=along_a),
    op.Gather(additions, at_b, axis=along_b),
    op.Gather(readings, at_c, axis=along_c),
)

state, column = Var("state"), Attr[tuple[int, ...]]("axes")  # a state times anything else has no result
new_state = op.Add(op.Mul(a, state), b)
given = op[operators("view")](op.MatMul(new_state, op.Unsqueeze(c, axes=column)), Each("view", at_least=0))
steps: Each[Match] = Each(
    "steps",
    of=given,
    carry={state: new_state},
    shared=(decays, additions, readings, along_a, along_b, along_c),
    at_least=_STEPS,
)
unrolled = op.Concat(steps, axis=Attr[int]("axis"))


@rule("unrolled-recurrence", LOWER, unrolled, assumes=IN_RANGE, examples=_UNROLLED)
def unrolled_recurrence(m: Match, build: Builder) -> Value:
    """Concat of (hᵢ = aᵢ·hᵢ₋₁ + bᵢ)·cᵢ ⟶ Scan(h₀, a, b, c)"""
    of = ((decays, along_a, at_a, a), (additions, along_b, at_b, b), (readings, along_c, at_c, c))
    sequences = [_sequence(m, *each) for each in of]
    pays = any(isinstance(_part(m, value, axis, needed_once=False), Computed) for value, axis in sequences)
    m.require(pays, "no sequence is much larger than what it is computed of", at=decays)
    states = [each.value(new_state) for each in m[steps]]
    shape = m.known(m.shape(states[0]) if states[0] is not None else None, "the shape of the state is not known")
    m.require(all(v is not None and same_shape(m.shape(v), shape) for v in states), "the state changes its shape")
    axis, out = m.axis(m.node(unrolled), m.rank(unrolled)), m.shape(m[steps][0].anchor)
    is_row = out is not None and len(out) == len(shape) and same_shape((*out[:axis], *out[axis + 1 :]), shape[:-1])
    m.require(is_row, "a step gives something else than a number for each row of its state", at=m[steps][0].anchor)

    def step(inner: Builder, before: Sequence[Value], slices: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        new = inner.Add(inner.Mul(slices[0], before[0]), slices[1])
        return [new], [inner.Squeeze(inner.MatMul(new, inner.Unsqueeze(slices[2], axes=(-1,))), axes=(-1,))]

    first = _first_state(m, build, shape, [v for v, _ in sequences])
    return build.scan(step, [first], sequences, [axis])[1]


def _sequence(m: Match, of: Var, along: Attr[int], at: Scalar, slice_: Call) -> tuple[Value, int]:
    """A sequence and its axis, of which the steps take one slice after the other."""
    shape = m.known(m.shape(of), "the shape of a sequence is not known", at=of)
    axis, count = m[along] % max(len(shape), 1), len(m[steps])
    m.require(shape[axis] == count, "there are more steps in the sequence", at=of)
    places = [each[at] for each in m[steps]]
    m.require([p % count for p in places] == list(range(count)), f"the steps take other slices: {places}", at=of)
    ranks = {m.rank(v) for each in m[steps] if (v := each.value(slice_)) is not None}
    m.require(ranks == {len(shape) - 1}, "a slice keeps its axis", at=of)
    return m[of], axis


def _first_state(m: Match, build: Builder, shape: Sequence[Dim], others: Sequence[Value]) -> Value:
    """The first state, in the shape of the others."""
    first = m[state]
    if same_shape(m.shape(first), shape):
        return first
    m.require(m.facts.tensor(first) is not None, "the first state has another shape", at=first)
    sizes: list[Value | np.ndarray] = []
    for size in shape:
        if isinstance(size, int):
            sizes.append(np.array([size]))
            continue
        places = ((v, axis) for v in others for axis, d in enumerate(m.shape(v) or ()) if same_shape((d,), (size,)))
        value, axis = m.known(next(places, None), f"nothing is known to have the size {size}")
        sizes.append(build.Shape(_source(m, value, axis), start=axis, end=axis + 1))
    return build.Expand(first, build.Concat(*sizes, axis=0))


def _source(m: Match, value: Value, axis: int) -> Value:
    """A value of the same size at this axis, above nodes that compute element by element: the value itself is to go."""
    node = made_by(value, *POINTWISE)
    shape = m.shape(value) or ()
    above = [v for v in inputs_of(node) if m.rank(v) == len(shape)] if node is not None else []
    same = next((v for v in above if same_shape((m.shape(v) or ())[axis : axis + 1], shape[axis : axis + 1])), None)
    return value if same is None else _source(m, same, axis)


# -- what a Scan takes apart -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """The slice of a sequence along an axis."""

    value: Value
    axis: int


@dataclass(frozen=True)
class Same:
    """A value that is the same at all steps, without its axis of size 1 if it has one."""

    value: Value
    axis: int | None


@dataclass(frozen=True)
class Computed:
    """A slice that a node computes of slices, and the Transposes below it."""

    node: ir.Node
    operands: tuple[Taken | Same | Computed, ...]
    turned: tuple[ir.Node, ...] = ()


Part: TypeAlias = Taken | Same | Computed


def _part(m: Match, value: Value, axis: int, *, needed_once: bool = True) -> Part:
    """The slice of a value along an axis: computed at each step where what that takes is much smaller, and nothing else
    needs the whole."""
    taken, node, rank = Taken(value, axis), made_by(value, "Transpose", *POINTWISE), m.rank(value)
    if node is None or rank is None or (needed_once and not is_read_once(value)):
        return taken
    if node.op_type == "Transpose":
        found = permutation(m.facts, node)
        if isinstance(found, str) or list(rest := (*found[:axis], *found[axis + 1 :])) != sorted(rest):
            return taken  # a slice has its axes in another order, too
        above = _part(m, m.operand(node), found[axis])
        return replace(above, turned=(*above.turned, node)) if isinstance(above, Computed) else taken
    operands = [_operand(m, v, axis, rank) for v in inputs_of(node)]
    known = tuple(each for each in operands if each is not None)
    if len(known) < len(operands):
        return taken
    computed = Computed(node, known)
    return computed if _LEAST * sum(_size(m, t.value) for t in _taken([computed])) <= _size(m, value) else taken


def _needed_elsewhere(value: Value) -> Value | None:
    """The first value, from this one up, that is computed element by element and needed by others, too."""
    node = made_by(value, "Transpose", *POINTWISE)
    if node is None or not is_read_once(value):
        return value if node is not None else None
    return next(filter(None, map(_needed_elsewhere, inputs_of(node))), None)


def _operand(m: Match, value: Value, axis: int, rank: int) -> Part | None:
    """The slice of an operand along an axis of the result; None where its shape is not known."""
    shape = m.shape(value)
    if shape is None:
        return None
    place = axis - rank + len(shape)
    if place < 0:
        return Same(value, None)
    return Same(value, place) if shape[place] == 1 else _part(m, value, place)


def _size(m: Match, value: Value) -> int:
    """The number of elements, named sizes left out: those are of all sequences."""
    return math.prod(d for d in m.shape(value) or () if isinstance(d, int))


def _walked(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        yield from _walked(part.operands) if isinstance(part, Computed) else ()


def _taken(parts: Sequence[Part]) -> list[Taken]:
    return list(dict.fromkeys(p for p in _walked(parts) if isinstance(p, Taken)))


operands, formals, results = Each[Value]("operands"), Each[Value]("formals", at_least=0), Each[Value]("results")
count = Attr[int]("num_scan_inputs")
scan = op.Scan(operands, body=Body([results], [formals]), num_scan_inputs=count)


@rule(
    "scan-operands",
    LOWER,
    any_of(*(scan[i] for i in range(4))),
    allow_shared=True,
    assumes=IN_RANGE,
    examples=_SCANS,
)
def scan_operands(m: Match, build: Builder) -> tuple[Value, ...]:
    """Scan(h, f(x), …) ⟶ Scan(h, x, …), which computes f at each step"""
    node, attributes = m.node(scan), m.attrs(scan)
    body = attributes["body"]
    m.require(m.facts.version(node) >= 9, "the Scan is of opset 8")
    states, sequences = m[operands][: -m[count]], m[operands][-m[count] :]
    directions = (attributes.get(f"scan_{which}_directions", ()) for which in ("input", "output"))
    m.require(not any(map(any, directions)), "it goes backwards")
    m.require(all(m.dtype(v) in WIDE for v in sequences), "it is computed in another dtype than float or double")
    m.require(not any(each.op_type in operators(marks="body") for each in body), "its body has bodies")
    axes = attributes.get("scan_input_axes", (0,) * m[count])
    m.require(len(axes) == len(sequences), "it names other axes than those of its sequences")
    parts = [
        _part(m, value, axis % m.known(m.rank(value), "the rank of a sequence is not known", at=value))
        for value, axis in zip(sequences, axes, strict=True)
    ]
    computed = [node for p in _walked(parts) if isinstance(p, Computed) for node in (p.node, *p.turned)]
    needed = next(filter(None, map(_needed_elsewhere, sequences)), None)
    more = " and needed here alone" if needed is not None else ""
    m.require(computed, f"no sequence is much larger than what it is computed of{more}", at=needed)
    taken = _taken(parts)
    m.require(taken, "nothing is left to take apart")
    whole = dict.fromkeys(p for p in _walked(parts) if isinstance(p, Same))
    same = {p: p.value if p.axis is None else build.Squeeze(p.value, axes=(p.axis,)) for p in whole}

    def step(inner: Builder, before: Sequence[Value], slices: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        made: dict[Part, Value] = dict(zip((*same, *taken), (*same.values(), *slices), strict=True))
        given = [*before, *(_emitted(inner, part, made) for part in parts)]
        known: dict[Value | None, Value] = dict(zip(m[formals], given, strict=True))
        known |= {v: build.constant(t) for v in body.initializers.values() if (t := v.const_value) is not None}
        for each in body:
            again = inner.again(each, *(known.get(v, v) for v in each.inputs))
            known |= dict(zip(each.outputs, again, strict=True))
        out = [known.get(v, v) for v in m[results]]
        return out[: len(states)], out[len(states) :]

    ranks = [m.rank(v) or 1 for v in node.outputs[len(states) :]]
    places = attributes.get("scan_output_axes", (0,) * len(ranks))
    m.widen([node])
    m.cover(*computed)
    joined = [axis % rank for axis, rank in zip(places, ranks, strict=True)]
    return build.scan(step, states, [(t.value, t.axis) for t in taken], joined)


def _emitted(inner: Builder, part: Part, made: dict[Part, Value]) -> Value:
    """A slice in the body, each once."""
    if part not in made:
        assert isinstance(part, Computed)
        made[part] = inner.again(part.node, *(_emitted(inner, each, made) for each in part.operands))[0]
    return made[part]
