"""The position of an operand: the facts about its node that decide the operand's shape or contents."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.schema import AttributeValue

Shape: TypeAlias = tuple[int, ...]


class DoesNotFit(Exception):
    """An operator that does not take what it is given: what is wrong."""


@dataclass(frozen=True)
class Spot:
    """The position of an operand.

    Attributes:
        node: The operator.
        index: The index of the operand among its inputs.
        shapes: Those of all its inputs, None where it is not known yet.
        rng: Makes choices.
        attributes: All that the schema knows: name to value.
        sizes: Numbers to make sizes of.
        earlier: Shapes that other values have.
        rank: The rank that a reader of the result requires, if any.
    """

    node: ir.Node
    index: int
    shapes: Sequence[Shape | None]
    rng: random.Random
    attributes: Mapping[str, AttributeValue]
    sizes: Sequence[int] = (1, 2, 3)
    earlier: Sequence[Shape] = ()
    rank: int | None = None

    @property
    def place(self) -> tuple[str, int]:
        """The operator, with its domain where that is not the standard's, and which of its inputs."""
        return ".".join(filter(None, (self.node.domain, self.node.op_type))), self.index

    def of(self, index: int, rank: int = 0) -> Shape:
        """The shape of an input, which has so many axes or more."""
        found = self.shapes[index] if index < len(self.shapes) else None
        if found is None or len(found) < rank:
            raise DoesNotFit(f"{self.node.op_type} needs input {index}")
        return found

    def spatial(self, least: int = 1) -> Shape:
        """The first operand of a layer over images: the sizes behind batch and channels."""
        shape = self.of(0)
        if len(shape) < 2 + least:
            raise DoesNotFit(f"{self.node.op_type} needs {least} axes behind batch and channels")
        return shape[2:]

    def attribute(self, name: str, default: object = None) -> Any:
        """An attribute, its default, or ``default``."""
        found = self.attributes.get(name)
        return default if found is None else found

    def axis(self, default: int = 0, rank: int | None = None) -> int:
        """The attribute ``axis``, counted from the front."""
        whole = len(self.of(0)) if rank is None else rank
        axis = int(self.attribute("axis", default))
        if not -whole <= axis < whole:
            raise DoesNotFit(f"axis {axis} of {whole}")
        return axis % whole

    def size(self) -> int:
        """A small size."""
        return self.rng.choice(self.sizes)


def known_attributes(node: ir.Node, found: schema.Schema | None) -> dict[str, AttributeValue]:
    """The attributes of a node, and the defaults of those that it leaves out."""
    defaults = {n: f.default for n, f in found.attributes.items()} if found is not None else {}
    return defaults | {n: a.value for n, a in node.attributes.items() if not a.is_ref()}


def static_shape(value: ir.Value | None) -> Shape | None:
    """The shape of a value, all of whose dimensions are numbers."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(value.shape.numpy())
