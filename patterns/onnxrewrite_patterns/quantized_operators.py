"""Operators between DequantizeLinear and QuantizeLinear, by kernels that take integers and give integers.

Where it comes from: static quantization writes a model of floats with DequantizeLinear and QuantizeLinear around each
operator (QDQ); ONNX Runtime replaces them when it opens the model, each time anew, and not all of them.

Why: the integers are multiplied as they are, and the float tensors between are neither written nor read, unless what is
dequantized is read elsewhere, too.
An integer is a right rounding of the same number; where that is next to a half, either neighbour is.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.32).
"""

from __future__ import annotations

from typing import Any

from onnxrewrite.rules import *
from onnxrewrite_patterns.qdq import (
    bias_in_steps,
    grid,
    quantize,
    require_alone,
    require_exact_products,
    require_unsigned,
    result,
    sliced,
    whole,
)

a, b, bias = grid("a"), grid("b"), grid("bias")

# -- products --------------------------------------------------------------------------------------------------

conv = any_of(op.Conv(a.whole, b.whole, bias.whole), op.Conv(a.whole, b.whole))
of_conv = quantize(conv)
matmul = op.MatMul(a.whole, b.whole)
of_matmul = quantize(matmul)
gemm = any_of(op.Gemm(a.whole, b.whole, bias.whole), op.Gemm(a.whole, b.whole))
of_gemm = quantize(gemm)

_IMAGE = "x = DequantizeLinear(q, 0.5, uint8 3)  "
_KERNEL = "w = DequantizeLinear<axis=0>(k, {0.5, 0.25}, int8[2] {0, 0})  "
_CONV = "uint8[n,2,5,5] q; int8[2,2,3,3] k; "


