"""Smoothing: x·W ⟶ (x / s)·(s W), so that no channel of what a product reads is much larger than the others.

One scale and one zero point stand for all that a product reads.  A channel of large values takes the steps from all
others, while each column of the weights has a scale of its own.  So a part of the size of the channels is moved to the
weights: s = max|x|^α / max|W|^(1-α), a channel each (Xiao et al., *SmoothQuant*, 2023, equation 4).  The quotient is a
Mul, which rules fold into a normalization before it, if that is read by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.rewrite.edit import Names
from onnxrewrite.suite.precision.intermediate_values import activations
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.system.arrays import Array

STRENGTH = 0.7
"""α: the share of the size of channels that is moved.  Of 0.3, 0.5, 0.7, 0.8 and 0.9 it came out best on a sentence
encoder, whose feed-forward channels differ by far."""


def smooth(model: ir.Model, nodes: Iterable[str], data: Data, strength: float = STRENGTH) -> list[str]:
    """Smooth what these nodes read, in place; each value once for all of them that read it.

    Args:
        model: Changed in place; its results differ by rounding only.
        nodes: Names of nodes; those that are no MatMul by a constant matrix are left.
        data: The samples on which the sizes of channels are found.
        strength: From 0, where nothing of an activation's size is moved, to 1.

    Returns:
        Names of the nodes that were smoothed.

    Raises:
        ModelError: The model does not run.
    """
    named = set(nodes)
    products: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        read = node.inputs[0] if node.name in named and _is_product(node) else None
        if read is not None and read.const_value is None:
            products.setdefault(read, []).append(node)
    largest = _largest(model, [value.name or "" for value in products], data)
    names = Names(model)
    for value, readers in products.items():
        if (sizes := largest.get(value.name or "")) is not None:  # else no sample was run
            _smooth(value, readers, _scales(sizes, readers, strength), names)
    return [n.name or "" for value, readers in products.items() if value.name in largest for n in readers]


def _is_product(node: ir.Node) -> bool:
    weight = node.inputs[1] if node.op_type == "MatMul" else None
    return (
        weight is not None
        and weight.const_value is not None
        and weight.dtype == ir.DataType.FLOAT
        and len(weight.const_value.shape) == 2
    )


def _largest(model: ir.Model, values: Sequence[str], data: Data) -> Mapping[str, Array]:
    """The largest size that each channel of values has on any sample, by value."""
    found: dict[str, Array] = {}
    for outputs in activations(model, values, data):
        for name, value in outputs.items():
            array = np.abs(np.asarray(value))
            sizes = array.reshape(-1, array.shape[-1]).max(axis=0, initial=0.0)
            found[name] = np.maximum(found.get(name, sizes), sizes)
    return found


def _scales(largest: Array, readers: Iterable[ir.Node], strength: float) -> Array:
    """The scale of each channel; 1 where a channel, or its weights, are zero throughout or not finite."""
    rows = np.max([np.abs(_weight(node)).max(axis=1, initial=0.0) for node in readers], axis=0).astype(np.float64)
    with np.errstate(all="ignore"):
        scales = largest.astype(np.float64) ** strength / rows ** (1 - strength)
    usable = np.isfinite(scales) & (scales > np.finfo(np.float32).tiny) & (rows > 0)
    return np.where(usable, scales, 1.0).astype(np.float32)


def _smooth(value: ir.Value, readers: Sequence[ir.Node], scales: Array, names: Names) -> None:
    graph, members = readers[0].graph, set(readers)
    assert graph is not None
    reciprocal = _initializer(graph, names.fresh(f"{value.name}/smoothing"), 1 / scales)
    divide = ir.node("Mul", [value, reciprocal], name=names.fresh(f"{value.name}/smooth"))
    smooth_value = divide.outputs[0]
    smooth_value.name, smooth_value.type, smooth_value.shape = (
        names.fresh(f"{value.name}/smoothed"),
        value.type,
        value.shape,
    )
    first = next(node for node in graph if node in members)
    graph.insert_before(first, divide)
    for node in readers:
        weight = node.inputs[1]
        assert weight is not None
        scaled = _initializer(graph, names.fresh(f"{weight.name}/smoothed"), _weight(node) * scales[:, None])
        node.replace_input_with(0, smooth_value)
        node.replace_input_with(1, scaled)
        if not weight.uses() and not weight.is_graph_output():
            graph.initializers.pop(weight.name or "", None)


def _weight(node: ir.Node) -> Array:
    weight = node.inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    return weight.const_value.numpy()


def _initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value
