"""Convolutions and pools in double precision, as sums over the window of strided slices.

A window of K taps becomes K slices of the padded input; each is multiplied by one tap of the weight (MatMul
for dense groups, Mul for depthwise) and added.  All sizes may be dynamic except the weight's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxrewrite.verify.expand import Emit, Unsupported, expands

BIG = np.iinfo(np.int64).max


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


def window(attrs: dict[str, Any], kernel: Sequence[int], shape: tuple[int | None, ...] | None) -> Window:
    """The window of a node; ``auto_pad`` SAME needs known spatial sizes."""
    rank = len(kernel)
    strides = list(attrs.get("strides") or [1] * rank)
    dilations = list(attrs.get("dilations") or [1] * rank)
    pads = list(attrs.get("pads") or [0] * 2 * rank)
    auto = attrs.get("auto_pad", b"NOTSET")
    if auto == b"VALID":
        pads = [0] * 2 * rank
    elif auto in (b"SAME_UPPER", b"SAME_LOWER"):
        pads = _same_pads(auto, kernel, strides, dilations, shape)
    return Window(list(kernel), strides, dilations, pads)


def _same_pads(
    auto: bytes, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], shape: Any
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
    first = tap(e, x, w, [0] * w.rank)
    sizes = e.op("Slice", e.op("Shape", first), e.ints([2]), e.ints([2 + w.rank]))
    batch = e.op("Slice", e.op("Shape", first), e.ints([0]), e.ints([1]))
    depthwise = per_group == 1 and groups == out
    grouped = e.op("Reshape", weight, e.ints([groups, out // groups, per_group, *w.kernel]))
    total = ""
    for at in w.taps():
        part = tap(e, x, w, at)
        factor = grouped
        for position in at:
            factor = e.op("Gather", factor, e.const(position, np.int64), axis=3)
        if depthwise:
            term = e.mul(part, e.op("Reshape", factor, e.ints([1, out, *[1] * w.rank])))
        else:
            flat = e.op("Reshape", part, e.ints([0, groups, per_group, -1]) if w.rank else part)
            term = e.op("MatMul", factor, flat)
        total = term if not total else e.add(total, term)
    if depthwise:
        return total
    return str(e.op("Reshape", total, e.op("Concat", batch, e.ints([out]), sizes, axis=0)))


def _weight_shape(e: Emit, name: str) -> tuple[int, ...]:
    shape = e.shapes.get(name)
    if shape is None or any(d is None for d in shape):
        raise Unsupported("a weight of unknown shape")
    return tuple(int(d) for d in shape if d is not None)


def _bias(e: Emit, y: str, bias: str, rank: int) -> str:
    return e.add(y, e.op("Reshape", bias, e.ints([1, -1, *[1] * rank])))


@expands("Conv")
def _conv(e: Emit, node: onnx.NodeProto, attrs: dict[str, Any]) -> list[str]:
    x, weight = node.input[:2]
    out, per_group, *kernel = _weight_shape(e, weight)
    w = window(attrs, kernel, e.shapes.get(x))
    y = correlate(e, padded(e, x, w), weight, w, attrs.get("group", 1), out, per_group)
    return [_bias(e, y, node.input[2], w.rank) if len(node.input) > 2 and node.input[2] else y]


@expands("ConvTranspose")
def _conv_transpose(e: Emit, node: onnx.NodeProto, attrs: dict[str, Any]) -> list[str]:
    """Zeros between the elements, then the convolution with the mirrored, transposed weight."""
    x, weight = node.input[:2]
    channels, per_group, *kernel = _weight_shape(e, weight)
    rank, groups = len(kernel), attrs.get("group", 1)
    if attrs.get("output_shape") or attrs.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise Unsupported("ConvTranspose with output_shape or auto_pad")
    strides = list(attrs.get("strides") or [1] * rank)
    dilations = list(attrs.get("dilations") or [1] * rank)
    pads = list(attrs.get("pads") or [0] * 2 * rank)
    extra = list(attrs.get("output_padding") or [0] * rank)
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
def _average_pool(e: Emit, node: onnx.NodeProto, attrs: dict[str, Any]) -> list[str]:
    x = node.input[0]
    if attrs.get("ceil_mode", 0):
        raise Unsupported("AveragePool with ceil_mode")
    w = window(attrs, attrs["kernel_shape"], e.shapes.get(x))
    total = _window_sum(e, padded(e, x, w), w)
    if attrs.get("count_include_pad", 0) or not any(w.pads):
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
def _global_pool(e: Emit, node: onnx.NodeProto, attrs: dict[str, Any]) -> list[str]:
    shape = e.shapes.get(node.input[0])
    if shape is None:
        raise Unsupported("a global pool of unknown rank")
    kind = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    return [e.reduce(kind, node.input[0], range(2, len(shape)))]


@expands("InstanceNormalization")
def _instance_norm(e: Emit, node: onnx.NodeProto, attrs: dict[str, Any]) -> list[str]:
    x, scale, bias = node.input
    shape = e.shapes.get(x)
    if shape is None:
        raise Unsupported("InstanceNormalization of unknown rank")
    axes = list(range(2, len(shape)))
    centred = e.op("Sub", x, e.reduce("ReduceMean", x, axes))
    variance = e.reduce("ReduceMean", e.mul(centred, centred), axes)
    eps = float(np.float32(attrs.get("epsilon", 1e-5)))
    unit = e.op("Div", centred, e.op("Sqrt", e.add(variance, e.const(eps))))
    across = e.ints([1, -1, *[1] * len(axes)])
    return [e.add(e.mul(unit, e.op("Reshape", scale, across)), e.op("Reshape", bias, across))]
