"""Nodes that pass a value on as it is: Identities, and Casts to the dtype that is already there."""

from __future__ import annotations

import onnx_ir as ir


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


def readers(value: ir.Value) -> list[ir.Node]:
    """The nodes that read a value, or what passes it on."""
    found: dict[ir.Node, None] = {}
    for node in value.consumers():
        found[node] = None
        if node.outputs and node in passed(node.outputs[0])[:1]:
            found.update(dict.fromkeys(readers(node.outputs[0])))
    return list(found)
