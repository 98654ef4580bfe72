"""Nodes that pass a value on as it is: Identities, and Casts to the dtype that is already there."""

from __future__ import annotations

import onnx_ir as ir

_TRANSPARENT = frozenset({"Identity", "Cast"})


def resolve(value: ir.Value) -> ir.Value:
    """The value behind Identities and Casts to the dtype that is already there."""
    node = value.producer()
    while node is not None and node.op_type in _TRANSPARENT and _is_passed(node, value):
        source = node.inputs[0]
        assert source is not None
        value = source
        node = value.producer()
    return value


def may_pass(node: ir.Node) -> bool:
    """True if a node is of an operator that can pass a value on as it is."""
    return node.op_type in _TRANSPARENT


def passes(value: ir.Value) -> bool:
    """True if ``value`` is an unchanged input of the node that computes it."""
    node = value.producer()
    return node is not None and _is_passed(node, value)


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
    """True if ``value``, computed by ``node``, is its first input unchanged."""
    if node.op_type not in _TRANSPARENT or node.domain or not node.inputs:
        return False
    source = node.inputs[0]
    return source is not None and source.type is not None and source.type == value.type
