"""Products with a weight of integers of 4 or 8 bits, block by block, as ONNX Runtime's MatMulNBits.

Where it comes from: weight-only quantization, spelled by the standard: DequantizeLinear of a constant before MatMul.

Why: DequantizeLinear writes the weight as floats, up to eight times its size, each time that the model is run; the
kernel reads the integers, and dequantizes what it is about to multiply.
Source: ONNX Runtime, docs/ContribOperators.md: blocks of 2^k ≥ 16 elements along the rows, one after the other, two
4-bit integers a byte, the first one low; integers count from 8 or 128 unless there are zero points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")
integers, scale, zero = Var("weight"), Var("scale"), Var("zero", default=None)
weight = op.DequantizeLinear(integers, scale, zero)
perm = Attr[tuple[int, ...]]("perm", default=())
turned = op.Transpose(weight, perm=perm)
bias = Var("bias", default=None)
gemm = op.Gemm(x, weight, bias)
product = any_of(op.MatMul(x, any_of(weight, turned)), gemm)

_BITS = {ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8, ir.DataType.UINT8: 8}
_SIGNED = frozenset({ir.DataType.INT4, ir.DataType.INT8})
_BLOCKS = (128, 64, 32, 16)
"""Blocks that are tried where a scale is one of whole rows, or of all: the fewer the better."""


class _Blocks(NamedTuple):
    """A weight, a row for each column of the product: integers, and the scale and the zero of each block."""

    integers: Array
    scales: Array
    zeros: Array
    size: int


def _constant(m: Match, term: Var) -> Array:
    array = m.facts.constant(m[term])
    m.require(array is not None, f"the {term.name} is not constant", at=term)
    return np.asarray(array)


def _by_block(m: Match, array: Array, shape: tuple[int, int], axis: int) -> Array:
    """Scales or zeros as one for each block, which they are already, or one for each row, or one for all."""
    if array.size == 1:
        array = array.reshape(1, 1)
    elif m.attr(weight, "block_size"):
        array = array.T if axis == 0 else array
    else:
        m.require(m.attr(weight, "axis") % 2 == 1 - axis, "scales vary along the axis that is summed", at=scale)
        array = array[:, None]
    return np.broadcast_to(array, shape)


def _blocks(m: Match) -> _Blocks:
    """The weight in blocks; refuses one that the kernel does not know."""
    axis = 1 if turned in m or (gemm in m and m.attr(gemm, "transB")) else 0
    m.require(turned not in m or m[perm] in ((), (1, 0)), "it swaps nothing", at=turned)
    whole, dtype = _constant(m, integers), m.dtype(integers)
    m.require(whole.ndim == 2 and dtype in _BITS, "the weight is no matrix of 4 or 8 bits", at=integers)
    size = int(m.attr(weight, "block_size") or 0)
    m.require(not size or m.attr(weight, "axis") % 2 == axis, "blocks lie along the other axis", at=scale)
    length = whole.shape[axis]
    size = size or next((b for b in _BLOCKS if length % b == 0), 0)
    m.require(size >= 16 and not size & (size - 1), f"there is no kernel for blocks of {size}", at=scale)
    m.require(length % size == 0, f"{length} rows are no blocks of {size}", at=integers)
    middle = 2 ** (_BITS[dtype or ir.DataType.INT8] - 1) if dtype in _SIGNED else 0
    shape = whole.shape[1 - axis], length // size
    zeros = _constant(m, zero).astype(np.int16) if m.value(zero) is not None else np.zeros(1, np.int16)
    laid = (whole if axis else whole.T).astype(np.int16) + middle
    return _Blocks(
        laid.astype(np.uint8),
        _by_block(m, _constant(m, scale), shape, axis),
        (_by_block(m, zeros, shape, axis) + middle).astype(np.uint8),
        size,
    )


def _packed(digits: Array, bits: int) -> Array:
    """Integers as bytes, along the last axis; of 4 bits, the first of two is the lower one."""
    if bits == 8:
        return digits
    even = np.pad(digits, [(0, 0)] * (digits.ndim - 1) + [(0, digits.shape[-1] % 2)])
    packed: Array = even[..., ::2] | even[..., 1::2] << 4
    return packed


def _counted(first: int, length: int = 16) -> str:
    return ", ".join(str(first + i % 16) for i in range(length))


_PAIRS = ", ".join(str(16 * (i + 1) + i) for i in range(0, 16, 2))
_BYTES = f"int8[16,1] {{{_counted(-8)}}}"
_MATRIX = f"int4[16,1] {{{_counted(-8)}}}"


@rule(
    "matmul-of-quantized-weight",
    LOWER,
    product,
    examples=(
        Rewrites(
            f"float[m,32] x; w = DequantizeLinear<axis=0, block_size=16>(int4[32,1] {{{_counted(-8, 32)}}},"
            " float[2,1] {0.5, 0.25})  y = MatMul(x, w)",
            to="float[m,32] x; y = com.microsoft.MatMulNBits<K=32, N=1, bits=4, block_size=16>"
            f"(x, uint8[1,2,8] {{{_PAIRS}, {_PAIRS}}}, float[1,2] {{0.5, 0.25}})",
            opset=21,
        ),
        Rewrites(
            f"float[m,16] x; w = DequantizeLinear<axis=1>(uint4[16,2] {{{_counted(0, 32)}}}, {{0.5, 0.25}},"
            " uint4[2] {3, 8})  y = MatMul(x, w)",
            to="float[m,16] x; y = com.microsoft.MatMulNBits<K=16, N=2, bits=4, block_size=16>(x, uint8[2,1,8]"
            " {32, 100, 168, 236, 32, 100, 168, 236, 49, 117, 185, 253, 49, 117, 185, 253}, float[2,1] {0.5, 0.25},"
            " uint8[2,1] {3, 8})",
            opset=21,
        ),
        Rewrites(
            f"float[b,m,16] x; w = DequantizeLinear(int8[1,16] {{{_counted(-8)}}}, 0.5)  t = Transpose(w)"
            "y = MatMul(x, t)",
            to="float[b,m,16] x; y = com.microsoft.MatMulNBits<K=16, N=1, bits=8, block_size=16>"
            f"(x, uint8[1,1,16] {{{_counted(120)}}}, float[1,1] {{0.5}})",
        ),
        Rewrites(
            f"float[m,16] x; float[1] b; w = DequantizeLinear(int8[1,16] {{{_counted(-8)}}}, 0.5)"
            "y = Gemm<transB=1>(x, w, b)",
            to="float[m,16] x; float[1] b; y = com.microsoft.MatMulNBits<K=16, N=1, bits=8, block_size=16>"
            f"(x, uint8[1,1,16] {{{_counted(120)}}}, float[1,1] {{0.5}}, , , b)",
        ),
        Rejects(
            f"float[m,16] x; float[1] b; w = DequantizeLinear({_BYTES}, 0.5)  y = Gemm<beta=2.0>(x, w, b)",
            because="it scales, or turns x",
        ),
        Rejects(
            f"float[16,m] x; w = DequantizeLinear({_BYTES}, 0.5)  y = Gemm<transA=1>(x, w)",
            because="it scales, or turns x",
        ),
        Rejects(
            f"float[3,16] x; float[3,1] b; w = DequantizeLinear({_BYTES}, 0.5)  y = Gemm(x, w, b)",
            because="not one number for each column",
        ),
        Rejects(
            f"float[m,16] x; float[1] z; b = Relu(z)  w = DequantizeLinear({_BYTES}, 0.5)  y = Gemm(x, w, b)",
            because="may not know the shape of the bias",
        ),
        Rejects(
            f"float[m,16] x; w = DequantizeLinear<axis=0>(int8[16,1] {{{_counted(0)}}}, float[16] ~)  y = MatMul(x, w)",
            because="vary along the axis that is summed",
        ),
        Rejects(
            f"float[m,16] x; w = DequantizeLinear<axis=0, block_size=8>({_MATRIX}, float[2,1] ~)  y = MatMul(x, w)",
            because="no kernel for blocks of 8",
            opset=21,
        ),
        Rejects(
            "float[m,2] x; w = DequantizeLinear<axis=1, block_size=16>(int4[2,16] ~, float[2,1] ~)  y = MatMul(x, w)",
            because="along the other axis",
            opset=21,
        ),
        Rejects(
            "float[m,3] x; w = DequantizeLinear(int8[3,2] {1, 2, 3, 4, 5, 6}, 0.5)  y = MatMul(x, w)",
            because="no kernel for blocks of 0",
        ),
        Rejects(
            "float[m,24] x; w = DequantizeLinear<axis=0, block_size=16>(int4[24,1] ~, float[2,1] ~)  y = MatMul(x, w)",
            because="24 rows are no blocks of 16",
            opset=21,
        ),
        Rejects(
            "float[m,16] x; int8[16,2] q; w = DequantizeLinear(q, 0.5)  y = MatMul(x, w)", because="is not constant"
        ),
        Rejects(
            "float[m,16] x; w = DequantizeLinear(int16[16,2] ~, 0.5)  y = MatMul(x, w)",
            because="no matrix of 4 or 8 bits",
            opset=21,
        ),
        Rejects(
            f"float[16] x; w = DequantizeLinear({_MATRIX}, 0.5)  y = MatMul(x, w)",
            because="not known to have rows",
            opset=21,
        ),
        Rejects(
            f"float[m,16] x; w = DequantizeLinear({_MATRIX}, 0.5)  y = MatMul(x, w)  z = Relu(w)",
            because="also used by Relu",
            opset=21,
        ),
    ),
    assumes=(Assumption.NOT_EMPTY,),
)
def matmul_of_quantized_weight(m: Match, build: Builder) -> Value:
    """MatMul(x, DequantizeLinear(w, s, z)) ⟶ com.microsoft.MatMulNBits(x, w, s, z), and Gemm, of 4 or 8 bits."""
    m.require((m.rank(x) or 0) >= 2, "x is not known to have rows", at=x)
    m.require(m.dtype(scale) == m.dtype(x), "x and the scale differ in dtype", at=scale)
    found, bits = _blocks(m), _BITS[m.dtype(integers) or ir.DataType.INT8]
    rows, blocks = found.scales.shape
    data = _packed(found.integers.reshape(rows, blocks, found.size), bits)
    zeros = build.const(_packed(found.zeros, bits)) if (found.zeros != 2 ** (bits - 1)).any() else None
    operands = [m[x], build.const(data), build.const(found.scales, like=scale), zeros, None, _bias(m, rows)]
    settings = {"K": found.integers.shape[1], "N": rows, "bits": bits, "block_size": found.size}
    return build.microsoft.node("MatMulNBits", operands, settings)[0]


def _bias(m: Match, columns: int) -> Value | None:
    """The bias of a Gemm that does nothing else; None where there is none."""
    if gemm not in m:
        return None
    added, settings = m.value(bias), m.attrs(gemm)
    scales = settings.get("alpha", 1.0) != 1 or (added is not None and settings.get("beta", 1.0) != 1)
    m.require(not scales and not settings.get("transA", 0), "it scales, or turns x", at=gemm)
    if added is not None:
        m.require(m.shape(added) == (columns,), "the bias is not one number for each column", at=added)
        told = m.facts.tensor(added) is not None or added.is_graph_input()
        m.require(told, "ONNX Runtime may not know the shape of the bias, which it asks for", at=added)
    return added
