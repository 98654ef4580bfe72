"""BatchNormalization, Mul and Add by channel become part of the layer before them.

A layer is linear: gain·(W∗x + b) + shift = (gain·W)∗x + (gain·b + shift), with one gain and one shift for
each output channel.

Why: one pass over the activations less for each of them.   Jacob et al., 2018, arXiv:1712.05877, section 3.2.
"""

from __future__ import annotations

import numpy as np
from onnxrewrite import Builder, Match, Rejects, Rewrites, Rule, Stage, Value, Var, any_of, op

from onnxrewrite_patterns.linear_layers import (
    Array,
    affine,
    b,
    batchnorm,
    bias_of,
    layer,
    per_channel,
    product,
    relayered,
    require_inference,
    rounded,
    scale,
    shift,
    w,
    weighted,
    x,
)

plain = layer(x)
norm = op.BatchNormalization(x, w, b, (norm_mean := Var("norm_mean")), (norm_var := Var("norm_var")))
matmul = op.MatMul(x, w)
linear = any_of(plain, norm, matmul + b)
"""A matrix product may have a bias after it; BatchNormalization is a layer whose weight is its scale."""

normed = batchnorm(linear)


def fold_batchnorm(m: Match, build: Builder) -> Value:
    """γ·(layer(x) - μ)/√(σ² + ε) + β ⟶ layer′(x)."""
    gain, offset = affine(m, normed)
    _, axis, channels = layout(m)
    m.require(axis == 1, "the axis that is normalized is not that of the layer's channels")
    m.require(
        gain.shape == (channels,), f"the layer has {channels} channels, the statistics have {gain.size}"
    )
    return folded(m, build, gain, offset)


def fold_scale(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x)."""
    gain = per_channel(m, m[scale], *layout(m))
    return folded(m, build, gain, np.zeros_like(gain))


def fold_shift(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x)."""
    m.require(plain in m or norm in m or b in m, "a matrix product has no bias to take the constant")
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


def layout(m: Match) -> tuple[int, int, int]:
    """Rank, channel axis and number of channels of what the layer computes."""
    shape = m[w].shape
    if norm in m:
        require_inference(m, norm)
        return m.rank(x) or 0, 1, shape[0]
    if plain not in m:
        m.require(len(shape) > 1, "the product with a vector has no channels", at=w)
        rank = m.rank(linear) or 1  # where it is unknown: at least one, the channels
        return rank, rank - 1, shape[-1]
    match m.node(plain).op_type:
        case "Gemm":
            return 2, 1, shape[0] if m.attr(plain, "transB") else shape[1]
        case "ConvTranspose":
            return len(shape), 1, shape[1] * m.attr(plain, "group")
    return len(shape), 1, shape[0]


def folded(m: Match, build: Builder, gain: Array, offset: Array) -> Value:
    """The layer whose outputs are the old ones times ``gain`` plus ``offset``."""
    if norm in m:
        new_scale, new_shift = product(m, build, m[w], gain), rounded(m, build, m[b] * gain + offset)
        inputs = [m[x], new_scale, new_shift, m[norm_mean], m[norm_var]]
        return build.node("BatchNormalization", inputs, m.attrs(norm))[0]
    weight = weighted(m, build, along_outputs(m, gain))
    if plain in m:
        return relayered(m, build, plain, weight, bias_of(m, plain) * gain, offset)
    result, bias = build.MatMul(m[x], weight), m[b] * gain + offset
    return build.Add(result, rounded(m, build, bias)) if b in m or bias.any() else result


def along_outputs(m: Match, gain: Array) -> Array:
    """``gain`` by output channel in a shape that broadcasts over the weight."""
    array = m[w]
    op_type = m.node(plain).op_type if plain in m else "MatMul"
    if op_type == "MatMul" or (op_type == "Gemm" and not m.attr(plain, "transB")):
        return gain.reshape(*[1] * (array.ndim - 1), -1)
    if op_type == "ConvTranspose":  # input channels, output channels of one group, kernel
        groups = m.attr(plain, "group")
        rows = np.repeat(gain.reshape(groups, -1), array.shape[0] // groups, axis=0)
        return rows.reshape(*rows.shape, *[1] * (array.ndim - 2))
    return gain.reshape(-1, *[1] * (array.ndim - 1))


LAYER = "float[2,2,1,1] {1, 2, 3, 4}"
STATISTICS = "{2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.99999, 0.99999}"

BATCHNORM = Rule(
    name="batchnorm-into-layer",
    stage=Stage.CANONICALIZE,
    pattern=normed,
    rewrite=fold_batchnorm,
    benefit=10,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER})"
            "  y = BatchNormalization(c, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.0, 0.0}, epsilon=1.0)",
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
            f"c = Conv(x, {LAYER})"
            "  y = BatchNormalization(c, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {1.0, -1.0})",
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
    pattern=linear * scale,
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
            "float[n,2,w] x; n = BatchNormalization(x, {1.0, 2.0}, {3.0, 4.0}, mean, var)"
            "  y = Mul(n, float[2,1] {2, 10})",
            to="float[n,2,w] x; y = BatchNormalization(x, {2.0, 20.0}, {6.0, 40.0}, mean, var)",
        ),
        Rewrites(
            "p = MatMul(x, float[1,2] {1, 2})  a = Add(p, {3.0, 4.0})  y = Mul(a, {2.0, 10.0})",
            to="p = MatMul(x, float[1,2] {2, 20})  y = Add(p, {6.0, 40.0})",
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[2] {{2, 10}})", because="varies along another axis"),
        Rejects(
            f"c = Conv(x, {LAYER})  y = Mul(c, float[1,1,2,1,1] {{2, 10}})", because="may raise the rank"
        ),
        Rejects(
            f"c = Conv(x, {LAYER})  y = Mul(c, float[3,1,1] {{2, 10, 1}})", because="does not fit 2 channels"
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, 3.0)", because="may belong to an activation"),
        Rejects(f"c = Conv(x, {LAYER})  y = Div(c, float[2,1,1] {{0, 1}})", because="not finite"),
    ),
)

VECTOR_SHIFT = Rule(
    name="shift-into-layer",
    stage=Stage.CANONICALIZE,
    pattern=linear + shift,
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
        Rejects(
            f"c = Conv(x, {LAYER})  y = Add(c, float[2,1] {{2, 10}})", because="varies along another axis"
        ),
        Rejects("p = MatMul(x, float[1,2] {1, 2})  y = Add(p, {3.0, 4.0})", because="no bias"),
        Rejects(
            f"c = Conv(x, {LAYER}, b)  y = Add(c, float[2,1,1] {{2, 10}})",
            because="expected a constant for b",
        ),
    ),
)

SCALE = Rule(
    name="scalar-scale-into-layer",
    stage=Stage.LOWER,
    pattern=linear * scale,
    rewrite=fold_scale,
    examples=(
        Rewrites(f"c = Conv(x, {LAYER})  y = Mul(c, 2.0)", to="y = Conv(x, float[2,2,1,1] {2, 4, 6, 8})"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, 3e38)", because="does not fit into float"),
    ),
)

SHIFT = Rule(
    name="scalar-shift-into-layer",
    stage=Stage.LOWER,
    pattern=linear + shift,
    rewrite=fold_shift,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER})  y = Sub(c, 2.0)",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {-2.0, -2.0})",
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Sub(2.0, c)", because="expected"),
    ),
)

RULES = (BATCHNORM, VECTOR_SCALE, VECTOR_SHIFT, SCALE, SHIFT)
