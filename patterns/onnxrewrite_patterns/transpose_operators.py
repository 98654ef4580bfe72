"""Operator by operator: the frame of a node, or None where it needs its operands as they are.

What is not listed here, and what cannot be read for certain (axes that are not constant, an unknown rank),
has no frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.transpose_frames import MOVE, SMALL, Axes, Frame, Perm, inverse

T = TypeVar("T")

_Maker: TypeAlias = Callable[[ir.Node, Facts], Frame]

_STANDARD: dict[str, _Maker] = {}

_MICROSOFT = frozenset({"FastGelu", "Gelu", "QuickGelu"})
"""Operators of one operand, element by element."""


class _NoFrame(Exception):
    """A node needs its operands as they are, or nobody can tell."""


def _known(found: T | str | None) -> T:
    """The finding itself; a reason in words, or None, ends the search for a frame."""
    if found is None or isinstance(found, str):
        raise _NoFrame(found)
    return found


def _frames(*names: str) -> Callable[[_Maker], _Maker]:
    """The function makes the frames of these operators of the standard."""

    def declared(make: _Maker) -> _Maker:
        _STANDARD.update(dict.fromkeys(names, make))
        return make

    return declared


def frame_of(node: ir.Node, facts: Facts) -> Frame | None:
    """The frame of a node; None where it needs its operands as they are, or where nobody knows."""
    make = _STANDARD.get(node.op_type) if node.domain == "" else None
    if node.domain == "com.microsoft" and node.op_type in _MICROSOFT and input_of(node, 1) is None:
        make = _pointwise
    if make is None or any(a.is_ref() or a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    try:
        return make(node, facts)
    except _NoFrame:
        return None


def _rank(node: ir.Node, facts: Facts) -> int:
    """The rank of the first operand; a constant moves with nobody."""
    data = _known(input_of(node))
    return _known(None if facts.tensor(data) is not None else facts.rank(data))


def _all(rank: int) -> Axes:
    return tuple(range(rank))


def _places(order: Perm, axes: Axes) -> Axes:
    return tuple(order.index(a) for a in axes)


def _but(rank: int, axes: Axes) -> Axes:
    return tuple(a for a in range(rank) if a not in axes)


def _moving(node: ir.Node, rank: int, axes: Axes | None = None) -> dict[int, Axes]:
    """Every output holds ``axes``, or all."""
    return dict.fromkeys(range(len(node.outputs)), _all(rank) if axes is None else axes)


def _with(node: ir.Node, changed: Callable[[Perm], dict[str, Any]]) -> Callable[..., tuple[Value, ...]]:
    """Emits the node once more, with the parameters that the order of axes changes."""
    return lambda build, inputs, order: build.again(node, *inputs, **changed(order))


@_frames(*operators("pointwise"))
def _pointwise(node: ir.Node, facts: Facts) -> Frame:
    """f(x): every output has the shape of the first input; further inputs are parameters."""
    rank = _rank(node, facts)
    return Frame(rank, {0: _all(rank)}, _moving(node, rank), _with(node, lambda order: {}))


@_frames(*operators("broadcast"))
def _broadcasting(node: ir.Node, facts: Facts) -> Frame:
    """f(a, b, ...) of operands that are broadcast against each other."""
    if facts.version(node) < 7:
        raise _NoFrame
    values = [_known(v) for v in node.inputs]
    ranks = [_known(facts.rank(v)) for v in values]
    rank = max(ranks)
    moving = {i: _all(rank) for i, v in enumerate(values) if ranks[i] == rank and facts.tensor(v) is None}
    relaid = frozenset(range(len(ranks))) - set(moving)
    return Frame(rank, moving, _moving(node, rank), _with(node, lambda order: {}), relaid)


@_frames("Dropout")
def _dropout(node: ir.Node, facts: Facts) -> Frame:
    if not facts.is_deterministic(node):
        raise _NoFrame
    return _pointwise(node, facts)


@_frames("QuantizeLinear", "DequantizeLinear")
def _quantize(node: ir.Node, facts: Facts) -> Frame:
    """QuantizeLinear, DequantizeLinear: per tensor, or along an axis; not in blocks."""
    shape = _known(facts.shape(_known(input_of(node, 1))))
    if len(shape) > 1:
        raise _NoFrame
    return _pointwise(node, facts) if all(d == 1 for d in shape) else _along_axis(node, facts)


def _along(node: ir.Node, frame: Frame, axis: int) -> Frame:
    return replace(frame, emit=_with(node, lambda order: {"axis": order.index(axis)}))


@_frames("Split", "TopK", "CumSum", "LpNormalization")
def _along_axis(node: ir.Node, facts: Facts) -> Frame:
    """Softmax of opset 13, Split, TopK, CumSum, ...: one axis is special."""
    frame = _pointwise(node, facts)
    return _along(node, frame, _known(axis_of(facts, node, frame.rank)))


@_frames(*operators("softmax"))
def _softmax(node: ir.Node, facts: Facts) -> Frame:
    """Before opset 13 all axes from ``axis`` on are one: they stay together, and in order for Hardmax."""
    frame = _pointwise(node, facts)
    axis = _known(axis_of(facts, node, frame.rank))
    if facts.version(node) >= 13:
        # ORT computes it along the last axis; elsewhere it moves the data there and back.
        is_last = axis == frame.rank - 1
        return replace(_along(node, frame, axis), extra=lambda order: MOVE * (is_last and order[-1] != axis))
    tail = _all(frame.rank)[axis:]
    ordered = node.op_type == "Hardmax"

    def fits(order: Perm) -> bool:
        new = order[len(order) - len(tail) :]
        return new == tail if ordered else set(new) == set(tail)

    return replace(frame, fits=fits)


@_frames("Concat")
def _concat(node: ir.Node, facts: Facts) -> Frame:
    values = inputs_of(node)
    ranks = {facts.rank(v) for v in values}
    rank = _known(ranks.pop() if len(ranks) == 1 else None)
    constant = frozenset(i for i, v in enumerate(values) if facts.tensor(v) is not None)
    moving = {i: _all(rank) for i in range(len(values)) if i not in constant}
    frame = Frame(rank, moving, _moving(node, rank), lambda *_: (), constant)
    return _along(node, frame, _known(axis_of(facts, node, rank)))


@_frames(*operators("reduce"))
def _reduce(node: ir.Node, facts: Facts) -> Frame:
    """Reduce*, ArgMax, ArgMin: what is kept of the axes moves, with keepdims all of them."""
    rank, found = _rank(node, facts), _known(reduce_of(facts, node))
    if not found.axes:
        raise _NoFrame

    def changed(order: Perm) -> dict[str, Any]:
        new = tuple(sorted(_places(order, found.axes)))
        return {found.names: new[0] if found.names == "axis" else new} if found.names else {}

    kept = _all(rank) if found.keepdims else _but(rank, found.axes)
    return Frame(rank, {0: _all(rank)}, _moving(node, rank, kept), _with(node, changed))


@_frames("Squeeze", "Unsqueeze")
def _unit_axes(node: ir.Node, facts: Facts) -> Frame:
    """Squeeze, Unsqueeze: the frame has the axes that go, or come."""
    inner, axes = _rank(node, facts), _known(unit_axes(facts, node))
    rank = inner if node.op_type == "Squeeze" else inner + len(axes)
    held = (_all(rank), _but(rank, axes))
    read, made = held if node.op_type == "Squeeze" else held[::-1]
    return Frame(rank, {0: read}, {0: made}, _with(node, lambda order: {"axes": tuple(sorted(_places(order, axes)))}))


@_frames("Gemm")
def _gemm(node: ir.Node, facts: Facts) -> Frame:
    """Gemm with a weight takes its first operand either way round."""
    rank, weight = _rank(node, facts), _known(input_of(node, 1))
    if facts.tensor(weight) is None:
        raise _NoFrame
    return Frame(rank, {0: _all(rank)}, {}, _with(node, lambda order: {"transA": 1 - parameter(facts, node, "transA")}))


@_frames("MatMul")
def _matmul(node: ir.Node, facts: Facts) -> Frame:
    """MatMul by a matrix, of rows that may be in any order."""
    rank, weight = _rank(node, facts), _known(input_of(node, 1))
    if facts.rank(weight) != 2:
        raise _NoFrame
    again = _with(node, lambda order: {})
    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, again, fits=lambda order: order[-1] == rank - 1)


@_frames("LayerNormalization", "RMSNormalization")
def _row_norm(node: ir.Node, facts: Facts) -> Frame:
    """A normalization of rows along the last axis, with a scale for each place of that axis."""
    rank = _rank(node, facts)
    made, axis = _moving(node, rank), _known(axis_of(facts, node, rank))
    if axis != rank - 1 or any(facts.rank(v) != 1 for v in inputs_of(node)[1:]) or len(made) > 1:
        raise _NoFrame
    return Frame(rank, {0: _all(rank)}, made, _with(node, lambda order: {}), fits=lambda order: order[-1] == rank - 1)


@_frames("Reshape")
def _reshape(node: ir.Node, facts: Facts) -> Frame:
    """Reshape that takes the last axis apart, into heads, or puts the last two together: the frame has them apart, and
    the operand that has them together holds the first of them."""
    before, after = _known(facts.shape(_known(input_of(node)))), _known(facts.shape(node.outputs[0]))
    rank = max(len(before), len(after), _rank(node, facts))
    apart, merged = (after, before) if len(after) == rank else (before, after)
    inner = _numbers(apart[-2:] if apart is after else merged[-1:])
    if abs(len(after) - len(before)) != 1 or not same_shape(apart[:-2], merged[:-1]):
        raise _NoFrame
    target = [*[0] * (len(after) - len(inner)), *inner]
    held = _all(rank - 1)
    read, made = (held, _all(rank)) if apart is after else (_all(rank), held)

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        return (build.Reshape(inputs[0], np.array(target, np.int64)),)

    return Frame(rank, {0: read}, {0: made}, emit, fits=lambda order: order[-2:] == (rank - 2, rank - 1))


def _numbers(sizes: Sequence[int | ir.SymbolicDim]) -> list[int]:
    """The sizes, all of which must be known."""
    return [_known(size if isinstance(size, int) and size > 0 else None) for size in sizes]


@_frames("Slice")
def _slice(node: ir.Node, facts: Facts) -> Frame:
    rank, starts = _rank(node, facts), named_input(facts, node, "starts")
    axes = axes_of(facts, node, rank)
    if axes is None:  # then the first axes, as many as there are starts
        counted = _known(facts.shape(starts)) if starts is not None else (len(parameter(facts, node, "starts")),)
        axes = _all(counted[0]) if isinstance(counted[0], int) else None
    cut = _known(axes)
    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, _with(node, lambda order: {"axes": _places(order, cut)}))


def _permuted(build: Builder, facts: Facts, value: Value | None, places: Axes) -> Value:
    """The elements of a one-dimensional tensor in another order."""
    assert value is not None
    data = facts.constant(value)
    if data is not None:
        return build.const(data[list(places)], like=value)
    return build.Gather(value, np.array(places, dtype=np.int64), axis=0)


@_frames("Pad")
def _pad(node: ir.Node, facts: Facts) -> Frame:
    rank = _rank(node, facts)
    pads, axes = named_input(facts, node, "pads"), axes_of(facts, node, rank)
    if facts.version(node) < 2 or isinstance(axes, str):
        raise _NoFrame

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        if axes is not None:
            return build.again(node, *inputs, axes=np.array(_places(order, axes), np.int64))
        both = (*order, *(a + rank for a in order))
        if pads is not None:
            return build.again(node, inputs[0], _permuted(build, facts, inputs[1], both), *inputs[2:])
        old = parameter(facts, node, "pads")
        return build.again(node, *inputs, pads=tuple(old[i] for i in both))

    dynamic = pads is not None and axes is None and facts.tensor(pads) is None
    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, emit, extra=lambda order: SMALL * dynamic)


@_frames("Gather")
def _gather(node: ir.Node, facts: Facts) -> Frame:
    """Gather by a scalar or a list of indices."""
    rank, indices = _rank(node, facts), _known(input_of(node, 1))
    axis, count = _known(axis_of(facts, node, rank)), facts.rank(indices)
    if count not in (0, 1):
        raise _NoFrame
    kept = _all(rank) if count else _but(rank, (axis,))
    return _along(node, Frame(rank, {0: _all(rank)}, {0: kept}, lambda *_: ()), axis)


@_frames(*operators("repeat"))
def _expand(node: ir.Node, facts: Facts) -> Frame:
    """Expand, Tile: the target has one element per axis."""
    data, target = _known(input_of(node, 0)), _known(input_of(node, 1))
    inner, (rank, *_) = _known(facts.rank(data)), _known(facts.shape(target)) or (None,)
    if not isinstance(rank, int) or inner > rank:
        raise _NoFrame
    moves = inner == rank and facts.tensor(data) is None

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        return build.again(node, inputs[0], _permuted(build, facts, inputs[1], order))

    moving = {0: _all(rank)} if moves else {}
    relaid = frozenset(() if moves else (0,))
    sizes = facts.elements(target) or ()
    is_told = bool(sizes) and all(isinstance(d, int) or d.value is not None for d in sizes)  # and written down anew
    return Frame(rank, moving, {0: _all(rank)}, emit, relaid, extra=lambda order: SMALL * (not is_told))


@_frames("Shape")
def _shape(node: ir.Node, facts: Facts) -> Frame:
    """Shape can be read off any layout: its elements are put back in order."""
    rank = _rank(node, facts)
    window = slice(parameter(facts, node, "start") or 0, parameter(facts, node, "end"))

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        wanted = inverse(order)[window]
        whole = build.Shape(*inputs)
        return (build.Gather(whole, np.array(wanted, dtype=np.int64), axis=0),)

    return Frame(rank, {0: _all(rank)}, {}, emit, extra=lambda order: SMALL)


@_frames("Size")
def _size(node: ir.Node, facts: Facts) -> Frame:
    return replace(_pointwise(node, facts), outputs={})


@_frames("DynamicQuantizeLinear")
def _quantize_dynamically(node: ir.Node, facts: Facts) -> Frame:
    """DynamicQuantizeLinear: one scale for the whole tensor."""
    frame = _pointwise(node, facts)
    return replace(frame, outputs={0: _all(frame.rank)})


@_frames("Resize")
def _resize(node: ir.Node, facts: Facts) -> Frame:
    """Resize to constant scales or sizes; ORT interpolates inner axes, so the first two keep their size."""
    rank, shape = _rank(node, facts), _known(facts.shape(_known(input_of(node))))
    if "axes" in node.attributes or facts.version(node) < 10:
        raise _NoFrame
    lists: dict[int, Sequence[Any]] = {}
    for index in (1, 2, 3):
        value = input_of(node, index)
        known = None if value is None else _known(facts.constant(value))
        if known is not None and known.size:
            lists[index] = known.ravel().tolist()
    targets = lists.get(3) or lists.get(2) or lists.get(1, ())
    if len(targets) != rank or parameter(facts, node, "keep_aspect_ratio_policy") not in (None, "stretch"):
        raise _NoFrame
    same = shape if 3 in lists else (1.0,) * rank
    resized = {a for a in range(rank) if same[a] != targets[a]}
    nearest = parameter(facts, node, "mode") == "nearest"

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        new = list(inputs)
        for index, numbers in lists.items():
            places = order if len(numbers) == rank else (*order, *(a + rank for a in order))
            new[index] = _permuted(build, facts, inputs[index], places)
        return build.again(node, *new)

    return Frame(
        rank,
        {0: _all(rank)},
        {0: _all(rank)},
        emit,
        fits=lambda order: nearest or not resized & set(order[:2]),
        extra=lambda order: SMALL,
    )
