"""Convolutions and pools in double precision, as sums over the window of strided slices.

A window of K taps becomes K slices of the padded input; each is multiplied by one tap of the weight (MatMul
for dense groups, several taps at once, Mul for depthwise) and added.  All sizes may be dynamic except the weight's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnxrewrite.ir.bodies.emitter import Attributes, Emit, Unsupported
from onnxrewrite.reference.expand import expands

BIG = np.iinfo(np.int64).max

_TOGETHER = 9
"""So many taps are multiplied at once: that many times the input is held."""


@dataclass
class Window:
    """Kernel size, strides, dilations and pads (begins then ends) of a convolution or pool."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def axes(self) -> list[int]:
        """Spatial axes of an (N, C, ...) tensor."""
        return list(range(2, 2 + self.rank))

    def taps(self) -> itertools.product[tuple[int, ...]]:
        """Every position in the window."""
        return itertools.product(*[range(k) for k in self.kernel])


def window(attrs: Attributes, kernel: Sequence[int], shape: tuple[int | None, ...] | None) -> Window:
    """The window of a node; ``auto_pad`` SAME needs known spatial sizes."""
    rank = len(kernel)
    strides = list(attrs.given("strides", list[int]()) or [1] * rank)
    dilations = list(attrs.given("dilations", list[int]()) or [1] * rank)
    pads = list(attrs.given("pads", list[int]()) or [0] * 2 * rank)
    auto = attrs.given("auto_pad", b"NOTSET")
    if auto == b"VALID":
        pads = [0] * 2 * rank
    elif auto in (b"SAME_UPPER", b"SAME_LOWER"):
        pads = _same_pads(auto, kernel, strides, dilations, shape)
    return Window(list(kernel), strides, dilations, pads)


def _same_pads(
    auto: bytes,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    shape: Sequence[int | None] | None,
) -> list[int]:
    begins, ends = [], []
    for i, k in enumerate(kernel):
        reach = (k - 1) * dilations[i] + 1
        size = shape[2 + i] if shape is not None else None
        if size is None and strides[i] != 1:
            raise Unsupported("auto_pad with strides on a dynamic size")
        total = reach - 1 if size is None else max(0, (math.ceil(size / strides[i]) - 1) * strides[i] + reach - size)
        low = total // 2 if auto == b"SAME_UPPER" else total - total // 2
        begins.append(low)
        ends.append(total - low)
    return begins + ends


def padded(e: Emit, x: str, w: Window, value: str | None = None) -> str:
    """The input with its border."""
    if not any(w.pads):
        return x
    full = [0, 0, *w.pads[: w.rank], 0, 0, *w.pads[w.rank :]]
    return str(e.op("Pad", x, e.ints(full), *([value] if value else []), mode="constant"))


def tap(e: Emit, x: str, w: Window, at: Sequence[int]) -> str:
    """The elements that one tap of the window sees, one an output position."""
    starts = [p * d for p, d in zip(at, w.dilations, strict=True)]
    rest = [-(k - 1 - p) * d for p, k, d in zip(at, w.kernel, w.dilations, strict=True)]
    ends = [r if r < 0 else BIG for r in rest]
    if not any(starts) and all(r == BIG for r in ends) and all(s == 1 for s in w.strides):
        return x
    return e.slice(x, starts, ends, w.axes, w.strides)


