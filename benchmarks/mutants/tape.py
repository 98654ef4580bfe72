"""Mistakes in what a rewrite builds: they act wherever the rule builds that operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.mutants.values import ELEMENT, LEFT_OUT, other
from onnxrewrite.ir import schema
from onnxrewrite.rewrite.build import Builder, Input


@dataclass(frozen=True)
class Emission:
    """A node as the rewrite asks for it."""

    domain: str
    op_type: str
    inputs: Sequence[Input]
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def operator(self) -> str:
        """The operator with its domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True)
class OnTape:
    """A mistake in the nodes of one operator."""

    operator: str

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node to build instead, or a value in its place; ``asked`` itself if there is nothing to do wrong."""
        raise NotImplementedError


@dataclass(frozen=True)
class Parameter(OnTape):
    """A parameter that is given with another value, or not given at all."""

    name: str
    variant: str

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node with the parameter off."""
        old = asked.parameters.get(self.name)
        if old is None:
            return asked
        rest = {name: value for name, value in asked.parameters.items() if name != self.name}
        if self.variant == LEFT_OUT:
            return replace(asked, parameters=rest)
        new = other(self.name, old, self.variant)
        return asked if new is old else replace(asked, parameters={**rest, self.name: new})


@dataclass(frozen=True)
class Added(OnTape):
    """An attribute that the rewrite leaves at its default, with another value."""

    name: str
    value: Any

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node with the attribute."""
        if self.name in asked.parameters:
            return asked
        return replace(asked, parameters={**asked.parameters, self.name: self.value})


@dataclass(frozen=True)
class Exchanged(OnTape):
    """Two operands in each other's place."""

    first: int
    second: int

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node with the operands exchanged."""
        if max(self.first, self.second) >= len(asked.inputs):
            return asked
        inputs = list(asked.inputs)
        if inputs[self.first] is inputs[self.second]:
            return asked
        inputs[self.first], inputs[self.second] = inputs[self.second], inputs[self.first]
        return replace(asked, inputs=inputs)


@dataclass(frozen=True)
class Dropped(OnTape):
    """An operand that is left out."""

    index: int

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node without the operand."""
        if self.index >= len(asked.inputs) or asked.inputs[self.index] is None:
            return asked
        return replace(asked, inputs=[None if i == self.index else v for i, v in enumerate(asked.inputs)])


@dataclass(frozen=True)
class Constant(OnTape):
    """A constant operand that the rewrite has made, off."""

    index: int
    variant: str

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node with another constant."""
        if self.index >= len(asked.inputs):
            return asked
        array = made_constant(asked.inputs[self.index], build)
        if array is None:
            return asked
        new = other("", array, self.variant)
        if new is array:
            return asked
        given = asked.inputs[self.index]
        constant = build.const(new, like=given.dtype) if isinstance(given, ir.Value) else new
        return replace(asked, inputs=[constant if i == self.index else v for i, v in enumerate(asked.inputs)])


@dataclass(frozen=True)
class Kin(OnTape):
    """Another operator that takes the same operands; attributes that it does not have go."""

    op_type: str

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The node of the other operator."""
        known = schema.schema(asked.domain, self.op_type, build.opset)
        if known is None:
            return asked
        kept = {n: v for n, v in asked.parameters.items() if n in known.attributes or schema.formal_index(known, n)}
        return replace(asked, op_type=self.op_type, parameters=kept)


@dataclass(frozen=True)
class Skipped(OnTape):
    """A node that is left out: its first operand stands for it."""

    def wrong(self, asked: Emission, build: Builder) -> Emission | ir.Value:
        """The first operand."""
        first = asked.inputs[0] if asked.inputs else None
        return first if isinstance(first, ir.Value) else asked


@dataclass(frozen=True)
class Result:
    """A result of the rewrite that is off: floats by a factor, integers by one, what is true and false exchanged."""

    index: int
    kind: str

    def wrong(self, value: ir.Value, dtype: ir.DataType | None, build: Builder) -> ir.Value:
        """The value that is returned instead."""
        if dtype is None or result_kind(dtype) != self.kind:
            return value
        if value in build.constants:
            array = made_constant(value, build)
            assert array is not None
            return build.const(other("", array, ELEMENT if array.size > 1 else "off"), like=dtype)
        if self.kind == "inverted":
            return build.Not(value)
        if self.kind == "scaled":
            return build.Mul(value, build.const(np.asarray(1.07), like=dtype))
        return build.Add(value, build.const(np.asarray(1), like=dtype))


def result_kind(dtype: ir.DataType) -> str:
    """The way in which a result of this dtype can be off; empty if there is none."""
    if dtype == ir.DataType.BOOL:
        return "inverted"
    return "scaled" if dtype.is_floating_point() else "off by one" if dtype.is_integer() else ""


def made_constant(given: Input, build: Builder) -> Any:
    """The array behind an operand that the rewrite has made up; None for one that was there."""
    if isinstance(given, ir.Value):
        return given.const_value.numpy() if given in build.constants and given.const_value is not None else None
    return None if given is None else np.asarray(given)
