"""Operators of a model that draw random numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx

from onnxrewrite.ir.protos import all_nodes
from onnxrewrite.ir.schema import NON_DETERMINISTIC

_RANDOM_OPS = frozenset(name for _, name in NON_DETERMINISTIC)


_ASK_SHAPES = ("Shape", "Size")


def stochastic_ops(model: onnx.ModelProto) -> list[str]:
    """Operators whose result is random, training-mode Dropout included."""
    return sorted({n.op_type for n in _random_nodes(model)})


def draws(model: onnx.ModelProto) -> Counter[str] | None:
    """The number of nodes of each operator whose random results are read; reading only their shape does not count.

    None for a model with branches, loops or functions: counting does not tell which of them run, and how often.
    """
    nodes = list(all_nodes(model))
    if len(nodes) > len(model.graph.node):
        return None
    read = {name for node in nodes if node.op_type not in _ASK_SHAPES for name in node.input}
    read.update(v.name for v in model.graph.output)
    return Counter(n.op_type for n in _random_nodes(model) if not read.isdisjoint(n.output))


def _random_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    constants = {t.name: t for t in model.graph.initializer}
    for node in all_nodes(model):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
        if node.op_type in _RANDOM_OPS or (node.op_type == "Dropout" and _training(node, constants)):
            yield node


def _training(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    if len(node.input) < 3 or not node.input[2]:
        return False
    tensor = constants.get(node.input[2])
    return tensor is None or bool(onnx.numpy_helper.to_array(tensor).any())