def correlate(e: Emit, x: str, weight: str, w: Window, groups: int, out: int, per_group: int) -> str:
    """Σ over taps of weight[:, :, tap] · slice: the convolution without bias, x already padded."""
    parts = [tap(e, x, w, at) for at in w.taps()]
    if per_group == 1 and groups == out:
        by_tap = e.op("Reshape", e.op("Transpose", weight, perm=[*w.axes, 0, 1]), e.ints([-1, out, *[1] * w.rank]))
        return e.add(*[e.mul(part, e.slice(by_tap, [i], [i + 1], [0], [1])) for i, part in enumerate(parts)])
    rows = e.op("Reshape", e.op("Transpose", weight, perm=[0, *w.axes, 1]), e.ints([groups, out // groups, -1]))
    terms = []
    for first in range(0, len(parts), _TOGETHER):
        seen = parts[first : first + _TOGETHER]
        limits = [first * per_group], [(first + len(seen)) * per_group]
        factor = e.slice(rows, *limits, [2], [1]) if len(seen) < len(parts) else rows
        terms.append(e.op("MatMul", factor, _columns(e, seen, groups, per_group)))
    shape = e.op("Shape", parts[0])
    batch, sizes = e.slice(shape, [0], [1], [0], [1]), e.slice(shape, [2], [BIG], [0], [1])
    return str(e.op("Reshape", e.add(*terms), e.op("Concat", batch, e.ints([out]), sizes, axis=0)))


def _columns(e: Emit, parts: Sequence[str], groups: int, per_group: int) -> str:
    """The slices of several taps, stacked: (N, C, ...) each, (N, groups, taps · per_group, positions) together."""
    if groups > 1:
        parts = [e.op("Reshape", p, e.ints([0, groups, per_group, -1])) for p in parts]
    joined = e.op("Concat", *parts, axis=2 if groups > 1 else 1) if len(parts) > 1 else parts[0]
    return str(e.op("Reshape", joined, e.ints([0, groups, len(parts) * per_group, -1])))


def _bias(e: Emit, y: str, bias: str, rank: int) -> str:
    return e.add(y, e.op("Reshape", bias, e.ints([1, -1, *[1] * rank])))


@expands("Conv")
def _conv(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, weight = node.input[:2]
    out, per_group, *kernel = e.sizes(weight)
    w = window(attrs, kernel, e.shapes.get(x))
    y = correlate(e, padded(e, x, w), weight, w, attrs.given("group", 1), out, per_group)
    return [_bias(e, y, node.input[2], w.rank) if len(node.input) > 2 and node.input[2] else y]


@expands("ConvTranspose")
def _conv_transpose(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Zeros between the elements, then the convolution with the mirrored, transposed weight."""
    x, weight = node.input[:2]
    channels, per_group, *kernel = e.sizes(weight)
    rank, groups = len(kernel), attrs.given("group", 1)
    if attrs.get("output_shape") or attrs.given("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise Unsupported("ConvTranspose with output_shape or auto_pad")
    strides = list(attrs.given("strides", list[int]()) or [1] * rank)
    dilations = list(attrs.given("dilations", list[int]()) or [1] * rank)
    pads = list(attrs.given("pads", list[int]()) or [0] * 2 * rank)
    extra = list(attrs.given("output_padding", list[int]()) or [0] * rank)
    spread = _spread(e, x, strides)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    begins = [r - p for r, p in zip(reach, pads[:rank], strict=True)]
    ends = [r - p + o - (s - 1) for r, p, o, s in zip(reach, pads[rank:], extra, strides, strict=True)]
    w = Window(kernel, [1] * rank, dilations, begins + ends)
    mirrored = e.slice(weight, [-1] * rank, [-BIG] * rank, w.axes, [-1] * rank)
    grouped = e.op("Reshape", mirrored, e.ints([groups, channels // groups, per_group, *kernel]))
    turned = e.op("Transpose", grouped, perm=[0, 2, 1, *range(3, 3 + rank)])
    flat = e.op("Reshape", turned, e.ints([groups * per_group, channels // groups, *kernel]))
    y = correlate(e, padded(e, spread, w), flat, w, groups, groups * per_group, channels // groups)
    return [_bias(e, y, node.input[2], rank) if len(node.input) > 2 and node.input[2] else y]


def _spread(e: Emit, x: str, strides: Sequence[int]) -> str:
    """Each element followed by stride − 1 zeros along every spatial axis."""
    if all(s == 1 for s in strides):
        return x
    rank = len(strides)
    wide = e.unsqueeze(x, [3 + 2 * i for i in range(rank)])
    ends = [0, 0] + [v for s in strides for v in (0, s - 1)]
    wide = str(e.op("Pad", wide, e.ints([0] * (2 + 2 * rank) + ends), mode="constant"))
    shape = e.op("Mul", e.op("Shape", x), e.ints([1, 1, *strides]))
    return str(e.op("Reshape", wide, shape))


@expands("AveragePool")
def _average_pool(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    if attrs.given("ceil_mode", 0):
        raise Unsupported("AveragePool with ceil_mode")
    w = window(attrs, attrs["kernel_shape"], e.shapes.get(x))
    total = _window_sum(e, padded(e, x, w), w)
    if attrs.given("count_include_pad", 0) or not any(w.pads):
        return [e.mul(total, e.const(1.0 / math.prod(w.kernel)))]
    ones = e.op(
        "Add",
        e.mul(e.op("Cast", e.op("Cast", x, to=onnx.TensorProto.BOOL), to=onnx.TensorProto.DOUBLE), e.const(0.0)),
        e.const(1.0),
    )
    return [str(e.op("Div", total, _window_sum(e, padded(e, ones, w), w)))]


def _window_sum(e: Emit, x: str, w: Window) -> str:
    return e.add(*[tap(e, x, w, at) for at in w.taps()])


@expands("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    kind = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    return [e.reduce(kind, node.input[0], range(2, len(e.shape(node.input[0]))))]


@expands("InstanceNormalization")
def _instance_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, scale, bias = node.input
    axes = list(range(2, len(e.shape(x))))
    centred = e.op("Sub", x, e.reduce("ReduceMean", x, axes))
    variance = e.reduce("ReduceMean", e.mul(centred, centred), axes)
    eps = float(np.float32(attrs.given("epsilon", 1e-5)))
    unit = e.op("Div", centred, e.op("Sqrt", e.add(variance, e.const(eps))))
    across = e.ints([1, -1, *[1] * len(axes)])
    return [e.add(e.mul(unit, e.op("Reshape", scale, across)), e.op("Reshape", bias, across))]
