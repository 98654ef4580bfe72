"""BatchNormalization, Mul and Add by channel become part of the layer after them.

A layer is linear: W∗(gain·x + shift) + b = (W·gain)∗x + (W∗shift + b), with one gain and one shift for each
input channel, as long as the layer reads nothing but its input: padding is zero, and it has no shift.

Why: one pass over the activations less for each of them.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.linear_layers import (
    Array,
    affine,
    b,
    batchnorm,
    bias_of,
    layer,
    per_channel,
    relayered,
    scale,
    shift,
    w,
    weighted,
    x,
)

norm = batchnorm(x)
after_norm = layer(norm)
after_scale = op["Conv", "ConvTranspose", "Gemm", "MatMul"](x * scale, w, b)
after_shift = layer(x + shift)


def layout(m: Match, call: Call) -> tuple[int, int, int]:
    """Rank, channel axis and number of channels of what a layer reads, and of x all the same."""
    rank, channels = m[w].ndim, _channels(m, call)
    is_product = m.node(call).op_type == "MatMul"
    m.require(not is_product or rank == 2, "the weight is no matrix", at=w)
    axis = (m.rank(x) or 0) - 1 if is_product else 1
    known = (is_product or m.rank(x) == rank) and m.dim(x, axis) == channels
    m.require(known, f"x is not known to have {channels} channels", at=x)
    return axis + 1 if is_product else rank, axis, channels


def _channels(m: Match, call: Call) -> int:
    shape: tuple[int, ...] = m[w].shape
    match m.node(call).op_type:
        case "Gemm":
            return shape[1] if m.attr(call, "transB") else shape[0]
        case "ConvTranspose" | "MatMul":
            return shape[0]
    return shape[1] * int(m.attr(call, "group"))


def absorbed(m: Match, build: Builder, call: Call, gain: Array, offset: Array) -> Value:
    """The layer that computes from x what the old one computed from ``gain·x + offset``."""
    op_type = m.node(call).op_type
    m.require(gain.shape == (_channels(m, call),), f"the layer reads {_channels(m, call)} channels")
    m.require(op_type != "Gemm" or not m.attr(call, "transA"), "Gemm transposes what it reads")
    weight = weighted(m, build, along_inputs(m, call, gain))
    moved = response(m, call, offset) if offset.any() else np.zeros(())
    return relayered(m, build, call, weight, bias_of(m, call), moved)


def response(m: Match, call: Call, offset: Array) -> Array:
    """The result of the layer, by output channel, for an input that is constant by channel."""
    op_type = m.node(call).op_type
    terms = m[w] * along_inputs(m, call, offset)
    if op_type == "Gemm":
        result: Array = m.attr(call, "alpha") * terms.sum(axis=1 if m.attr(call, "transB") else 0)
        return result
    m.require(op_type == "Conv", "at the border of ConvTranspose fewer terms have the shift")
    m.require(is_unpadded(m, call), "the padding is zero, which the shift is not")
    return np.asarray(terms.sum(axis=tuple(range(1, terms.ndim))))


def is_unpadded(m: Match, call: Call) -> bool:
    """True if a convolution reads only its input, and no padding."""
    auto_pad = m.attr(call, "auto_pad")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return all(size == 1 for size in m[w].shape[2:])
    return auto_pad == "VALID" or not any(m.attr(call, "pads") or ())


def along_inputs(m: Match, call: Call, gain: Array) -> Array:
    """``gain`` by input channel in a shape that broadcasts over the weight."""
    array = m[w]
    op_type = m.node(call).op_type
    if op_type in ("ConvTranspose", "MatMul") or (op_type == "Gemm" and not m.attr(call, "transB")):
        return gain.reshape(-1, *[1] * (array.ndim - 1))
    groups = m.attr(call, "group") if op_type == "Conv" else 1  # output channels, input channels of one group, kernel
    rows = np.repeat(gain.reshape(groups, -1), array.shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (array.ndim - 2))


LAYER = "float[2,2,1,1] {1, 2, 3, 4}"
STATISTICS = "{2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.99999, 0.99999}"


@rule(
    "batchnorm-before-layer",
    CANONICALIZE,
    after_norm,
    examples=(
        Rewrites(
            f"n = BatchNormalization(x, {{2.0, 1.0}}, {{0.5, 0.25}}, {{1.0, 0.0}}, {{3.0, 0.0}}, epsilon=1.0)"
            f"  y = Conv(n, {LAYER})",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {0.0, -0.5})",
        ),
        Rewrites(
            "n = BatchNormalization(x, {1.0}, {0.0}, {0.0}, {3.0}, epsilon=1.0)"
            "  y = Conv(n, float[1,1,2,2] {1, 2, 3, 4}, dilations=[1, 2])",
            to="y = Conv(x, float[1,1,2,2] {0.5, 1, 1.5, 2}, dilations=[1, 2])",
        ),
        Rejects(
            f"n = BatchNormalization(x, {STATISTICS})  y = Conv(n, {LAYER}, pads=[1, 1, 1, 1])",
            because="the padding is zero",
        ),
        Rejects(
            f"n = BatchNormalization(x, {STATISTICS})  y = ConvTranspose(n, {LAYER})",
            because="at the border of ConvTranspose",
        ),
    ),
)
def batchnorm_before_layer(m: Match, build: Builder) -> Value:
    """layer(γ·(x - μ)/√(σ² + ε) + β) ⟶ layer′(x)."""
    gain, offset = affine(m, norm)
    return absorbed(m, build, after_norm, gain, offset)


@rule(
    "scale-before-layer",
    LOWER,
    after_scale,
    examples=(
        Rewrites(
            f"float[n,2,h,w] x; s = Mul(x, float[2,1,1] {{2, 10}})  y = Conv(s, {LAYER}, pads=[1, 1, 1, 1])",
            to="float[n,2,h,w] x; y = Conv(x, float[2,2,1,1] {2, 20, 6, 40}, pads=[1, 1, 1, 1])",
        ),
        Rewrites(
            "float[n,s,2] x; s = Mul(x, {2.0, 10.0})  y = MatMul(s, float[2,1] {1, 2})",
            to="float[n,s,2] x; y = MatMul(x, float[2,1] {2, 20})",
        ),
        Rejects(
            f"float[n,c,h,w] x; s = Mul(x, float[2,1,1] {{2, 10}})  y = Conv(s, {LAYER})",
            because="not known to have 2 channels",
        ),
        Rejects(
            "float[n,s,2] x; s = Mul(x, float[2,1] {2.0, 10.0})  y = MatMul(s, float[2,1] {1, 2})",
            because="varies along another axis",
        ),
        Rejects("float[n,s,2] x; s = Mul(x, {2.0, 10.0})  y = MatMul(s, float[1,2,1] {1, 2})", because="is no matrix"),
    ),
)
def scale_before_layer(m: Match, build: Builder) -> Value:
    """layer(x·scale) ⟶ layer′(x)."""
    gain = per_channel(m, m[scale], *layout(m, after_scale))
    return absorbed(m, build, after_scale, gain, np.zeros_like(gain))


@rule(
    "shift-before-layer",
    LOWER,
    after_shift,
    examples=(
        Rewrites(
            f"float[n,2,h,w] x; s = Add(x, float[2,1,1] {{2, 10}})  y = Conv(s, {LAYER}, {{100.0, 200.0}})",
            to="float[n,2,h,w] x; y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {122.0, 246.0})",
        ),
        Rejects(
            f"float[n,2,h,w] x; s = Sub(x, 1.0)  y = Conv(s, {LAYER}, pads=[1, 1, 1, 1])",
            because="the padding is zero",
        ),
    ),
)
def shift_before_layer(m: Match, build: Builder) -> Value:
    """layer(x + shift) ⟶ layer′(x)."""
    offset = per_channel(m, m[shift], *layout(m, after_shift))
    return absorbed(m, build, after_shift, np.ones_like(offset), offset)
