"""Affine maps by channel, BatchNormalization, Mul and Add, become part of the weights of the layer next to them.

A layer is linear: gain·(W∗x + b) + shift = (gain·W)∗x + (gain·b + shift), with one gain and one shift for each output
channel, and W∗(gain·x) = (W·gain)∗x for the input channels.  All is computed in float64 and rounded once.

Why: one pass over the activations less for each of them.   Jacob et al., 2018, arXiv:1712.05877, section 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnxrewrite import (
    FLOATS,
    Builder,
    Call,
    Const,
    Match,
    Rejects,
    Rewrites,
    Rule,
    Stage,
    Value,
    Var,
    any_of,
    epsilon,
    op,
)

Array = npt.NDArray[Any]

x = Var("x", dtype=FLOATS)
w, b = Const("w"), Const("b", default=0.0)
conv = op["Conv", "ConvTranspose", "Gemm"](x, w, b)
norm = op.BatchNormalization(x, w, b, (norm_mean := Var("norm_mean")), (norm_var := Var("norm_var")))
matmul = op.MatMul(x, w)
layer = any_of(conv, norm, matmul + b)
"""A linear layer.  A matrix product may have a bias after it; BatchNormalization is a layer whose weight is its scale."""

gamma, beta, mean, var = map(Const, ("gamma", "beta", "mean", "var"))
batchnorm = op.BatchNormalization(layer, gamma, beta, mean, var)
scale, shift = Const("scale"), Const("shift")


def fold_batchnorm(m: Match, build: Builder) -> Value:
    """γ·(layer(x) - μ)/√(σ² + ε) + β ⟶ layer′(x)."""
    gain, offset = affine(m, batchnorm)
    _, axis, channels = layout(m)
    m.require(axis == 1, "the axis that is normalized is not that of the layer's channels")
    m.require(gain.shape == (channels,), f"the layer has {channels} channels, the statistics have {gain.size}")
    return folded(m, build, gain, offset)


def fold_scale(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x)."""
    gain = per_channel(m, m[scale], *layout(m))
    return folded(m, build, gain, np.zeros_like(gain))


def fold_shift(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x)."""
    m.require(conv in m or norm in m or b in m, "a matrix product has no bias to take the constant")
    offset = per_channel(m, m[shift], *layout(m))
    return folded(m, build, np.ones_like(offset), offset)


def fold_vector_scale(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x), with a number for each channel."""
    m.require(m[scale].size > 1, "one number may belong to an activation function")
    return fold_scale(m, build)


