"""Classes of values that inputs are made of: those at which fusions go wrong.

An eps that is too large shows at tiny inputs, a variance in one pass at a large offset, a lost maximum in a softmax at
large ones, a sign at zeros, a strict comparison at ties and at the numbers that a model itself holds, a mask where it
hides a whole row, a wrapped sum at the largest integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx

from onnxrewrite.inputs.bindings import InputSpec, telling
from onnxrewrite.system.arrays import Array, DType, Feeds, Floats, Mask, is_tensor

SENTINEL_MIN = 9e3
"""From here on a number may stand for infinity, as -10000 does in masks."""

CLASSES = ("normal", "offset", "large", "tiny", "zeros", "constant rows")
"""Classes at which every rewrite of a model is tried."""

HUGE, NOT_FINITE, MARKS, SIGNED = "huge", "not finite", "marks", "signed zeros"
CANCELLING = "cancelling"
EDGES = (*CLASSES, "far", HUGE, CANCELLING, "ties", "denormal", SIGNED, NOT_FINITE, MARKS)
"""Classes at which a rule is tried."""

SPECIAL = ("ties", SIGNED, NOT_FINITE, MARKS)
"""Further classes at which every rewrite of a model is tried, at one of its sizes."""

ALONE = (SIGNED, NOT_FINITE)
"""Classes that are also fed to one input at a time, the others ordinary: NaN in both hides what becomes of one."""

EXACT_INPUTS = ("ties", MARKS)
"""Classes of numbers with few digits, or those that a model holds."""

OF_INTEGERS = ("zeros", "constant rows", HUGE, SIGNED, MARKS)
"""Classes in which integers or truth values differ from the ordinary ones."""

DRAWN = (HUGE, "ties", SIGNED, NOT_FINITE, MARKS)
"""Classes of special numbers, of which a small input gets too few at once."""

MAYBE_OVERFLOWS = ("offset", "large", "far", HUGE)
UNIFORM = ("zeros", "constant rows", SIGNED)

_HALF = 15.0
"""Large for float16: sums of products of three such numbers stay below 65504."""

_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
)


def stream(values: str) -> int:
    """The number of a class, so that each has random numbers of its own."""
    return EDGES.index(values)


def class_of(feeds: Feeds) -> str:
    """The class that certain inputs belong to, for what is asked of a result: not finite, huge, large or normal."""
    floats = [np.asarray(v).astype(np.float64) for v in feeds.values() if is_tensor(v) and v.dtype.kind in "fV"]
    if not all(np.isfinite(f).all() for f in floats):
        return NOT_FINITE
    largest = max((np.abs(f).max(initial=0.0) for f in floats), default=0.0)
    return HUGE if largest > _MOST_MARK else "large" if largest > _ORDINARY else CLASSES[0]


def is_float(spec: InputSpec) -> bool:
    """True if an input holds floating-point numbers."""
    return spec.elem_type in _FLOATS


def is_data(spec: InputSpec) -> bool:
    """True if an input holds floating-point numbers that can be anything: a mask cannot."""
    return is_float(spec) and "mask" not in telling(spec.name)


def of_class(value: Array, values: str) -> Array:
    """Unit normal values turned into those of a class, in the same dtype; narrow floats get a narrower range."""
    with np.errstate(all="ignore"):
        return _MAKERS[values](value.astype(np.float64), value.dtype).astype(value.dtype)


def extreme(value: Array, rng: np.random.Generator, turn: int, *, least: bool = True) -> Array:
    """Integers: every other one an end of the range of their dtype, another one at each ``turn``; ends of narrower
    dtypes, any from the whole range, and some as they were.

    ``least``: also the smallest, which has no negative; its quotient by -1 stops the process.
    """
    info = np.iinfo(value.dtype)
    low = int(info.min) + (value.dtype.kind == "i" and not least)
    whole = rng.integers(low, int(info.max), value.shape, value.dtype, endpoint=True)
    ends = np.array([e for e in _ENDS if low <= e <= info.max], value.dtype)
    kind, place = rng.integers(0, 4, value.shape), np.arange(value.size).reshape(value.shape) + turn
    other = np.where(kind < 1, rng.choice(ends, value.shape), np.where(kind < 3, whole, value))
    own = np.array([int(info.max), low, int(info.max) - 1, low + 1], value.dtype)
    return np.where(place % 2 == 0, own[place // 2 % len(own)], other)


def ends(dtype: DType, *, least: bool = True) -> Array:
    """The ends of the range of an integer dtype, what is next to them, and what is next to zero: seven numbers.

    ``least``: see ``extreme``.
    """
    info = np.iinfo(dtype)
    low, high = int(info.min) + (dtype.kind == "i" and not least), int(info.max)
    inner = (-1, 0, 1) if dtype.kind == "i" else (2, high // 2, high // 2 + 1)
    return np.array([low, high, low + 1, high - 1, *inner], dtype)


_ENDS = tuple(
    sign * (2**bits + step) for bits in (7, 8, 15, 16, 24, 31, 32, 53) for step in (-1, 0, 1) for sign in (1, -1)
)
"""The ends of narrower dtypes, and of the integers that floats represent without gaps, with their neighbours."""


def truths(value: Mask, values: str) -> Mask:
    """Truth values: all false, all true, some rows all false, every other one false, else as they are."""
    if values == NOT_FINITE:
        return np.resize([True, False], value.shape)
    if values in ("zeros", SIGNED):
        return np.full_like(value, values == SIGNED)
    if values == "constant rows" and value.ndim > 1:
        rows = value.reshape(-1, value.shape[-1]).copy() if value.size else value
        rows[1::2] = False
        return rows.reshape(value.shape)
    return value


def masked(value: Array, values: str) -> Array:
    """A mask of numbers, with rows or all of it zero like one of truth values."""
    if values not in ("zeros", "constant rows"):
        return value
    return np.where(truths(np.ones(value.shape, np.bool_), values), value, 0).astype(value.dtype)


def marks(model: onnx.ModelProto) -> list[float]:
    """The numbers that a model holds in small constants, beside zero and one."""
    found = {0.0, 1.0}
    for array in _small_constants(model):
        if array.dtype.kind in "fiu" or array.dtype.name == "bfloat16":
            found.update(n for n in array.astype(np.float64).ravel().tolist() if abs(n) < _MOST_MARK)
    return sorted(found)


_MOST_MARK, _ORDINARY, _SMALL = 1e6, 100.0, 8


def has_sentinel(model: onnx.ModelProto) -> bool:
    """True if a small constant stands for infinity, as in masks: it is meant to be beyond all that is computed."""
    floats = (a.astype(np.float64) for a in _small_constants(model) if a.dtype.kind == "f")
    return any((np.abs(a) >= SENTINEL_MIN).any() for a in floats)


def _small_constants(model: onnx.ModelProto) -> Iterator[Array]:
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL and tensor.data_type != onnx.TensorProto.STRING:
            yield onnx.numpy_helper.to_array(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:
                yield np.array(attribute.f)
            elif attribute.HasField("t") and math.prod(attribute.t.dims) <= _SMALL:
                yield onnx.numpy_helper.to_array(attribute.t)


def at_marks(value: Array, rng: np.random.Generator, numbers: Sequence[float]) -> Array:
    """Such numbers, small multiples of them, their negatives, and what is next to them."""
    with np.errstate(all="ignore"):
        chosen = rng.choice(np.array(numbers), value.shape) * rng.choice((1, 1, 1, -1, 2, 3, 5, 0.5), value.shape)
        chosen = np.asarray(chosen).astype(value.dtype)
        if value.dtype.kind != "f":
            return chosen
        away = np.asarray(rng.choice((-np.inf, np.inf), value.shape)).astype(value.dtype)
        is_next = (chosen != 0) & (rng.random(value.shape) < _NEXT)  # next to zero is what is denormal
        return np.where(is_next, np.nextafter(chosen, away), chosen)


_NEXT = 0.2
"""The share of values that are next to such a number, not equal to it."""


def near_mark(value: Array, rng: np.random.Generator, number: float) -> Array:
    """All near one such number: what is left of the difference shows how each was rounded."""
    with np.errstate(all="ignore"):
        away = rng.choice((-1, 1), value.shape) * 2.0 ** -rng.uniform(4, 16, value.shape)
        return np.asarray(number * (1 + away)).astype(value.dtype)


def _is_narrow(dtype: DType) -> bool:
    return dtype.itemsize == 2


def _rows_alike(wide: Floats, _: DType) -> Floats:
    """Every other row has equal elements: its variance is zero."""
    if wide.ndim < 2 or not wide.size:
        return wide
    flat = wide.reshape(-1, wide.shape[-1])
    flat[1::2] = flat[1::2, :1]
    return flat.reshape(wide.shape)


def _cancelling(wide: Floats, _: DType) -> Floats:
    """Neighbours that nearly cancel."""
    flat = wide.ravel().copy()
    count = len(flat) // 2
    flat[1 : 2 * count : 2] = -flat[0 : 2 * count : 2] * (1 + 1e-3 * flat[1 : 2 * count : 2])
    return flat.reshape(wide.shape)


def _far(wide: Floats, dtype: DType) -> Floats:
    """Far from zero, and equal or eight roundings apart: of a row whose elements differ by one rounding nobody can tell
    the variance, and ONNX Runtime's LayerNormalization takes it for zero."""
    if _is_narrow(dtype):
        return wide + 10.0
    step = 8 * float(np.spacing(np.array(1e4, dtype)))
    return np.round(wide / step) * step + 1e4


