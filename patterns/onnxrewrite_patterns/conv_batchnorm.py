"""Affine maps per channel, BatchNormalization, Mul and Add, become part of the weights of the layer next to them.

A layer is linear: gain·(W∗x + b) + shift = (gain·W)∗x + (gain·b + shift), with one gain and one shift per output
channel.  Everything is computed in float64 and rounded once.

Why: one pass over the activations less for each of them.   Jacob et al., 2018, arXiv:1712.05877, section 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnxrewrite import FLOATS, Builder, Call, Const, Match, Rejects, Rewrites, Rule, Stage, Value, Var, any_of, op

Array = npt.NDArray[Any]

x = Var("x", dtype=FLOATS)
w, b = Const("w"), Const("b", default=0.0)
conv = op["Conv", "ConvTranspose", "Gemm"](x, w, b)
norm = op.BatchNormalization(x, w, b, (old_mean := Var("old_mean")), (old_var := Var("old_var")))
matmul = op.MatMul(x, w)
biased = matmul + b
layer = any_of(conv, norm, biased)
"""A linear layer.  The matrix product may have a bias after it; BatchNormalization is one whose weight is its scale."""

gamma, beta, mean, var = map(Const, ("gamma", "beta", "mean", "var"))
batchnorm = op.BatchNormalization(layer, gamma, beta, mean, var)
scale, shift = Const("scale"), Const("shift")


def fold_batchnorm(m: Match, build: Builder) -> Value:
    """γ·(layer(x) - μ)/√(σ² + ε) + β ⟶ layer′(x)."""
    gain, offset = affine(m, batchnorm)
    rank, axis, channels = layout(m)
    m.require(rank is not None and axis == 1, "the axis that is normalized is not the layer's output channels")
    m.require(gain.size == channels, f"the layer has {channels} channels, the statistics have {gain.size}", at=mean)
    return folded(m, build, gain, offset)


def fold_scale(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x), with one number per channel."""
    gain = per_channel(m, m[scale], *layout(m))
    return folded(m, build, gain, np.zeros_like(gain))


def fold_shift(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x), with one number per channel."""
    m.require(conv in m or norm in m or b in m, "a matrix product has no bias of its own to take the constant")
    offset = per_channel(m, m[shift], *layout(m))
    return folded(m, build, np.ones_like(offset), offset)


def fold_vector_scale(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x), with a number for each channel."""
    m.require(m[scale].size > 1, "a single number waits for the rules of activations, whose constant it may be")
    return fold_scale(m, build)


