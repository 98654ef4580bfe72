"""Values that a decoder's interface implies, spelled in operators: lengths, positions and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.system.arrays import Array


class Spelling:
    """Adds nodes at the beginning of a graph.

    Args:
        graph: The graph, of opset 13 or newer.
        interface: The interface of its decoder, which takes a mask.
    """

    def __init__(self, graph: ir.Graph, interface: Interface) -> None:
        self.graph, self.interface = graph, interface
        self.names = {value.name for value in (*graph.inputs, *graph.initializers.values())}
        self.names |= {value.name for node in graph for value in node.outputs}
        self.made: list[ir.Node] = []

    def op(self, kind: str, *operands: ir.Value | Array | int | float, **attributes: Any) -> ir.Value:
        """The result of a new node."""
        inputs = [each if isinstance(each, ir.Value) else self._constant(np.asarray(each)) for each in operands]
        return self._add(ir.node(kind, inputs, attributes), kind.lower())

    def weight(self, name: str, array: Array) -> ir.Value:
        """A new initializer."""
        unique = self._name(name)
        made = ir.Value(name=unique, const_value=ir.tensor(np.ascontiguousarray(array), name=unique))
        made.shape, made.type = ir.Shape(array.shape), ir.TensorType(made.const_value.dtype)  # type: ignore[union-attr]
        self.graph.register_initializer(made)
        return made

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A value in another dtype."""
        return self.op("Cast", value, to=int(dtype))

    def total(self) -> ir.Value:
        """The number of all tokens, a scalar."""
        return self.op("Squeeze", self.op("Shape", self._input(self.interface.mask), start=1, end=2), np.array([0]))

    def new(self) -> ir.Value:
        """The number of new tokens, a scalar."""
        return self.op("Squeeze", self.op("Shape", self._input(self.interface.ids), start=1, end=2), np.array([0]))

    def positions(self, *, counted: bool) -> ir.Value:
        """The positions of new tokens, of shape [batch, new]: those that are given; else the last of all tokens, or of
        those that are ``counted``, that is, count."""
        if self.interface.positions is not None:
            given = self._input(self.interface.positions)
            return given if given.dtype == ir.DataType.INT64 else self.cast(given, ir.DataType.INT64)
        if counted:
            counts = self.cast(self._input(self.interface.mask), ir.DataType.INT64)
            places = self.op("Sub", self.op("CumSum", counts, np.array(1)), np.array(1))
            return self.last(self.op("Max", places, np.array(0)), 1)
        row = self._range(self.op("Sub", self.total(), self.new()), self.total())
        return self.op(
            "Expand", self.op("Unsqueeze", row, np.array([0])), self.op("Shape", self._input(self.interface.ids))
        )

    def last(self, value: ir.Value, axis: int) -> ir.Value:
        """The part of a value that is for new tokens, of an axis that is for all."""
        start = self.op("Unsqueeze", self.op("Sub", self.total(), self.new()), np.array([0]))
        end = self.op("Unsqueeze", self.total(), np.array([0]))
        return self.op("Slice", value, start, end, np.array([axis]))

    def again(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        """The results of a copy of a node that reads other values."""
        made = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            node.attributes.values(),
            num_outputs=len(node.outputs),
            version=node.version,
        )
        for output in made.outputs:
            output.name = self._name(f"decoder/{node.op_type.lower()}")
        made.name = made.outputs[0].name
        self.made.append(made)
        return made.outputs

    def causal_mask(self, window: int | None) -> ir.Value:
        """The tokens that each new one may look at, booleans of shape [batch, 1, new, total]."""
        counts = self.cast(self._input(self.interface.mask), ir.DataType.BOOL)
        return self.op("And", self.seen(window), self.op("Unsqueeze", counts, np.array([1, 2])))

    def seen(self, window: int | None) -> ir.Value:
        """The tokens that are not later than each new one, whether they count or not, of shape [new, total]."""
        total = self.total()
        keys = self._range(np.array(0), total)
        queries = self.op("Unsqueeze", self._range(self.op("Sub", total, self.new()), total), np.array([1]))
        seen = self.op("LessOrEqual", keys, queries)
        if window is not None:
            seen = self.op("And", seen, self.op("Greater", keys, self.op("Sub", queries, np.array(window))))
        return seen

    def shape_of_past(self, heads: int, size: int) -> list[ir.Value]:
        """The dimensions of a past that is no longer than what is in it, each a vector of one."""
        batch = self.op("Shape", self._input(self.interface.ids), start=0, end=1)
        past = self.op("Unsqueeze", self.op("Sub", self.total(), self.new()), np.array([0]))
        return [batch, self._constant(np.array([heads])), past, self._constant(np.array([size]))]

    def finish(self) -> None:
        """Put the new nodes in front of the others."""
        first = next(iter(self.graph), None)
        if first is None:
            self.graph.extend(self.made)
        else:
            self.graph.insert_before(first, self.made)
        self.made = []

    def _range(self, start: ir.Value | Array, end: ir.Value) -> ir.Value:
        return self.op("Range", start, end, np.array(1))

    def _constant(self, array: Array) -> ir.Value:
        return self._add(ir.node("Constant", [], {"value": ir.tensor(array)}), "constant")

    def _add(self, node: ir.Node, name: str) -> ir.Value:
        node.name = node.outputs[0].name = self._name(f"decoder/{name}")
        self.made.append(node)
        return node.outputs[0]

    def _name(self, name: str) -> str:
        unique, count = name, 0
        while unique in self.names:
            count += 1
            unique = f"{name}_{count}"
        self.names.add(unique)
        return unique

    def _input(self, name: str | None) -> ir.Value:
        return next(value for value in self.graph.inputs if value.name == name)
