"""Gemm ⟶ MatMul + Add: what is quantized as it comes, or in blocks, is MatMul alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir


def split_gemms(model: ir.Model, nodes: Mapping[str, str]) -> dict[str, str]:
    """Split those of ``nodes`` that are Gemm, in place.

    A MatMul keeps the Gemm's name.  A Gemm with a factor or a transposed operand stays as it is.

    Args:
        model: Changed in place; its weights are constants.
        nodes: Names of nodes to their operators.

    Returns:
        The same nodes with the operators that they are now.
    """
    found = dict(nodes)
    for node in list(model.graph):
        if node.op_type == "Gemm" and node.name in found and is_plain(node):
            _split(node, model.graph)
            found[node.name or ""] = "MatMul"
    return found


def is_plain(node: ir.Node) -> bool:
    """True if a Gemm is a product and a sum, with a constant second operand."""
    factors = [node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
    if factors != [1.0, 1.0] or node.attributes.get_int("transA", False):
        return False
    weight = node.inputs[1]
    return weight is not None and weight.const_value is not None


def _split(node: ir.Node, graph: ir.Graph) -> None:
    x, weight, output = node.inputs[0], node.inputs[1], node.outputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    assert weight is not None
    name, label = output.name, node.name
    if node.attributes.get_int("transB", False):
        weight = _transposed(weight, graph)
    made = [ir.node("MatMul", [x, weight], name=label)]
    if bias is not None:
        made.append(ir.node("Add", [made[0].outputs[0], bias], name=f"{label}/bias"))
        made[0].outputs[0].name = f"{name}/product"
        made[0].outputs[0].type, made[0].outputs[0].shape = output.type, output.shape
    made[-1].outputs[0].name = name
    ir.convenience.replace_nodes_and_values(graph, node, [node], made, [output], made[-1].outputs)


def _transposed(weight: ir.Value, graph: ir.Graph) -> ir.Value:
    """The weight the other way round: one for all that want it so."""
    assert weight.const_value is not None
    name = f"{weight.name}/transposed"
    if name in graph.initializers:
        return graph.initializers[name]
    array = np.ascontiguousarray(weight.const_value.numpy().T)
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=weight.type, shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value
