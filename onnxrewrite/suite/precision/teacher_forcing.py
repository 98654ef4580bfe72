"""The quantization error of each node by itself, found in one run: every node's inputs are those of the float model.

The quantized model is cut at the results of all quantized nodes.  Readers of such a result get the float model's
instead, so no node sees the errors of those before it.  The idea is known as teacher forcing, or, in debuggers of
quantization, as a layer's own error (``qdq_loss_debug`` of ONNX Runtime compares the same pairs without cutting).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.rewrite.edit import Names
from onnxrewrite.suite.precision.candidates import Candidates
from onnxrewrite.suite.precision.intermediate_values import Taps
from onnxrewrite.suite.quality.closeness import Closeness, Gauge

_GIVEN = "float_"


def node_errors(found: Candidates, *, forced: bool = True) -> dict[str, Closeness]:
    """The closeness of the result of each quantized node to the float model's.

    Args:
        found: The model, quantized in all nodes.
        forced: Give each node the float model's inputs; otherwise they are as the nodes before it make them.

    Raises:
        ModelError: The model does not run.
    """
    model = io.load(found.model())
    made = {o.name or "": o for n in model.graph for o in n.outputs}
    results = _results(found.float_model, found.nodes, made)
    shown = {node: _rounded(made[value]) for node, value in results.items()}
    watched = {node: value.name or "" for node, value in shown.items()}
    if forced:
        _force(model, {made[value]: None for value in results.values()}, list(shown.values()))
    gauges = {node: Gauge() for node in watched}
    floats = Taps(found.float_model, (results[node] for node in watched))
    quantized = Taps(model, watched.values())
    for sample in found.data:
        reference = floats(sample.inputs)
        given = {f"{_GIVEN}{name}": value for name, value in reference.items()} if forced else {}
        values = quantized({**sample.inputs, **given})
        for node, name in watched.items():
            gauges[node].add(reference[results[node]], values[name])
    return {node: gauge.closeness for node, gauge in gauges.items()}


def _results(model: ir.Model, nodes: Iterable[str], made: Container[str]) -> dict[str, str]:
    """Of each node the value that shows its error: its own, or where a quantizer has merged the node with the only one
    that reads it, such as a Relu, the value of that one.  Nodes of which neither is left are left out."""
    by_name, found = {n.name: n for n in model.graph}, {}
    for name in nodes:
        value = by_name[name].outputs[0]
        while value.name not in made and len(readers := value.consumers()) == 1:
            value = readers[0].outputs[0]
        if value.name in made:
            found[name] = value.name or ""
    return found


def _rounded(value: ir.Value) -> ir.Value:
    """The value after it was rounded, where it goes through QuantizeLinear and DequantizeLinear."""
    for reader in value.consumers():
        if reader.op_type == "QuantizeLinear":
            for after in reader.outputs[0].consumers():
                if after.op_type == "DequantizeLinear":
                    return after.outputs[0]
    return value


def _force(model: ir.Model, values: Iterable[ir.Value], shown: Iterable[ir.Value]) -> None:
    """Let what reads these values read inputs instead; ``shown`` are still computed from the values themselves."""
    names, own = Names(model), {v.producer() for v in shown}
    for value in values:
        given = ir.Value(
            name=names.fresh(f"{_GIVEN}{value.name}"), type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape
        )
        rounding = {n for n in value.consumers() if any(r in own for r in n.outputs[0].consumers())}
        for reader, index in list(value.uses()):
            if reader in rounding:
                continue
            reader.replace_input_with(index, given)
        for reader in rounding:
            _give_rounded(reader, given, names)
        model.graph.inputs.append(given)


def _give_rounded(quantize: ir.Node, given: ir.Value, names: Names) -> None:
    """Give readers of the rounded result the float value, rounded by its own QuantizeLinear and DequantizeLinear."""
    graph = quantize.graph
    assert graph is not None
    for dequantize in [n for n in quantize.outputs[0].consumers() if n.op_type == "DequantizeLinear"]:
        first, second = (_copied(n, names) for n in (quantize, dequantize))
        first.replace_input_with(0, given)
        second.replace_input_with(0, first.outputs[0])
        readers = list(dequantize.outputs[0].uses())
        graph.insert_after(dequantize, (first, second))
        for reader, index in readers:
            reader.replace_input_with(index, second.outputs[0])


def _copied(node: ir.Node, names: Names) -> ir.Node:
    outputs = [ir.Value(name=names.fresh(f"{_GIVEN}{o.name}"), type=o.type, shape=o.shape) for o in node.outputs]
    name = names.fresh(f"{_GIVEN}{node.name}")
    return ir.Node(node.domain, node.op_type, node.inputs, node.attributes.values(), outputs=outputs, name=name)
