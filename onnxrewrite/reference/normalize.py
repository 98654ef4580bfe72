"""ONNX Runtime's own normalizations in double precision: they have kernels for double that their schemas refuse."""

from __future__ import annotations

import numpy as np
import onnx

from onnxrewrite.reference.expand import Attributes, Emit, Unsupported, expands

MS = "com.microsoft"


@expands("SkipLayerNormalization", domain=MS)
def _skip_layer_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, skip, gamma, beta, bias = _given(node, 5)
    return _layer_norm(e, e.add(*filter(None, [x, skip, bias])), gamma, beta, attrs)


@expands("SkipSimplifiedLayerNormalization", domain=MS)
def _skip_rms_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, skip, gamma, bias = _given(node, 4)
    total = e.add(*filter(None, [x, skip, bias]))
    deviation = _deviation(e, total, attrs)
    result = e.mul(str(e.op("Div", total, deviation)), gamma)
    return [result, *_statistics(e, deviation, deviation), total]


@expands("SimplifiedLayerNormalization")
def _rms_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    if attrs.given("axis", -1) != -1:
        raise Unsupported("axis")
    x, gamma = _given(node, 2)
    deviation = _deviation(e, x, Attributes({"epsilon": 1e-5, **attrs}))
    inverse = e.op("Cast", e.op("Reciprocal", deviation), to=onnx.TensorProto.FLOAT)
    return [e.mul(str(e.op("Div", x, deviation)), gamma), str(inverse)]


@expands("EmbedLayerNormalization", domain=MS)
def _embed_layer_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Rows of two or three tables; positions count up where they are not given."""
    ids, segment_ids, words, positions, segments, gamma, beta, mask, rows = _given(node, 9)
    if mask:
        raise Unsupported("mask")
    batch, length = (e.op("Gather", e.op("Shape", ids), e.const(i, np.int64)) for i in (0, 1))
    rows = rows or e.op("Range", e.const(0, np.int64), length, e.const(1, np.int64))
    total = e.add(e.op("Gather", words, ids), e.op("Gather", positions, rows))
    if segment_ids:
        total = e.add(total, e.op("Gather", segments, segment_ids))
    index = e.op("Expand", e.const(0, np.int32), e.unsqueeze(batch, [0]))
    return [_layer_norm(e, total, gamma, beta, attrs)[0], str(index), total]


def _given(node: onnx.NodeProto, count: int) -> list[str]:
    """The names of so many inputs, empty where there are none."""
    return [*node.input, *[""] * count][:count]


def _layer_norm(e: Emit, x: str, gamma: str, beta: str, attrs: Attributes) -> list[str]:
    """The result, mean, inverse deviation, and x."""
    mean = e.reduce("ReduceMean", x, [-1])
    centred = str(e.op("Sub", x, mean))
    deviation = _deviation(e, centred, attrs)
    result = e.mul(str(e.op("Div", centred, deviation)), gamma)
    return [e.add(result, beta) if beta else result, *_statistics(e, mean, deviation), x]


def _deviation(e: Emit, centred: str, attrs: Attributes) -> str:
    """√(mean(d²) + ε), with ε as single precision holds it."""
    epsilon = e.const(float(np.float32(attrs.given("epsilon", 1e-12))))
    return str(e.op("Sqrt", e.add(e.reduce("ReduceMean", e.mul(centred, centred), [-1]), epsilon)))


def _statistics(e: Emit, mean: str, deviation: str) -> list[str]:
    """Mean and inverse deviation, which stay in single precision."""
    return [str(e.op("Cast", v, to=onnx.TensorProto.FLOAT)) for v in (mean, e.op("Reciprocal", deviation))]
