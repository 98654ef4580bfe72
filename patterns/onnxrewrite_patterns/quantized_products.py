"""Products of what is dequantized, by kernels that multiply the integers.

Where it comes from: static quantization, and training with fake quantization, write a model of floats with
DequantizeLinear and QuantizeLinear around each layer (QDQ); ONNX Runtime replaces them when it opens the model, each
time anew, and not all of them.  What is not quantized again, as the last layer, has a bias in floats: ONNX Runtime
computes it in floats, and dequantizes its weights at every run.

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
    require_unsigned,
    result,
    sliced,
    whole,
)

a, b, bias = grid("a"), grid("b"), grid("bias")

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
            f"{_CONV} {_IMAGE} {_KERNEL}"
            "b = DequantizeLinear<axis=0>(int32[2] {5, -3}, {0.25, 0.125}, int32[2] {0, 0})"
            "p = Conv<pads=[1,1,1,1]>(x, w, b)  y = QuantizeLinear(p, 4.0, uint8 7)",
            to=f"{_CONV} y = QLinearConv<pads=[1,1,1,1]>"
            "(q, 0.5, uint8 3, k, {0.5, 0.25}, int8[2] {0, 0}, 4.0, uint8 7, int32[2] {5, -3})",
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
        Rejects(
            f"{_CONV} int32[2] c; {_IMAGE} w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)"
            "p = Conv(x, w, b)  y = QuantizeLinear(p, 4.0, uint8 7)",
            because="room for the products",
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
    return build.QLinearMatMul(*whole(m, build, a), *_factor(m, build), *result(m, build, of_matmul))


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
            f"{_FACTORS} w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(int32[3] {{5, -3, 0}}, 0.25)"
            "p = Gemm(x, w, b)  y = QuantizeLinear(p, 2.0, uint8 7)",
            to="uint8[m,4] q; int8[4,3] k;"
            "y = com.microsoft.QGemm(q, 0.5, uint8 3, k, 0.5, int8 0, int32[3] {5, -3, 0}, 2.0, uint8 7)",
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
            f"{_FACTORS} w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(int32[1] {{2147483647}}, 0.25)"
            "p = Gemm(x, w, b)  y = QuantizeLinear(p, 2.0, uint8 7)",
            because="room for the products",
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


# -- of a float ------------------------------------------------------------------------------------------------

EXACT = (Assumption.NOT_EMPTY, Assumption.NO_SATURATION)

_UNSIGNED = "uint8[m,4] q; uint8[4,3] k; x = DequantizeLinear(q, 0.5, uint8 3)  "


@rule(
    "dequantized-matmul",
    LOWER,
    matmul,
    examples=(
        Rewrites(
            f"{_UNSIGNED} w = DequantizeLinear<axis=1>(k, {{0.5, 0.25, 1.0}}, uint8[3] {{0, 0, 0}})  y = MatMul(x, w)",
            to="uint8[m,4] q; uint8[4,3] k;"
            "y = com.microsoft.MatMulIntegerToFloat(q, k, 0.5, {0.5, 0.25, 1.0}, uint8 3, uint8[3] {0, 0, 0})",
        ),
        Rewrites(
            "int8[m,2] q; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(int8[2,2] {64, -65, 1, 2}, 0.5)"
            "y = MatMul(x, w)",
            to="int8[m,2] q; k = int8[2,2] {64, -65, 1, 2}"
            "y = com.microsoft.MatMulIntegerToFloat(q, k, 0.5, 0.5, int8 0, int8 0)",
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
    assumes=EXACT,
)
def dequantized_matmul(m: Match, build: Builder) -> Value:
    """MatMul(DequantizeLinear(a), DequantizeLinear(b)) ⟶ com.microsoft.MatMulIntegerToFloat(a, b)."""
    return _to_float(build, whole(m, build, a), _factor(m, build))


def _to_float(build: Builder, first: list[Value], second: list[Value], added: Value | None = None) -> Value:
    (left, scale, zero), (right, its_scale, its_zero) = first, second
    return build.microsoft.node("MatMulIntegerToFloat", [left, right, scale, its_scale, zero, its_zero, added])[0]


@rule(
    "dequantized-gemm",
    LOWER,
    gemm,
    examples=(
        Rewrites(
            "uint8[m,4] q; uint8[4,3] k; x = DequantizeLinear(q, 0.5, uint8 3)  w = DequantizeLinear(k, 0.5)"
            "b = DequantizeLinear(int32[3] {5, -3, 0}, 0.25)  y = Gemm(x, w, b)",
            to="uint8[m,4] q; uint8[4,3] k;"
            "y = com.microsoft.QGemm(q, 0.5, uint8 3, k, 0.5, uint8 0, int32[3] {5, -3, 0})",
        ),
        Rejects(
            f"{_FACTORS} int32[3] c; w = DequantizeLinear(k, 0.5)  b = DequantizeLinear(c, 0.25)"
            "y = Gemm<beta=2.0>(x, w, b)",
            because="the bias is scaled",
        ),
    ),
    allow_shared=True,
    assumes=EXACT,
)
def dequantized_gemm(m: Match, build: Builder) -> Value:
    """Gemm(DequantizeLinear(a), DequantizeLinear(b), ...) ⟶ com.microsoft.QGemm(a, b, ...), of a float."""
    operands, attributes = _gemm(m, build)
    return build.microsoft.node("QGemm", operands, attributes)[0]


added = Var("bias in floats", rank=1)
linear = any_of(op.Add(matmul, added), op.Gemm(a.whole, b.whole, added))


@rule(
    "dequantized-linear",
    LOWER,
    linear,
    examples=(
        Rewrites(
            f"{_FACTORS} float[3] c; w = DequantizeLinear(k, 0.5)  p = MatMul(x, w)  y = Add(c, p)",
            to="uint8[m,4] q; int8[4,3] k; float[3] c;"
            "y = com.microsoft.MatMulIntegerToFloat(q, k, 0.5, 0.5, uint8 3, int8 0, c)",
        ),
        Rewrites(
            "uint8[m,4] q; int8[3,4] k; float[3] c; x = DequantizeLinear(q, 0.5, uint8 3)"
            "w = DequantizeLinear<axis=0>(k, {0.5, 0.25, 1.0}, int8[3] {0, 0, 0})  y = Gemm<transB=1>(x, w, c)",
            to="uint8[m,4] q; int8[3,4] k; float[3] c; t = Transpose<perm=[1,0]>(k)"
            "y = com.microsoft.MatMulIntegerToFloat(q, t, 0.5, {0.5, 0.25, 1.0}, uint8 3, int8[3] {0, 0, 0}, c)",
        ),
        Rejects(
            f"{_FACTORS} float[1] c; w = DequantizeLinear(k, 0.5)  p = MatMul(x, w)  y = Add(c, p)",
            because="not one number for each column",
        ),
        Rejects(
            f"{_FACTORS} float[3] c; w = DequantizeLinear(k, 0.5)  y = Gemm<beta=2.0>(x, w, c)",
            because="the bias is scaled",
        ),
        Rejects(
            "uint8[4,m] q; int8[4,3] k; float[3] c; x = DequantizeLinear(q, 0.5)  w = DequantizeLinear(k, 0.5)"
            "y = Gemm<transA=1>(x, w, c)",
            because="a is transposed",
        ),
        Rejects(
            f"{_FACTORS} float[3] c; w = DequantizeLinear(k, 0.5)  p = MatMul(x, w)  y = Add(c, p)  z = Relu(p)",
            because="needed as a float, too",
        ),
    ),
    benefit=10,
    allow_shared=True,
    assumes=EXACT,
)
def dequantized_linear(m: Match, build: Builder) -> Value:
    """MatMul(DequantizeLinear(a), DequantizeLinear(b)) + bias ⟶ com.microsoft.MatMulIntegerToFloat(a, b, bias), and
    Gemm."""
    if matmul in m:
        require_alone(m, matmul)
    turned = _is_turned(m, m.call(linear))
    columns = m.dim(b.integers, 0 if turned else -1)
    fits = isinstance(columns, int) and m.shape(added) == (columns,)
    m.require(fits, "it is not one number for each column", at=added)
    first, second = whole(m, build, a), _factor(m, build, turned=turned)
    return _to_float(build, first, second, m[added])


def _is_turned(m: Match, call: Call) -> bool:
    """True for a Gemm of a transposed b; refuses what else a Gemm may do."""
    given = m.attrs(call) if call.op_types == ("Gemm",) else {}
    m.require(given.get("alpha", 1.0) == 1, "the product is scaled", at=call)
    m.require(given.get("beta", 1.0) == 1, "the bias is scaled", at=call)
    m.require(not given.get("transA", 0), "a is transposed", at=call)
    return bool(given.get("transB", 0))


def _factor(m: Match, build: Builder, *, turned: bool = False) -> list[Value]:
    """Integers, scale and zero of b, which may have a scale for each column of a matrix."""
    if m.rank(b.integers) != 2:
        return whole(m, build, b)
    integers, *steps = sliced(m, build, b, 0 if turned else 1)
    return [build.Transpose(integers, perm=(1, 0)) if turned else integers, *steps]
