"""BatchNormalization, Mul and Add by channel become part of the layer before them.

A layer is linear: gain·(W∗x + b) + shift = (gain·W)∗x + (gain·b + shift), with one gain and one shift for
each output channel.

Why: one pass over the activations less for each of them.   Jacob et al., 2018, arXiv:1712.05877, section 3.2.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.linear_layers import (
    Array,
    affine,
    batchnorm,
    biased,
    body,
    body_folded,
    body_layout,
    matmul,
    per_channel,
    plain,
    scale,
    shift,
    with_bias,
)

how = Each[Value]("how", at_least=0)
view = op["Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"](body, how)
parts, along = Each[Match]("parts", of=plain), Attr[int]("along")
joined = op.Concat(parts, axis=along)
linear = any_of(body, view, joined)
"""A layer, its result viewed in another way, or several side by side."""
linear_with_bias = any_of(*with_bias, view, joined)

normed = batchnorm(linear)

MODERATE = 16.0
"""A factor up to this, or its reciprocal, may change places with others in a product."""


def fold_scale(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x)."""
    gain = per_channel(m, m[scale], *layout(m))
    moderate = (np.abs(gain) >= 1 / MODERATE).all() and (np.abs(gain) <= MODERATE).all()
    m.require(moderate or not m.remainder, "other factors come first, and what is left could overflow", at=scale)
    return folded(m, build, gain, np.zeros_like(gain))


def fold_shift(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x)."""
    m.require(matmul not in m or biased in m, "a matrix product has no bias to take the constant")
    offset = per_channel(m, m[shift], *layout(m))
    return folded(m, build, np.ones_like(offset), offset)


def layout(m: Match) -> tuple[int, int, int]:
    """Rank, channel axis and number of channels of what the layer computes."""
    if joined in m:
        layouts = [body_layout(part) for part in m[parts]]
        rank = layouts[0][0]
        m.require(all(each[0] == rank for each in layouts), "the layers have different ranks")
        m.require(m[along] in (1, 1 - rank), "the layers are not joined along the channels")
        return rank, 1, sum(each[2] for each in layouts)
    if view in m:
        _, axis, channels = body_layout(m)
        return m.rank(view) or 0, moved_axis(m, axis, channels), channels
    return body_layout(m)


def moved_axis(m: Match, axis: int, channels: int) -> int:
    """The axis of the layer's channels in the result of ``view``; -1 if not known."""
    before, after = m.shape(body), m.shape(view)
    if m.node(view).op_type == "Transpose":
        perm = m.attr(view, "perm") or (range(len(before))[::-1] if before is not None else ())
        return perm.index(axis) if axis in perm else -1
    if before is None or after is None:
        return -1
    inner = [d for d in before[axis + 1 :] if d != 1]
    fits = (same_shape(inner, [d for d in after[i + 1 :] if d != 1]) for i in range(len(after)))
    return next((i for i, fit in enumerate(fits) if fit and after[i] == channels), -1)


def folded(m: Match, build: Builder, gain: Array, offset: Array) -> Value:
    """The layer whose outputs are the old ones times ``gain`` plus ``offset``."""
    if joined in m:
        ends = np.cumsum([body_layout(part)[2] for part in m[parts]])[:-1]
        pieces = zip(m[parts], np.split(gain, ends), np.split(offset, ends), strict=True)
        return build.Concat(*[body_folded(part, build, g, o) for part, g, o in pieces], axis=m[along])
    result = body_folded(m, build, gain, offset)
    if view in m:
        (result,) = build.node(m.node(view).op_type, [result, *m[how]], m.attrs(view))
    return result


LAYER = "float[2,2,1,1] {1, 2, 3, 4}"
STATISTICS = "{2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.99999, 0.99999}"


