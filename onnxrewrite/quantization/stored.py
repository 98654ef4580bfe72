"""Weights of convolutions in 8 bits, computed with in float: Conv(x, w) ⟶ Conv(x, DequantizeLinear(w₈, scales)).

Quantizing a convolution as it comes does not pay: ConvInteger takes about four times as long as the float Conv.  But
its weights need not lie there in 32 bits.  They are turned into float in every run, which is little beside the rest of
a transformer (1.02 of the time of a ViT).  Where one convolution computes from another it is much: ONNX Runtime has a
blocked layout for chains of them, with constant weights only (1.4 and 3.4 times the time of two image models).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

STORED = frozenset({"Conv"})
"""Operators whose weights are only stored so, in the dynamic mode; their output channels are the first axis."""


def chained(graph: ir.Graph) -> set[ir.Node]:
    """The convolutions that compute from another one, however far above, or that another one computes from."""
    nodes = list(graph)
    found: set[ir.Node] = set()
    for order, onwards in ((nodes, ir.Node.successors), (nodes[::-1], ir.Node.predecessors)):
        reached: set[ir.Node] = set()
        for node in order:
            is_one = node.op_type in STORED
            if is_one and node in reached:
                found.add(node)
            if is_one or node in reached:
                reached.update(onwards(node))
    return found


def store(model: ir.Model, nodes: Mapping[str, str]) -> None:
    """Store the weights of those of ``nodes`` that are ``STORED``, in place; one scale a channel, symmetric.

    Args:
        model: Changed in place, of opset 13 at least; the weights of the nodes are constants.
        nodes: Names of nodes to their operators.
    """
    graph = model.graph
    made: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.name not in nodes or node.op_type not in STORED:
            continue
        weight = node.inputs[1]
        assert weight is not None
        if weight not in made:
            made[weight] = _dequantized(weight, node, graph)
        node.replace_input_with(1, made[weight])
        name = weight.name or ""
        if not weight.uses() and name in graph.initializers and not weight.is_graph_output():
            graph.initializers.pop(name)


def _dequantized(weight: ir.Value, before: ir.Node, graph: ir.Graph) -> ir.Value:
    """The same weight out of 8 bits, made before a node."""
    assert weight.const_value is not None
    array = weight.const_value.numpy()
    largest = np.abs(array.astype(np.float64)).max(axis=tuple(range(1, array.ndim)), initial=0.0)
    scales = np.where(largest > 0, largest / 127, 1.0).astype(array.dtype)
    per_channel = scales.reshape(-1, *[1] * (array.ndim - 1))
    integers = np.clip(np.rint(array / per_channel), -127, 127).astype(np.int8)
    operands = [_initializer(graph, f"{weight.name}/{what}", a) for what, a in (("int8", integers), ("scales", scales))]
    node = ir.node("DequantizeLinear", operands, {"axis": 0}, name=f"{weight.name}/dequantized")
    node.outputs[0].name = f"{weight.name}/float"
    node.outputs[0].type, node.outputs[0].shape = weight.type, ir.Shape(array.shape)
    graph.insert_before(before, node)
    return node.outputs[0]


def _initializer(graph: ir.Graph, name: str, array: npt.NDArray[Any]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value
