"""Small models for the tests of precisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

GOLDEN = Path(__file__).resolve().parents[3] / "golden_models"


def golden(name: str) -> Path:
    return GOLDEN / name / "model.onnx"


def parsed(body: str, opset: int = 17) -> onnx.ModelProto:
    """A model in ONNX text syntax; each node is named after its output."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {body}')
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def mlp(layers: int = 4, width: int = 32, *, outlier: int | None = None, scopes: bool = False) -> onnx.ModelProto:
    """MatMul and Relu, layer by layer; one layer's weights may have a channel a hundred times as large."""
    rng = np.random.default_rng(3)
    nodes, weights, value = [], [], "x"
    for layer in range(layers):
        weight = (rng.normal(size=(width, width)) / np.sqrt(width)).astype(np.float32)
        if layer == outlier:
            weight[0] *= 100
        weights.append(onnx.numpy_helper.from_array(weight, f"w{layer}"))
        prefix = f"/net/block.{layer}/fc" if scopes else f"fc{layer}"
        nodes.append(onnx.helper.make_node("MatMul", [value, f"w{layer}"], [f"h{layer}"], name=f"{prefix}/MatMul"))
        last = layer == layers - 1
        nodes.append(
            onnx.helper.make_node("Relu", [f"h{layer}"], ["y" if last else f"r{layer}"], name=f"{prefix}/Relu")
        )
        value = f"r{layer}"
    info = [onnx.helper.make_tensor_value_info(n, 1, ["batch", width]) for n in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "mlp", info[:1], info[1:], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
