"""Quantizing what was dequantized, also around what only moves data.

Where it comes from: tools put QuantizeLinear and DequantizeLinear around every operator, needed there or not.

Why: what only moves data moves a quarter as much of it as int8, and two passes over memory are left out.  Exactly so
where s·(q - z)/s rounds to q - z again for every integer of the dtype, which is computed: in float16 not all do.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

q = Var("q")
scale, own_scale = Const("scale"), Const("own_scale")
zero, own_zero = Const("zero", default=0), Const("own_zero", default=0)

NARROW = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16})


def _same_numbers(m: Match) -> None:
    """Refuse unless every integer comes back: with one scale and one zero for both, or others so near that none moves.

    Scales that differ in the last digits are what two observers of one tensor make in training.
    """
    m.require(m.dtype(q) in NARROW, "it is not of at most 16 bits", at=q)
    m.require(m[scale].size == 1 and m[own_scale].size == 1, "there is a scale for each channel")
    given, own = ((m[s].item(), m[z].item()) for s, z in ((scale, zero), (own_scale, own_zero)))
    integers, numbers = (m.dtype(each).numpy() for each in (q, scale))  # type: ignore[union-attr]
    ends = np.iinfo(integers)
    back = _come_back(ends.min, ends.max, numbers, given, own)
    m.require(back or given == own, "scale or zero point differ")
    m.require(back, "not every integer is quantized to itself again", at=scale)


@functools.lru_cache(maxsize=1024)
def _come_back(
    least: int, largest: int, dtype: np.dtype[Any], given: tuple[float, int], own: tuple[float, int]
) -> bool:
    """True if the integers from ``least`` to ``largest`` stay the same, dequantized to a dtype with one scale and zero
    and quantized with others.  What comes near to a half of a step is taken to move: kernels may divide otherwise."""
    every, (scale, zero), (step, own_zero) = np.arange(least, largest + 1), given, own
    with np.errstate(all="ignore"):
        numbers = ((every - zero).astype(np.float32) * np.float32(scale)).astype(dtype)
        places = numbers.astype(np.float32) / np.float32(step) + own_zero
    return bool((np.abs(np.clip(places, least, largest) - every) < _NEAR).all())


_NEAR = 0.49
"""Of a step."""


def require_same_elements(m: Match, moving: Call, of: Const) -> None:
    """Refuse a Resize that mixes elements, and a MaxPool unless the largest integer of each window stands for the
    largest number; others pass."""
    pool = m.node(moving)
    if pool.op_type == "Resize":
        nearest = pool.attributes.get_string("mode", "nearest") == "nearest"
        crops = pool.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
        m.require(nearest and not crops, "it mixes elements, or makes some of none", at=moving)
    if pool.op_type != "MaxPool":
        return
    m.require(bool((m[of] > 0).all()), "the scale is not positive", at=of)
    inside = not pool.attributes.get_int("ceil_mode", 0) and set(pool.attributes.get_ints("dilations", [1])) == {1}
    m.require(inside, "a window may lie outside of the image", at=moving)


dequantized = any_of(*(each.DequantizeLinear(q, scale, zero) for each in (op, microsoft)))
pair = any_of(*(each.QuantizeLinear(dequantized, own_scale, own_zero) for each in (op, microsoft)))


@rule(
    "quantize-of-dequantize",
    CANONICALIZE,
    pair,
    benefit=70,
    allow_shared=True,
    examples=(
        Rewrites(
            "int8[n] q; d = DequantizeLinear(q, 0.5, int8 3)  r = QuantizeLinear(d, 0.5, int8 3)"
            "  y = DequantizeLinear(r, 0.25, int8 0)",
            to="int8[n] q; y = DequantizeLinear(q, 0.25, int8 0)",
            opset=21,
        ),
        Rewrites(
            "uint8[n] q; d = DequantizeLinear(q, 0.023492187)  r = QuantizeLinear(d, 0.023492184)"
            "  y = DequantizeLinear(r, 0.023492184)",
            to="uint8[n] q; y = DequantizeLinear(q, 0.023492184)",
            opset=21,
        ),
        Rewrites(
            "uint16[n] q; d = com.microsoft.DequantizeLinear(q, 0.5, uint16 3)"
            "  r = com.microsoft.QuantizeLinear(d, 0.5, uint16 3)"
            "  y = com.microsoft.DequantizeLinear(r, 0.25, uint16 0)",
            to="uint16[n] q; y = com.microsoft.DequantizeLinear(q, 0.25, uint16 0)",
        ),
        Rejects(
            "int8[n] q; d = DequantizeLinear(q, 0.5, int8 3)  y = QuantizeLinear(d, 0.25, int8 3)",
            because="scale or zero point differ",
        ),
        Rejects(
            "uint8[n] q; d = DequantizeLinear(q, 0.501)  y = QuantizeLinear(d, 0.5)",
            because="scale or zero point differ",
        ),
        Rejects(
            "int8[n,2] q; d = DequantizeLinear(q, {0.5, 0.5}, int8[2] {0, 0})"
            "  y = QuantizeLinear(d, {0.5, 0.5}, int8[2] {0, 0})",
            because="for each channel",
        ),
        Rejects(
            "int16[n] q; d = DequantizeLinear(q, float16 0.01, int16 0)  y = QuantizeLinear(d, float16 0.01, int16 0)",
            because="not every integer is quantized to itself again",
            opset=21,
        ),
        Rejects(
            "uint8[n] q; d = DequantizeLinear(q, float16 1000.0, uint8 0)"
            "  y = QuantizeLinear(d, float16 1000.0, uint8 0)",
            because="not every integer is quantized to itself again",
            opset=19,
        ),
    ),
)
def quantize_of_dequantize(m: Match, build: Builder) -> Value:
    """QuantizeLinear(DequantizeLinear(q, s, z), s, z) ⟶ q, also with others that give every integer again."""
    _same_numbers(m)
    return m[q]


MOVES = (*operators("view permute repeat"), *operators("gather", but="GatherND"), "Slice")
moving = op[(*MOVES, "MaxPool", "Resize")](dequantized, Each("others", at_least=0))
moved = any_of(*(each.QuantizeLinear(moving, own_scale, own_zero) for each in (op, microsoft)))


@rule(
    "quantize-of-moved",
    CANONICALIZE,
    moved,
    benefit=60,
    examples=(
        Rewrites(
            "uint8[n,4,2] q; d = DequantizeLinear(q, 0.5, uint8 3)  t = Transpose<perm=[2,0,1]>(d)"
            "  y = QuantizeLinear(t, 0.5, uint8 3)",
            to="uint8[n,4,2] q; y = Transpose<perm=[2,0,1]>(q)",
            opset=21,
        ),
        Rewrites(
            "int8[n,4] q; d = DequantizeLinear(q, 0.5, int8 0)  t = Reshape(d, {0, 2, 2})"
            "  y = QuantizeLinear(t, 0.5, int8 0)",
            to="int8[n,4] q; y = Reshape(q, {0, 2, 2})",
            opset=21,
        ),
        Rewrites(
            "int8[3,0] q; d = DequantizeLinear(q, 0.5, int8 0)  t = Reshape<allowzero=1>(d, {0, 2, 2})"
            "  y = QuantizeLinear(t, 0.5, int8 0)",
            to="int8[3,0] q; y = Reshape<allowzero=1>(q, {0, 2, 2})",
            opset=21,
        ),
        Rewrites(
            "uint8[n,2,6,6] q; d = DequantizeLinear(q, 0.5, uint8 3)  p = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(d)"
            "  y = QuantizeLinear(p, 0.5, uint8 3)",
            to="uint8[n,2,6,6] q; y = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(q)",
        ),
        Rewrites(
            'uint8[n,2,3,3] q; d = DequantizeLinear(q, 0.5, uint8 3)  r = Resize<mode="nearest">(d, , {1.0,1.0,2.0,2})'
            "  y = QuantizeLinear(r, 0.5, uint8 3)",
            to='uint8[n,2,3,3] q; y = Resize<mode="nearest">(q, , {1.0,1.0,2.0,2})',
        ),
        Rejects(
            'uint8[n,2,3,3] q; d = DequantizeLinear(q, 0.5, uint8 3)  r = Resize<mode="linear">(d, , {1.0,1.0,2.0,2})'
            "  y = QuantizeLinear(r, 0.5, uint8 3)",
            because="it mixes elements",
        ),
        Rejects(
            "uint8[n,2,6,6] q; d = DequantizeLinear(q, 0.5, uint8 3)  p = MaxPool<kernel_shape=[3,3],ceil_mode=1>(d)"
            "  y = QuantizeLinear(p, 0.5, uint8 3)",
            because="outside of the image",
        ),
        Rejects(
            "uint8[n,4] q; d = DequantizeLinear(q, 0.5, uint8 3)  t = Relu(d)  y = QuantizeLinear(t, 0.5, uint8 3)",
            because="found Relu",
        ),
        Rejects(
            "uint8[n,4] q; d = DequantizeLinear(q, 0.5, uint8 3)  t = Transpose<perm=[1,0]>(d)"
            "  y = QuantizeLinear(t, 0.5, uint8 4)",
            because="scale or zero point differ",
        ),
    ),
)
def quantize_of_moved(m: Match, build: Builder) -> Value:
    """QuantizeLinear(f(DequantizeLinear(q, s, z)), s, z) ⟶ f(q) for an f that only moves data."""
    _same_numbers(m)
    require_same_elements(m, moving, scale)
    return build.again(m.node(moving), m[q])[0]