def fold_vector_shift(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x), with a number for each channel."""
    m.require(m[shift].size > 1, "one number may belong to an activation function")
    return fold_shift(m, build)


# -- before the layer ------------------------------------------------------------------------------------------

batchnorm_before = op.BatchNormalization(x, gamma, beta, mean, var)
normed = op["Conv", "ConvTranspose", "Gemm"](batchnorm_before, w, b)
scaled = op["Conv", "ConvTranspose", "Gemm"](x * scale, w, b)
shifted = op["Conv", "ConvTranspose", "Gemm"](x + shift, w, b)


def absorb_batchnorm(m: Match, build: Builder) -> Value:
    """conv(γ·(x - μ)/√(σ² + ε) + β) ⟶ conv′(x)."""
    gain, offset = affine(m, batchnorm_before)
    return absorbed(m, build, normed, gain, offset)


def absorb_scale(m: Match, build: Builder) -> Value:
    """conv(x·scale) ⟶ conv′(x)."""
    gain = per_channel(m, m[scale], *input_layout(m, scaled))
    return absorbed(m, build, scaled, gain, np.zeros_like(gain))


def absorb_shift(m: Match, build: Builder) -> Value:
    """conv(x + shift) ⟶ conv′(x)."""
    offset = per_channel(m, m[shift], *input_layout(m, shifted))
    return absorbed(m, build, shifted, np.ones_like(offset), offset)


# -- BatchNormalization ----------------------------------------------------------------------------------------


def affine(m: Match, call: Call) -> tuple[Array, Array]:
    """The gain and the shift by channel of a BatchNormalization that uses its statistics."""
    require_inference(m, call)
    variance = m[var] + m.attr(call, "epsilon")
    m.require((variance > 0).all(), "var + epsilon must be positive", at=var)
    gain = m[gamma] / np.sqrt(variance)
    return gain, m[beta] - m[mean] * gain


def require_inference(m: Match, call: Call) -> None:
    """Refuse a BatchNormalization that makes statistics, as each opset says it, or has them for each position."""
    m.require(not m.attr(call, "training_mode"), "BatchNormalization is in training mode")
    m.require(sum(bool(o.name) for o in m.node(call).outputs) == 1, "its further outputs put it in training mode")
    m.require(m.attr(call, "is_test") in (None, 1), "without is_test it is in training mode")
    m.require(m.attr(call, "spatial") in (None, 1), "with spatial=0 it has statistics for each position")


# -- channels --------------------------------------------------------------------------------------------------


def layout(m: Match) -> tuple[int, int, int]:
    """Rank, channel axis and number of channels of what the layer computes."""
    shape = m[w].shape
    if norm in m:
        require_inference(m, norm)
        return m.rank(x) or 0, 1, shape[0]
    if conv not in m:
        m.require(len(shape) > 1, "the product with a vector has no channels", at=w)
        rank = m.rank(layer) or 1  # where it is unknown: at least one, the channels
        return rank, rank - 1, shape[-1]
    match m.node(conv).op_type:
        case "Gemm":
            return 2, 1, shape[0] if m.attr(conv, "transB") else shape[1]
        case "ConvTranspose":
            return len(shape), 1, shape[1] * m.attr(conv, "group")
    return len(shape), 1, shape[0]


def input_layout(m: Match, call: Call) -> tuple[int, int, int]:
    """Rank, channel axis and number of channels of what a layer reads."""
    shape = m[w].shape
    op_type = m.node(call).op_type
    reads_columns = op_type == "Conv" or (op_type == "Gemm" and m.attr(call, "transB"))
    channels = shape[1] * (m.attr(call, "group") or 1) if reads_columns else shape[0]
    m.require(m.rank(x) == len(shape) and m.dim(x, 1) == channels, f"x is not known to have {channels} channels", at=x)
    return len(shape), 1, channels


def per_channel(m: Match, constant: Array, rank: int, axis: int, channels: int) -> Array:
    """A constant that varies along the channels only, as one element for each of them."""
    written = f"the constant of shape {list(constant.shape)}"
    m.require(constant.ndim <= rank, f"{written} may raise the rank")
    shape = (1,) * (rank - constant.ndim) + constant.shape
    across = all(size == 1 for i, size in enumerate(shape) if i != axis)
    m.require(across, f"{written} varies along another axis than the channels")
    m.require(constant.size in (1, channels), f"{written} does not fit {channels} channels")
    return np.broadcast_to(constant.reshape(-1), (channels,))


def along_outputs(m: Match, gain: Array) -> Array:
    """``gain`` by output channel in a shape that broadcasts over the weight."""
    array = m[w]
    op_type = m.node(conv).op_type if conv in m else "MatMul"
    if op_type == "MatMul" or (op_type == "Gemm" and not m.attr(conv, "transB")):
        return gain.reshape(*[1] * (array.ndim - 1), -1)
    if op_type == "ConvTranspose":  # input channels, output channels of one group, kernel
        groups = m.attr(conv, "group")
        rows = np.repeat(gain.reshape(groups, -1), array.shape[0] // groups, axis=0)
        return rows.reshape(*rows.shape, *[1] * (array.ndim - 2))
    return gain.reshape(-1, *[1] * (array.ndim - 1))


def along_inputs(m: Match, call: Call, gain: Array) -> Array:
    """``gain`` by input channel in a shape that broadcasts over the weight."""
    array = m[w]
    op_type = m.node(call).op_type
    if op_type == "ConvTranspose" or (op_type == "Gemm" and not m.attr(call, "transB")):
        return gain.reshape(-1, *[1] * (array.ndim - 1))
    groups = m.attr(call, "group") or 1  # output channels, input channels of one group, kernel
    rows = np.repeat(gain.reshape(groups, -1), array.shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (array.ndim - 2))


# -- new layers ------------------------------------------------------------------------------------------------


def folded(m: Match, build: Builder, gain: Array, offset: Array) -> Value:
    """The layer whose outputs are the old ones times ``gain`` plus ``offset``."""
    if norm in m:
        weight, bias = product(m, build, m[w], gain), constant(m, build, m[b] * gain + offset)
        return build.BatchNormalization(m[x], weight, bias, m[norm_mean], m[norm_var], **m.attrs(norm))
    weight = m.value(w) if (gain == 1).all() else product(m, build, m[w], along_outputs(m, gain))
    if conv not in m:
        result = build.MatMul(m[x], weight)
        bias = m[b] * gain + offset
        return build.Add(result, constant(m, build, bias)) if b in m or bias.any() else result
    return relayered(m, build, conv, weight, m.attrs(conv).get("beta", 1.0) * m[b] * gain, offset)


def absorbed(m: Match, build: Builder, call: Call, gain: Array, offset: Array) -> Value:
    """The layer that computes from x what the old one computed from ``gain·x + offset``."""
    op_type = m.node(call).op_type
    m.require(op_type != "Gemm" or not m.attr(call, "transA"), "Gemm transposes what it reads")
    array = m[w]
    weight = m.value(w) if (gain == 1).all() else product(m, build, array, along_inputs(m, call, gain))
    moved = np.zeros(())
    if offset.any():
        m.require(op_type != "ConvTranspose", "at the border of ConvTranspose fewer terms have the shift")
        m.require(op_type == "Gemm" or is_unpadded(m, call), "the padding is zero, which the shift is not")
        terms = array * along_inputs(m, call, offset)
        if op_type == "Gemm":
            moved = m.attr(call, "alpha") * terms.sum(axis=1 if m.attr(call, "transB") else 0)
        else:
            moved = terms.sum(axis=tuple(range(1, array.ndim)))
    return relayered(m, build, call, weight, m.attrs(call).get("beta", 1.0) * m[b], moved)


def is_unpadded(m: Match, call: Call) -> bool:
    """Whether a convolution reads nothing but its input."""
    auto_pad = m.attr(call, "auto_pad")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return all(size == 1 for size in m[w].shape[2:])
    return auto_pad == "VALID" or not any(m.attr(call, "pads") or ())


def relayered(m: Match, build: Builder, call: Call, weight: Value | None, old: Array, moved: Array) -> Value:
    """The layer of ``call`` with another weight, and with the bias ``old + moved`` unless there is none."""
    attributes = {name: value for name, value in m.attrs(call).items() if name != "beta"}
    bias = constant(m, build, old + moved) if b in m or moved.any() else None
    (result,) = build.node(m.node(call).op_type, [m[x], weight, bias], attributes)
    return result


def product(m: Match, build: Builder, array: Array, gain: Array) -> Value:
    """``array · gain`` in the layer's dtype, refused where its small numbers would lose more than one rounding."""
    with np.errstate(all="ignore"):
        exact = array * gain
    value = constant(m, build, exact)
    if exact.size and value.dtype is not None:
        error = np.abs(stored(m, value) - exact)
        alike = tuple(axis for axis, size in enumerate(gain.shape) if size == 1)
        largest = np.abs(exact).max(axis=alike, keepdims=True)
        m.require((error <= epsilon(value.dtype) * largest).all(), "the new weight is too small for its dtype", at=w)
    return value


