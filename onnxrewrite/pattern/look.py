"""How patterns look at nodes: through identities, and at parameters whether they are attributes or inputs."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts

COMMUTATIVE = frozenset(
    {"Add", "Mul", "Min", "Max", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
"""Operators of two inputs whose order does not matter."""

_TRANSPARENT = frozenset({"Identity", "Cast"})


def resolve(value: ir.Value) -> ir.Value:
    """The value behind Identities and Casts to the dtype that is already there."""
    while (node := value.producer()) is not None and _is_passed(node, value):
        source = node.inputs[0]
        assert source is not None
        value = source
    return value


def passed(value: ir.Value) -> list[ir.Node]:
    """The Identities and Casts to the dtype already there that ``resolve`` looks through, the last one first."""
    nodes: list[ir.Node] = []
    while (node := value.producer()) is not None and _is_passed(node, value):
        nodes.append(node)
        source = node.inputs[0]
        assert source is not None
        value = source
    return nodes


def _is_passed(node: ir.Node, value: ir.Value) -> bool:
    """Whether ``value``, which ``node`` computes, is its input."""
    if node.op_type not in _TRANSPARENT or node.domain:
        return False
    source = node.inputs[0]
    return source is not None and source.type is not None and source.type == value.type


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
