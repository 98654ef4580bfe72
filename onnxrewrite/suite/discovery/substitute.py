"""A substitute for a region: a small graph over what the region reads, with the origins of its attributes.

It is evaluated on the operands that the region is evaluated on, and spelled in the text of a rule's function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxrewrite.suite.discovery.sampled_region import Operand, SampledRegion, evaluated, is_finite
from onnxrewrite.system.arrays import Array, is_tensor


@dataclass(frozen=True)
class Origin:
    """The place in a region that an attribute's value is from.

    Attributes:
        kind: ``attribute`` of a node of the region, the ``number`` in a constant operand, or ``literal``: it is from
            nowhere.
        place: The number of the node, or of the operand.
        name: The name of the attribute.
        inverse: True if the value is one divided by that number.
    """

    kind: str
    place: int = -1
    name: str = ""
    inverse: bool = False


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


Read = int | Inner | None
"""An operand by its number, an output of a node, or an input that is absent."""


@dataclass(frozen=True)
class Operator:
    """A node of a substitute.

    Attributes:
        domain: The operator's domain.
        op_type: The operator.
        inputs: What it reads.
        parameters: Its attributes by name.
        outputs: The number of its outputs.
    """

    domain: str
    op_type: str
    inputs: tuple[Read, ...]
    parameters: tuple[tuple[str, Parameter], ...] = ()
    outputs: int = 1

    @property
    def called(self) -> str:
        """The operator's name with its domain, where that is not the standard's."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True)
class Substitute:
    """Nodes, producers first, and the values that stand for the outputs of the region, in their order."""

    nodes: tuple[Operator, ...]
    results: tuple[Inner, ...]

    @property
    def called(self) -> str:
        """Its operators."""
        return ", ".join(n.called for n in self.nodes)

    def read(self) -> Iterator[int]:
        """The numbers of the operands that it reads."""
        found = (r for n in self.nodes for r in n.inputs if isinstance(r, int))
        return iter(dict.fromkeys(found))

    def origins(self) -> list[Origin]:
        """The origins of all attributes."""
        return [p.origin for n in self.nodes for _, p in n.parameters]


def model_of(substitute: Substitute, region: SampledRegion) -> onnx.ModelProto:
    """A substitute as a model of the operands that it reads; constants are constants in it."""
    read = [region.operands[i] for i in substitute.read()]
    names = {i: region.operands[i].name for i in substitute.read()}
    nodes = []
    for number, node in enumerate(substitute.nodes):
        inputs = [_name(r, names) for r in node.inputs]
        wanted = {r.output for r in _all_reads(substitute) if r.node == number}
        outputs = [f"n{number}_{k}" if k in wanted else "" for k in range(node.outputs)]
        made = helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
        made.attribute.extend(helper.make_attribute(name, p.value) for name, p in node.parameters)
        nodes.append(made)
    results = [onnx.ValueInfoProto(name=_name(r, names)) for r in substitute.results]
    graph = helper.make_graph(
        nodes,
        "substitute",
        [helper.make_tensor_value_info(o.name, _code(o), o.array.shape) for o in read if not o.is_constant],
        results,
        [numpy_helper.from_array(o.array, o.name) for o in read if o.is_constant],
    )
    domains = sorted({n.domain for n in substitute.nodes} - {""})
    imports = [helper.make_opsetid("", region.opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _all_reads(substitute: Substitute) -> list[Inner]:
    reads = (r for n in substitute.nodes for r in n.inputs if isinstance(r, Inner))
    return [*reads, *substitute.results]


def _name(read: Read, names: Mapping[int, str]) -> str:
    if read is None:
        return ""
    return names[read] if isinstance(read, int) else f"n{read.node}_{read.output}"


def _code(operand: Operand) -> int:
    dtype = operand.value.dtype
    assert dtype is not None
    return int(dtype)


def results_of(substitute: Substitute, region: SampledRegion) -> tuple[Array, ...] | None:
    """The results of a substitute for the operands of a region; None where they are not finite, or it cannot be run."""
    try:
        model = model_of(substitute, region)
    except (TypeError, ValueError):  # an attribute of another type
        return None
    feeds = {o.name: o.array for o in region.operands}
    outputs = evaluated(model, feeds)
    results = [] if outputs is None else [outputs.get(o.name) for o in model.graph.output]
    if not results or not all(is_tensor(r) and r.size and is_finite(r) for r in results):
        return None
    return tuple(np.asarray(r) for r in results)


def key_of(substitute: Substitute, operands: Sequence[Operand]) -> str:
    """The same for substitutes that compute the same for certain: same operators on the same numbers."""
    nodes = [
        (n.domain, n.op_type, [operands[r].digest if isinstance(r, int) else r for r in n.inputs], n.outputs)
        for n in substitute.nodes
    ]
    parameters = [[(name, p.value) for name, p in n.parameters] for n in substitute.nodes]
    return repr((nodes, parameters, substitute.results))
