"""Tensors of a file."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.io.held import StoredTensor


def model() -> onnx.ModelProto:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy")
    weight = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    bias = onnx.helper.make_tensor("b", onnx.TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])  # not in raw_data
    nodes = [
        onnx.helper.make_node("Constant", [], ["c"], value=bias),
        onnx.helper.make_node("Add", ["x", "w"], ["t"]),
        onnx.helper.make_node("Add", ["t", "c"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [weight])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_the_head_of_a_tensor_is_read_once() -> None:
    loaded = io.load(model())
    held = [loaded.graph.initializers["w"].const_value, loaded.graph[0].attributes["value"].as_tensor()]
    for tensor, shape in zip(held, [(2, 3), (3,)], strict=True):
        assert isinstance(tensor, StoredTensor)
        assert tensor.shape is tensor.shape
        assert (tensor.dtype, tuple(tensor.shape), tensor.size) == (ir.DataType.FLOAT, shape, np.prod(shape))
        assert tensor.numpy().shape == shape
        assert tensor.nbytes == 4 * tensor.size


def test_a_tensor_is_written_as_it_was_read() -> None:
    given = model()
    written = io.to_proto(io.load(given))
    assert written.graph.initializer == given.graph.initializer
    constant = written.graph.node[0].attribute[0].t
    assert list(constant.float_data) == [1.0, 2.0, 3.0]
    assert not constant.HasField("raw_data")


def test_a_model_that_is_handed_over_is_not_copied() -> None:
    loaded = io.load(model())
    assert io.load(io.Owned(loaded)) is loaded
    assert io.load(loaded) is not loaded
