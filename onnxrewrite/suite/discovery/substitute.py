"""A substitute for a region: a small graph over what the region reads, with the origins of its attributes.

It is evaluated on the operands that the region is evaluated on, and spelled in the text of a rule's function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.suite.discovery.sampled_region import Operand, SampledRegion, evaluated, is_finite
from onnxrewrite.system.arrays import Array, is_tensor


@dataclass(frozen=True)
class Origin:
    """The place in a region that an attribute's value is from.

    Attributes:
        kind: ``attribute`` of a node of the region, ``size`` of what such a node makes, the ``number`` in a constant
            operand, or ``literal``: it is from nowhere.
        place: The number of the node, or of the operand.
        name: The name of the attribute.
        inverse: True if the value is one divided by that number.
        times: The number of another operand whose number it is times; -1 if none.
        axis: That of the size.
    """

    kind: str
    place: int = -1
    name: str = ""
    inverse: bool = False
    times: int = -1
    axis: int = 0


LITERAL = Origin("literal")

Plain = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
"""The value of an attribute."""


@dataclass(frozen=True)
class Parameter:
    """The value of an attribute, and its origin."""

    value: Plain
    origin: Origin = LITERAL


@dataclass(frozen=True)
class Inner:
    """An output of a node of the substitute."""

    node: int
    output: int = 0


Nested: TypeAlias = "int | float | bool | tuple[Nested, ...]"
"""The elements of a constant: a number, or a tuple for each axis."""


@dataclass(frozen=True)
class Given:
    """A constant that the substitute brings along.

    Attributes:
        elements: Its elements.
        dtype: Its dtype.
    """

    elements: Nested
    dtype: ir.DataType

    @classmethod
    def of(cls, array: Array, dtype: ir.DataType) -> Given:
        """A constant of these elements."""
        return cls(_nested(array.tolist()), dtype)

    @property
    def array(self) -> Array:
        """The constant."""
        return np.asarray(self.elements, self.dtype.numpy())


def _nested(listed: object) -> Nested:
    if isinstance(listed, list):
        return tuple(map(_nested, listed))
    assert isinstance(listed, int | float)
    return listed


Read = int | Inner | Given | None
"""An operand by its number, an output of a node, a constant, or an input that is absent."""


@dataclass(frozen=True)
class Operator:
    """A node of a substitute.

    Attributes:
        domain: The operator's domain.
        op_type: The operator.
        inputs: What it reads.
        parameters: Its attributes by name.
        outputs: The number of its outputs.
        is_ahead: True if it takes no time: it makes a constant of constants, which is done once, or a view for another.
    """

    domain: str
    op_type: str
    inputs: tuple[Read, ...]
    parameters: tuple[tuple[str, Parameter], ...] = ()
    outputs: int = 1
    is_ahead: bool = False

    @property
    def called(self) -> str:
        """The operator's name with its domain, where that is not the standard's."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


ROWS: Final = "Flatten"
"""The view of an operand as a matrix of its rows, which takes no time."""

HANDED_ON: Final = "an operand"
"""What a substitute without operators is called."""


