"""Operators on quantized tensors, by those of the standard on floats or on plain integers."""

from __future__ import annotations

import onnx

from onnxrewrite.ir.bodies.attentions import attend, split
from onnxrewrite.ir.bodies.contributed import defines
from onnxrewrite.ir.bodies.emitter import Attributes, Emit, Unsupported, operands

# -- products of integers --------------------------------------------------------------------------------------------


@defines("MatMulIntegerToFloat")
def _integers_to_float(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = operands(node, 7)
    return [_product(e, [a, b, a_zero, b_zero], [a_scale, b_scale], bias)]


@defines("DynamicQuantizeMatMul")
def _dynamic_product(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, b, scale, zero, bias = operands(node, 5)
    a, a_scale, a_zero = e.op("DynamicQuantizeLinear", x, outputs=3)
    return [_product(e, [a, b, a_zero, zero], [a_scale, scale], bias)]


@defines("QAttention")
def _attention(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Attention(x·w + b) with one weight of query, key and value; no mask index and no past."""
    x, w, bias, x_scale, w_scale, index, x_zero, w_zero, past = operands(node, 9)
    if index or past or any(node.output[1:]) or attrs.given("do_rotary", 0):
        raise Unsupported("mask_index, past or rotation")
    whole = _product(e, [x, w, x_zero, w_zero], [x_scale, w_scale], bias)
    return attend(e, split(e, whole, [e.sizes(w)[-1] // 3] * 3), attrs)


def _product(e: Emit, integers: list[str], scales: list[str], bias: str) -> str:
    """A product of two matrices of integers, given with their zero points, times scales, and a bias."""
    product = str(e.op("Cast", e.op("MatMulInteger", *integers), to=onnx.TensorProto.FLOAT))
    return e.add(e.mul(product, *scales), bias)


# -- operators between DequantizeLinear and QuantizeLinear -------------------------------------------------------------


@defines("DequantizeLinear", "QuantizeLinear")
def _grid(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [e.op(node.op_type, *node.input, **attrs)]


def _float(e: Emit, q: str, scale: str, zero: str = "", axis: int = 1) -> str:
    return str(e.op("DequantizeLinear", *filter(None, [q, scale, zero]), axis=axis))


def _rounded(e: Emit, x: str, scale: str, zero: str) -> str:
    return str(e.op("QuantizeLinear", *filter(None, [x, scale, zero])))


@defines("QLinearMatMul", domain="")
def _matmul(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.input
    factors = _float(e, a, a_scale, a_zero, -2), _float(e, b, b_scale, b_zero, -1)
    return [_rounded(e, e.op("MatMul", *factors), scale, zero)]


@defines("QLinearConv", domain="")
def _conv(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """The scale of the bias is that of x times that of w."""
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = operands(node, 9)
    factors = _float(e, x, x_scale, x_zero), _float(e, w, w_scale, w_zero, 0)
    terms = [e.mul(_float(e, bias, x_scale, axis=0), w_scale)] if bias else []
    return [_rounded(e, e.op("Conv", *factors, *terms, **attrs), scale, zero)]


@defines("QGemm")
def _gemm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """α·a·b + c, where the scale of c is α·(scale of a)·(scale of b); a float where no scale of the result is given."""
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale, zero = operands(node, 9)
    factors = _float(e, a, a_scale, a_zero), _float(e, b, b_scale, b_zero, 0 if attrs.given("transB", 0) else 1)
    terms = [e.mul(_float(e, bias, a_scale, axis=0), b_scale, e.const(attrs.given("alpha", 1.0)))] if bias else []
    result = str(e.op("Gemm", *factors, *terms, **attrs))
    return [_rounded(e, result, scale, zero) if scale else result]


@defines("QLinearAdd", "QLinearMul")
def _two(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    a, b = (_float(e, *node.input[k : k + 3]) for k in (0, 3))
    return [_rounded(e, e.op(node.op_type.removeprefix("QLinear"), a, b), *operands(node, 8)[6:])]


@defines("QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool")
def _one(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    if attrs.pop("channels_last", 0):
        raise Unsupported("channels last")
    result = e.op(node.op_type.removeprefix("QLinear"), _float(e, *node.input[:3]), **attrs)
    return [_rounded(e, result, *operands(node, 5)[3:])]


@defines("QLinearSoftmax")
def _softmax(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Before opset 13, Softmax is along all axes from one on."""
    if attrs.pop("opset") < 13:
        raise Unsupported("Softmax of an opset before 13")
    return [_rounded(e, e.op("Softmax", _float(e, *node.input[:3]), **attrs), *operands(node, 5)[3:])]


@defines("QLinearWhere")
def _where(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    a, b = (_float(e, *node.input[k : k + 3]) for k in (1, 4))
    return [_rounded(e, e.op("Where", node.input[0], a, b), *operands(node, 9)[7:])]


@defines("QLinearConcat")
def _concat(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    scale, zero, *parts = node.input
    whole = e.op("Concat", *(_float(e, *parts[k : k + 3]) for k in range(0, len(parts), 3)), axis=attrs["axis"])
    return [_rounded(e, whole, scale, zero)]
