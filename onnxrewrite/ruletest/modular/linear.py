"""Products of matrices, convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.elementwise import greater_or_less
from onnxrewrite.ruletest.modular.evaluate import Call, NotApplicable, Run, Unlucky, computes
from onnxrewrite.system.arrays import Array

Pads = list[tuple[int, int]]

_MOST = 2**22
"""Elements of all windows of a convolution together, beyond which it takes seconds."""


@computes("MatMul")
def _matmul(run: Run, call: Call, a: Array, b: Array) -> Array:
    return ring.bilinear(np.matmul, a, b)


@computes("Gemm")
def _gemm(run: Run, call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
    """α·a·b + β·c."""
    a, b = a.T if call.get("transA", 0) else a, b.T if call.get("transB", 0) else b
    result = ring.mul(ring.bilinear(np.matmul, a, b), run.attribute(call, "alpha", 1.0))
    return result if c is None else ring.add(result, ring.mul(c, run.attribute(call, "beta", 1.0)))


@computes("MatMulNBits", domain="com.microsoft")
def _quantized_product(run: Run, call: Call, a: Array, packed: Array, scales: Array, *rest: Array | None) -> Array:
    """a·bᵀ + bias, where b lies in blocks of few bits, each with a scale and a zero."""
    zeros, order, bias = (*rest, None, None, None)[:3]
    if order is not None or (zeros is not None and zeros.dtype != np.uint8):
        raise NotApplicable("MatMulNBits: g_idx, or zero points that are floats")
    rows, bits = call.get("N"), call.get("bits", 4)
    scales = scales.reshape(rows, -1)
    digits = _unpacked(packed.reshape(rows, -1), bits).reshape(*scales.shape, -1)
    zero = 2 ** (bits - 1) if zeros is None else _unpacked(zeros.reshape(rows, -1), bits)[:, : scales.shape[1], None]
    weight = ring.mul(ring.integers(digits - zero), scales[..., None]).reshape(rows, -1)[:, : call.get("K")]
    result = ring.bilinear(np.matmul, a, weight.T)
    return result if bias is None else ring.add(result, bias)


@computes("DynamicQuantizeLinear")
def _dynamic(run: Run, call: Call, x: Array) -> tuple[Array, ...]:
    """Elements, scale and zero, of which no law is known but that they depend on all of x, in any order."""
    whole = reduce(ring.add, ring.hashed("DynamicQuantizeLinear", x).ravel(), np.zeros((), np.uint64))
    scale, zero = (ring.hashed(f"DynamicQuantizeLinear {name}", whole) for name in ("scale", "zero"))
    return ring.hashed("DynamicQuantizeLinear element", x, np.broadcast_to(whole, x.shape)), scale, zero


@computes("MatMulInteger")
def _matmul_integer(
    run: Run, call: Call, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    return ring.bilinear(np.matmul, _from_zero(a, a_zero), _from_zero(b, b_zero))


def _from_zero(integers: Array, zero: Array | None) -> Array:
    elements = ring.elements(integers)
    return elements if zero is None else ring.sub(elements, ring.elements(zero))


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers in bytes, lowest bits first."""
    places = np.arange(0, 8, bits)
    numbers = (packed[..., None].astype(np.int64) >> places) & (2**bits - 1)
    return np.asarray(numbers.reshape(*packed.shape[:-1], -1))


@computes("Einsum")
def _einsum(run: Run, call: Call, *operands: Array) -> Array:
    equation = call.get("equation").replace(" ", "")
    if any(ring.is_undefined(each).any() for each in operands):
        raise Unlucky("Einsum of an undefined element")
    if len(operands) == 1:
        return np.asarray(np.einsum(equation, operands[0]) % np.uint64(ring.MODULUS))
    if len(operands) > 2:
        raise NotApplicable("Einsum of more than two operands")
    return ring.bilinear(lambda a, b: np.asarray(np.einsum(equation, a, b)), *operands)


# -- windows -------------------------------------------------------------------------------------------------