def fold_vector_shift(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x), with a number for each channel."""
    m.require(m[shift].size > 1, "a single number waits for the rules of activations, whose constant it may be")
    return fold_shift(m, build)


# -- BatchNormalization ----------------------------------------------------------------------------------------


def affine(m: Match, call: Call) -> tuple[Array, Array]:
    """The gain and the shift per channel of a BatchNormalization that uses its statistics rather than making them."""
    node = m.node(call)
    m.require(not m.attr(call, "training_mode"), "it is in training mode")
    m.require(sum(bool(o.name) for o in node.outputs) == 1, "its further outputs put it in training mode")
    m.require(m.attr(call, "is_test") in (None, 1), "without is_test it is in training mode")
    m.require(m.attr(call, "spatial") in (None, 1), "spatial=0 has statistics for each position")
    variance = m[var] + m.attr(call, "epsilon")
    m.require((variance > 0).all(), "var + epsilon must be positive", at=var)
    gain = m[gamma] / np.sqrt(variance)
    return gain, m[beta] - m[mean] * gain


# -- constants by channel --------------------------------------------------------------------------------------


def layout(m: Match) -> tuple[int | None, int, int]:
    """Rank, channel axis and number of channels of what the layer computes."""
    shape = m[w].shape
    if norm in m:
        return m.rank(x), 1, shape[0]
    if conv not in m:
        rank = m.rank(layer)
        m.require(len(shape) > 1, "the product with a vector has no channels", at=w)
        return rank, -1 if rank is None else rank - 1, shape[-1]
    match m.node(conv).op_type:
        case "Gemm":
            return 2, 1, shape[0 if m.attr(conv, "transB") else 1]
        case "ConvTranspose":
            return len(shape), 1, shape[1] * m.attr(conv, "group")
    return len(shape), 1, shape[0]


def per_channel(m: Match, constant: Array, rank: int | None, axis: int, channels: int) -> Array:
    """A constant that varies along the channels only, one element per channel."""
    m.require(rank is not None or constant.ndim == 0, "the rank is unknown")
    full = constant.ndim if rank is None else rank
    m.require(constant.ndim <= full, f"the constant of shape {list(constant.shape)} raises the rank {full}")
    aligned = constant.reshape((1,) * (full - constant.ndim) + constant.shape)
    wide = [i for i, size in enumerate(aligned.shape) if size != 1 and i != axis]
    m.require(not wide, f"the constant of shape {list(constant.shape)} varies along another axis than the channels")
    m.require(aligned.size in (1, channels), f"the layer has {channels} channels, the constant has {aligned.size}")
    return np.broadcast_to(aligned.reshape(-1), (channels,))


# -- the new layer ---------------------------------------------------------------------------------------------


def folded(m: Match, build: Builder, gain: Array, offset: Array) -> Value:
    """The layer whose outputs are the old ones times ``gain`` plus ``offset``."""
    if norm in m:
        weights = [weight(m, build, m[w], gain), weight(m, build, m[b] * gain + offset)]
        return like(m, build, norm, [m[x], *weights, m[old_mean], m[old_var]])
    new = m.value(w) if (gain == 1).all() else weight(m, build, *_outputs(m, gain))
    if conv not in m:
        product = like(m, build, matmul, [m[x], new])
        moved = m[b] * gain + offset
        return build.Add(product, weight(m, build, moved)) if b in m or moved.any() else product
    attributes = m.attrs(conv)
    bias = m[b] * attributes.pop("beta", 1.0) * gain + offset
    has_bias = b in m or offset.any() or (m.node(conv).op_type == "Gemm" and build.opset < 11)
    return build.node(m.node(conv).op_type, [m[x], new, weight(m, build, bias) if has_bias else None], attributes)


def like(m: Match, build: Builder, call: Call, inputs: list[Value | None]) -> Value:
    """The node of ``call`` with other inputs."""
    result: Value = build.node(m.node(call).op_type, inputs, m.attrs(call))
    return result


def _outputs(m: Match, gain: Array) -> tuple[Array, Array]:
    """The weight, and the gain of each output channel in a shape that broadcasts over it."""
    array = m[w]
    op_type = m.node(conv).op_type if conv in m else "MatMul"
    if op_type == "MatMul" or (op_type == "Gemm" and not m.attr(conv, "transB")):
        return array, gain
    if op_type == "ConvTranspose":  # input channels, output channels of a group, kernel
        groups = m.attr(conv, "group")
        rows = np.repeat(gain.reshape(groups, -1), array.shape[0] // groups, axis=0)
        return array, rows.reshape(*rows.shape, *[1] * (array.ndim - 2))
    return array, gain.reshape(-1, *[1] * (array.ndim - 1))


def weight(m: Match, build: Builder, array: Array, gain: Array | float = 1.0) -> Value:
    """``array * gain`` as a constant of the layer's dtype, unless that would lose more than one rounding."""
    with np.errstate(all="ignore"):
        exact = np.asarray(array * gain, np.float64)
        value = build.const(exact, like=w)
        stored = value.const_value.numpy().astype(np.float64)  # type: ignore[union-attr]
        error = np.abs(stored - exact)
    m.require(np.isfinite(stored).all(), "a folded weight is not finite in the layer's dtype", at=w)
    step = 2.0 ** -_digits(value)
    spread = tuple(i for i, size in enumerate(np.shape(gain)[::-1]) if size == 1)
    axes = tuple(exact.ndim - 1 - i for i in spread) if np.ndim(gain) == exact.ndim else None
    if exact.size:
        largest = np.abs(exact).max(axis=axes, keepdims=True)
        m.require((error <= step * largest).all(), "a folded weight is too small for the layer's dtype", at=w)
    return value
