"""Numbers of a model as elements of the ring: the one place that says which float is which element.

Floats are rounded, the ring is not.  So a constant is taken for the number that was meant where that can be told: an
integer, a short decimal, a simple fraction, or the square or fourth root of one, each far simpler than chance would
have it at the precision of its dtype.  Any other is a *symbol*: an element of its own, with -c, 1/c and the root where
they belong.  Symbols know no arithmetic, so a difference counts only where both sides have the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.pattern.numbers import epsilon
from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.system.arrays import Array

LARGE = 9999.0
"""A number that is not smaller stands for infinity, as in masks, and is a symbol."""

INFINITE = 0
"""Stands among the symbols for any that is large: exp(-1e9) is 0 and x + 1e9 is 1e9, which the ring does not know."""

_MANY = 32
"""Of more different numbers than these, those that are no integers are symbols without being looked at."""

_MARGIN = 256
"""The factor by which a number must be simpler than chance."""

_SPARE = 9
"""A number that needs this many bits less than its dtype has is taken at its word."""

_TINY = 128
"""Exponents below this are left to chance."""


class Constants:
    """The constants of both sides of a check.

    Attributes:
        symbols: Those in use that are none of the numbers that can be told, as 64 bits each; the caller empties it.
        sizes: All numbers in use, without their signs; the caller empties it.
        precision: That of the coarsest dtype of them.
    """

    def __init__(self) -> None:
        self.symbols: set[int] = set()
        self.sizes: set[float] = set()
        self.precision = 0.0
        self._known: list[tuple[float, float, int, int]] = []
        self._exact: dict[float, tuple[int, int]] = {}

    def carry(self, array: object) -> Array:
        """A float array as elements; NaN is undefined.  A double that single precision holds is what it is there."""
        array = np.asarray(array)
        if array.dtype != np.float64:
            return self._carried(array)
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        held = narrow == array
        if held.all():
            return self._carried(narrow)
        return np.where(held, self._carried(np.where(held, narrow, 0)), self._carried(np.where(held, 0, array)))

    def _carried(self, array: Any) -> Array:
        eps = epsilon(ir.DataType.from_numpy(array.dtype))
        if array.dtype == np.float64:  # what is computed from a coarser number is no more precise
            eps = max([eps, *(precision for _, precision, *_ in self._known)])
        self.precision = max(self.precision, eps)
        wide = np.asarray(array, np.float64)
        self.sizes.update(np.unique(np.abs(wide)).tolist())
        if (np.abs(wide) >= LARGE).any():
            self.symbols.add(INFINITE)
        bits = max(1, round(-math.log2(eps)) - _SPARE)
        whole = (np.abs(wide) < LARGE) & (wide == np.trunc(wide))
        mantissa, exponent = np.frexp(np.where(np.isfinite(wide), wide, 0.0))
        steps = mantissa * 2.0**bits
        short = (np.abs(wide) < LARGE) & (steps == np.trunc(steps)) & (exponent > -_TINY)
        short &= ~np.isin(np.abs(wide), list(self._exact))  # which a coarser dtype took for another number
        exact = whole | short
        powers = _powers_of_two()[np.where(short, exponent - bits, 0)]
        result = ring.mul(ring.integers(np.where(short, steps, np.where(whole, wide, 0.0))), powers)
        if exact.all():
            return result
        sizes, where = np.unique(np.abs(wide[~exact]), return_inverse=True)
        if len(sizes) <= _MANY:
            elements = np.array([self._element(float(c), eps) for c in sizes], np.uint64)
        else:
            elements = self._opaque(sizes)
        elements = np.where(np.isnan(sizes), ring.UNDEFINED, elements)[where]
        result[~exact] = np.where(wide[~exact] < 0, ring.neg(elements), elements)
        return result

    def _element(self, size: float, eps: float) -> int:
        """The element of a positive number: what it was when it, 1/c or c² came before, else what it is meant to be."""
        found = self._exact.get(size) or self._seen(size, eps)
        if found is None:
            meant = recognized(size, eps)
            bits = 0 if meant is not None else int(_bits(np.float64(size)))
            found = (int(_symbol(np.uint64(bits))) if meant is None else meant, bits)
            self._known.append((size, eps, *found))
        self._exact[size] = found
        self.symbols.update(filter(None, found[1:]))
        return found[0]

    def _seen(self, size: float, eps: float) -> tuple[int, int] | None:
        """The element and the symbol of a number that was told before, within the precision of the coarser dtype."""
        for known, precision, value, symbol in self._known:
            margin = max(eps, precision)
            if size == known or abs(size - known) <= margin * known:
                return value, symbol
            if math.isfinite(size) and math.isfinite(known) and abs(size * known - 1) <= 2 * margin:
                return int(ring.inverse(np.asarray(value, np.uint64))), symbol
            if symbol and abs(size * size - known) <= 3 * margin * known:
                return int(ring.sqrt(np.asarray(value, np.uint64))), symbol
        return None

    def _opaque(self, sizes: Array) -> Array:
        """Many positive numbers at once: what they were before, else symbols; equal are only those of equal bits."""
        bits = _bits(sizes)
        fresh = zip(sizes.tolist(), _symbol(bits).tolist(), bits.tolist(), strict=True)
        found = [self._exact.setdefault(size, (element, symbol)) for size, element, symbol in fresh]
        self.symbols.update(symbol for _, symbol in found if symbol)
        return np.array([element for element, _ in found], np.uint64)


def _bits(sizes: object) -> Array:
    return ring.mixed("symbol", np.asarray(sizes).view(np.uint64))


def _symbol(bits: Any) -> Array:
    """An element that has a root, as every positive number has."""
    root = ring.unit(bits)
    return ring.mul(root, root)


@cache
def _powers_of_two() -> Array:
    """2^k at place k, for k from -256 to 255."""
    return np.array([pow(2, (k + 256) % 512 - 256, ring.MODULUS) for k in range(512)], np.uint64)


@lru_cache(maxsize=4096)
def recognized(c: float, eps: float) -> int | None:
    """The element of the number that ``c`` > 0 is meant to be, None where that cannot be told."""
    if not 0 < c < LARGE:
        return None
    for roots, meant in _meanings(c, eps):
        if meant is not None:
            found = ring.element(meant.numerator, meant.denominator)
            for _ in range(roots):
                found = ring.sqrt(found)
            return None if ring.is_undefined(found) else int(found)
    return None


def _meanings(c: float, eps: float) -> Iterator[tuple[int, Fraction | None]]:
    """Candidates for the number that is meant, the simplest first: the count of roots, and their radicand or None."""
    yield 0, _fraction(c, eps)
    yield 0, _decimal(c, eps, int(math.log10(max(1.0, 1 / (_MARGIN * eps)))))
    yield 1, _fraction(c**2, 2 * eps)
    yield 2, _fraction(c**4, 4 * eps)
    yield 0, _decimal(c, eps, int(-math.log10(eps) - 1.9))


def _fraction(c: float, eps: float) -> Fraction | None:
    """A fraction within ``eps`` of c whose parts are small enough for that to be no chance."""
    bound = 1 / (_MARGIN * eps)
    if not 1 / bound < c < bound:
        return None
    found = Fraction(c).limit_denominator(max(1, math.isqrt(int(bound / c))))
    near = abs(float(found) - c) <= eps * c and found.numerator * found.denominator <= bound
    return found if near and found else None


def _decimal(c: float, eps: float, digits: int) -> Fraction | None:
    """A decimal of so many digits within half of ``eps`` of c: two less than a number of that precision needs are no
    chance, fewer still are simpler than any root."""
    if digits < 1:
        return None
    found = Fraction(f"{c:.{digits - 1}e}")
    return found if abs(float(found) - c) <= eps / 2 * c else None