def constant(m: Match, build: Builder, exact: Array) -> Value:
    """A constant in the layer's dtype, refused where it is not finite."""
    with np.errstate(all="ignore"):
        value = build.const(exact, like=w)
    m.require(np.isfinite(stored(m, value)).all(), "the new weight is not finite in its dtype", at=w)
    return value


def stored(m: Match, value: Value) -> Array:
    """What a constant holds, in float64."""
    array = m.facts.constant(value)
    assert array is not None
    return array.astype(np.float64)


LAYER = "float[2,2,1,1] {1, 2, 3, 4}"
STATISTICS = "{2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.99999, 0.99999}"

BATCHNORM = Rule(
    name="batchnorm-into-layer",
    stage=Stage.CANONICALIZE,
    pattern=batchnorm,
    rewrite=fold_batchnorm,
    benefit=10,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER})  y = BatchNormalization(c, {{2.0, 1.0}}, {{0.5, 0.25}}, {{1.0, 0.0}}, {{3.0, 0.0}}, epsilon=1.0)",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {-0.5, 0.25})",
        ),
        Rewrites(
            "g = Gemm(x, float[1,2] {1, 2}, {4.0}, beta=0.5)"
            "  y = BatchNormalization(g, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.0, 0.0}, epsilon=1.0)",
            to="y = Gemm(x, float[1,2] {1, 2}, {1.5, 2.25})",
        ),
        Rewrites(
            "float[n,1] x; p = MatMul(x, float[1,2] {1, 2})"
            "  y = BatchNormalization(p, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.0, 0.0}, epsilon=1.0)",
            to="float[n,1] x; p = MatMul(x, float[1,2] {1, 2})  y = Add(p, {-0.5, 0.25})",
        ),
        Rejects(
            f"c = Conv(x, {LAYER})  y = BatchNormalization(c, {STATISTICS}, training_mode=1)",
            because="training mode",
        ),
        Rejects(
            f"c = Conv(x, {LAYER})  y = BatchNormalization(c, {{2.0, 1.0}}, {{0.5, 0.25}}, {{1.0, 0.0}}, {{1.0, -1.0}})",
            because="var + epsilon must be positive",
        ),
        Rejects(
            f"c = Conv(x, {LAYER})  y = BatchNormalization(c, {STATISTICS})  z = Relu(c)",
            because="is also used by Relu",
        ),
        Rejects(
            "float[n,5,1] x; p = MatMul(x, float[1,2] {1, 2})"
            "  y = BatchNormalization(p, {1,1,1,1,1}, {1,1,1,1,1}, {1,1,1,1,1}, {1,1,1,1,1})",
            because="not that of the layer's channels",
        ),
    ),
)

