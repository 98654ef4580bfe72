"""The pen of definitions: nodes with fresh names, in the spelling of one opset."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Constant: TypeAlias = tuple[str, tuple[int, ...], bytes]
"""The dtype, the shape and the bytes of a constant."""

Value = TypeVar("Value")


class Unsupported(Exception):
    """A use of an operator that a definition does not cover; the message says which."""


class Attributes(dict[str, Any]):
    """The attributes of a node by name, each of the kind that the operator gives it."""

    def given(self, name: str, default: Value) -> Value:
        """The attribute, or its default, which is of the same kind."""
        found: Value = self.get(name, default)
        return found


class Emit:
    """Writes nodes with fresh names, in the spelling of one opset.

    Args:
        opset: Of the standard operators.
        prefix: Of the names.
        shapes: Sizes by name, of the values from outside that have a known rank; None for a size that is no number.
        constants: Names of those that are there already, by dtype, shape and bytes.
    """

    def __init__(
        self,
        opset: int,
        prefix: str,
        shapes: Mapping[str, tuple[int | None, ...]],
        constants: Mapping[Constant, str] | None = None,
    ) -> None:
        self.opset = opset
        self.prefix = prefix
        self.shapes = shapes
        self.nodes: list[onnx.NodeProto] = []
        self._count = itertools.count()
        self.constants: dict[Constant, str] = dict(constants or {})

    def define(self, body: Body, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that compute what a node does, by the body of its operator.

        Raises:
            Unsupported: The body does not cover this use.
        """
        names = body(self, node, Attributes({a.name: helper.get_attribute_value(a) for a in node.attribute}))
        for name, output in zip(names, node.output, strict=False):
            if name and output:
                self.nodes.append(helper.make_node("Identity", [name], [output]))
        return self.nodes

    def op(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; its output's name, or a list of names."""
        names = [f"{self.prefix}.{next(self._count)}" for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def const(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float64) -> str:
        """A constant."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.op("Constant", value=numpy_helper.from_array(array))
        return self.constants[key]

    def ints(self, values: Sequence[int]) -> str:
        """A one-dimensional int64 constant."""
        return self.const(list(values), np.int64)

    def slice(
        self, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
    ) -> str:
        """Slice with constant limits."""
        return str(self.op("Slice", x, self.ints(starts), self.ints(ends), self.ints(axes), self.ints(steps)))

    def reduce_sum(self, x: str, axes: Sequence[int], keepdims: int = 1) -> str:
        """ReduceSum over constant axes."""
        if self.opset >= 13:
            return str(self.op("ReduceSum", x, self.ints(axes), keepdims=keepdims))
        return str(self.op("ReduceSum", x, axes=list(axes), keepdims=keepdims))

    def reduce(self, kind: str, x: str, axes: Sequence[int], keepdims: int = 1) -> str:
        """ReduceMean, ReduceMax, ... over constant axes."""
        if self.opset >= 18:
            return str(self.op(kind, x, self.ints(axes), keepdims=keepdims))
        return str(self.op(kind, x, axes=list(axes), keepdims=keepdims))

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        """Unsqueeze at constant axes."""
        if self.opset >= 13:
            return str(self.op("Unsqueeze", x, self.ints(axes)))
        return str(self.op("Unsqueeze", x, axes=list(axes)))

    def mul(self, *terms: str) -> str:
        """Product of those that are there."""
        return functools.reduce(lambda a, b: str(self.op("Mul", a, b)), filter(None, terms))

    def add(self, *terms: str) -> str:
        """Sum of those that are there."""
        return functools.reduce(lambda a, b: str(self.op("Add", a, b)), filter(None, terms))

    def shape(self, name: str) -> tuple[int | None, ...]:
        """The shape of a value from outside; unsupported where the rank is not known."""
        found = self.shapes.get(name)
        if found is None:
            raise Unsupported("an operand of unknown rank")
        return found

    def sizes(self, name: str) -> tuple[int, ...]:
        """The shape of a value from outside; unsupported where a size is not known."""
        found = self.shape(name)
        if any(size is None for size in found):
            raise Unsupported("an operand of unknown sizes")
        return tuple(size for size in found if size is not None)


def operands(node: onnx.NodeProto, count: int) -> list[str]:
    """The names of so many inputs, empty where there are none."""
    return [*node.input, *[""] * count][:count]


Body: TypeAlias = Callable[[Emit, onnx.NodeProto, Attributes], list[str]]
"""Writes what a node computes: the names of its outputs, empty for one that nothing computes."""
