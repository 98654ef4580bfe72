"""Weights in 8 bits, computed with in float: of convolutions, and the rows of tables.

Conv(x, w) ⟶ Conv(x, DequantizeLinear(w₈, scales)).  Quantizing a convolution as it comes does not pay: ConvInteger
takes about four times as long as the float Conv.  But its weights need not lie there in 32 bits.  They are turned into
float in every run, which is little beside the rest of a transformer (1.02 of the time of a ViT).  Where one convolution
computes from another it is much: ONNX Runtime has a blocked layout for chains of them, with constant weights only (1.4
and 3.4 times the time of two image models).

Gather(t, i) ⟶ com.microsoft.GatherBlockQuantized(t₈, i, scales), each row a block: words differ in size, and one scale
for all of them, which is what the quantizer writes, loses 2 dB of a BERT.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxrewrite.system.arrays import Array

NARROWEST = 16
"""Rows of fewer numbers are not worth a scale of their own."""


def is_stored(node: ir.Node, by_row: bool) -> bool:
    """True if the dynamic mode only stores a node's weights in 8 bits: a convolution's, or a table's ``by_row``."""
    if node.op_type != "Gather" or not by_row:
        return node.op_type == "Conv"
    table = node.inputs[0].const_value if node.inputs[0] is not None else None
    sizes = table.shape.numpy() if table is not None else ()
    return len(sizes) == 2 and sizes[1] >= NARROWEST and node.attributes.get_int("axis", 0) in (0, -2)


def chained(graph: ir.Graph) -> set[ir.Node]:
    """The convolutions that compute from another one, however far above, or that another one computes from."""
    nodes = list(graph)
    found: set[ir.Node] = set()
    for order, onwards in ((nodes, ir.Node.successors), (nodes[::-1], ir.Node.predecessors)):
        reached: set[ir.Node] = set()
        for node in order:
            is_one = node.op_type == "Conv"
            if is_one and node in reached:
                found.add(node)
            if is_one or node in reached:
                reached.update(onwards(node))
    return found


def store(model: ir.Model, nodes: Mapping[str, str], *, by_row: bool = True) -> dict[str, str]:
    """Store the weights of those of ``nodes`` for which that is all, in place; one scale a channel or row, symmetric.

    Args:
        model: Changed in place, of opset 13 at least; the weights of the nodes are constants.
        nodes: Names of nodes to their operators.
        by_row: Include tables.

    Returns:
        The other nodes.
    """
    graph = model.graph
    done: set[str] = set()
    for node in list(graph):
        if node.name not in nodes or not is_stored(node, by_row):
            continue
        done.add(node.name or "")
        weight = node.inputs[1 if node.op_type == "Conv" else 0]
        assert weight is not None
        if node.op_type == "Conv":
            node.replace_input_with(1, _dequantized(weight, node, graph))
        else:
            _look_up(node, weight, graph)
        name = weight.name or ""
        if not weight.uses() and name in graph.initializers and not weight.is_graph_output():
            graph.initializers.pop(name)
    return {name: operator for name, operator in nodes.items() if name not in done}


def _dequantized(weight: ir.Value, before: ir.Node, graph: ir.Graph) -> ir.Value:
    """The same weight out of 8 bits, made before a node."""
    name = f"{weight.name}/float"
    operands = list(_in_8_bits(weight, graph))
    made = next((n for n in operands[0].consumers() if n.outputs[0].name == name), None)
    if made is None:
        made = ir.node("DequantizeLinear", operands, {"axis": 0}, name=f"{weight.name}/dequantized")
        made.outputs[0].name, made.outputs[0].type, made.outputs[0].shape = name, weight.type, weight.shape
        graph.insert_before(before, made)
    return made.outputs[0]


def _look_up(node: ir.Node, table: ir.Value, graph: ir.Graph) -> None:
    """Rows out of 8 bits, in place of a Gather of floats."""
    integers, scales = _in_8_bits(table, graph, rows=True)
    assert table.const_value is not None
    width = table.const_value.shape.numpy()[1]
    attributes = {"bits": 8, "gather_axis": 0, "quantize_axis": 1, "block_size": 1 << (width - 1).bit_length()}
    operands = [integers, node.inputs[1], scales]
    made = ir.node("GatherBlockQuantized", operands, attributes, domain="com.microsoft", name=node.name)
    old, new = node.outputs[0], made.outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    ir.convenience.replace_nodes_and_values(graph, node, [node], [made], [old], [new])
    graph.opset_imports.setdefault("com.microsoft", 1)


def _in_8_bits(weight: ir.Value, graph: ir.Graph, rows: bool = False) -> tuple[ir.Value, ir.Value]:
    """Integers and scales of a weight, of which there is one along the first axis; made once.

    Args:
        weight: A constant.
        graph: The graph in which they become initializers.
        rows: Make them as a table has them: integers from 1 to 255, and scales of rank 2.
    """
    names = f"{weight.name}/{'uint8' if rows else 'int8'}", f"{weight.name}/{'rows' if rows else 'scales'}"
    if names[0] in graph.initializers:
        return graph.initializers[names[0]], graph.initializers[names[1]]
    assert weight.const_value is not None
    array = weight.const_value.numpy()
    axes = tuple(range(1, array.ndim))
    largest = np.abs(array.astype(np.float64)).max(axis=axes, initial=0.0, keepdims=True)
    scales = (largest / 127).astype(array.dtype)
    scales[scales == 0] = 1  # zeros, or too small for the dtype
    integers = np.clip(np.rint(array / scales), -127, 127).astype(np.int8)
    if rows:
        made = (integers.astype(np.int16) + 128).astype(np.uint8), scales
    else:
        made = integers, scales.reshape(-1)
    return _initializer(graph, names[0], made[0]), _initializer(graph, names[1], made[1])


def _initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value