VECTOR_SCALE = Rule(
    name="scale-into-layer",
    stage=Stage.CANONICALIZE,
    pattern=layer * scale,
    rewrite=fold_vector_scale,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER}, {{1.0, 2.0}})  y = Mul(c, float[2,1,1] {{2, 10}})",
            to="y = Conv(x, float[2,2,1,1] {2, 4, 30, 40}, {2.0, 20.0})",
        ),
        Rewrites(
            "c = ConvTranspose(x, float[1,2,1,1] {1, 2})  y = Div(c, float[1,2,1,1] {2, 4})",
            to="y = ConvTranspose(x, float[1,2,1,1] {0.5, 0.5})",
        ),
        Rewrites(
            "float[n,2,w] x; n = BatchNormalization(x, {1.0, 2.0}, {3.0, 4.0}, mean, var)  y = Mul(n, float[2,1] {2, 10})",
            to="float[n,2,w] x; y = BatchNormalization(x, {2.0, 20.0}, {6.0, 40.0}, mean, var)",
        ),
        Rewrites(
            "p = MatMul(x, float[1,2] {1, 2})  a = Add(p, {3.0, 4.0})  y = Mul(a, {2.0, 10.0})",
            to="p = MatMul(x, float[1,2] {2, 20})  y = Add(p, {6.0, 40.0})",
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[2] {{2, 10}})", because="varies along another axis"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[1,1,2,1,1] {{2, 10}})", because="may raise the rank"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[3,1,1] {{2, 10, 1}})", because="does not fit 2 channels"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, 3.0)", because="may belong to an activation"),
        Rejects(f"c = Conv(x, {LAYER})  y = Div(c, float[2,1,1] {{0, 1}})", because="not finite"),
    ),
)