@rule(
    "quantized-conv",
    LOWER,
    of_conv,
    examples=(
        Rewrites(
            f"{_CONV} int32[2] c; {_IMAGE} {_KERNEL}"
            "b = DequantizeLinear<axis=0>(c, {0.25, 0.125}, int32[2] {0, 0})"
            "p = Conv<pads=[1,1,1,1]>(x, w, b)  y = QuantizeLinear(p, 4.0, uint8 7)",
            to=f"{_CONV} int32[2] c; y = QLinearConv<pads=[1,1,1,1]>"
            "(q, 0.5, uint8 3, k, {0.5, 0.25}, int8[2] {0, 0}, 4.0, uint8 7, c)",
        ),
        Rewrites(
            f"{_CONV} {_IMAGE} w = DequantizeLinear(k, 0.5)  p = Conv(x, w)  y = QuantizeLinear(p, 4.0, uint8 7)",
            to=f"{_CONV} y = QLinearConv(q, 0.5, uint8 3, k, 0.5, int8 0, 4.0, uint8 7)",
        ),
        Rejects(
            f"{_CONV} {_IMAGE} {_KERNEL} p = Conv(x, w)  y = QuantizeLinear(p, 4.0, uint8 7)  z = Relu(p)",
            because="needed as a float, too",
        ),
        Rejects(
            f"{_CONV} {_IMAGE} w = DequantizeLinear<axis=1>(k, {{0.5, 0.25}}, int8[2] {{0, 0}})"
            "p = Conv(x, w)  y = QuantizeLinear(p, 4.0, uint8 7)",
            because="along another axis",
        ),
        Rejects(
            f"{_CONV} {_IMAGE} w = DequantizeLinear<axis=0>(k, {{0.5, 0.25}}, int8[2] {{0, 1}})"
            "p = Conv(x, w)  y = QuantizeLinear(p, 4.0, uint8 7)",
            because="several zeros",
        ),
        Rejects(
            "int8[n,2,5,5] q; int8[2,2,3,3] k; x = DequantizeLinear(q, 0.5, int8 3)  w = DequantizeLinear(k, 0.5)"
            "p = Conv(x, w)  y = QuantizeLinear(p, 4.0, int8 7)",
            because="a product of int8 activations is slow",
        ),
        Rejects(
            f"{_CONV} int32[2] c; {_IMAGE} {_KERNEL} b = DequantizeLinear(c, 0.25)"
            "p = Conv(x, w, b)  y = QuantizeLinear(p, 4.0, uint8 7)",
            because="not the product of the other scales",
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_conv(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Conv(DequantizeLinear(a), DequantizeLinear(b), ...)) ⟶ QLinearConv(a, b, ...)."""
    call = m.call(conv)
    require_alone(m, call)
    require_unsigned(m, a)
    operands = [*whole(m, build, a), *sliced(m, build, b, 0), *result(m, build, of_conv)]
    steps = [bias_in_steps(m, bias, a.scale, b.scale)] if bias.whole in m else []
    return build.node("QLinearConv", [*operands, *steps], m.attrs(call))[0]


_FACTORS = "uint8[m,4] q; int8[4,3] k; x = DequantizeLinear(q, 0.5, uint8 3)  "


@rule(
    "quantized-matmul",
    LOWER,
    of_matmul,
    examples=(
        Rewrites(
            f"{_FACTORS} w = DequantizeLinear<axis=1>(k, {{0.5, 0.25, 1.0}}, int8[3] {{0, 0, 0}})  p = MatMul(x, w)"
            "y = QuantizeLinear(p, 2.0, uint8 7)",
            to="uint8[m,4] q; int8[4,3] k;"
            "y = QLinearMatMul(q, 0.5, uint8 3, k, {0.5, 0.25, 1.0}, int8[3] {0, 0, 0}, 2.0, uint8 7)",
        ),
        Rewrites(
            f"{_FACTORS} w = DequantizeLinear(k, 0.5)  p = MatMul(x, w)  y = QuantizeLinear(p, 2.0)",
            to="uint8[m,4] q; int8[4,3] k; y = QLinearMatMul(q, 0.5, uint8 3, k, 0.5, int8 0, 2.0, uint8 0)",
        ),
        Rejects(
            f"{_FACTORS} w = DequantizeLinear(k, 0.5)  p = MatMul(x, w)  y = QuantizeLinear(p, 2.0, uint8 7)"
            "  z = Relu(p)",
            because="needed as a float, too",
        ),
        Rejects(
            f"{_FACTORS} w = DequantizeLinear<axis=0>(k, {{0.5, 0.25, 1.0, 2.0}}, int8[4] {{0, 0, 0, 0}})"
            "p = MatMul(x, w)  y = QuantizeLinear(p, 2.0, uint8 7)",
            because="along another axis",
        ),
        Rejects(
            f"{_FACTORS} w = DequantizeLinear(k, 0.5)  p = MatMul(x, w)  y = QuantizeLinear(p, 2.0, int8 7)",
            because="no CPU kernel",
        ),
        Rejects(
            "uint8[m,4] q; uint8[4,3] k; x = DequantizeLinear(q, float16 0.5, uint8 3)"
            "w = DequantizeLinear(k, float16 0.5)  p = MatMul(x, w)  y = QuantizeLinear(p, float16 2.0, uint8 7)",
            because="not FLOAT",
            opset=21,
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_matmul(m: Match, build: Builder) -> Value:
    """QuantizeLinear(MatMul(DequantizeLinear(a), DequantizeLinear(b))) ⟶ QLinearMatMul(a, b)."""
    require_alone(m, matmul)
    require_unsigned(m, a)
    second = sliced(m, build, b, 1) if m.rank(b.integers) == 2 else whole(m, build, b)
    return build.QLinearMatMul(*whole(m, build, a), *second, *result(m, build, of_matmul))


def _gemm(m: Match, build: Builder) -> tuple[list[Value | None], dict[str, Any]]:
    """Operands and attributes of QGemm, without those of the result."""
    call = m.call(gemm)
    attributes = m.attrs(call)
    m.require(attributes.pop("beta", 1.0) == 1 or bias.whole not in m, "the bias is scaled", at=call)
    m.require(attributes.get("alpha", 1.0) == 1, "the product is scaled", at=call)
    columns = 0 if attributes.get("transB", 0) else 1
    factors = [*whole(m, build, a), *sliced(m, build, b, columns)]
    steps = bias_in_steps(m, bias, a.scale, b.scale) if bias.whole in m else None
    return [*factors, steps], attributes


@rule(
    "quantized-gemm",
    LOWER,
    of_gemm,
    examples=(
        Rewrites(
            f"{_FACTORS} int32[3] c; w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)  p = Gemm(x, w, b)"
            "y = QuantizeLinear(p, 2.0, uint8 7)",
            to="uint8[m,4] q; int8[4,3] k; int32[3] c;"
            "y = com.microsoft.QGemm(q, 0.5, uint8 3, k, 0.5, int8 0, c, 2.0, uint8 7)",
        ),
        Rejects(
            f"{_FACTORS} int32[3] c; w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)"
            "p = Gemm<beta=2.0>(x, w, b)  y = QuantizeLinear(p, 2.0, uint8 7)",
            because="the bias is scaled",
        ),
        Rejects(
            f"{_FACTORS} int32[3] c; w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25, 1)"
            "p = Gemm(x, w, b)  y = QuantizeLinear(p, 2.0, uint8 7)",
            because="the bias has a zero",
        ),
        Rejects(
            "int8[m,4] q; int8[4,3] k; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(k, 0.5)  p = Gemm(x, w)"
            "y = QuantizeLinear(p, 2.0, int8 7)",
            because="a product of int8 activations is slow",
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_gemm(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Gemm(DequantizeLinear(a), DequantizeLinear(b), ...)) ⟶ com.microsoft.QGemm(a, b, ...)."""
    require_alone(m, m.call(gemm))
    require_unsigned(m, a)
    operands, attributes = _gemm(m, build)
    return build.microsoft.node("QGemm", [*operands, *result(m, build, of_gemm)], attributes)[0]


@rule(
    "dequantized-matmul",
    LOWER,
    matmul,
    examples=(
        Rewrites(
            "uint8[m,4] q; uint8[4,3] k; x = DequantizeLinear(q, 0.5, uint8 3)"
            "w = DequantizeLinear<axis=1>(k, {0.5, 0.25, 1.0}, uint8[3] {0, 0, 0})  y = MatMul(x, w)",
            to="uint8[m,4] q; uint8[4,3] k;"
            "y = com.microsoft.MatMulIntegerToFloat(q, k, 0.5, {0.5, 0.25, 1.0}, uint8 3, uint8[3] {0, 0, 0})",
        ),
        Rewrites(
            "int8[m,2] q; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(int8[2,2] {64, -64, 1, 2}, 0.5)"
            "y = MatMul(x, w)",
            to="int8[m,2] q; k = int8[2,2] {64, -64, 1, 2}"
            "y = com.microsoft.MatMulIntegerToFloat(q, k, 0.5, 0.5, int8 0, int8 0)",
        ),
        Rejects(
            "int8[m,2] q; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(int8[2,2] {64, -65, 1, 2}, 0.5)"
            "y = MatMul(x, w)",
            because="may saturate",
        ),
        Rejects(
            "uint8[m,4] q; int8[4,3] k; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(k, 0.5)  y = MatMul(x, w)",
            because="may saturate",
        ),
        Rejects(
            f"{_FACTORS} w = DequantizeLinear<axis=0>(k, {{0.5, 0.25, 1.0, 2.0}}, int8[4] {{0, 0, 0, 0}})"
            "y = MatMul(x, w)",
            because="along another axis",
        ),
        Rejects(
            "uint8[m,4] q; int8[4,3] k; x = DequantizeLinear(q, 1e25, uint8 3)"
            "w = DequantizeLinear<axis=1>(k, {1e25, 1e25, 1e25}, int8[3] {0, 0, 0})  y = MatMul(x, w)",
            because="too large or too small",
        ),
        Rejects(
            "int8[m,4] q; uint8[4,3] k; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(k, 0.5)  y = MatMul(x, w)",
            because="no CPU kernel",
        ),
        Rejects(
            "uint16[m,4] q; uint8[4,3] k; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(k, 0.5)  y = MatMul(x, w)",
            because="not of 8 bits",
            opset=21,
        ),
    ),
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def dequantized_matmul(m: Match, build: Builder) -> Value:
    """MatMul(DequantizeLinear(a), DequantizeLinear(b)) ⟶ com.microsoft.MatMulIntegerToFloat(a, b)."""
    second = sliced(m, build, b, 1) if m.rank(b.integers) == 2 else whole(m, build, b)
    (first, scale, zero), (factor, its_scale, its_zero) = whole(m, build, a), second
    require_exact_products(m, b)
    return build.microsoft.node("MatMulIntegerToFloat", [first, factor, scale, its_scale, zero, its_zero])[0]


@rule(
    "dequantized-gemm",
    LOWER,
    gemm,
    examples=(
        Rewrites(
            "uint8[m,4] q; uint8[4,3] k; int32[3] c; x = DequantizeLinear(q, 0.5, uint8 3)"
            "w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)  y = Gemm(x, w, b)",
            to="uint8[m,4] q; uint8[4,3] k; int32[3] c; y = com.microsoft.QGemm(q, 0.5, uint8 3, k, 0.5, uint8 0, c)",
        ),
        Rejects(
            f"{_FACTORS} int32[3] c; w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)  y = Gemm(x, w, b)",
            because="may saturate",
        ),
        Rejects(
            f"{_FACTORS} int32[3] c; w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)"
            "y = Gemm<beta=2.0>(x, w, b)",
            because="the bias is scaled",
        ),
    ),
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def dequantized_gemm(m: Match, build: Builder) -> Value:
    """Gemm(DequantizeLinear(a), DequantizeLinear(b), ...) ⟶ com.microsoft.QGemm(a, b, ...), of a float."""
    operands, attributes = _gemm(m, build)
    require_exact_products(m, b)
    return build.microsoft.node("QGemm", operands, attributes)[0]


# -- element by element, and pooling -----------------------------------------------------------------------------

binary = op["Add", "Mul"](a.whole, b.whole)
of_binary = quantize(binary)
unary = op["AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid"](a.whole)
of_unary = quantize(unary)
parts: Each[Match] = Each("parts", of=a.whole)
concat = op.Concat(parts)
of_concat = quantize(concat)


def _by_kernel(m: Match, build: Builder, inner: Call, outer: Call, operands: list[Value]) -> Value:
    """An operator by the kernel of ONNX Runtime's own that is called after it."""
    require_alone(m, inner)
    name = f"QLinear{m.node(inner).op_type}"
    return build.microsoft.node(name, [*operands, *result(m, build, outer)], m.attrs(inner))[0]


_TWO = "uint8[n,3] p; uint8[3] q; a = DequantizeLinear(p, 0.5, uint8 3)  b = DequantizeLinear(q, 0.25)  "


@rule(
    "quantized-sum",
    LOWER,
    of_binary,
    examples=(
        Rewrites(
            f"{_TWO} s = Add(a, b)  y = QuantizeLinear(s, 1.0, uint8 7)",
            to="uint8[n,3] p; uint8[3] q;y = com.microsoft.QLinearAdd(p, 0.5, uint8 3, q, 0.25, uint8 0, 1.0, uint8 7)",
        ),
        Rejects(
            f"{_TWO} s = Add(a, b)  y = QuantizeLinear(s, 1.0, uint8 7)  z = Relu(s)", because="needed as a float, too"
        ),
        Rejects(f"{_TWO} s = Div(a, b)  y = QuantizeLinear(s, 1.0, uint8 7)", because="found Div"),
        Rejects(
            "uint16[n,3] p; uint16[n,3] q; a = DequantizeLinear(p, 0.5)  b = DequantizeLinear(q, 0.5)"
            "s = Mul(a, b)  y = QuantizeLinear(s, 1.0, uint8 7)",
            because="not of 8 bits",
            opset=21,
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_sum(m: Match, build: Builder) -> Value:
    """QuantizeLinear(DequantizeLinear(a) + DequantizeLinear(b)) ⟶ com.microsoft.QLinearAdd(a, b), and QLinearMul."""
    return _by_kernel(m, build, binary, of_binary, [*whole(m, build, a), *whole(m, build, b)])


_ONE = "int8[n,2,4,4] q; a = DequantizeLinear(q, 0.5, int8 3)  "


@rule(
    "quantized-function",
    LOWER,
    of_unary,
    examples=(
        Rewrites(
            f"{_ONE} s = Sigmoid(a)  y = QuantizeLinear(s, 0.00390625, int8 -128)",
            to="int8[n,2,4,4] q; y = com.microsoft.QLinearSigmoid(q, 0.5, int8 3, 0.00390625, int8 -128)",
        ),
        Rewrites(
            f"{_ONE} s = AveragePool<kernel_shape=[2,2], strides=[2,2]>(a)  y = QuantizeLinear(s, 0.5, int8 3)",
            to="int8[n,2,4,4] q; y = com.microsoft.QLinearAveragePool<kernel_shape=[2,2], strides=[2,2]>"
            "(q, 0.5, int8 3, 0.5, int8 3)",
        ),
        Rewrites(
            f"{_ONE} s = LeakyRelu(a)  y = QuantizeLinear(s, 0.125, int8 3)",
            to="int8[n,2,4,4] q; y = com.microsoft.QLinearLeakyRelu(q, 0.5, int8 3, 0.125, int8 3)",
        ),
        Rejects(f"{_ONE} s = Tanh(a)  y = QuantizeLinear(s, 0.5, int8 3)", because="found Tanh"),
        Rejects(
            f"{_ONE} s = AveragePool<kernel_shape=[5,5]>(a)  y = QuantizeLinear(s, 0.5, int8 3)",
            because="not known to fit",
        ),
        Rejects(f"{_ONE} s = Sigmoid(a)  y = QuantizeLinear(s, 0.5, uint8 3)", because="mixes int8 and uint8"),
        Rejects(
            "float[n,2,4,4] x; q = QuantizeLinear(x, 0.5, int8 3)  a = DequantizeLinear(q, 0.5, int8 3)"
            "s = Sigmoid(a)  y = QuantizeLinear(s, 0.5, int8 3)",
            because="ONNX Runtime makes int8 uint8",
        ),
        Rejects(
            f"{_ONE} s = Sigmoid(a)  r = QuantizeLinear(s, 0.5, int8 3)  y = DequantizeLinear(r, 0.5, int8 3)",
            because="ONNX Runtime makes int8 uint8",
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_function(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Sigmoid(DequantizeLinear(a))) ⟶ com.microsoft.QLinearSigmoid(a), and other functions, pooling."""
    sizes = (m.shape(unary) or (None,))[2:]
    fits = m.node(unary).op_type != "AveragePool" or all(isinstance(s, int) and s > 0 for s in sizes)
    m.require(fits, "the window is not known to fit", at=unary)
    return _by_kernel(m, build, unary, of_unary, whole(m, build, a))


@rule(
    "quantized-concat",
    LOWER,
    of_concat,
    examples=(
        Rewrites(
            "uint8[n,2] p; uint8[n,3] q; a = DequantizeLinear(p, 0.5, uint8 3)  b = DequantizeLinear(q, 0.25)"
            "c = Concat<axis=1>(a, b)  y = QuantizeLinear(c, 1.0, uint8 7)",
            to="uint8[n,2] p; uint8[n,3] q; y = com.microsoft.QLinearConcat<axis=1>"
            "(1.0, uint8 7, p, float 0.5, uint8 3, q, float 0.25, uint8 0)",
        ),
        Rejects(
            "uint8[n,2] p; float[n,3] b; a = DequantizeLinear(p, 0.5, uint8 3)"
            "c = Concat<axis=1>(a, b)  y = QuantizeLinear(c, 1.0, uint8 7)",
            because="expected DequantizeLinear",
        ),
        Rejects(
            "uint8[n,2] p; a = DequantizeLinear(p, 0.5, uint8 3)"
            "  c = Concat<axis=1>(a, a)  y = QuantizeLinear(c, 1.0, uint16 7)",
            because="not of 8 bits",
            opset=21,
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_concat(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Concat(DequantizeLinear(a), ...)) ⟶ com.microsoft.QLinearConcat(a, ...)."""
    require_alone(m, concat)
    inputs = [v for part in m[parts] for v in whole(part, build, a)]
    return build.microsoft.node("QLinearConcat", [*result(m, build, of_concat), *inputs], m.attrs(concat))[0]
