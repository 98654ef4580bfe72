"""Which axes the operands of a node share, and what the node becomes when they are laid out in another order.

A node that does not care about layout has a *frame*: its axes, in the order in which the exporter wrote them.  Every
operand that moves with the frame holds some of these axes (all of them; or those that a reduction leaves).  Laying
the frame out in another order permutes each of these operands accordingly and maps the parameters that name axes.
A node without a frame (Conv, MatMul, Reshape, ...) needs its operands as they are.

This module knows single nodes only; ``transpose_motion.py`` decides which of them are laid out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite import Builder, Facts, Value, parameter

Axes = tuple[int, ...]
Perm = tuple[int, ...]
"""As ``Transpose`` has it: axis ``i`` of the result is axis ``perm[i]`` of the operand."""

MOVE = 1_000_000
"""The price of a Transpose that moves data."""

SMALL = 2
"""The price of one that only moves dimensions of size one, and of a Reshape, Gather or the like that has to be added."""

Emit = Callable[[Builder, "list[Value | None]", Perm], "tuple[Value, ...]"]


def compose(first: Perm, second: Perm) -> Perm:
    """One permutation for two, the first of which comes first."""
    return tuple(first[i] for i in second)


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes ``perm``."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def is_identity(perm: Perm) -> bool:
    """Whether nothing moves."""
    return perm == tuple(range(len(perm)))


def perm_of(node: ir.Node, rank: int | None) -> Perm | None:
    """The permutation of a Transpose, reversal where it has none; None where it is not known."""
    if "perm" in node.attributes:
        attribute = node.attributes["perm"]
        return None if attribute.is_ref() else tuple(attribute.as_ints())
    return None if rank is None else tuple(reversed(range(rank)))


@dataclass(frozen=True, eq=False)
class Frame:
    """The axes of one node.

    Attributes:
        rank: How many there are.
        inputs: Input to the axes that it holds, in order; such an input is read in the layout of the frame.
        outputs: Output to the axes that it holds, in order; an output that is not here does not move.
        relaid: Inputs that are broadcast against the frame, right-aligned: constants, and what has fewer axes.
        emit: Builds the node for another order of the axes, from inputs in that layout.
        fits: Whether the node can be had in that order.
        extra: What that order costs beside the Transposes around it.
    """

    rank: int
    inputs: Mapping[int, Axes]
    outputs: Mapping[int, Axes]
    emit: Emit
    relaid: frozenset[int] = frozenset()
    fits: Callable[[Perm], bool] = field(default=lambda order: True)
    extra: Callable[[Perm], int] = field(default=lambda order: 0)

    def order(self, axes: Axes, layout: Perm) -> Perm:
        """The order of the frame that permutes an operand which holds ``axes`` by ``layout``; others stay in place."""
        held = iter([axes[i] for i in layout])
        return tuple(next(held) if a in axes else a for a in range(self.rank))


def layout_of(axes: Axes, order: Perm) -> Perm:
    """How an operand that holds ``axes`` is permuted when the frame has ``order``."""
    place = {a: i for i, a in enumerate(axes)}
    return tuple(place[a] for a in order if a in place)


def frame_of(node: ir.Node, facts: Facts) -> Frame | None:
    """The frame of a node; None where it needs its operands as they are, or where nobody knows."""
    make = _STANDARD.get(node.op_type) if node.domain == "" else None
    if node.domain == "com.microsoft" and node.op_type in _MICROSOFT and len(node.inputs) == 1:
        make = _pointwise
    if make is None or any(a.is_ref() or a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    return make(node, facts)


# -- helpers ---------------------------------------------------------------------------------------------------


def _again(
    build: Builder, node: ir.Node, inputs: Sequence[Value | None], **changed: Any
) -> tuple[Value, ...]:
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


# -- operator by operator --------------------------------------------------------------------------------------


def _pointwise(node: ir.Node, facts: Facts) -> Frame | None:
    """f(x): every output has the shape of the first input; further inputs are parameters."""
    rank = _rank(node, facts)
    if rank is None:
        return None
    return Frame(
        rank, {0: _all(rank)}, _moving(node, rank), lambda build, inputs, _: _again(build, node, inputs)
    )


def _broadcasting(node: ir.Node, facts: Facts) -> Frame | None:
    """f(a, b, ...) of operands that are broadcast against each other."""
    ranks = [None if v is None else facts.rank(v) for v in node.inputs]
    if facts.version(node) < 7 or any(r is None for r in ranks):
        return None
    rank = max(r for r in ranks if r is not None)
    constant = {i for i, v in enumerate(node.inputs) if v is not None and facts.tensor(v) is not None}
    moving = {i: _all(rank) for i, r in enumerate(ranks) if r == rank and i not in constant}
    relaid = frozenset(range(len(ranks))) - set(moving)
    return Frame(
        rank, moving, _moving(node, rank), lambda build, inputs, _: _again(build, node, inputs), relaid
    )


def _dropout(node: ir.Node, facts: Facts) -> Frame | None:
    return _pointwise(node, facts) if facts.is_deterministic(node) else None


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


def _along_axis(node: ir.Node, facts: Facts) -> Frame | None:
    """Softmax of opset 13, Split, TopK, CumSum, ...: one axis is special."""
    frame = _pointwise(node, facts)
    axis = _axes(node, facts, "axis", frame.rank) if frame is not None else None
    return None if frame is None or axis is None or len(axis) != 1 else _along(node, frame, axis[0])


def _softmax(node: ir.Node, facts: Facts) -> Frame | None:
    """Before opset 13 all axes from ``axis`` on are one: they must stay together, for Hardmax also in order."""
    if facts.version(node) >= 13:
        frame = _along_axis(node, facts)
        axis = _axes(node, facts, "axis", frame.rank) if frame is not None else None
        if frame is None or axis is None or axis[0] != frame.rank - 1:
            return frame
        # ORT computes it along the last axis; elsewhere it moves the data there and back.
        return replace(frame, extra=lambda order: MOVE * (order[-1] != axis[0]))
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


def _concat(node: ir.Node, facts: Facts) -> Frame | None:
    values = [v for v in node.inputs if v is not None]
    rank = facts.rank(values[0]) if values else None
    axis = _axes(node, facts, "axis", rank) if rank is not None else None
    if rank is None or axis is None or any(facts.rank(v) != rank for v in values):
        return None
    constant = frozenset(i for i, v in enumerate(values) if facts.tensor(v) is not None)
    moving = {i: _all(rank) for i in range(len(values)) if i not in constant}
    return _along(node, Frame(rank, moving, _moving(node, rank), lambda *_: (), constant), axis[0])


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
    kept = (
        _all(rank) if parameter(facts, node, "keepdims") else tuple(a for a in range(rank) if a not in axes)
    )

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        if given in (None, ()):
            return _again(build, node, inputs)
        new = sorted(_places(order, axes))
        return _again(build, node, inputs, **{name: new[0] if one else tuple(new)})

    return Frame(rank, {0: _all(rank)}, _moving(node, rank, kept), emit)


def _squeeze(node: ir.Node, facts: Facts) -> Frame | None:
    rank = _rank(node, facts)
    axes = _axes(node, facts, "axes", rank) if rank is not None else None
    if rank is None or axes is None:
        return None
    kept = tuple(a for a in range(rank) if a not in axes)

    def emit(build: Builder, inputs: list[Value | None], order: Perm) -> tuple[Value, ...]:
        return _again(build, node, inputs, axes=tuple(sorted(_places(order, axes))))

    return Frame(rank, {0: _all(rank)}, {0: kept}, emit)


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
        return _again(
            build, node, inputs, axes=new if starts is None else build.const(np.array(new), like=starts)
        )

    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, emit)


def _permuted(build: Builder, facts: Facts, value: Value | None, places: Axes) -> Value:
    """The elements of a one-dimensional tensor in another order."""
    assert value is not None
    data = facts.constant(value)
    if data is not None:
        return build.const(data[list(places)], like=value)
    return build.Gather(value, np.array(places, dtype=np.int64), axis=0)


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
            return _again(
                build, node, inputs, axes=build.const(np.array(_places(order, axes)), like=node.inputs[3])
            )
        both = (*order, *(a + rank for a in order))
        if pads is None:
            old = tuple(node.attributes["pads"].as_ints())
            return _again(build, node, inputs, pads=tuple(old[i] for i in both))
        return _again(build, node, [inputs[0], _permuted(build, facts, inputs[1], both), *inputs[2:]])

    dynamic = pads is not None and axes is None and facts.tensor(pads) is None
    return Frame(rank, {0: _all(rank)}, {0: _all(rank)}, emit, extra=lambda order: SMALL * dynamic)


def _gather(node: ir.Node, facts: Facts) -> Frame | None:
    """Gather by a scalar or a list of indices."""
    rank, indices = _rank(node, facts), node.inputs[1]
    count = facts.rank(indices) if indices is not None else None
    axis = _axes(node, facts, "axis", rank) if rank is not None else None
    if rank is None or axis is None or count not in (0, 1):
        return None
    kept = _all(rank) if count else tuple(a for a in range(rank) if a != axis[0])
    along = _along(node, Frame(rank, {0: _all(rank)}, {0: kept}, lambda *_: ()), axis[0])
    return along


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


def _size(node: ir.Node, facts: Facts) -> Frame | None:
    frame = _pointwise(node, facts)
    return None if frame is None else Frame(frame.rank, frame.inputs, {}, frame.emit)


def _quantize_dynamically(node: ir.Node, facts: Facts) -> Frame | None:
    """DynamicQuantizeLinear: one scale for the whole tensor."""
    frame = _pointwise(node, facts)
    return None if frame is None else Frame(frame.rank, frame.inputs, {0: _all(frame.rank)}, frame.emit)


def _resize(node: ir.Node, facts: Facts) -> Frame | None:
    """Resize with constant scales or sizes; ORT interpolates only inner axes, so the first two must keep their size."""
    rank, shape = _rank(node, facts), facts.shape(node.inputs[0]) if node.inputs[0] is not None else None
    if rank is None or shape is None or "axes" in node.attributes or facts.version(node) < 10:
        return None
    lists: dict[int, Sequence[Any]] = {}
    for index, value in enumerate(node.inputs[1:], start=1):
        data = None if value is None else facts.constant(value)
        if value is not None and data is None:
            return None
        if data is not None and data.size:
            lists[index] = data.ravel().tolist()
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


_POINTWISE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid "
    "Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
).split()

_BROADCASTING = (
    "Add Sub Mul Div Pow Mod And Or Xor BitShift BitwiseAnd BitwiseOr BitwiseXor Equal Less Greater LessOrEqual "
    "GreaterOrEqual Min Max Mean Sum Where PRelu"
).split()

_REDUCE = (
    "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare ArgMax ArgMin"
).split()

_STANDARD: dict[str, Callable[[ir.Node, Facts], Frame | None]] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    **dict.fromkeys(_REDUCE, _reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("Split", "TopK", "CumSum", "LpNormalization"), _along_axis),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    **dict.fromkeys(("Expand", "Tile"), _expand),
    "Concat": _concat,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _quantize_dynamically,
    "Gather": _gather,
    "Pad": _pad,
    "Resize": _resize,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}

_MICROSOFT = frozenset({"FastGelu", "Gelu", "QuickGelu"})