@rule(
    "batchnorm-into-layer",
    CANONICALIZE,
    normed,
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
        Rewrites(
            "float[n,1] x; g = Gemm(x, float[1,2] {1, 2})  r = Unsqueeze(g, {2})"
            "  y = BatchNormalization(r, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.0, 0.0}, epsilon=1.0)",
            to="float[n,1] x; g = Gemm(x, float[1,2] {1, 2}, {-0.5, 0.25})  y = Unsqueeze(g, {2})",
        ),
        Rewrites(
            "a = Conv(x, float[1,1,1] {1})  b = Conv(x, float[1,1,3] {1, 2, 3}, pads=[1, 1])"
            "  c = Concat(a, b, axis=1)"
            "  y = BatchNormalization(c, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.0, 0.0}, epsilon=1.0)",
            to="a = Conv(x, float[1,1,1] {1}, {-0.5})"
            "  b = Conv(x, float[1,1,3] {1, 2, 3}, {0.25}, pads=[1, 1])  y = Concat(a, b, axis=1)",
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
def batchnorm_into_layer(m: Match, build: Builder) -> Value:
    """γ·(layer(x) - μ)/√(σ² + ε) + β ⟶ layer′(x)."""
    gain, offset = affine(m, normed)
    _, axis, channels = layout(m)
    m.require(axis == 1, "the axis that is normalized is not that of the layer's channels")
    m.require(gain.shape == (channels,), f"the layer has {channels} channels, the statistics have {gain.size}")
    return folded(m, build, gain, offset)


@rule(
    "scale-into-layer",
    CANONICALIZE,
    linear * scale,
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
        Rewrites(
            'c = Conv(x, float[2,1,2] {1, 2, 3, 4}, auto_pad="SAME_UPPER")  y = Mul(c, float[2,1] {2, 10})',
            to='y = Conv(x, float[2,1,2] {2, 4, 30, 40}, auto_pad="SAME_UPPER")',
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[2] {{2, 10}})", because="varies along another axis"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[1,1,2,1,1] {{2, 10}})", because="may raise the rank"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, float[3,1,1] {{2, 10, 1}})", because="does not fit 2 channels"),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, 3.0)", because="may belong to an activation"),
        Rejects(f"c = Conv(x, {LAYER})  y = Div(c, float[2,1,1] {{0, 1}})", because="not finite"),
    ),
)
def scale_into_layer(m: Match, build: Builder) -> Value:
    """layer(x)·scale ⟶ layer′(x), with a number for each channel."""
    m.require(m[scale].size > 1, "one number may belong to an activation function")
    return fold_scale(m, build)


@rule(
    "shift-into-layer",
    CANONICALIZE,
    linear_with_bias + shift,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER})  y = Add(float[2,1,1] {{2, 10}}, c)",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {2.0, 10.0})",
        ),
        Rewrites(
            "g = Gemm(x, float[1,2] {1, 2}, {1.0, 2.0})  y = Sub(g, {3.0, 5.0})",
            to="y = Gemm(x, float[1,2] {1, 2}, {-2.0, -3.0})",
        ),
        Rewrites(
            'c = Conv(x, float[2,1,2] {1, 2, 3, 4}, auto_pad="SAME_LOWER")  y = Add(c, float[2,1] {2, 10})',
            to='y = Conv(x, float[2,1,2] {1, 2, 3, 4}, {2.0, 10.0}, auto_pad="SAME_LOWER")',
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Add(c, float[2,1] {{2, 10}})", because="varies along another axis"),
        Rejects("p = MatMul(x, float[1,2] {1, 2})  y = Add(p, {3.0, 4.0})", because="found MatMul"),
        Rejects(
            f"c = Conv(x, {LAYER}, b)  y = Add(c, float[2,1,1] {{2, 10}})",
            because="expected a constant for b",
        ),
    ),
)
def shift_into_layer(m: Match, build: Builder) -> Value:
    """layer(x) + shift ⟶ layer′(x), with a number for each channel."""
    m.require(m[shift].size > 1, "one number may belong to an activation function")
    return fold_shift(m, build)


SCALE = rule(
    "scalar-scale-into-layer",
    LOWER,
    linear * scale,
    fold_scale,
    examples=(
        Rewrites(f"c = Conv(x, {LAYER})  y = Mul(c, 2.0)", to="y = Conv(x, float[2,2,1,1] {2, 4, 6, 8})"),
        Rewrites(
            "c = ConvTranspose(x, float[1,1,2,2] {1, 2, 3, 4}, dilations=[1, 2])  y = Mul(c, 2.0)",
            to="y = ConvTranspose(x, float[1,1,2,2] {2, 4, 6, 8}, dilations=[1, 2])",
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Mul(c, 3e38)", because="does not fit into float"),
    ),
)

SHIFT = rule(
    "scalar-shift-into-layer",
    LOWER,
    linear_with_bias + shift,
    fold_shift,
    examples=(
        Rewrites(
            f"c = Conv(x, {LAYER})  y = Sub(c, 2.0)",
            to="y = Conv(x, float[2,2,1,1] {1, 2, 3, 4}, {-2.0, -2.0})",
        ),
        Rejects(f"c = Conv(x, {LAYER})  y = Sub(2.0, c)", because="expected"),
    ),
)
