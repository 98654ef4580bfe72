"""How patterns look at nodes: through identities, and at parameters whether they are attributes or inputs."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts


def resolve(value: ir.Value) -> ir.Value:
    """The value behind Identities and Casts to the dtype that is already there."""
    for node in passed(value):
        assert node.inputs[0] is not None
        value = node.inputs[0]
    return value


def passed(value: ir.Value) -> list[ir.Node]:
    """The Identities and Casts to the dtype already there that ``resolve`` looks through, the last one first."""
    nodes: list[ir.Node] = []
    while True:
        node = value.producer()
        if node is None or node.domain or node.op_type not in ("Identity", "Cast"):
            return nodes
        source = node.inputs[0]
        if source is None or source.type is None or source.type != value.type:
            return nodes
        nodes.append(node)
        value = source


def parameter(facts: Facts, node: ir.Node, name: str) -> Any:
    """A parameter of a node, an attribute or a constant input by the schema's name, as a Python value.

    None when absent; ``schema.UNKNOWN`` when it is an input that is not constant.
    """
    found = schema.schema(node.domain, node.op_type, facts.version(node))
    index = schema.formal_index(found, name)
    if index is None:
        return schema.attribute(node, name, facts.version(node))
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return None
    array = facts.constant(resolve(value))
    if array is None:
        return schema.UNKNOWN
    return array.item() if array.ndim == 0 else tuple(array.ravel().tolist())
