"""Fingerprints of results: what two tensors have in common that are the same but for order and scale.

A fingerprint is the sorted elements at some quantiles, divided by the largest magnitude.  Equal fingerprints are a
question, which ``relation`` answers: the one is the other reshaped, with its axes in another order, or times a number.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from onnxrewrite.system.arrays import Array, Floats

_QUANTILES = 32
"""So many elements of the sorted ones are looked at."""

TOLERANCE = 1e-6
"""Two results in double, of which one may have been computed with constants that were rounded to float32, differ by so
much of their largest element at the most."""

_RANK = 5
"""Axes of tensors of more axes are not put in another order."""


@dataclass(frozen=True)
class Relation:
    """The way from one tensor to another: first the axes are put in order, then it is reshaped, then scaled.

    Attributes:
        perm: The order of its axes; None where that stays.
        is_reshaped: True if it has another shape.
        scale: The factor.
    """

    perm: tuple[int, ...] | None = None
    is_reshaped: bool = False
    scale: float = 1.0

    @property
    def is_equality(self) -> bool:
        """True if both are the same."""
        return self.perm is None and not self.is_reshaped and self.scale == 1.0

    @property
    def steps(self) -> int:
        """The number of operators that it takes."""
        return (self.perm is not None) + self.is_reshaped + (self.scale != 1.0)


def fingerprint(array: Array) -> Floats:
    """The fingerprint of a tensor: 32 numbers, then its size and its scale of 0 or 1."""
    flat = np.sort(np.asarray(array, np.float64).ravel())
    scale = float(np.abs(flat).max(initial=0.0))
    lower = np.linspace(0, max(flat.size - 1, 0) / 2, _QUANTILES // 2).astype(int)
    places = np.concatenate([lower, flat.size - 1 - lower[::-1]])  # the same from either end
    shown = flat[places] / scale if scale else np.zeros(_QUANTILES)
    return np.asarray([*shown, flat.size, float(scale > 0)])


def rounded(array: Array) -> tuple[object, ...]:
    """The fingerprint as a key, with the kind, the shape and the scale: equal for tensors that are the same, but for
    the rare number that lies where it is rounded."""
    scale = float(np.abs(np.asarray(array, np.float64)).max(initial=0.0))
    shown = np.round(fingerprint(array), _DIGITS)
    return array.dtype.kind, array.shape, f"{scale:.{_DIGITS}e}", (shown + 0.0).tobytes()


_DIGITS = 5


def alike(a: Floats, b: Floats) -> bool:
    """True if two fingerprints are equal, also where one is of the negative of the other."""
    if a[-2] != b[-2] or a[-1] != b[-1]:
        return False
    mine, theirs = a[:-2], b[:-2]
    return any(bool(np.abs(mine - t).max() <= _FINGERPRINT) for t in (theirs, -theirs[::-1]))


_FINGERPRINT = 0.02
"""An error of the largest element is one of all others here; and integers of eight bits may be rounded otherwise."""


def relation(found: Array, wanted: Array) -> Relation | None:
    """The way from ``found`` to ``wanted``; None where there is none of these.

    Integers and truth values are never scaled.  Some integers of eight bits may differ by one: what they are rounded
    from was computed in another order.
    """
    if (found.dtype.kind == "f") != (wanted.dtype.kind == "f") or found.size != wanted.size or not found.size:
        return None
    a, b = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    is_rounded = found.dtype == wanted.dtype and found.dtype in (np.int8, np.uint8)
    for perm in _orders(a, b):
        turned = a if perm is None else a.transpose(perm)
        scale = 1.0 if is_rounded and _is_near(turned, b.reshape(turned.shape)) else _scale(turned.ravel(), b.ravel())
        if scale is not None and (scale == 1.0 or found.dtype.kind == "f"):
            return Relation(perm, turned.shape != b.shape, scale)
    return None


def is_same(one: Array, other: Array) -> bool:
    """True if two results are equal, in their shapes and kinds, too."""
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    way = relation(one, other)
    return way is not None and way.is_equality


_OTHERWISE = 0.02
"""The share of integers of eight bits that may be rounded otherwise."""


def _is_near(a: Floats, b: Floats) -> bool:
    """True if integers differ by one, and few of them."""
    apart = np.abs(a - b)
    return bool(apart.max() <= 1 and (apart > 0).mean() <= _OTHERWISE)


def _orders(a: Floats, b: Floats) -> list[tuple[int, ...] | None]:
    """Orders of the axes of ``a`` that could make ``b`` of it, as it is first."""
    if not 1 < a.ndim <= _RANK:
        return [None]
    known = sorted(range(a.ndim))
    others = (p for p in itertools.permutations(known) if list(p) != known)
    return [None, *(p for p in others if a.ndim != b.ndim or tuple(a.shape[i] for i in p) == b.shape)]


def _scale(a: Floats, b: Floats) -> float | None:
    """The factor from ``a`` to ``b``, 1 where they are equal; None where there is none."""
    largest = float(np.abs(b).max())
    if np.abs(a - b).max() <= TOLERANCE * largest:
        return 1.0
    place = int(np.abs(a).argmax())
    factor = float(b[place] / a[place]) if a[place] else 0.0
    if factor == 0.0 or not np.isfinite(factor):
        return None
    return factor if np.abs(a * factor - b).max() <= TOLERANCE * largest else None
