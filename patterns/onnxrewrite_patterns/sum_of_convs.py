"""Convolutions of one input that are added up, as one: the training form of RepVGG, MobileOne, RepViT and YOLOv6.

A sum of convolutions is linear in their kernels.  A kernel laid out on the places of all of them, with zeros where it
has none, is added to the others'; a normalization beside them, or the input itself, is a kernel of one place.

Why: each branch reads the whole input and writes the whole output.  The one kernel has no more places than they have
together.   Ding et al., 2021, arXiv:2101.03697.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.linear_layers import Array, affine, batchnorm, require_unquantized
from onnxrewrite_patterns.norm_parts import constant

x = Var("x", dtype=FLOATS)
one, other = (op.Conv(x, Const(f"{name} kernel"), Const(f"{name} bias", default=None)) for name in ("one", "other"))
normed = batchnorm(x)
beside = any_of(other, normed, x)
less, rest = one - beside, beside - one
total = any_of(one + beside, less, rest)


@dataclass(frozen=True)
class Kernel:
    """A convolution with strides, on a grid of places.

    Attributes:
        weight: [O, C/groups, ...].
        bias: [O].
        first: The place of its first element along each axis, from that of the output on.
        step: From one element to the next.
        ahead: The number of places that an axis grows by for it to be read: paddings, less what the kernel spans.
        strides: Those of the convolution.
    """

    weight: Array
    bias: Array
    first: tuple[int, ...]
    step: tuple[int, ...]
    ahead: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements along each axis."""
        return self.weight.shape[2:]

    def __neg__(self) -> Kernel:
        """That of the negative."""
        return replace(self, weight=-self.weight, bias=-self.bias)

    def spread(self, first: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
        """The weight on another grid, which holds its own."""
        whole = np.zeros((*self.weight.shape[:2], *sizes), self.weight.dtype)
        starts = [(own - f) // s for own, f, s in zip(self.first, first, self.step, strict=True)]
        own = tuple(slice(start, start + size) for start, size in zip(starts, self.sizes, strict=True))
        whole[:, :, *own] = self.weight
        return whole


def _of_conv(m: Match, call: Call, kernel: str) -> Kernel:
    """That of a convolution."""
    node, weight = m.node(call), constant(m, m.operand(m.node(call), 1))
    require_unquantized(m, *inputs_of(node))
    assert weight is not None
    rank = weight.ndim - 2
    m.require(m.attr(call, "auto_pad") in ("NOTSET", None), "auto_pad depends on the size", at=call)
    pads = m.attr(call, "pads") or (0,) * 2 * rank
    step = m.attr(call, "dilations") or (1,) * rank
    strides = m.attr(call, "strides") or (1,) * rank
    bias = named_input(m.facts, node, "B")
    offsets = constant(m, bias) if bias is not None else np.zeros(len(weight))
    m.require(offsets is not None, f"the bias of the {kernel} is not constant", at=call)
    spans = [s * (k - 1) for s, k in zip(step, weight.shape[2:], strict=True)]
    ahead = tuple(b + e - span for b, e, span in zip(pads[:rank], pads[rank:], spans, strict=True))
    assert offsets is not None
    return Kernel(weight, offsets, tuple(-p for p in pads[:rank]), tuple(step), ahead, tuple(strides))


def _of_channel(like: Kernel, gain: Array, offset: Array) -> Kernel:
    """That of a gain and an offset for each channel, beside another one."""
    channels, width, rank = len(gain), like.weight.shape[1], len(like.sizes)
    weight = np.zeros((channels, width, *[1] * rank))
    weight[np.arange(channels), np.arange(channels) % width] = gain.reshape(-1, *[1] * rank)
    none = (0,) * rank
    return Kernel(weight, offset, none, like.step, none, (1,) * rank)


def _on_one_grid(m: Match, a: Kernel, b: Kernel) -> tuple[Kernel, Kernel]:
    """Both with the step of the one that has several elements, which their places must fit."""
    step = tuple(s if n > 1 else t for s, t, n in zip(a.step, b.step, a.sizes, strict=True))
    fits = all(t == s or n == 1 for s, t, n in zip(step, b.step, b.sizes, strict=True))
    meets = all((f - g) % s == 0 for f, g, s in zip(a.first, b.first, step, strict=True))
    m.require(fits and meets, "the kernels have their elements at other places", at=one)
    return replace(a, step=step), replace(b, step=step)


_USUAL = {"pads": {0}, "dilations": {1}}
"""What an absent attribute stands for, throughout; the size of the kernel is that of the weight."""

_LAYER = "float[n,1,h,w] x; a = Conv<pads=[1,1,1,1]>(x, float[1,1,3,3] {1, 2, 3, 4, 5, 6, 7, 8, 9}, {2.0})"
_POINT = "float[1,1,1,1] {10}"


@rule(
    "sum-of-convs",
    CANONICALIZE,
    total,
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            f"{_LAYER} b = Conv(x, {_POINT}, {{3.0}})  y = Add(a, b)",
            to="float[n,1,h,w] x;"
            "y = Conv<pads=[1,1,1,1]>(x, float[1,1,3,3] {1, 2, 3, 4, 15, 6, 7, 8, 9}, float[1] {5.0})",
        ),
        Rewrites(
            "float[n,2,w] x; a = Conv<dilations=[2], pads=[0,4]>(x, float[2,2,2] {1, 2, 3, 4, 5, 6, 7, 8})"
            "  b = Conv<pads=[0,2]>(x, float[2,2,1] {1, 1, 1, 1})  z = Relu(x)  c = Add(b, z)  y = Add(a, c)",
            to="float[n,2,w] x; z = Relu(x)"
            "  c = Conv<dilations=[2], pads=[0,4]>(x, float[2,2,2] {2, 2, 4, 4, 6, 6, 8, 8})  y = Add(c, z)",
        ),
        Rewrites(
            "float[n,2,w] x; a = Conv<group=2, pads=[1,1]>(x, float[2,1,3] {1, 2, 3, 4, 5, 6})"
            "  b = BatchNormalization(x, {2.0, 1.0}, {0.5, 0.25}, {1.0, 0.0}, {3.0, 0.0}, epsilon=1.0)"
            "  c = Add(a, b)  y = Add(c, x)",
            to="float[n,2,w] x;"
            "y = Conv<group=2, pads=[1,1]>(x, float[2,1,3] {1, 4, 3, 4, 7, 6}, float[2] {-0.5, 0.25})",
        ),
        Rewrites(
            f"{_LAYER} b = Conv(x, {_POINT}, {{3.0}})  y = Sub(a, b)",
            to="float[n,1,h,w] x;"
            "y = Conv<pads=[1,1,1,1]>(x, float[1,1,3,3] {1, 2, 3, 4, -5, 6, 7, 8, 9}, float[1] {-1.0})",
        ),
        Rewrites(
            f"{_LAYER} y = Sub(x, a)",
            to="float[n,1,h,w] x;"
            "y = Conv<pads=[1,1,1,1]>(x, float[1,1,3,3] {-1, -2, -3, -4, -4, -6, -7, -8, -9}, float[1] {-2.0})",
        ),
        Rejects(f"{_LAYER} b = Conv<strides=[2,2]>(x, {_POINT})  y = Add(a, b)", because="other strides"),
        Rejects(
            f"{_LAYER} b = Conv<pads=[1,1,1,1]>(x, {_POINT})  c = Slice(b, {{1}}, {{2}}, {{2}})  y = Add(a, c)",
            because="expected",
        ),
        Rejects(f"{_LAYER} b = Conv<pads=[1,0,1,0]>(x, {_POINT})  y = Add(a, b)", because="results of other sizes"),
        Rejects(
            "float[n,1,w] x; a = Conv<pads=[2,2], dilations=[2]>(x, float[1,1,3] {1, 2, 3})"
            "  b = Conv<pads=[1,1]>(x, float[1,1,3] {1, 2, 3})  y = Add(a, b)",
            because="at other places",
        ),
        Rejects(
            "float[n,1,h,w] x; a = Conv<pads=[0,1,0,1]>(x, float[1,1,1,3] {1, 2, 3})"
            "  b = Conv<pads=[1,0,1,0]>(x, float[1,1,3,1] {1, 2, 3})  y = Add(a, b)",
            because="9 elements, and they have 6",
        ),
        Rejects(
            "float[n,1,w] x; a = Conv(x, float[2,1,1] {1, 2})  y = Add(a, x)", because="other channels than the input"
        ),
        Rejects(
            "float[n,2,w] x; a = Conv<group=2>(x, float[2,1,1] {1, 2})  b = Conv(x, float[2,2,1] {1, 2, 3, 4})"
            "  y = Add(a, b)",
            because="groups",
        ),
        Rejects(f"{_LAYER} b = Conv(x, {_POINT})  y = Add(a, b)  z = Relu(b)", because="also used by Relu"),
    ),
)
def sum_of_convs(m: Match, build: Builder) -> Value:
    """Conv(x, u, b) + Conv(x, v, c) ⟶ Conv(x, u + v, b + c), and likewise of BatchNormalization(x), of x, and of the
    difference."""
    own = _of_conv(m, one, "first")
    channels, shape = len(own.weight), m.shape(x)
    which = m.alternative(beside)
    if which is other:
        second = _of_conv(m, other, "second")
        m.require(m.attr(one, "group") == m.attr(other, "group"), "their groups differ", at=other)
    else:
        as_many = shape is not None and shape[1] == channels == own.weight.shape[1] * (m.attr(one, "group") or 1)
        m.require(as_many, "the result has other channels than the input", at=x)
        none = np.zeros(channels)
        second = _of_channel(own, *(affine(m, normed) if which is normed else (none + 1, none)))
    form = m.alternative(total)
    own, second = -own if form is rest else own, -second if form is less else second
    m.require(own.strides == second.strides, "they have other strides", at=one)
    m.require(own.weight.shape[:2] == second.weight.shape[:2], "they have other channels", at=one)
    m.require(own.ahead == second.ahead, "they give results of other sizes", at=one)
    own, second = _on_one_grid(m, own, second)
    first = tuple(map(min, own.first, second.first))
    ends = [
        max(a + s * (n - 1), b + s * (k - 1))
        for a, n, b, k, s in zip(own.first, own.sizes, second.first, second.sizes, own.step, strict=True)
    ]
    sizes = tuple((end - f) // s + 1 for end, f, s in zip(ends, first, own.step, strict=True))
    area, areas = math.prod(sizes), math.prod(own.sizes) + math.prod(second.sizes)
    m.require(area <= areas, f"the one kernel has {area} elements, and they have {areas}", at=one)
    behind = [a + f + s * (k - 1) for a, f, s, k in zip(own.ahead, first, own.step, sizes, strict=True)]
    m.require(max(first) <= 0 <= min(behind), "the one kernel would have to leave out a border", at=one)
    node, offsets = m.node(one), own.bias + second.bias
    layout = {"pads": (*(-f for f in first), *behind), "dilations": own.step, "kernel_shape": sizes}
    told = {n: v for n, v in layout.items() if n in node.attributes or not set(v) <= _USUAL.get(n, set(v))}
    kernel = build.const(own.spread(first, sizes) + second.spread(first, sizes), like=x)
    bias = build.const(offsets, like=x) if offsets.any() else None
    for made in filter(None, (kernel, bias)):
        m.require(np.isfinite(np.asarray(constant(m, made))).all(), "the sum is not finite", at=one)
    return build.again(node, m[x], kernel, bias, **told)[0]
