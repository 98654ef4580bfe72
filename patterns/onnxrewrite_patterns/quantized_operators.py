"""Sums, pooling and joins between DequantizeLinear and QuantizeLinear, by kernels that take and give integers.

Where it comes from: static quantization writes a model of floats with DequantizeLinear and QuantizeLinear around each
operator (QDQ); ONNX Runtime replaces them when it opens the model, each time anew, and not all of them.

Why: the integers are multiplied as they are, and the float tensors between are neither written nor read, unless what is
dequantized is read elsewhere, too.
An integer is a right rounding of the same number; where that is next to a half, either neighbour is.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.32).
"""

from __future__ import annotations

from onnxrewrite.rules import *
from onnxrewrite_patterns.qdq import grid, quantize, require_alone, result, whole

a, b = grid("a"), grid("b")

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
