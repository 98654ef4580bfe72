"""The usage of a graph's inputs: which integers are indices, into how many rows, which are sizes.

Follows each graph input forward through operators that only move, cast or shift values, to the operator that
gives it a meaning.  Reads shapes of constants only; runs nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from onnxrewrite.ir.operators import TRAITS, operators

_MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(operators(marks="indices"), (0,)),
    **dict.fromkeys((*operators("join"), "Max", "Min"), None),
    "Where": (1, 2),
    "ScatterND": (0, 2),
}
"""Operators that hand values on, and the inputs they take them from; None: all."""

_SHAPE_INPUT = {name: traits.sizes for name, traits in TRAITS.items() if traits.sizes is not None}
_TABLES: dict[str, dict[int, int]] = {
    **{name: {1: 0} for name in operators("gather")},
    "Embedding": {0: 1},
    "EmbedLayerNormalization": {0: 2, 1: 4, 8: 3},
}
"""Operators that look up: the operand of indices to that of the table."""


@dataclass
class Usage:
    """The usage of one input in the graph."""

    rows: int | None = None
    """Smallest table that the input's values are indices into, None when none was found."""
    index: bool = False
    """Used as an index, perhaps into something whose size is not known."""
    shift: int = 0
    """Constant added on the way to the table."""
    moved_by: set[str] = field(default_factory=set)
    """Operators that finally consume it."""
    shape_like: bool = False
    """Used as a shape, a size or a count."""
    mask: bool = False
    """Turned into a mask: ``1 − x`` times a large negative number, or a Cast to bool."""


class _Graph:
    """Consumers and constants of a graph and of the bodies inside it, by value name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        self.tensors: dict[str, onnx.TensorProto] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._add(model.graph)
        for function in model.functions:
            self._nodes(function.node)

    def _add(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self.tensors[tensor.name] = tensor
            self.shapes[tensor.name] = tuple(tensor.dims)
        self._nodes(graph.node)

    def _nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            for position, name in enumerate(node.input):
                self.consumers[name].append((node, position))
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    self.tensors[node.output[0]] = attribute.t
                    self.shapes[node.output[0]] = tuple(attribute.t.dims)
                if attribute.HasField("g"):
                    self._add(attribute.g)
            passes = node.op_type in ("Identity", "Cast", "DequantizeLinear") and bool(node.input)
            if passes and node.input[0] in self.shapes:
                self.shapes[node.output[0]] = self.shapes[node.input[0]]

    def scalar(self, name: str) -> float | None:
        """The value of a constant with one element."""
        tensor = self.tensors.get(name)
        if tensor is None or int(np.prod(tensor.dims)) != 1 or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        if tensor.data_type == onnx.TensorProto.STRING:
            return None
        return float(numpy_helper.to_array(tensor).reshape(()))


def usages(model: onnx.ModelProto) -> dict[str, Usage]:
    """The usage of each of the graph's inputs, by name."""
    graph = _Graph(model)
    return {value.name: _follow(graph, value.name) for value in model.graph.input}


def _follow(graph: _Graph, start: str) -> Usage:
    usage = Usage()
    queue, seen = [(start, 0)], {start}
    while queue and len(seen) < 400:
        name, shift = queue.pop()
        for node, position in graph.consumers[name]:
            _note(graph, usage, node, position, shift)
            step = _step(graph, node, position)
            if step is None:
                usage.moved_by.add(node.op_type)
                continue
            for output in node.output:
                if output and output not in seen:
                    seen.add(output)
                    queue.append((output, shift + step))
    return usage


def _step(graph: _Graph, node: onnx.NodeProto, position: int) -> int | None:
    """The shift of values through this operator; None when it makes something else of them."""
    if node.op_type in ("Add", "Sub"):
        other = graph.scalar(node.input[1 - position]) if len(node.input) == 2 else None
        if other is None:
            return 0 if node.op_type == "Sub" else None
        if not math.isfinite(other):
            return None
        return int(other) if node.op_type == "Add" else -int(other)
    allowed = _MOVES.get(node.op_type, ())
    return 0 if allowed is None or position in allowed else None


def _note(graph: _Graph, usage: Usage, node: onnx.NodeProto, position: int, shift: int) -> None:
    table = _TABLES.get(node.op_type, {}).get(position)
    if table is not None:
        usage.index = True
        rows = _rows(graph.shapes.get(node.input[table]), node)
        if rows is not None and (usage.rows is None or rows - shift < usage.rows - usage.shift):
            usage.rows, usage.shift = rows, shift
    if _SHAPE_INPUT.get(node.op_type) == position:
        usage.shape_like = True
    usage.mask = usage.mask or _is_mask(graph, node, position)
    if node.op_type == "OneHot" and position == 0:
        depth = graph.scalar(node.input[1])
        if depth is not None:
            usage.rows = min(usage.rows or int(depth), int(depth))


def _is_mask(graph: _Graph, node: onnx.NodeProto, position: int) -> bool:
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i == onnx.TensorProto.BOOL for a in node.attribute)
    if node.op_type != "Sub" or position != 1 or graph.scalar(node.input[0]) != 1.0:
        return False
    for user, place in graph.consumers[node.output[0]]:
        factor = graph.scalar(user.input[1 - place]) if user.op_type == "Mul" else None
        if factor is not None and factor <= -1000:
            return True
    return False


def _rows(shape: tuple[int, ...] | None, node: onnx.NodeProto) -> int | None:
    if not shape:
        return None
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return shape[axis] if -len(shape) <= axis < len(shape) else None
