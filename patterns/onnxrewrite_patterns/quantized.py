"""Products of integer matrices that stand for those of floats: s·(A - a)·(B - b) in one kernel.

Where it comes from: dynamic quantization writes DynamicQuantizeLinear, MatMulInteger, Cast, and two products by the
scales; a bias follows.

Why: the integer product is written out as int32 and read three times again; ONNX Runtime's kernels scale each tile of
it while it is in the cache.   Jacob et al., 2018, arXiv:1712.05877.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite import (
    Builder,
    Match,
    Rejects,
    Rewrites,
    Rule,
    Stage,
    Value,
    Var,
    microsoft,
    op,
    same_dim,
)

FLOAT = ir.DataType.FLOAT
a, b = Var("a"), Var("b")
a_zero, b_zero = Var("a_zero", default=None), Var("b_zero", default=None)
one_scale, other_scale = Var("one_scale", dtype=FLOAT), Var("other_scale", dtype=FLOAT)
product = op.MatMulInteger(a, b, a_zero, b_zero)
scaled = op.Cast(product, to=int(FLOAT)) * one_scale * other_scale


def to_float(m: Match, build: Builder) -> Value:
    """s·t·Cast(MatMulInteger(a, b)) ⟶ com.microsoft.MatMulIntegerToFloat(a, b, s, t), with a number s."""
    m.require(not m.remainder, "there is a third factor")
    m.require(a_zero not in m or _is_number(m, m[a_zero]), "a has a zero point for each row", at=a_zero)
    scales = sorted((m[one_scale], m[other_scale]), key=lambda s: not _is_number(m, s))
    m.require(_is_number(m, scales[0]), "no scale is a number", at=one_scale)
    for value in (scales[1], *((m[b_zero],) if b_zero in m else ())):
        m.require(_is_number(m, value) or _is_row(m, value), "it is no number for each column", at=value)
    return build.microsoft.MatMulIntegerToFloat(m[a], m[b], *scales, m.value(a_zero), m.value(b_zero))


def _is_number(m: Match, value: Value) -> bool:
    return m.shape(value) in ((), (1,))


def _is_row(m: Match, value: Value) -> bool:
    """Whether it has a number for each column of b."""
    columns, length = m.dim(b, -1), m.dim(value, 0)
    return m.rank(value) == 1 and columns is not None and length is not None and same_dim(columns, length)


TO_FLOAT = Rule(
    name="integer-matmul-to-float",
    stage=Stage.LOWER,
    pattern=scaled,
    rewrite=to_float,
    benefit=10,
    examples=(
        Rewrites(
            "uint8[n,2] a; uint8 z; float s; p = MatMulInteger(a, int8[2,3] {1, 2, 3, 4, -5, 6}, z, int8 1)"
            "  c = Cast<to=1>(p)  t = Mul(s, {0.5, 0.25, 2.0})  y = Mul(c, t)",
            to="uint8[n,2] a; uint8 z; float s; y = com.microsoft.MatMulIntegerToFloat(a, int8[2,3] {1, 2, 3, 4, -5,"
            " 6}, s, {0.5, 0.25, 2.0}, z, int8 1)",
        ),
        Rejects(
            "uint8[2,2] a; uint8[2] z; float s; p = MatMulInteger(a, int8[2,3] {1, 2, 3, 4, -5, 6}, z)"
            "  c = Cast<to=1>(p)  t = Mul(s, 0.5)  y = Mul(c, t)",
            because="for each row",
        ),
        Rejects(
            "uint8[2,2] a; float[2,1] s; p = MatMulInteger(a, int8[2,3] {1, 2, 3, 4, -5, 6})"
            "  c = Cast<to=1>(p)  t = Mul(s, {0.5, 0.25, 2.0})  y = Mul(c, t)",
            because="no scale is a number",
        ),
    ),
)

x = Var("x", dtype=FLOAT)
a_scale, b_scale, bias = Var("a_scale"), Var("b_scale"), Var("bias", dtype=FLOAT)
unbiased = microsoft.MatMulIntegerToFloat(a, b, a_scale, b_scale, a_zero, b_zero)
biased = unbiased + bias


def with_bias(m: Match, build: Builder) -> Value:
    """MatMulIntegerToFloat(a, b) + c ⟶ MatMulIntegerToFloat(a, b, bias=c) for a number for each column."""
    m.require(_is_row(m, m[bias]), "it is no number for each column", at=bias)
    inputs = (m[a], m[b], m[a_scale], m[b_scale], m.value(a_zero), m.value(b_zero), m[bias])
    return build.microsoft.MatMulIntegerToFloat(*inputs)


WITH_BIAS = Rule(
    name="bias-into-integer-matmul",
    stage=Stage.LOWER,
    pattern=biased,
    rewrite=with_bias,
    examples=(
        Rewrites(
            "uint8[n,2] a; float s; p = com.microsoft.MatMulIntegerToFloat(a, int8[2,3] {1, 2, 3, 4, -5, 6}, s, 0.5)"
            "  y = Add(p, {1.0, 2.0, 3.0})",
            to="uint8[n,2] a; float s; y = com.microsoft.MatMulIntegerToFloat(a, int8[2,3] {1, 2, 3, 4, -5, 6}, s, 0.5,"
            " , , {1.0, 2.0, 3.0})",
        ),
        Rejects(
            "uint8[n,2] a; float s; float[n,3] c; p = com.microsoft.MatMulIntegerToFloat(a, int8[2,3] {1, 2, 3, 4, -5,"
            " 6}, s, 0.5)  y = Add(p, c)",
            because="for each column",
        ),
    ),
)

any_bias = Var("any_bias", default=None)
quantized = op.DynamicQuantizeLinear(x)
dynamic = microsoft.MatMulIntegerToFloat(quantized[0], b, quantized[1], b_scale, quantized[2], b_zero, any_bias)


def quantizing(m: Match, build: Builder) -> Value:
    """MatMulIntegerToFloat(DynamicQuantizeLinear(x), b) ⟶ com.microsoft.DynamicQuantizeMatMul(x, b)."""
    return build.microsoft.DynamicQuantizeMatMul(m[x], m[b], m[b_scale], m.value(b_zero), m.value(any_bias))


DYNAMIC = Rule(
    name="dynamic-quantize-matmul",
    stage=Stage.LOWER,
    pattern=dynamic,
    rewrite=quantizing,
    examples=(
        Rewrites(
            "float[n,2] x; q, s, z = DynamicQuantizeLinear(x)"
            "  y = com.microsoft.MatMulIntegerToFloat(q, int8[2,3] {1, 2, 3, 4, -5, 6}, s, 0.5, z, int8 0)",
            to="float[n,2] x; y = com.microsoft.DynamicQuantizeMatMul(x, int8[2,3] {1, 2, 3, 4, -5, 6}, 0.5, int8 0)",
        ),
        Rejects(
            "float[n,2] x; q, s, z = DynamicQuantizeLinear(x)"
            "  p = com.microsoft.MatMulIntegerToFloat(q, int8[2,3] {1, 2, 3, 4, -5, 6}, s, 0.5, z, int8 0)"
            "  y = Mul(p, s)",
            because="also used by Mul",
        ),
    ),
)

RULES = (TO_FLOAT, WITH_BIAS, DYNAMIC)
