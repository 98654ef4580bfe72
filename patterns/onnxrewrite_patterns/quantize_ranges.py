"""Limits before QuantizeLinear that the range of its dtype sets anyway.

Where it comes from: a Relu6 or a Relu is quantized like any operator, with a scale and a zero that cover its range.

Why: a pass over memory, and a convolution before it that is then quantized by itself.  Exactly so: rounding keeps the
order, so what is below the limit is rounded to no more than the limit is, which is the least integer there is.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x", dtype=ir.DataType.FLOAT)
low, high = Attr[float]("low", default=-math.inf), Attr[float]("high", default=math.inf)
scale, zero = Const("scale"), Const("zero", default=0)
rectified, clipped = op.Relu(x), op.Clip(x, min=low, max=high)
of_relu, of_clip = op.QuantizeLinear(rectified, scale, zero), op.QuantizeLinear(clipped, scale, zero)

RANGES = {ir.DataType.UINT8: (0, 255), ir.DataType.INT8: (-128, 127), ir.DataType.UINT16: (0, 65535)}
RANGES[ir.DataType.INT16] = (-32768, 32767)


def _without(m: Match, build: Builder, quantized: Call, least: float, most: float) -> Value:
    ends = RANGES.get(m.dtype(quantized) or ir.DataType.UNDEFINED)
    m.require(ends is not None, "it is quantized to no integers of 8 or 16 bits", at=quantized)
    bottom, top = ends or (0, 0)
    m.require(np.all((m[scale] > 1e-30) & (m[scale] < 1e30)), "the scale is too large or too small", at=scale)
    m.require(least <= most, "the limits are crossed", at=quantized)
    m.require((_steps(m, least) <= bottom).all(), f"the lower limit is not quantized to {bottom}", at=quantized)
    m.require((_steps(m, most) >= top).all(), f"the upper limit is not quantized to {top}", at=quantized)
    return build.again(m.node(quantized), m[x])[0]


def _steps(m: Match, limit: float) -> npt.NDArray[np.float64]:
    """The integer that a limit is rounded to, as if there were no range, by the division of the operator."""
    quotient = np.float32(limit) / m[scale].astype(np.float32)
    return np.asarray(np.rint(quotient.astype(np.float64)) + m[zero], np.float64)


@rule(
    "relu-into-quantize",
    CANONICALIZE,
    of_relu,
    benefit=60,
    examples=(
        Rewrites("r = Relu(x)  y = QuantizeLinear(r, 0.5, uint8 0)", to="y = QuantizeLinear(x, 0.5, uint8 0)"),
        Rewrites("r = Relu(x)  y = QuantizeLinear(r, 0.5, int8 -128)", to="y = QuantizeLinear(x, 0.5, int8 -128)"),
        Rewrites(
            "float[2,3] x; r = Relu(x)  y = QuantizeLinear<axis=0>(r, {0.5, 0.25}, uint8[2] {0, 0})",
            to="float[2,3] x; y = QuantizeLinear<axis=0>(x, {0.5, 0.25}, uint8[2] {0, 0})",
        ),
        Rejects("r = Relu(x)  y = QuantizeLinear(r, 0.5, uint8 3)", because="the lower limit is not quantized to 0"),
        Rejects("r = Relu(x)  y = QuantizeLinear(r, 0.5, uint8 0)  z = Abs(r)", because="also used by Abs"),
    ),
)
def relu_into_quantize(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Relu(x), s, z) ⟶ QuantizeLinear(x, s, z) where z is the least integer of its dtype."""
    return _without(m, build, of_relu, 0.0, math.inf)


@rule(
    "clip-into-quantize",
    CANONICALIZE,
    of_clip,
    benefit=60,
    examples=(
        Rewrites(
            "c = Clip(x, 0.0, 6.0)  y = QuantizeLinear(c, 0.0234375, uint8 0)",
            to="y = QuantizeLinear(x, 0.0234375, uint8 0)",
        ),
        Rejects(
            "c = Clip(x, 0.0, 6.0)  y = QuantizeLinear(c, 0.03125, uint8 0)",
            because="the upper limit is not quantized to 255",
        ),
        Rejects(
            "c = Clip(x, 0.0, 6.0)  y = QuantizeLinear(c, 0.015625, uint8 9)",
            because="the lower limit is not quantized to 0",
        ),
        Rejects("c = Clip(x, 9.0, 6.0)  y = QuantizeLinear(c, 0.015625, uint8 0)", because="crossed"),
    ),
)
def clip_into_quantize(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Clip(x, a, b), s, z) ⟶ QuantizeLinear(x, s, z) where a and b are quantized to the ends of it."""
    return _without(m, build, of_clip, m[low], m[high])
