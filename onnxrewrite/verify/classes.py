"""Classes of values that inputs are made of: those at which fusions go wrong.

An eps that is too large shows at tiny inputs, a variance in one pass at a large offset, a lost maximum in a softmax at
large ones, a sign at zeros, a strict comparison at ties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnxrewrite.verify.dims import InputSpec

Floats = npt.NDArray[np.float64]

CLASSES = ("normal", "offset", "large", "tiny", "zeros", "constant rows")
"""What every rewrite of a model is tried at."""

HUGE, NOT_FINITE = "huge", "not finite"
EDGES = (*CLASSES, "far", HUGE, "cancelling", "ties", "denormal", "signed zeros", NOT_FINITE)
"""What a rule is tried at."""

MAYBE_OVERFLOWS = ("offset", "large", "far", HUGE)
UNIFORM = ("zeros", "constant rows", "signed zeros")

_HALF = 15.0
"""Large for float16: sums of products of three such numbers stay below 65504."""

_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
)


def stream(values: str) -> int:
    """The number of a class, so that each has random numbers of its own."""
    return EDGES.index(values)


def is_float(spec: InputSpec) -> bool:
    """Whether an input is of floating-point numbers."""
    return spec.elem_type in _FLOATS


def is_data(spec: InputSpec) -> bool:
    """Whether an input is of numbers that can be anything: a mask cannot."""
    return is_float(spec) and "mask" not in spec.name.lower()


def of_class(value: npt.NDArray[Any], values: str) -> npt.NDArray[Any]:
    """Unit normal values turned into those of a class, in the same dtype; narrow floats get a narrower range."""
    with np.errstate(all="ignore"):
        return _MAKERS[values](value.astype(np.float64), value.dtype).astype(value.dtype)


def extreme(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers from the whole range of their dtype, the largest among them; but not the one that has no negative, whose
    quotient by -1 stops the process."""
    largest = int(np.iinfo(value.dtype).max)
    least = -largest if value.dtype.kind == "i" else 0
    numbers = np.random.default_rng(value.size).integers(least, largest, value.shape, value.dtype, endpoint=True)
    flat = np.asarray(numbers).reshape(-1)
    flat[::5], flat[2::5] = largest, least
    return flat.reshape(value.shape)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2


def _rows_alike(wide: Floats, _: np.dtype[Any]) -> Floats:
    """Every other row has equal elements: its variance is zero."""
    if wide.ndim < 2 or not wide.size:
        return wide
    flat = wide.reshape(-1, wide.shape[-1])
    flat[1::2] = flat[1::2, :1]
    return flat.reshape(wide.shape)


def _cancelling(wide: Floats, _: np.dtype[Any]) -> Floats:
    """Neighbours that nearly cancel."""
    flat = wide.ravel().copy()
    count = len(flat) // 2
    flat[1 : 2 * count : 2] = -flat[0 : 2 * count : 2] * (1 + 1e-3 * flat[1 : 2 * count : 2])
    return flat.reshape(wide.shape)


def _denormal(wide: Floats, dtype: np.dtype[Any]) -> Floats:
    smallest = 2.0**-14 if dtype == np.float16 else 2.0**-1022 if dtype == np.float64 else 2.0**-126
    return wide * smallest


def _not_finite(wide: Floats, _: np.dtype[Any]) -> Floats:
    """Ordinary, with infinities and a NaN in between."""
    flat = wide.ravel().copy()
    for place, value in enumerate((np.inf, -np.inf, np.nan)):
        flat[(7 * place + 1) % max(flat.size, 1) :: 29] = value
    return flat.reshape(wide.shape)


_MAKERS: dict[str, Callable[[Floats, np.dtype[Any]], Floats]] = {
    "normal": lambda wide, _: wide,
    "offset": lambda wide, dtype: wide + (10.0 if _is_narrow(dtype) else 100.0),
    "large": lambda wide, dtype: wide * (_HALF if dtype == np.float16 else 1e3),
    "tiny": lambda wide, dtype: wide * (1e-2 if _is_narrow(dtype) else 1e-4),
    "zeros": lambda wide, _: np.zeros_like(wide),
    "constant rows": _rows_alike,
    "far": lambda wide, dtype: wide + (10.0 if _is_narrow(dtype) else 1e4),
    HUGE: lambda wide, dtype: wide * (_HALF if dtype == np.float16 else 1e10),
    "cancelling": _cancelling,
    "ties": lambda wide, _: np.round(wide),
    "denormal": _denormal,
    "signed zeros": lambda wide, _: np.copysign(0.0, wide),
    NOT_FINITE: _not_finite,
}
