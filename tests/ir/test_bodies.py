"""The definitions of ONNX Runtime's operators: they compute what its kernels do, and there is one of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxrewrite.ir import schema, text
from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.bodies.emitter import Emit, Unsupported
from onnxrewrite.ir.by_operator import ByOperator
from onnxrewrite.reference.expand import EXPANSIONS
from onnxrewrite.ruletest.modular.evaluate import OPERATORS
from onnxrewrite.runtime.session import Session, as_proto, open_session

X = "float[2,3,8] x; float[2,3,8] z; float[8] g; float[8] b; "
IDS = "int32[2,3] i; float[5,8] u; float[4,8] v; float[8] g; float[8] b; int32[2,3] m; "
MATRICES = "float[3,4] x; float[4,5] w; float[3,5] c; "
IMAGE = "float[1,2,5,6] x; float[2,2,3,3] w; float[2] b; float[1,2,5,6] z; "
QKV = "float[2,3,8] q; float[2,5,8] k; float[2,5,8] v; float[24] b; float[2,2,3,5] m; "
STEP = "float[2,1,8] q; float[2,1,8] k; float[2,1,8] v; float[2,2,4,4] p; float[2,2,4,4] r; "
PROJECTED = "float[2,3,8] x; float[8,24] w; float[24] b; float[2,2,3,3] m; "
INTEGERS = "uint8[2,3,8] x; int8[8,24] w; uint8 t; int8 s; float[24] b; "
ROTATED = "float[2,3,8] x; int64[2,3] i; float[6,2] c; float[6,2] s; "
GRID = "uint8[2,3,4] a; uint8[2,3,4] c; "
PADDED = "pads=[1,1,1,1]"

CALLS = [
    X + "y = com.microsoft.Gelu(x)",
    X + "y = com.microsoft.BiasGelu(x, b)",
    X + "y = com.microsoft.FastGelu(x)",
    X + "y = com.microsoft.FastGelu(x, b)",
    X + "y = com.microsoft.QuickGelu(x)",
    X + "y = com.microsoft.QuickGelu<alpha=0.7>(x)",
    X + "y = com.microsoft.SkipLayerNormalization(x, z, g)",
    X + "y, , , t = com.microsoft.SkipLayerNormalization<epsilon=0.01>(x, z, g, b, b)",
    X + "y = com.microsoft.SkipSimplifiedLayerNormalization(x, z, g)",
    X + "y, , , t = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.01>(x, z, g, b)",
    X + "y = SimplifiedLayerNormalization(x, g)",
    X + "y = SimplifiedLayerNormalization<epsilon=0.01, axis=-1>(x, g)",
    IDS + "y, n = com.microsoft.EmbedLayerNormalization(i, , u, v, , g, b)",
    IDS + "y, n, t = com.microsoft.EmbedLayerNormalization<epsilon=0.01>(i, i, u, v, u, g, b, m, i)",
    MATRICES + 'y = com.microsoft.FusedGemm<activation="Relu", alpha=0.5, beta=2.0>(x, w, c)',
    MATRICES + 'y = com.microsoft.FusedGemm<activation="LeakyRelu", activation_alpha=0.3, transA=1, transB=1>(w, x)',
    IMAGE + f'y = com.microsoft.FusedConv<activation="Clip", activation_params=[-0.5, 0.6], {PADDED}>(x, w, b, z)',
    IMAGE + 'y = com.microsoft.FusedConv<activation="HardSigmoid", activation_params=[0.3, 0.4]>(x, w, b)',
    IMAGE + 'y = com.microsoft.FusedConv<activation="LeakyRelu", activation_params=[0.3], strides=[2,1]>(x, w)',
    IMAGE + f"y = com.microsoft.FusedConv<{PADDED}>(x, w, , z)",
    MATRICES + "y = com.microsoft.FusedMatMul<alpha=0.3>(x, w)",
    MATRICES + "y = com.microsoft.FusedMatMul<transA=1, transB=1>(w, x)",
    "float[4,2,3] x; float[2,5,4] w; y = com.microsoft.FusedMatMul<transA=1, transBatchA=1, transB=1>(x, w)",
    INTEGERS + "y = com.microsoft.MatMulIntegerToFloat(x, w, 0.5, 0.25)",
    INTEGERS + "y = com.microsoft.MatMulIntegerToFloat(x, w, 0.5, 0.25, t, s, b)",
    PROJECTED + "int8[8,24] i; int8 s; y = com.microsoft.DynamicQuantizeMatMul(x, i, 0.25)",
    PROJECTED + "int8[8,24] i; int8 s; y = com.microsoft.DynamicQuantizeMatMul(x, i, 0.25, s, b)",
    QKV + "y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v)",
    QKV + "y = com.microsoft.MultiHeadAttention<num_heads=2, scale=0.3>(q, k, v, b, , m)",
    QKV + "float[2,3,8] l; y = com.microsoft.MultiHeadAttention<num_heads=2, unidirectional=1>(q, l, l)",
    QKV + "float[2,2,5,4] l; y = com.microsoft.MultiHeadAttention<num_heads=2>(q, l, l)",
    STEP + "y, k1, v1 = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , , , p, r)",
    PROJECTED + "y = com.microsoft.Attention<num_heads=2>(x, w, b)",
    PROJECTED + "y = com.microsoft.Attention<num_heads=2, scale=0.3, unidirectional=1>(x, w, b)",
    PROJECTED + "y = com.microsoft.Attention<num_heads=2>(x, w, b, , , m)",
    "float[2,3,8] x; float[8,20] w; float[20] b;"
    "y = com.microsoft.Attention<num_heads=2, qkv_hidden_sizes=[8,8,4]>(x, w, b)",
    QKV + 'y, n = com.microsoft.LinearAttention<q_num_heads=2, kv_num_heads=2, update_rule="linear">(q, q, q)',
    'float[2,4,6] x; float[4,1,3] w; y, n = com.microsoft.CausalConvWithState<activation="silu">(x, w)',
    INTEGERS + "y = com.microsoft.QAttention<num_heads=2>(x, w, b, 0.01, 0.02, , t, s)",
    GRID + "y = com.microsoft.DequantizeLinear<axis=1>(a, {0.5, 0.25, 0.1}, uint8[3] {3, 4, 5})",
    "float[2,3,4] a; y = com.microsoft.QuantizeLinear(a, 0.05, uint8 30)",
    "uint8[2,3] a; uint8[3,4] c; y = QLinearMatMul(a, 0.5, uint8 20, c, {0.1, 0.2, 0.3, 0.4}, uint8[4] {20, 9, 8, 7},"
    " 2.0, uint8 99)",
    f"uint8[1,2,5,6] x; int8[3,2,3,3] w; int32[3] b; y = QLinearConv<{PADDED}>"
    "(x, 0.5, uint8 20, w, {0.1, 0.2, 0.3}, int8[3] {0, 0, 0}, 4.0, uint8 99, b)",
    "uint8[2,3] a; uint8[4,3] c; int32[4] b; y = com.microsoft.QGemm<transB=1, alpha=0.5>"
    "(a, 0.5, uint8 20, c, 0.1, uint8 30, b, 4.0, uint8 99)",
    "uint8[2,3] a; uint8[3,4] c; y = com.microsoft.QGemm(a, 0.5, uint8 20, c, 0.1, uint8 30)",
    GRID + "y = com.microsoft.QLinearAdd(a, 0.5, uint8 20, c, 0.25, uint8 30, 0.7, uint8 40)",
    GRID + "y = com.microsoft.QLinearMul(a, 0.5, uint8 20, c, 0.25, uint8 30, 5.0, uint8 40)",
    GRID + "y = com.microsoft.QLinearSigmoid(a, 0.1, uint8 50, 0.004, uint8 1)",
    GRID + "y = com.microsoft.QLinearLeakyRelu<alpha=0.3>(a, 0.1, uint8 50, 0.07, uint8 40)",
    GRID + "y = com.microsoft.QLinearSoftmax<axis=1, opset=13>(a, 0.1, uint8 50, 0.004, uint8 1)",
    GRID + "bool[3,1] m; y = com.microsoft.QLinearWhere(m, a, 0.5, uint8 20, c, 0.25, uint8 30, 0.7, uint8 40)",
    GRID + "y = com.microsoft.QLinearConcat<axis=1>(0.4, uint8 9, a, float 0.5, uint8 20, c, float 0.25, uint8 30)",
    "uint8[1,2,5,6] x; y = com.microsoft.QLinearAveragePool<kernel_shape=[2,2]>(x, 0.1, uint8 50, 0.07, uint8 40)",
    "uint8[1,2,5,6] x; y = com.microsoft.QLinearGlobalAveragePool(x, 0.1, uint8 50, 0.02, uint8 90)",
    ROTATED + "y = com.microsoft.RotaryEmbedding(x, i, c, s)",
    ROTATED + "y = com.microsoft.RotaryEmbedding<interleaved=1>(x, int64[1] {2}, c, s)",
    ROTATED + "y = com.microsoft.RotaryEmbedding<num_heads=1, rotary_embedding_dim=4>(x, i, c, s)",
    "float[2,2,3,4] x; int64[2,3] i; float[6,2] c; float[6,2] s; y = com.microsoft.RotaryEmbedding(x, i, c, s)",
]


def defined(nodes: Iterable[onnx.NodeProto], shapes: dict[str, tuple[int, ...]]) -> Iterator[onnx.NodeProto]:
    """Nodes of the standard in place of those that have a body; constants of double, as the reference has them, in
    single precision."""
    for node in nodes:
        body = BODIES.get((node.domain, node.op_type))
        if body is None:
            for tensor in (a.t for a in node.attribute if a.t.data_type == onnx.TensorProto.DOUBLE):
                tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32)))
            yield node
        else:
            emit = Emit(schema.latest_version(), f"{node.output[0]}:", shapes)
            yield from defined(emit.define(body, node), shapes)


def fed(model: onnx.ModelProto) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    result = {}
    for value in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        is_index = dtype in (np.int32, np.int64)
        numbers = rng.integers(0, 2 if value.name == "m" else 4, shape) if is_index else rng.standard_normal(shape)
        # Seven bits: where a processor adds pairs of products in 16 bits, the sum of more saturates.
        result[value.name] = np.asarray(rng.integers(0, 64, shape) if dtype.itemsize == 1 else numbers).astype(dtype)
    return result


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.split("; ")[-1].strip())
def test_a_body_computes_what_the_kernel_does(call: str) -> None:
    model = as_proto(text.parse(call))
    feeds = fed(model)
    session = open_session(model)
    assert isinstance(session, Session), session
    wanted = session.run(feeds)
    assert not isinstance(wanted, str), wanted
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    shapes = {name: array.shape for name, array in (feeds | constants).items()}
    nodes = list(defined(model.graph.node, shapes))
    assert all(not node.domain for node in nodes)
    del model.graph.node[:], model.opset_import[:]
    model.graph.node.extend(nodes)
    model.opset_import.append(onnx.helper.make_opsetid("", schema.latest_version()))
    found = dict(zip(wanted, ReferenceEvaluator(model).run(list(wanted), feeds), strict=True))
    assert wanted
    for name, value in wanted.items():
        step = 1 if value.dtype.itemsize == 1 else 2e-5  # what is near the middle of two may be rounded to either
        np.testing.assert_allclose(found[name].astype(np.float64), value, rtol=2e-5, atol=step)
        assert len(np.unique(value)) > 1 or value.size < 4


def test_every_body_is_tried() -> None:
    called = {tuple(re.findall(r"(?:(com\.microsoft)\.)?(\w+)(?:<.*>)?\(", call)[0]) for call in CALLS}
    assert called == BODIES.keys()


def test_no_operator_has_two_definitions() -> None:
    assert not BODIES.keys() & OPERATORS.keys()
    assert not BODIES.keys() & EXPANSIONS.keys()


@pytest.mark.parametrize("functions", [BODIES, OPERATORS, EXPANSIONS], ids=["bodies", "operators", "expansions"])
def test_a_second_function_of_an_operator_is_refused(functions: ByOperator[Any]) -> None:
    domain, op_type = next(iter(functions))
    with pytest.raises(ValueError, match=f"a second function of {op_type}"):
        functions.of(op_type, domain=domain)(functions[domain, op_type])


UNCOVERED = {
    QKV + "int32[2] n; y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , n)": "key_padding_mask",
    "float[2,3,2,3,4] q; y = com.microsoft.MultiHeadAttention<num_heads=2>(q)": "packed inputs",
    STEP + "y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , , , p, r)": "a past without a present",
    QKV + "y = com.microsoft.MultiHeadAttention<num_heads=2, unidirectional=1>(q, k, v)": "another number of keys",
    PROJECTED + "int32[2] n; y = com.microsoft.Attention<num_heads=2>(x, w, b, n)": "mask_index",
    ROTATED + "y = com.microsoft.RotaryEmbedding<is_packed_batching=1>(x, i, c, s)": "packed batches",
    IMAGE + 'y = com.microsoft.FusedConv<activation="Elu">(x, w)': "other parameters",
    GRID + "y = com.microsoft.QLinearSoftmax<axis=1, opset=11>(a, 0.1, uint8 50, 0.004, uint8 1)": "before 13",
    "uint8[1,2,5,6] x; y = com.microsoft.QLinearGlobalAveragePool<channels_last=1>(x, 0.1, uint8 5, 0.02, uint8 9)": "last",
    "float[2,3] x; y = com.microsoft.FusedMatMul<transA=1>(z, x)": "unknown rank",
}


@pytest.mark.parametrize(("call", "reason"), UNCOVERED.items(), ids=UNCOVERED.values())
def test_what_a_body_does_not_cover_is_said(call: str, reason: str) -> None:
    model = as_proto(text.parse(call))
    typed = [v for v in model.graph.input if v.type.tensor_type.HasField("shape")]
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in typed}
    with pytest.raises(Unsupported, match=reason):
        list(defined(model.graph.node, shapes))
