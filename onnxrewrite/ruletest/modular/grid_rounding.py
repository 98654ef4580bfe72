"""Operators that round to a grid, as what they are but for the rounding.

An integer that QuantizeLinear makes is x/scale + zero here, neither rounded nor limited to the range of its dtype, so
that quantizing what was dequantized gives it back.  Where two sides round other numbers, a difference is a doubt.

Inputs come as the operators have them: of each tensor its integers, its scale and its zero; of the result its scale and
its zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.evaluate import OPERATORS, Call, NotApplicable, Run, computes
from onnxrewrite.system.arrays import Array


def dequantized(run: Run, integers: Array, scale: Array, zero: Array | None = None, *, axis: int = 1) -> Array:
    """(q - zero)·scale."""
    elements = _elements(integers)
    centred = elements if zero is None else ring.sub(elements, _along(_elements(zero), elements.ndim, axis))
    return ring.mul(centred, _along(scale, elements.ndim, axis))


def quantized(run: Run, x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1) -> Array:
    """x/scale + zero."""
    result = ring.div(x, _along(scale, x.ndim, axis))
    result = result if zero is None else ring.add(result, _along(_elements(zero), x.ndim, axis))
    run.note("QuantizeLinear", result)
    return result


def _elements(integers: Array) -> Array:
    return integers if integers.dtype == np.uint64 else ring.integers(integers.astype(np.int64))


def _along(parameter: Array, rank: int, axis: int) -> Array:
    """One number, or one for each index of an axis."""
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim != 1:
        raise NotApplicable("blocks of a quantized tensor")
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


@computes("DequantizeLinear")
@computes("DequantizeLinear", domain="com.microsoft")
def _dequantize(run: Run, call: Call, q: Array, scale: Array, zero: Array | None = None) -> Array:
    return dequantized(run, q, scale, zero, axis=call.get("axis", 1))


@computes("QuantizeLinear")
@computes("QuantizeLinear", domain="com.microsoft")
def _quantize(run: Run, call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    return quantized(run, x, scale, zero, axis=call.get("axis", 1))


def _as(run: Run, call: Call, op_type: str, inputs: Sequence[Array | None]) -> Array:
    """The result of a standard operator on these inputs, with the attributes of the call."""
    own = replace(call, domain="", op_type=op_type, version=None)
    result = OPERATORS["", op_type](run, own, *inputs)
    return result[0] if isinstance(result, tuple) and result[0] is not None else np.asarray(result)


@computes("QLinearMatMul")
def _matmul(run: Run, call: Call, *inputs: Any) -> Array:
    factors = dequantized(run, *inputs[:3], axis=-2), dequantized(run, *inputs[3:6], axis=-1)
    return quantized(run, _as(run, call, "MatMul", factors), *inputs[6:])


@computes("QLinearConv")
def _conv(run: Run, call: Call, *inputs: Any) -> Array:
    scale, zero, bias = (*inputs[6:], None)[:3]
    steps = None if bias is None else ring.mul(_elements(bias), ring.mul(inputs[1], inputs[4]))
    factors = dequantized(run, *inputs[:3]), dequantized(run, *inputs[3:6], axis=0)
    return quantized(run, _as(run, call, "Conv", (*factors, steps)), scale, zero)


@computes("QGemm", domain="com.microsoft")
def _gemm(run: Run, call: Call, *inputs: Any) -> Array:
    """α·a·b + c, where the scale of c is α·(scale of a)·(scale of b)."""
    bias, scale, zero = (*inputs[6:], None, None, None)[:3]
    unit = ring.mul(ring.mul(inputs[1], inputs[4]), run.attribute(call, "alpha", 1.0))
    steps = None if bias is None else ring.mul(_elements(bias), unit)
    axis = 0 if call.get("transB", 0) else 1
    factors = dequantized(run, *inputs[:3]), dequantized(run, *inputs[3:6], axis=axis)
    result = _as(run, call, "Gemm", (*factors, steps))
    return result if scale is None else quantized(run, result, scale, zero)


@computes("QLinearAdd", "QLinearMul", domain="com.microsoft")
def _two(run: Run, call: Call, *inputs: Any) -> Array:
    operands = dequantized(run, *inputs[:3]), dequantized(run, *inputs[3:6])
    return quantized(run, _as(run, call, call.op_type.removeprefix("QLinear"), operands), *inputs[6:])


@computes(
    "QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool", domain="com.microsoft"
)
def _one(run: Run, call: Call, x: Array, sx: Array, zx: Array | None, scale: Array, zero: Array | None = None) -> Array:
    if call.get("channels_last", 0):
        raise NotApplicable(f"{call.op_type} of channels last")
    operand = dequantized(run, x, sx, zx)
    return quantized(run, _as(run, call, call.op_type.removeprefix("QLinear"), (operand,)), scale, zero)


@computes("QLinearConcat", domain="com.microsoft")
def _concat(run: Run, call: Call, scale: Array, zero: Array, *parts: Array) -> Array:
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    whole = np.concatenate([dequantized(run, *triple) for triple in triples], axis=call.get("axis", 0))
    return quantized(run, whole, scale, zero)