def _denormal(wide: Floats, dtype: DType) -> Floats:
    smallest = 2.0**-14 if dtype == np.float16 else 2.0**-1022 if dtype == np.float64 else 2.0**-126
    return wide * smallest


def _not_finite(wide: Floats, _: DType) -> Floats:
    """Ordinary, with infinities and a NaN in between."""
    flat = wide.ravel().copy()
    for place, value in enumerate((np.inf, -np.inf, np.nan)):
        flat[(7 * place + 1) % max(flat.size, 1) :: 29] = value
    return flat.reshape(wide.shape)


_MAKERS: dict[str, Callable[[Floats, DType], Floats]] = {
    "normal": lambda wide, _: wide,
    "offset": lambda wide, dtype: wide + (10.0 if _is_narrow(dtype) else 100.0),
    "large": lambda wide, dtype: wide * (_HALF if dtype == np.float16 else 1e3),
    "tiny": lambda wide, dtype: wide * (1e-2 if _is_narrow(dtype) else 1e-4),
    "zeros": lambda wide, _: np.zeros_like(wide),
    "constant rows": _rows_alike,
    "far": _far,
    HUGE: lambda wide, dtype: wide * (_HALF if dtype == np.float16 else 1e10),
    CANCELLING: _cancelling,
    "ties": lambda wide, _: np.round(2 * wide) / 2,
    "denormal": _denormal,
    SIGNED: lambda wide, _: np.copysign(0.0, wide),
    NOT_FINITE: _not_finite,
    MARKS: lambda wide, _: wide,
}