VECTOR_SHIFT = Rule(
    name="shift-into-layer",
    stage=Stage.CANONICALIZE,
    pattern=layer + shift,
    rewrite=fold_vector_shift,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER})  y = Add(float[2,1,1] {{2, 10}}, c)",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {2.0, 10.0})",
        ),
        Rewrites(
            "g = Gemm(x, float[1,2] {1, 2}, {1.0, 2.0})  y = Sub(g, {3.0, 5.0})",
            to="y = Gemm(x, float[1,2] {1, 2}, {-2.0, -3.0})",
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Add(c, float[2,1] {{2, 10}})", because="varies along another axis"),
        Rejects("p = MatMul(x, float[1,2] {1, 2})  y = Add(p, {3.0, 4.0})", because="no bias"),
        Rejects(f"c = Conv(x, {LAYER}, b)  y = Add(c, float[2,1,1] {{2, 10}})", because="expected a constant for b"),
    ),
)

SCALE = Rule(
    name="scalar-scale-into-layer",
    stage=Stage.LOWER,
    pattern=layer * scale,
    rewrite=fold_scale,
    examples=(
        Rewrites(f"c = Conv(x, {LAYER})  y = Mul(c, 2.0)", to="y = Conv(x, float[2,2,1,1] {2, 4, 6, 8})"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, 3e38)", because="not finite"),
    ),
)

SHIFT = Rule(
    name="scalar-shift-into-layer",
    stage=Stage.LOWER,
    pattern=layer + shift,
    rewrite=fold_shift,
    examples=(
        Rewrites(f"c = Conv(x, {LAYER})  y = Sub(c, 2.0)", to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {-2.0, -2.0})"),
        Rejects(f"c = Conv(x, {LAYER})  y = Sub(2.0, c)", because="expected"),
    ),
)

BATCHNORM_BEFORE = Rule(
    name="batchnorm-before-layer",
    stage=Stage.CANONICALIZE,
    pattern=normed,
    rewrite=absorb_batchnorm,
    examples=(
        Rewrites(
            f"n = BatchNormalization(x, {{2.0, 1.0}}, {{0.5, 0.25}}, {{1.0, 0.0}}, {{3.0, 0.0}}, epsilon=1.0)"
            f"  y = Conv(n, {LAYER})",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {0.0, -0.5})",
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

SCALE_BEFORE = Rule(
    name="scale-before-layer",
    stage=Stage.LOWER,
    pattern=scaled,
    rewrite=absorb_scale,
    examples=(
        Rewrites(
            f"float[n,2,h,w] x; s = Mul(x, float[2,1,1] {{2, 10}})  y = Conv(s, {LAYER}, pads=[1, 1, 1, 1])",
            to="float[n,2,h,w] x; y = Conv(x, float[2,2,1,1] {2, 20, 6, 40}, pads=[1, 1, 1, 1])",
        ),
        Rejects(
            f"float[n,c,h,w] x; s = Mul(x, float[2,1,1] {{2, 10}})  y = Conv(s, {LAYER})",
            because="not known to have 2 channels",
        ),
    ),
)

SHIFT_BEFORE = Rule(
    name="shift-before-layer",
    stage=Stage.LOWER,
    pattern=shifted,
    rewrite=absorb_shift,
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

RULES = (
    BATCHNORM,
    VECTOR_SCALE,
    VECTOR_SHIFT,
    SCALE,
    SHIFT,
    BATCHNORM_BEFORE,
    SCALE_BEFORE,
    SHIFT_BEFORE,
)
