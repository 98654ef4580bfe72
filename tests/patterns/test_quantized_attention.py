"""Attention of quantized projections, by the operator that multiplies the integers itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import onnxrewrite as rw

WIDTH, HEADS = 16, 2


def model(dtype: type, scales: str, zeros: str, biases: int) -> onnx.ModelProto:
    """MultiHeadAttention of three products of one input that is quantized when it comes."""
    rng = np.random.default_rng(3)
    low, high = (0, 255) if dtype is np.uint8 else (-127, 127)
    constants: dict[str, Any] = {}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["i", "s", "z"])]
    for number, name in enumerate("qkv"):
        size = () if scales == "one" else (WIDTH,)
        constants[f"w{name}"] = rng.integers(low, high, (WIDTH, WIDTH)).astype(dtype)
        constants[f"t{name}"] = rng.uniform(0.01, 0.02, size).astype(np.float32)
        given = ["i", f"w{name}", "s", f"t{name}", "z", "", ""]
        if zeros != "none":
            constants[f"z{name}"] = rng.integers(1, 9, () if zeros == "one" else (WIDTH,)).astype(dtype)
            given[5] = f"z{name}"
        if number < biases:
            constants[f"b{name}"] = rng.normal(size=WIDTH).astype(np.float32)
            given[6] = f"b{name}"
        nodes.append(helper.make_node("MatMulIntegerToFloat", given, [name], domain="com.microsoft"))
    attributes = {"num_heads": HEADS, "scale": 0.3}
    nodes.append(helper.make_node("MultiHeadAttention", [*"qkv"], ["y"], domain="com.microsoft", **attributes))
    shape = ["n", "s", WIDTH]
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)] for name in "xy"]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", *ends, weights), opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("scales", "zeros", "biases"),
    [("one", "none", 0), ("one", "one", 3), ("column", "one", 2), ("column", "column", 3)],
)
def test_it_computes_the_same(dtype: type, scales: str, zeros: str, biases: int) -> None:
    before = model(dtype, scales, zeros, biases)
    made = rw.apply(before, lower="fused", only=["quantized-attention"]).to_proto()
    assert Counter(n.op_type for n in made.graph.node) == {"DynamicQuantizeLinear": 1, "QAttention": 1}
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 5, WIDTH)).astype(np.float32)}
    old, new = (session(m).run(None, feeds)[0] for m in (before, made))
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5 * np.abs(old).max())


def session(proto: onnx.ModelProto) -> ort.InferenceSession:
    """Without optimizations of ONNX Runtime's own."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
