"""Nodes in normalized form: parameters as Python values, whatever the opset; axes from the front; absent ones decoded.

A view of a node whose parameters are not known is a reason in words instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.dims import FAR, Dim, slice_end, sliced_places
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import TRAITS
from onnxrewrite.ir.skip_identity import resolve

FROM_THE_END = 11
"""Since this opset axes count from the end, too, whatever the operator."""

END = 2**63 - 1
"""As an end: up to the end of the axis, whatever its size."""


def parameter(facts: Facts, node: ir.Node, name: str) -> Any:
    """A parameter of a node, an attribute or a constant input by the schema's name, as a Python value.

    None when absent; ``schema.UNKNOWN`` when it is an input that is not constant.
    """
    if name in node.attributes:
        return schema.attribute(node, name, None)
    version = facts.version(node)
    if schema.formal_index(schema.schema(node.domain, node.op_type, version), name) is None:
        return schema.attribute(node, name, version)
    value = named_input(facts, node, name)
    if value is None:
        return None
    array = facts.constant(resolve(value))
    if array is None:
        return schema.UNKNOWN
    if array.ndim == 0 or (array.size == 1 and schema.is_number(node.domain, node.op_type, name)):
        return array.item()
    return tuple(array.ravel().tolist())


def spellings(node: ir.Node, name: str, value: object) -> tuple[object, ...]:
    """The values of a parameter that mean the same at a node, this one first: axes are counted from either end."""
    listed = (value,) if isinstance(value, int) else value
    if name not in ("axis", "axes") or not isinstance(listed, tuple):
        return (value,)
    traits = TRAITS.get(node.op_type) if not node.domain else None
    counted = node.outputs[0] if traits is not None and "outside" in traits.marks else input_of(node)
    rank = Facts.rank(counted) if counted is not None else None
    if node.domain and rank != Facts.rank(node.outputs[0]):  # the first operand may be a scale
        return (value,)
    if rank is None or not all(isinstance(a, int) and -rank <= a < rank for a in listed):
        return (value,)
    front = tuple(a % rank for a in listed)
    ways = (front, tuple(a - rank for a in front))
    return tuple(dict.fromkeys((value, *(ways if listed is value else (one for (one,) in ways)))))


def is_implied(facts: Facts, node: ir.Node, index: int) -> bool:
    """True for an operand that could be left out, and nothing would change: steps of one, a Pad by zero."""
    implied = TRAITS[node.op_type].implied if not node.domain and node.op_type in TRAITS else None
    if implied is None:
        return False
    name, number = implied
    if schema.formal_index(schema.schema("", node.op_type, facts.version(node)), name) != index:
        return False
    value = input_of(node, index)
    array = facts.constant(resolve(value)) if value is not None else None
    return array is not None and bool((array == number).all())


def named_input(facts: Facts, node: ir.Node, name: str) -> ir.Value | None:
    """The input that the schema calls so; None where it is absent, or an attribute."""
    index = schema.formal_index(schema.schema(node.domain, node.op_type, facts.version(node)), name)
    return input_of(node, index) if index is not None else None


def input_of(node: ir.Node, index: int = 0) -> ir.Value | None:
    """An input of a node; None where it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, without absent ones."""
    return [v for v in node.inputs if v is not None]


def axis_of(facts: Facts, node: ir.Node, rank: int | None) -> int | str:
    """The ``axis`` of a node whose axes are counted among ``rank``."""
    found = parameter(facts, node, "axis")
    if not isinstance(found, int | None):
        return "the axis is not constant"
    counted = _from_front((found or 0,), rank)
    return counted if isinstance(counted, str) else counted[0]


def _from_front(listed: tuple[int, ...], rank: int | None) -> tuple[int, ...] | str:
    if rank is None and any(a < 0 for a in listed):
        return "an axis cannot be told, for the rank is unknown"
    if rank is not None and not all(-rank <= a < rank for a in listed):
        return f"the axes {list(listed)} are not all among {rank}"
    return tuple(a if a >= 0 else a + (rank or 0) for a in listed)


def axes_of(facts: Facts, node: ir.Node, rank: int | None) -> tuple[int, ...] | str | None:
    """The ``axes`` of a node, counted among ``rank``, in their order; None where none are given."""
    given = parameter(facts, node, "axes")
    if given is None:
        return None
    listed = (given,) if isinstance(given, int) else given
    if not isinstance(listed, tuple):
        return "the axes are not constant"
    return _from_front(listed, rank)


def unit_axes(facts: Facts, node: ir.Node) -> tuple[int, ...] | str:
    """The axes of size 1 that a Squeeze takes out of its operand, or an Unsqueeze puts into its result, sorted."""
    rank = None if (source := input_of(node)) is None else facts.rank(source)
    count = parameter(facts, node, "axes")
    if node.op_type == "Unsqueeze" and rank is not None:
        rank += len(count) if isinstance(count, tuple) else 1
    found = axes_of(facts, node, rank)
    if found is None:
        return f"the axes of {node.op_type} are not given"
    if not found and node.op_type == "Squeeze":
        return "no axes are no axes for the standard, and all for ONNX Runtime"
    return found if isinstance(found, str) else tuple(sorted(found))


def permutation(facts: Facts, node: ir.Node) -> tuple[int, ...] | str:
    """The permutation of a Transpose, reversal where it names none."""
    perm = parameter(facts, node, "perm")
    if perm is None:
        rank = None if (source := input_of(node)) is None else facts.rank(source)
        return "the rank is not known, which is reversed" if rank is None else tuple(reversed(range(rank)))
    return perm if isinstance(perm, tuple) else "the permutation is not known"


# -- reductions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reduce:
    """A reduction, ArgMax and ArgMin among them.

    Attributes:
        source: The value that is reduced.
        axes: The axes that it is reduced along, as they are named; all where none are, unless that means none.
        keepdims: True if they stay, of size 1.
        names: The parameter that names the axes, ``axis`` or ``axes``; empty where none does.
    """

    source: ir.Value
    axes: tuple[int, ...]
    keepdims: bool
    names: str


def reduce_of(facts: Facts, node: ir.Node) -> Reduce | str:
    """A reduction of any opset."""
    source = input_of(node)
    rank = None if source is None else facts.rank(source)
    if source is None or rank is None:
        return "the rank of what is reduced is unknown"
    keepdims = bool(parameter(facts, node, "keepdims"))
    if node.op_type in ("ArgMax", "ArgMin"):
        one = axis_of(facts, node, rank)
        return one if isinstance(one, str) else Reduce(source, (one,), keepdims, "axis")
    along = axes_of(facts, node, rank)
    if isinstance(along, str):
        return along
    if along:
        return Reduce(source, along, keepdims, "axes")
    all_axes = () if parameter(facts, node, "noop_with_empty_axes") else tuple(range(rank))
    return Reduce(source, all_axes, keepdims, "")


# -- Gather --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gather:
    """A Gather of constant indices.

    Attributes:
        source: The value that is gathered from.
        axis: The axis.
        indices: The indices, in their shape.
    """

    source: ir.Value
    axis: int
    indices: npt.NDArray[Any]


def gather_of(facts: Facts, node: ir.Node) -> Gather | str:
    """A Gather of constant indices, of any opset."""
    source, indices = input_of(node, 0), input_of(node, 1)
    array = None if indices is None else facts.constant(resolve(indices))
    if source is None or array is None:
        return "the indices are not constant"
    along = axis_of(facts, node, facts.rank(source))
    return along if isinstance(along, str) else Gather(source, along, array)


# -- Slice and Split -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """``start:end:step`` on one axis."""

    axis: int
    start: int
    end: int
    step: int = 1

    def of(self, size: Dim | None) -> range | str:
        """The elements that it takes of an axis of a size."""
        if isinstance(size, int):
            return sliced_places(range(size), self.start, self.end, self.step)
        if self.start < 0 or not 0 <= self.end < FAR:
            return "the bounds depend on the size of the axis"
        return range(self.start, self.end, self.step)


@dataclass(frozen=True)
class Slice:
    """A Slice: what it cuts, and the spans, one for each axis, in the order in which they are given."""

    source: ir.Value
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Piece:
    """The elements of one axis of a value: the result of a Slice of that axis alone, or one of a Split.

    Attributes:
        source: The value that is cut.
        axis: The axis.
        elements: The elements taken.
        size: The size of the axis before.
    """

    source: ir.Value
    axis: int
    elements: range
    size: Dim | None


def slice_of(facts: Facts, node: ir.Node) -> Slice | str:
    """A Slice of any opset."""
    source = node.inputs[0]
    if source is None:
        return "Slice lacks its input 0"
    rank = facts.rank(source)
    starts, ends, steps = (_listed(parameter(facts, node, name)) for name in ("starts", "ends", "steps"))
    if not isinstance(starts, tuple) or not isinstance(ends, tuple):
        return "the bounds of a Slice are not constant"
    along = axes_of(facts, node, rank)
    if isinstance(along, str):
        return along
    if steps is not None and not isinstance(steps, tuple):
        return "its steps are not constant"
    along = tuple(range(len(starts))) if along is None else along
    if len(set(along)) != len(along):
        return "an axis is cut twice"
    steps = (1,) * len(starts) if steps is None else steps
    ends = tuple(slice_end(end, step) for end, step in zip(ends, steps, strict=True))
    return Slice(source, tuple(Span(*each) for each in zip(along, starts, ends, steps, strict=True)))


def piece_of(facts: Facts, value: ir.Value) -> Piece | str:
    """The piece that a value is, made by a Slice or a Split."""
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Slice", "Split") or node.inputs[0] is None:
        return "it is no piece of a Slice or a Split"
    source = node.inputs[0]
    return _of_slice(facts, node) if node.op_type == "Slice" else _of_split(facts, node, source, value.index() or 0)


def _of_slice(facts: Facts, node: ir.Node) -> Piece | str:
    found = slice_of(facts, node)
    if isinstance(found, str):
        return found
    if len(found.spans) != 1:
        return "the Slice cuts another axis too"
    (span,) = found.spans
    size = _dim(facts, found.source, span.axis)
    elements = span.of(size)
    return elements if isinstance(elements, str) else Piece(found.source, span.axis, elements, size)


def _of_split(facts: Facts, node: ir.Node, source: ir.Value, index: int) -> Piece | str:
    along = axis_of(facts, node, facts.rank(source))
    if isinstance(along, str):
        return along
    sizes = _sizes(facts, node.outputs, along)
    if sizes is None:
        return "the sizes of the pieces are not known"
    ends = [0, *itertools.accumulate(sizes)]
    return Piece(source, along, range(ends[index], ends[index + 1]), ends[-1])


def _sizes(facts: Facts, values: Sequence[ir.Value], along: int) -> list[int] | None:
    """The sizes of values along an axis; None unless all are numbers."""
    sizes = [_dim(facts, v, along) for v in values]
    known = [s for s in sizes if isinstance(s, int)]
    return known if len(known) == len(sizes) else None


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, int) else given


def _dim(facts: Facts, value: ir.Value, along: int) -> Dim | None:
    shape = facts.shape(value)
    return shape[along] if shape is not None and along < len(shape) else None
