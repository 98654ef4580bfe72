"""What stays in a model that is handed over."""

from __future__ import annotations

import onnx
import onnx.parser
import onnxruntime

import onnxrewrite as rw

HEADS = """<ir_version: 10, opset_import: ["": 23]>
g (int64[batch, seq] ids, float[n, 8] x) => (float[batch, seq, 5] y)
<float[8, 5] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
                  1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, int64[1] width = {8}>
{
    shape = Shape(ids)
    target = Concat<axis = 0>(shape, width)
    v = Reshape<allowzero = 1>(x, target)
    a = Attention<q_num_heads = 2, kv_num_heads = 2>(v, v, v)
    r = Relu(a)
    y = MatMul(r, w)
}"""


def test_an_operand_whose_size_must_be_known_keeps_its_type() -> None:
    """ONNX Runtime's inference does not follow the target of the Reshape, and takes the size of ``v`` for 0."""
    result = rw.apply(onnx.parser.parse_model(HEADS), check="off", lower="fused")
    told = {v.name: [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in _inner(result)}
    assert told == {"v": ["batch", "seq", 8]}
    assert onnxruntime.InferenceSession(result.to_proto().SerializeToString(), providers=["CPUExecutionProvider"])


FUSED = """<ir_version: 10, opset_import: ["": 17]>
g (float[4, 6] x) => (float[8, 3] y, float[12, 2] z)
<int64[2] half = {8, 3}, int64[2] r_new_shape = {12, 2}>
{
    r_constant = Relu(x)
    [r] b = Reshape(r_constant, r_new_shape)
    [s] y = Reshape(b, half)
    z = Reshape(x, r_new_shape)
}"""


def test_no_constant_is_called_as_onnxruntime_calls_one() -> None:
    """It calls the target of the Reshapes that it fuses as the first of them, and fails where that is taken."""
    model = onnx.parser.parse_model(FUSED)
    result = rw.apply(model, only=["gelu-tanh"], check="off", lower="fused")
    assert [c.name for c in result.to_proto().graph.initializer if c.name.endswith("_new_shape")] == []
    assert onnxruntime.InferenceSession(result.to_proto().SerializeToString(), providers=["CPUExecutionProvider"])


def _inner(result: rw.Result) -> list[onnx.ValueInfoProto]:
    return list(result.to_proto().graph.value_info)
