"""The ring itself: the integers modulo 1559³, with an undefined element, on arrays.

An array is uint64; its elements are 0 … ``MODULUS`` - 1, or ``UNDEFINED``, which is to the ring what NaN is to floats:
an operation on it is undefined, and so are division by what is no unit and the root of what is no square.  Knows
neither graphs nor operators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache, reduce

import numpy as np

from onnxrewrite.system.arrays import Array

PRIME = 1559
"""The largest prime below 2^(32/3) of which -1 is no square, and 2, 3, 5, 7, 11 and 13 are."""

MODULUS = PRIME**3
"""Below 2^32, so that products fit into 64 bits."""

UNDEFINED = np.uint64(2**63)

_NEAR_ZERO = [n for n in range(-8, 9) if n]

_NUMERATOR, _DENOMINATOR = 2**14, 2**7
"""Bounds of small fractions."""

_M = np.uint64(MODULUS)
_P = np.uint64(PRIME)
_HALF = np.uint64(MODULUS // 2)
_LOW = np.uint64(0xFFFF)
_BITS = np.uint64(16)


@cache
def _inverses() -> Array:
    """Inverses modulo the prime; 0 for 0."""
    return np.array([pow(a, -1, PRIME) if a else 0 for a in range(PRIME)], np.uint64)


@cache
def _roots() -> Array:
    """Of the two roots modulo the prime the one that is a square itself; 0 where there is none."""
    roots = np.zeros(PRIME, np.uint64)
    for a in range(1, PRIME):
        roots[pow(a, 4, PRIME)] = pow(a, 2, PRIME)
    return roots


def integers(values: object) -> Array:
    """Integers of any sign as elements."""
    return np.asarray(np.asarray(values, np.int64) % MODULUS).astype(np.uint64)


def elements(values: Array) -> Array:
    """Integers as elements; elements as they are."""
    return values if values.dtype == np.uint64 else integers(values)


def element(numerator: int, denominator: int = 1) -> Array:
    """A fraction; undefined where the denominator is no unit."""
    if denominator % PRIME == 0:
        return np.asarray(UNDEFINED)
    return np.asarray(numerator * pow(denominator, -1, MODULUS) % MODULUS, np.uint64)


def is_undefined(a: Array) -> Array:
    """A mask of the undefined elements of an array."""
    return np.asarray(a >= UNDEFINED)


def spread(result: Array, *arguments: Array) -> Array:
    """An elementwise result, undefined wherever an argument is."""
    bad = is_undefined(reduce(np.bitwise_or, arguments))
    return np.where(bad, UNDEFINED, result) if bad.any() else np.asarray(result)


def add(a: Array, b: Array) -> Array:
    """The sum."""
    return spread((a + b) % _M, a, b)


def neg(a: Array) -> Array:
    """The negative."""
    return spread((_M - a) % _M, a)


def sub(a: Array, b: Array) -> Array:
    """The difference."""
    return spread((a + (_M - b)) % _M, a, b)


def mul(a: Array, b: Array) -> Array:
    """The product."""
    return spread(a * b % _M, a, b)


def inverse(a: Array) -> Array:
    """1/a by Newton's iteration from the inverse modulo the prime: every step doubles the power of it that is right."""
    x = _inverses()[a % _P]
    two = np.uint64(2)
    for _ in range(2):
        x = x * ((two + (_M - a % _M * x % _M)) % _M) % _M
    return np.where(x % _P == 0, UNDEFINED, spread(x, a))


def div(a: Array, b: Array) -> Array:
    """The quotient."""
    return mul(a, inverse(b))


def power(a: Array, exponent: int) -> Array:
    """An integer power, negative ones too."""
    result, base = np.ones_like(a), inverse(a) if exponent < 0 else a
    for bit in bin(abs(exponent))[2:]:
        result = mul(result, result)
        result = mul(result, base) if bit == "1" else result
    return spread(result, a)