def _sizes(call: Call, name: str, rank: int) -> list[int]:
    return list(call.get(name) or [1] * rank)


def _pads(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> Pads:
    """Begin and end of every spatial axis, ``auto_pad`` resolved."""
    rank, auto = len(sizes), call.get("auto_pad", "NOTSET")
    if auto == "VALID":
        return [(0, 0)] * rank
    if auto.startswith("SAME"):
        steps, spans = _sizes(call, "strides", rank), _spans(call, kernel)
        needed = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(sizes, steps, spans, strict=True)]
        return [(n - n // 2, n // 2) if auto == "SAME_LOWER" else (n // 2, n - n // 2) for n in needed]
    pads = call.get("pads") or [0] * 2 * rank
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _spans(call: Call, kernel: Sequence[int]) -> list[int]:
    return [(k - 1) * d + 1 for k, d in zip(kernel, _sizes(call, "dilations", len(kernel)), strict=True)]


def _windows(call: Call, x: Array, kernel: Sequence[int], pads: Pads, fill: Any, steps: Sequence[int]) -> Array:
    """(N, C, *out, *kernel): what every window sees."""
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    seen = sliding_window_view(padded, _spans(call, kernel), axis=tuple(range(2, 2 + rank)))
    dilations = _sizes(call, "dilations", rank)
    places = [slice(None, None, s) for s in steps] + [slice(None, None, d) for d in dilations]
    return np.asarray(seen[(slice(None), slice(None), *places)])


def _convolve(seen: Array, w: Array, groups: int) -> Array:
    """Windows (N, C, *out, *kernel) against weights (M, C/groups, *kernel): (N, M, *out)."""
    if seen.size > _MOST:
        raise NotApplicable(f"windows of {seen.size} elements")
    batch, channels = seen.shape[:2]
    rank = w.ndim - 2
    out = seen.shape[2 : 2 + rank]
    columns = seen.reshape(batch, groups, channels // groups, math.prod(out), -1).swapaxes(2, 3)
    rows = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
    found = ring.bilinear(np.matmul, columns.reshape(batch, groups, math.prod(out), -1), rows)
    return np.asarray(found.swapaxes(2, 3).reshape(batch, w.shape[0], *out))


def _biased(result: Array, bias: Array | None) -> Array:
    return result if bias is None else ring.add(result, bias.reshape(-1, *[1] * (result.ndim - 2)))


@computes("Conv")
def _conv(run: Run, call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
    kernel = w.shape[2:]
    steps = _sizes(call, "strides", len(kernel))
    seen = _windows(call, x, kernel, _pads(call, x.shape[2:], kernel), 0, steps)
    return _biased(_convolve(seen, w, call.get("group", 1)), bias)


@computes("ConvTranspose")
def _conv_transpose(run: Run, call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
    """The convolution of x, zeros between its elements, with the kernel turned round."""
    kernel, groups = w.shape[2:], call.get("group", 1)
    rank = len(kernel)
    steps, spans = _sizes(call, "strides", rank), _spans(call, kernel)
    extra = list(call.get("output_padding") or [0] * rank)
    apart = np.zeros((*x.shape[:2], *[(n - 1) * s + 1 for n, s in zip(x.shape[2:], steps, strict=True)]), np.uint64)
    apart[(slice(None), slice(None), *[slice(None, None, s) for s in steps])] = x
    whole: Pads = [(k - 1, k - 1 + e) for k, e in zip(spans, extra, strict=True)]
    turned = np.flip(w, tuple(range(2, w.ndim))).reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    flat = turned.reshape(-1, turned.shape[2], *kernel)
    full = _convolve(_windows(call, apart, kernel, whole, 0, [1] * rank), flat, groups)
    crop = _crop(call, x.shape[2:], full.shape[2:], steps)
    return _biased(full[(slice(None), slice(None), *crop)], bias)


def _crop(call: Call, sizes: Sequence[int], full: Sequence[int], steps: Sequence[int]) -> list[slice]:
    """The slices that pads, or a given output shape, leave of the full result of a transposed convolution."""
    auto, wanted = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    if not wanted and not auto.startswith("SAME"):
        return [slice(low, n - high) for n, (low, high) in zip(full, _pads(call, sizes, [1] * len(full)), strict=True)]
    result = []
    for n, size in zip(full, wanted or [n * s for n, s in zip(sizes, steps, strict=True)], strict=True):
        low = (n - size) // 2 if auto == "SAME_UPPER" else n - size - (n - size) // 2
        result.append(slice(low, low + size))
    return result


@computes("AveragePool", "MaxPool")
def _pool(run: Run, call: Call, x: Array) -> Array:
    if call.outputs > 1:
        raise NotApplicable(f"{call.op_type}: indices")
    kernel, rank = call.get("kernel_shape"), x.ndim - 2
    steps, pads = _sizes(call, "strides", rank), _pads(call, x.shape[2:], kernel)
    after = _ceiled(call, x.shape[2:], kernel, pads, steps)
    inner = tuple(range(-rank, 0))
    if call.op_type == "AveragePool":
        wide = np.ones(x.shape, np.uint64)
        include = bool(call.get("count_include_pad", 0))
        if include:
            x, wide = (np.pad(each, [(0, 0), (0, 0), *pads], constant_values=f) for each, f in ((x, 0), (wide, 1)))
        border = [(0, b - p) for (_, b), (_, p) in zip(after, pads, strict=True)] if include else after
        sums, counts = (ring.total(_windows(call, a, kernel, border, 0, steps), inner) for a in (x, wide))
        return ring.div(sums, counts)
    if ring.is_undefined(x).any():
        raise Unlucky("MaxPool of an undefined element")
    seen = _windows(call, x, kernel, after, ring.UNDEFINED, steps)
    return reduce(partial(_present, run), np.moveaxis(seen, inner, range(rank)).reshape(-1, *seen.shape[:-rank]))


def _present(run: Run, a: Array, b: Array) -> Array:
    """The greater of two, the other one where one is padding."""
    both = greater_or_less(run, True, a, b)
    return np.where(ring.is_undefined(a), b, np.where(ring.is_undefined(b), a, both))


def _ceiled(call: Call, sizes: Sequence[int], kernel: Sequence[int], pads: Pads, steps: Sequence[int]) -> Pads:
    """Pads with as much more at the end as the last window of ``ceil_mode`` needs; none may begin in the padding."""
    if not call.get("ceil_mode", 0):
        return pads
    result = []
    for n, k, (low, high), s in zip(sizes, _spans(call, kernel), pads, steps, strict=True):
        count = -(-(n + low + high - k) // s) + 1
        count -= (count - 1) * s >= n + low
        result.append((low, max(high, (count - 1) * s + k - n - low)))
    return result


@computes("Resize")
def _resize(run: Run, call: Call, x: Array, *parameters: object) -> Array:
    """One matrix an axis: what Resize makes of the unit matrix."""
    if call.get("coordinate_transformation_mode", "") == "tf_crop_and_resize" or call.get("axes"):
        raise NotApplicable("Resize of chosen axes, or cropped")
    if call.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotApplicable("Resize that keeps the aspect ratio")
    by_size = len(call.inputs) > 3
    target = call.inputs[-1]
    if not isinstance(target, np.ndarray) or len(target) != x.ndim:
        raise NotApplicable("Resize without sizes or scales for all axes")
    for axis, wanted in enumerate(target):
        if wanted != (x.shape[axis] if by_size else 1):
            one = np.asarray([x.shape[axis] if by_size else 1, wanted], target.dtype)
            unit = np.eye(x.shape[axis], dtype=np.float32)
            made = run.call(replace(call, inputs=(unit, *[None] * (len(call.inputs) - 2), one)))[0]
            x = np.moveaxis(ring.bilinear(np.matmul, np.moveaxis(x, axis, -1), run.elements(made)), -1, axis)
    return x
