"""The form that ``onnxruntime.quantization`` gives a model by itself: the nodes that it has quantized."""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.suite.quantization.select import OPERATORS

_TAKEN = frozenset(operator for operators in OPERATORS.values() for operator in operators) | {"Attention"}


def quantized_nodes(before: ir.Model, after: ir.Model) -> dict[str, str]:
    """The nodes of a float model that its quantized form has not, or has with other operands: name to operator."""
    kept = {node.name: node for node in after.graph}
    return {
        node.name or "": node.op_type
        for node in before.graph
        if node.op_type in _TAKEN and (node.name not in kept or _operands(kept[node.name]) != _operands(node))
    }


def _operands(node: ir.Node) -> list[str | None]:
    return [value.name if value is not None else None for value in node.inputs]