def sqrt(a: Array) -> Array:
    """The root that is a square itself, as that of a real is, so √(ab) = √a·√b; undefined for what is no square."""
    s = _roots()[a % _P]
    for _ in range(2):
        s = (s + a % _M * inverse(s) % _M) % _M * np.uint64((MODULUS + 1) // 2) % _M
    result = np.where(_roots()[a % _P] == 0, UNDEFINED, spread(s, a))
    return np.where(a == 0, np.uint64(0), result)


def exp(a: Array) -> Array:
    """A homomorphism: (1 + p)^a, by the binomial theorem 1 + p·a + p²·a(a - 1)/2 modulo p³."""
    low = a % _P
    pairs = low * ((low + _P - np.uint64(1)) % _P) % _P * np.uint64((PRIME + 1) // 2) % _P
    return spread((np.uint64(1) + _P * (a % _M) % _M + _P * _P * pairs) % _M, a)


def total(a: Array, axes: Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """The sum over axes, all of them where None."""
    axis = None if axes is None else tuple(axes)
    bad = is_undefined(a).any(axis=axis, keepdims=keepdims)
    return np.where(bad, UNDEFINED, a.sum(axis=axis, keepdims=keepdims, dtype=np.uint64) % _M)


def bilinear(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """Sums of up to 2^16 products of elements, as of ``np.matmul``; ``a`` is split so that none overflows."""
    high, low = function(a >> _BITS, b) % _M, function(a & _LOW, b)
    result = ((high << _BITS) + low) % _M
    bad = is_undefined(a), is_undefined(b)
    if bad[0].any() or bad[1].any():
        x, y = (each.astype(np.uint64) for each in bad)
        result = np.where(function(x, np.ones_like(y)) + function(np.ones_like(x), y) > 0, UNDEFINED, result)
    return np.asarray(result)


# -- functions without algebra -------------------------------------------------------------------------------


def hashed(name: str, *arguments: Array) -> Array:
    """A unit that depends on the arguments and on the name, as if drawn at random (SplitMix64; Steele et al., 2014)."""
    return spread(unit(mixed(name, *arguments)), *arguments)


def mixed(name: str, *arguments: Array) -> Array:
    """64 bits that depend on the arguments and on the name."""
    bits = np.asarray(np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")))
    with np.errstate(over="ignore"):
        for each in arguments:
            z = (bits ^ each) + np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            bits = z ^ (z >> np.uint64(31))
    return bits


def unit(bits: Array) -> Array:
    """A unit that 64 bits are mapped to."""
    found = bits % _M
    return np.asarray(np.where(found % _P == 0, found + np.uint64(1), found))


def random(rng: np.random.Generator, shape: Sequence[int], small: float = 0.5) -> Array:
    """Units drawn at random, a part of them small integers, which an order has on both sides of small bounds."""
    anywhere = unit(np.asarray(rng.integers(0, MODULUS, tuple(shape), dtype=np.uint64)))
    near = integers(rng.choice(_NEAR_ZERO, tuple(shape)))
    return np.where(rng.random(tuple(shape)) < small, near, anywhere)


def signed(a: Array) -> Array:
    """The elements as int64 from -(m - 1)/2 to (m - 1)/2: a total order, in which small integers stand as they should.

    It goes with negation, but neither with addition nor with multiplication, as no order of a finite ring does.
    """
    return np.where(a > _HALF, a.astype(np.int64) - MODULUS, a.astype(np.int64))


@cache
def _characters() -> Array:
    """1 for squares modulo the prime, -1 for the others, 0 for 0."""
    return np.array([0] + [1 if pow(a, PRIME // 2, PRIME) == 1 else -1 for a in range(1, PRIME)], np.int64)


def sign(a: Array) -> Array:
    """The quadratic character as int64, that of p being 1: a sign that goes with multiplication.

    Squares, roots, values of exp, their sums and quotients are positive, as those of reals are, and with a > b for
    sign(a - b) = 1 exp is monotonic.  That goes with addition and with multiplication by what is positive, and is
    not transitive.
    """
    first, second, third = (_characters()[a // np.uint64(PRIME**k) % _P] for k in range(3))
    return np.asarray(np.where(first != 0, first, np.where(second != 0, second, third)))


def rational_sign(a: Array) -> Array:
    """The sign of the small fraction that an element is, 2 where it is none (Wang's reconstruction, 1981).

    One element in a thousand is a small fraction by chance.
    """
    shape = a.shape
    rest, found = np.where(is_undefined(a), np.uint64(0), a).astype(np.int64).reshape(-1), np.ones(a.size, np.int64)
    last, before = np.full_like(rest, MODULUS), np.zeros_like(rest)
    while (rest > _NUMERATOR).any():
        quotient = np.where(rest > _NUMERATOR, last // np.maximum(rest, 1), 0)
        moves = quotient > 0
        last, rest = np.where(moves, rest, last), np.where(moves, last - quotient * rest, rest)
        before, found = np.where(moves, found, before), np.where(moves, before - quotient * found, found)
    sign = np.where(rest == 0, 0, np.sign(found))
    return np.where(np.abs(found) > _DENOMINATOR, 2, sign).reshape(shape)


def odd(name: str, a: Array) -> Array:
    """A hashed function with f(-a) = -f(a), so f(0) = 0."""
    value = even(name, a)
    return np.where(a == 0, a, np.where(a > _HALF, neg(value), value))


def even(name: str, a: Array) -> Array:
    """A hashed function with f(-a) = f(a)."""
    return spread(hashed(name, np.minimum(a, (_M - a) % _M)), a)
