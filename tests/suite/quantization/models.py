"""Small float models, and plain data for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

GOLDEN = Path(__file__).resolve().parents[3] / "golden_models"


def mlp(opset: int = 17, *, names: bool = True, width: int = 32) -> ModelProto:
    """Gemm, Relu, MatMul, and a product of two activations."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((width, 16)) / 4,
        "b1": rng.standard_normal(width) / 4,
        "w2": rng.standard_normal((width, width)) / 6,
        "w3": rng.standard_normal((width, 8)) / 6,
    }
    called = ["first", "relu", "second", "turn", "scores", "last"] if names else [""] * 6
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], called[0], transB=1),
        helper.make_node("Relu", ["h"], ["r"], called[1]),
        helper.make_node("MatMul", ["r", "w2"], ["s"], called[2]),
        helper.make_node("Transpose", ["r"], ["t"], called[3]),
        helper.make_node("MatMul", ["t", "s"], ["u"], called[4]),
        helper.make_node("MatMul", ["u", "w3"], ["y"], called[5]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [width, 8])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def conv() -> ModelProto:
    """Conv, BatchNormalization, Relu, Conv, added to an earlier value."""
    rng = np.random.default_rng(1)
    weights: dict[str, Any] = {
        "w1": rng.standard_normal((8, 3, 3, 3)) / 5,
        "scale": rng.uniform(0.5, 1.5, 8),
        "shift": rng.standard_normal(8) / 4,
        "mean": rng.standard_normal(8) / 4,
        "var": rng.uniform(0.5, 1.5, 8),
        "w2": rng.standard_normal((8, 8, 3, 3)) / 8,
        "w3": rng.standard_normal((4, 8, 1, 1)) / 3,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], "stem", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w2"], ["d"], "middle", pads=[1] * 4),
        helper.make_node("Add", ["d", "r"], ["a"], "sum"),
        helper.make_node("Conv", ["a", "w3"], ["y"], "head"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, 12, 12])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def patches() -> ModelProto:
    """A convolution that cuts an image into patches, and a product of each."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.standard_normal((16, 3, 4, 4)) / 7, "v": rng.standard_normal((16, 24)) / 4}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "patch", strides=[4, 4]),
        helper.make_node("Transpose", ["c"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "v"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, 4, 24])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def lookup() -> ModelProto:
    """Tables of two dimensions and of one, and products with a matrix, with two of them and with a vector."""
    rng = np.random.default_rng(3)
    weights = {
        "table": rng.standard_normal((50, 32)),
        "short": rng.standard_normal(50),
        "matrix": rng.standard_normal((32, 32)) / 6,
        "two": rng.standard_normal((2, 32, 32)) / 6,
        "vector": rng.standard_normal(32) / 6,
        "turned": rng.standard_normal((7, 24)) / 3,
    }
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"], "look up"),
        helper.make_node("Gather", ["short", "i"], ["s"], "look up one"),
        helper.make_node("MatMul", ["e", "matrix"], ["h"], "by a matrix"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "two"], ["q"], "by two"),
        helper.make_node("Relu", ["q"], ["p"], "relu of both"),
        helper.make_node("MatMul", ["p", "vector"], ["z"], "by a vector"),
        helper.make_node("Add", ["z", "s"], ["y"], "sum"),
        helper.make_node("Gemm", ["r", "turned"], ["w"], "turned", transA=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [7])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 7]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [32, 24]),
        ],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def words() -> ModelProto:
    """Rows of a table, of very different sizes, and a product."""
    rng = np.random.default_rng(0)
    weights = {"t": rng.normal(size=(50, 32)) * np.geomspace(0.01, 10, 50)[:, None], "w": rng.normal(size=(32, 8))}
    nodes = [
        helper.make_node("Gather", ["t", "i"], ["e"], "words"),
        helper.make_node("LayerNormalization", ["e", "g"], ["n"], "norm"),
        helper.make_node("MatMul", ["n", "w"], ["y"], "product"),
    ]
    weights["g"] = np.ones(32)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["batch", 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 7, 8])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(model: ModelProto, count: int = 6, scale: float = 1.0) -> list[dict[str, Any]]:
    """Normal values for the one input of a model."""
    rng = np.random.default_rng(5)
    shape = [d.dim_value or 4 for d in model.graph.input[0].type.tensor_type.shape.dim]
    name = model.graph.input[0].name
    return [{name: (scale * rng.standard_normal(shape)).astype(np.float32)} for _ in range(count)]


def operators(model: ModelProto) -> list[str]:
    """The operators of a model, sorted."""
    return sorted(n.op_type for n in model.graph.node)


def external(model: ModelProto, path: Path) -> Path:
    """The model with its weights in another file."""
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=0)
    return path