@dataclass(frozen=True)
class Substitute:
    """Nodes, producers first, and the values that stand for the outputs of the region, in their order: outputs of
    nodes, or operands that are handed on."""

    nodes: tuple[Operator, ...]
    results: tuple[int | Inner, ...]

    @property
    def called(self) -> str:
        """Its operators."""
        return ", ".join(self.operators)

    @property
    def work(self) -> tuple[Operator, ...]:
        """Its nodes, but for those that take no time."""
        return tuple(n for n in self.nodes if not n.is_ahead)

    @property
    def views(self) -> bool:
        """True if it views an operand as a matrix, so that its result has to be viewed, too."""
        return any(n.op_type == ROWS for n in self.nodes if n.is_ahead)

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of its operators; where there are none, that it is an operand."""
        return tuple(n.called for n in self.work) or (HANDED_ON,)

    @property
    def constants(self) -> list[Given]:
        """The constants that it brings along, each once."""
        return list(dict.fromkeys(r for n in self.nodes for r in n.inputs if isinstance(r, Given)))

    def read(self) -> Iterator[int]:
        """The numbers of the operands that it reads."""
        found = (r for n in self.nodes for r in n.inputs if isinstance(r, int))
        return iter(dict.fromkeys([*found, *(r for r in self.results if isinstance(r, int))]))

    def origins(self) -> list[Origin]:
        """The origins of all attributes."""
        return [p.origin for n in self.nodes for _, p in n.parameters]


def model_of(substitute: Substitute, operands: Sequence[Operand], opset: int) -> onnx.ModelProto:
    """A substitute as a model of the operands that it reads, in their sizes; constants are constants in it.

    Args:
        substitute: The substitute.
        operands: All that it may read.
        opset: The version of the standard operators.
    """
    read = {i: operands[i] for i in substitute.read()}
    names: dict[Read, str] = {i: o.name for i, o in read.items()}
    names |= {each: f"given_{k}" for k, each in enumerate(substitute.constants)}
    ends: dict[Read, str] = {r: f"result_{k}" for k, r in enumerate(substitute.results) if isinstance(r, Inner)}
    names |= ends
    constants = [numpy_helper.from_array(each.array, names[each]) for each in substitute.constants]
    known = {o.name: o.array for o in read.values() if o.is_constant}  # equal ones have one name
    constants += [numpy_helper.from_array(array, name) for name, array in known.items()]
    nodes = []
    for number, node in enumerate(substitute.nodes):
        wanted = {r.output for r in _all_reads(substitute) if r.node == number}
        outputs = [_name(Inner(number, k), names) if k in wanted else "" for k in range(node.outputs)]
        made = helper.make_node(node.op_type, [_name(r, names) for r in node.inputs], outputs, domain=node.domain)
        constants += _parameters(made, f"n{number}", node, opset)
        nodes.append(made)
    results = [onnx.ValueInfoProto(name=f"result_{k}") for k in range(len(substitute.results))]
    for end, result in zip(substitute.results, results, strict=True):
        if ends.get(end) != result.name:  # an operand, or what is another result, too
            nodes.append(helper.make_node("Identity", [_name(end, names)], [result.name]))
    fed = [o for o in read.values() if not o.is_constant]
    inputs = [helper.make_tensor_value_info(o.name, _code(o), o.array.shape) for o in fed]
    graph = helper.make_graph(nodes, "substitute", inputs, results, constants)
    domains = sorted({n.domain for n in substitute.nodes} - {""})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _parameters(made: onnx.NodeProto, called: str, node: Operator, opset: int) -> Iterator[onnx.TensorProto]:
    """Give a node its attributes; the constants for those that are inputs in this opset."""
    known = schema.schema(node.domain, node.op_type, None if node.domain else opset)
    for name, parameter in node.parameters:
        place = schema.formal_index(known, name)
        if place is None:
            made.attribute.append(helper.make_attribute(name, parameter.value))
            continue
        made.input.extend([""] * (place + 1 - len(made.input)))
        made.input[place] = f"{called}_{name}"
        array = np.asarray(parameter.value)
        yield numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, made.input[place])


def _all_reads(substitute: Substitute) -> list[Inner]:
    reads = [r for n in substitute.nodes for r in n.inputs if isinstance(r, Inner)]
    return [*reads, *(r for r in substitute.results if isinstance(r, Inner))]


def _name(read: Read, names: Mapping[Read, str]) -> str:
    if read is None:
        return ""
    return names[read] if read in names or not isinstance(read, Inner) else f"n{read.node}_{read.output}"


def _code(operand: Operand) -> int:
    dtype = operand.value.dtype
    assert dtype is not None
    return int(dtype)


def results_of(substitute: Substitute, region: SampledRegion) -> tuple[Array, ...] | None:
    """The results of a substitute for the operands of a region; None where they are not finite, or it cannot be run."""
    try:
        model = model_of(substitute, region.operands, region.opset)
    except (TypeError, ValueError):  # an attribute of another type
        return None
    feeds = {o.name: o.array for o in region.operands}
    outputs = evaluated(model, feeds)
    results = [] if outputs is None else [outputs.get(o.name) for o in model.graph.output]
    if not results or not all(is_tensor(r) and r.size and is_finite(r) for r in results):
        return None
    return tuple(np.asarray(r) for r in results)


def counts_of(substitute: Substitute, region: SampledRegion) -> tuple[int, ...] | None:
    """The numbers of elements of the results of a substitute; None where its shapes do not follow from its operands'.

    That is so for one that its operator cannot compute, and it takes a small part of the time of an evaluation.
    """
    try:
        model = ir.from_proto(model_of(substitute, region.operands, region.opset))
    except (TypeError, ValueError):  # an attribute of another type
        return None
    facts = Facts(model.graph, model.opset_imports)
    counts: list[int] = []
    for output in model.graph.outputs:
        shape = facts.shape(output)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        counts.append(math.prod(d for d in shape if isinstance(d, int)))
    return tuple(counts)


def key_of(substitute: Substitute, operands: Sequence[Operand]) -> str:
    """The same for substitutes that compute the same for certain: same operators on the same numbers."""
    nodes = [
        (n.domain, n.op_type, [operands[r].digest if isinstance(r, int) else r for r in n.inputs], n.outputs)
        for n in substitute.nodes
    ]
    parameters = [[(name, p.value) for name, p in n.parameters] for n in substitute.nodes]
    return repr((nodes, parameters, substitute.results))
