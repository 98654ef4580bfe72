"""Operator by operator: the frame of a node, or None where it needs its operands as they are.

What is not listed here, and what cannot be read for certain (axes that are not constant, an unknown rank),
has no frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.transpose_frames import MOVE, SMALL, Axes, Frame, Perm, inverse

_Maker: TypeAlias = Callable[[ir.Node, Facts], Frame | None]

_STANDARD: dict[str, _Maker] = {}

_MICROSOFT = frozenset({"FastGelu", "Gelu", "QuickGelu"})
"""Operators of one operand, element by element."""


def _frames(*names: str) -> Callable[[_Maker], _Maker]:
    """The function makes the frames of these operators of the standard."""

    def declared(make: _Maker) -> _Maker:
        _STANDARD.update(dict.fromkeys(names, make))
        return make

    return declared


def frame_of(node: ir.Node, facts: Facts) -> Frame | None:
    """The frame of a node; None where it needs its operands as they are, or where nobody knows."""
    make = _STANDARD.get(node.op_type) if node.domain == "" else None
    if node.domain == "com.microsoft" and node.op_type in _MICROSOFT and len(node.inputs) == 1:
        make = _pointwise
    if make is None or any(a.is_ref() or a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    return make(node, facts)


def _again(build: Builder, node: ir.Node, inputs: Sequence[Value | None], **changed: Any) -> tuple[Value, ...]:
    """The node once more, on other inputs and with some parameters changed."""
    attributes = {name: a.value for name, a in node.attributes.items()} | changed
    tape = build.domain(node.domain) if node.domain else build
    return tape.node(node.op_type, list(inputs), attributes, outputs=len(node.outputs))


def _rank(node: ir.Node, facts: Facts, index: int = 0) -> int | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or facts.tensor(value) is not None else facts.rank(value)


def _all(rank: int) -> Axes:
    return tuple(range(rank))


def _axes(node: ir.Node, facts: Facts, name: str, rank: int) -> Axes | None:
    """A parameter that names axes, made non-negative; None where it is absent or not constant."""
    found = parameter(facts, node, name)
    found = (found,) if isinstance(found, int) else found
    if not isinstance(found, tuple) or not all(-rank <= a < rank for a in found):
        return None
    return tuple(int(a) % rank for a in found)


def _places(order: Perm, axes: Axes) -> Axes:
    return tuple(order.index(a) for a in axes)


def _moving(node: ir.Node, rank: int, axes: Axes | None = None) -> dict[int, Axes]:
    """Every output holds ``axes``, or all."""
    return dict.fromkeys(range(len(node.outputs)), _all(rank) if axes is None else axes)


@_frames(*operators("pointwise"))
def _pointwise(node: ir.Node, facts: Facts) -> Frame | None:
    """f(x): every output has the shape of the first input; further inputs are parameters."""
    rank = _rank(node, facts)
    if rank is None:
        return None
    return Frame(rank, {0: _all(rank)}, _moving(node, rank), lambda build, inputs, _: _again(build, node, inputs))


@_frames(*operators("broadcast"))
def _broadcasting(node: ir.Node, facts: Facts) -> Frame | None:
    """f(a, b, ...) of operands that are broadcast against each other."""
    ranks = [None if v is None else facts.rank(v) for v in node.inputs]
    if facts.version(node) < 7 or any(r is None for r in ranks):
        return None
    rank = max(r for r in ranks if r is not None)
    constant = {i for i, v in enumerate(node.inputs) if v is not None and facts.tensor(v) is not None}
    moving = {i: _all(rank) for i, r in enumerate(ranks) if r == rank and i not in constant}
    relaid = frozenset(range(len(ranks))) - set(moving)
    return Frame(rank, moving, _moving(node, rank), lambda build, inputs, _: _again(build, node, inputs), relaid)


@_frames("Dropout")
def _dropout(node: ir.Node, facts: Facts) -> Frame | None:
    return _pointwise(node, facts) if facts.is_deterministic(node) else None


@_frames("QuantizeLinear", "DequantizeLinear")
def _quantize(node: ir.Node, facts: Facts) -> Frame | None:
    """QuantizeLinear, DequantizeLinear: per tensor, or along an axis; not in blocks."""
    frame, scale = _pointwise(node, facts), node.inputs[1]
    shape = facts.shape(scale) if scale is not None else None
    if frame is None or shape is None or len(shape) > 1:
        return None
    if all(d == 1 for d in shape):
        return frame
    axis = _axes(node, facts, "axis", frame.rank)
    return None if axis is None else _along(node, frame, axis[0])


def _along(node: ir.Node, frame: Frame, axis: int) -> Frame:
    return Frame(
        frame.rank,
        frame.inputs,
        frame.outputs,
        lambda build, inputs, order: _again(build, node, inputs, axis=order.index(axis)),
        frame.relaid,
    )


@_frames("Split", "TopK", "CumSum", "LpNormalization")
def _along_axis(node: ir.Node, facts: Facts) -> Frame | None:
    """Softmax of opset 13, Split, TopK, CumSum, ...: one axis is special."""
    frame = _pointwise(node, facts)
    axis = _axes(node, facts, "axis", frame.rank) if frame is not None else None
    return None if frame is None or axis is None or len(axis) != 1 else _along(node, frame, axis[0])


@_frames(*operators("softmax"))
def _softmax(node: ir.Node, facts: Facts) -> Frame | None:
    """Before opset 13 all axes from ``axis`` on are one: they stay together, and in order for Hardmax."""
    if facts.version(node) >= 13:
        frame = _along_axis(node, facts)
        axis = _axes(node, facts, "axis", frame.rank) if frame is not None else None
        if frame is None or axis != (frame.rank - 1,):
            return frame
        # ORT computes it along the last axis; elsewhere it moves the data there and back.
        last = axis[0]
        return replace(frame, extra=lambda order: 0 if order[-1] == last else MOVE)
    frame = _pointwise(node, facts)
    axis = _axes(node, facts, "axis", frame.rank) if frame is not None else None
    if frame is None or axis is None:
        return None
    tail = _all(frame.rank)[axis[0] :]
    ordered = node.op_type == "Hardmax"

    def fits(order: Perm) -> bool:
        new = order[len(order) - len(tail) :]
        return new == tail if ordered else set(new) == set(tail)

    return Frame(frame.rank, frame.inputs, frame.outputs, frame.emit, fits=fits)


@_frames("Concat")
def _concat(node: ir.Node, facts: Facts) -> Frame | None:
    values = [v for v in node.inputs if v is not None]
    rank = facts.rank(values[0]) if values else None
    axis = _axes(node, facts, "axis", rank) if rank is not None else None
    if rank is None or axis is None or any(facts.rank(v) != rank for v in values):
        return None
    constant = frozenset(i for i, v in enumerate(values) if facts.tensor(v) is not None)
    moving = {i: _all(rank) for i in range(len(values)) if i not in constant}
    return _along(node, Frame(rank, moving, _moving(node, rank), lambda *_: (), constant), axis[0])


@_frames(*operators("reduce"))
def _reduce(node: ir.Node, facts: Facts) -> Frame | None:
    """Reduce*, ArgMax, ArgMin: what is kept of the axes moves, with keepdims all of them."""
    rank = _rank(node, facts)
    if rank is None:
        return None
    one = node.op_type in ("ArgMax", "ArgMin")
    name = "axis" if one else "axes"
    given = parameter(facts, node, name)
    axes = _axes(node, facts, name, rank)
    if given in (None, ()) and not parameter(facts, node, "noop_with_empty_axes"):
        axes = _all(rank)
    if not axes:
        return None
    kept = _all(rank) if parameter(facts, node, "keepdims") else tuple(a for a in range(rank) if a not in axes)

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        if given in (None, ()):
            return _again(build, node, inputs)
        new = sorted(_places(order, axes))
        return _again(build, node, inputs, **{name: new[0] if one else tuple(new)})

    return Frame(rank, {0: _all(rank)}, _moving(node, rank, kept), emit)


@_frames("Squeeze")
def _squeeze(node: ir.Node, facts: Facts) -> Frame | None:
    rank = _rank(node, facts)
    axes = _axes(node, facts, "axes", rank) if rank is not None else None
    if rank is None or axes is None:
        return None
    kept = tuple(a for a in range(rank) if a not in axes)

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        return _again(build, node, inputs, axes=tuple(sorted(_places(order, axes))))

    return Frame(rank, {0: _all(rank)}, {0: kept}, emit)


@_frames("Unsqueeze")
def _unsqueeze(node: ir.Node, facts: Facts) -> Frame | None:
    inner = _rank(node, facts)
    given = parameter(facts, node, "axes")
    if inner is None or not isinstance(given, tuple | int):
        return None
    rank = inner + (len(given) if isinstance(given, tuple) else 1)
    axes = _axes(node, facts, "axes", rank)
    if axes is None:
        return None
    old = tuple(a for a in range(rank) if a not in axes)

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        return _again(build, node, inputs, axes=tuple(sorted(_places(order, axes))))

    return Frame(rank, {0: old}, _moving(node, rank), emit)


@_frames("Slice")
def _slice(node: ir.Node, facts: Facts) -> Frame | None:
    rank = _rank(node, facts)
    if rank is None:
        return None
    starts = node.inputs[1] if len(node.inputs) > 1 else None
    given = parameter(facts, node, "axes")
    if given is None:  # then the first axes, as many as there are starts
        shape = facts.shape(starts) if starts is not None else None
        count = len(node.attributes["starts"].as_ints()) if starts is None else shape[0] if shape else None
        axes = _all(count) if isinstance(count, int) else None
    else:
        axes = _axes(node, facts, "axes", rank)
    if axes is None:
        return None

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        new = _places(order, axes)
        return _again(build, node, inputs, axes=new if starts is None else build.const(np.array(new), like=starts))

    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, emit)


def _permuted(build: Builder, facts: Facts, value: Value | None, places: Axes) -> Value:
    """The elements of a one-dimensional tensor in another order."""
    assert value is not None
    data = facts.constant(value)
    if data is not None:
        return build.const(data[list(places)], like=value)
    return build.Gather(value, np.array(places, dtype=np.int64), axis=0)


@_frames("Pad")
def _pad(node: ir.Node, facts: Facts) -> Frame | None:
    rank = _rank(node, facts)
    if rank is None or facts.version(node) < 2:
        return None
    pads = node.inputs[1] if len(node.inputs) > 1 else None
    axes = _axes(node, facts, "axes", rank) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    if len(node.inputs) > 3 and node.inputs[3] is not None and axes is None:
        return None

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        if axes is not None:
            return _again(build, node, inputs, axes=build.const(np.array(_places(order, axes)), like=node.inputs[3]))
        both = (*order, *(a + rank for a in order))
        if pads is None:
            old = tuple(node.attributes["pads"].as_ints())
            return _again(build, node, inputs, pads=tuple(old[i] for i in both))
        return _again(build, node, [inputs[0], _permuted(build, facts, inputs[1], both), *inputs[2:]])

    dynamic = pads is not None and axes is None and facts.tensor(pads) is None
    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, emit, extra=lambda order: SMALL * dynamic)


@_frames("Gather")
def _gather(node: ir.Node, facts: Facts) -> Frame | None:
    """Gather by a scalar or a list of indices."""
    rank, indices = _rank(node, facts), node.inputs[1]
    count = facts.rank(indices) if indices is not None else None
    axis = _axes(node, facts, "axis", rank) if rank is not None else None
    if rank is None or axis is None or count not in (0, 1):
        return None
    kept = _all(rank) if count else tuple(a for a in range(rank) if a != axis[0])
    return _along(node, Frame(rank, {0: _all(rank)}, {0: kept}, lambda *_: ()), axis[0])


@_frames(*operators("repeat"))
def _expand(node: ir.Node, facts: Facts) -> Frame | None:
    """Expand, Tile: the target has one element per axis."""
    data, target = node.inputs[0], node.inputs[1]
    length = facts.shape(target) if target is not None else None
    rank = length[0] if length else None
    inner = None if data is None else facts.rank(data)
    if data is None or target is None or not isinstance(rank, int) or inner is None or inner > rank:
        return None
    moves = inner == rank and facts.tensor(data) is None

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        return _again(build, node, [inputs[0], _permuted(build, facts, inputs[1], order)])

    moving = {0: _all(rank)} if moves else {}
    relaid = frozenset(() if moves else (0,))
    # A Transpose had better stay where the tensor is small.
    return Frame(rank, moving, {0: _all(rank)}, emit, relaid, extra=lambda order: SMALL)


@_frames("Shape")
def _shape(node: ir.Node, facts: Facts) -> Frame | None:
    """Shape can be read off any layout: its elements are put back in order."""
    rank = _rank(node, facts)
    if rank is None:
        return None
    window = slice(parameter(facts, node, "start") or 0, parameter(facts, node, "end"))

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        wanted = inverse(order)[window]
        whole = build.Shape(*inputs)
        return (build.Gather(whole, np.array(wanted, dtype=np.int64), axis=0),)

    return Frame(rank, {0: _all(rank)}, {}, emit, extra=lambda order: SMALL)


@_frames("Size")
def _size(node: ir.Node, facts: Facts) -> Frame | None:
    frame = _pointwise(node, facts)
    return None if frame is None else Frame(frame.rank, frame.inputs, {}, frame.emit)


@_frames("DynamicQuantizeLinear")
def _quantize_dynamically(node: ir.Node, facts: Facts) -> Frame | None:
    """DynamicQuantizeLinear: one scale for the whole tensor."""
    frame = _pointwise(node, facts)
    return None if frame is None else Frame(frame.rank, frame.inputs, {0: _all(frame.rank)}, frame.emit)


@_frames("Resize")
def _resize(node: ir.Node, facts: Facts) -> Frame | None:
    """Resize to constant scales or sizes; ORT interpolates inner axes, so the first two keep their size."""
    rank, data = _rank(node, facts), node.inputs[0]
    shape = None if data is None else facts.shape(data)
    if rank is None or shape is None or "axes" in node.attributes or facts.version(node) < 10:
        return None
    lists: dict[int, Sequence[Any]] = {}
    for index, value in enumerate(node.inputs[1:], start=1):
        known = None if value is None else facts.constant(value)
        if value is not None and known is None:
            return None
        if known is not None and known.size:
            lists[index] = known.ravel().tolist()
    targets = lists.get(3) or lists.get(2) or lists.get(1, ())
    if len(targets) != rank or parameter(facts, node, "keep_aspect_ratio_policy") not in (None, "stretch"):
        return None
    same = shape if 3 in lists else (1.0,) * rank
    resized = {a for a in range(rank) if same[a] != targets[a]}
    nearest = parameter(facts, node, "mode") == "nearest"

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        new = list(inputs)
        for index, numbers in lists.items():
            places = order if len(numbers) == rank else (*order, *(a + rank for a in order))
            new[index] = _permuted(build, facts, inputs[index], places)
        return _again(build, node, new)

    return Frame(
        rank,
        {0: _all(rank)},
        {0: _all(rank)},
        emit,
        fits=lambda order: nearest or not resized & set(order[:2]),
        extra=lambda order: SMALL,
    )
