"""Constant factors and addends in a row, and quotients that are spelled as products.

Why: every factor is a pass over memory, and the product of two constants can be computed once.  This comes late, for
other patterns are told by their constants: GELU, ½·x·(1 + erf(x/√2)), is none with another number in place of ½.

Patterns name the operators one by one, for the chain of all that is added to a residual stream holds the bias of every
layer.

(x + d)·c stays: where x is close to -d, x·c + d·c is far less accurate.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from onnxrewrite.rules import *

x, y = Var("x", dtype=FLOATS), Var("y", dtype=FLOATS)
first, second, shift = Const("first"), Const("second"), Const("shift")


def product(value: Term, factor: Const) -> tuple[Term, Term]:
    """A value times a constant, and divided by it."""
    return op.Mul(value, factor), op.Div(value, factor)


def total(value: Term, addend: Const) -> tuple[Term, Term]:
    """A value and a constant added, and subtracted from it."""
    return op.Add(value, addend), op.Sub(value, addend)


inner_product, inner_total = product(x, first), total(x, first)
outer_product, outer_total = product(any_of(*inner_product), second), total(any_of(*inner_total), second)
line = total(any_of(*inner_product), shift)
outer_line = product(any_of(*line), second)


def factor(m: Match, of: tuple[Term, Term], given: Const) -> Array:
    """The constant of a product, inverted where it divides."""
    return 1 / m[given] if of[1] in m else m[given]


def addend(m: Match, of: tuple[Term, Term], given: Const) -> Array:
    """The constant of a sum, negated where it is subtracted."""
    return -m[given] if of[1] in m else m[given]


_MOST = 4096
"""So many bytes of a new constant do not matter."""


def joined(m: Match, combine: np.ufunc, one: Array, other: Array) -> Array:
    """Two constants combined; refused, before it is computed, where that takes more memory than they do."""
    sizes = math.prod(np.broadcast_shapes(one.shape, other.shape)) * one.itemsize
    m.require(sizes <= max(one.nbytes + other.nbytes, _MOST), "the constant would be larger than those it joins", at=x)
    found: Array = combine(one, other)
    return found


def constant(m: Match, build: Builder, made: Array) -> Value:
    """A constant in place of others, which loses nothing but by one rounding."""
    dtype = m.dtype(x)
    assert dtype is not None
    limits, size = ml_dtypes.finfo(dtype.numpy()), np.abs(made)  # type: ignore[no-untyped-call]
    m.require((size <= float(limits.max)).all(), "the constant would overflow", at=x)
    m.require(((made == 0) | (size >= float(limits.tiny))).all(), "the constant would underflow", at=x)
    return build.const(made, like=x)


def require_both_count(m: Match, made: Array, neutral: float, *of: Array) -> None:
    """Refuse where one of two numbers undoes the other, or is lost in it: what they leave is a rounding, which may have
    been asked for."""
    dtype = m.dtype(x)
    assert dtype is not None
    whole, *parts = (each.astype(dtype.numpy()) for each in (made, *of))
    m.require(not (whole == neutral).any(), "one number undoes the other, but for rounding", at=x)
    m.require(all((whole != part).any() for part in parts), "one number is lost in the other", at=x)


@rule(
    "factor-of-factor",
    LOWER,
    any_of(*outer_product),
    examples=(
        Rewrites("float x; a = Mul(x, 2.0)  y = Mul(a, 0.25)", to="float x; y = Mul(x, 0.5)"),
        Rewrites("float[n,2] x; a = Div(x, {2.0, 4.0})  y = Mul(3.0, a)", to="float[n,2] x; y = Mul(x, {1.5, 0.75})"),
        Rewrites("float16 x; a = Mul(x, 3.0)  y = Div(a, 2.0)", to="float16 x; y = Mul(x, 1.5)"),
        Rejects("float x; a = Mul(x, 1e30)  y = Mul(a, 1e30)", because="overflow"),
        Rejects("float x; a = Mul(x, 1e-30)  y = Mul(a, 1e-15)", because="underflow"),
        Rejects("float x; a = Mul(x, 3.0)  y = Div(a, 3.0)", because="undoes the other"),
        Rejects("float x; a = Mul(x, 3.0)  y = Mul(a, 0.33333334)", because="undoes the other"),
        Rejects("float[n,4] x; a = Mul(x, 2.0)  y = Mul(a, z)", because="constant"),
        Rejects("int64 x; a = Mul(x, 2)  y = Mul(a, 4)", because="dtype"),
        Rejects(
            "float[1,1] x; a = Mul(x, float[999,1] ~)  y = Mul(a, float[1,999] ~)", because="larger than those it joins"
        ),
    ),
)
def factor_of_factor(m: Match, build: Builder) -> Value:
    """(x·c)·d ⟶ x·(c·d)."""
    factors = factor(m, inner_product, first), factor(m, outer_product, second)
    made = joined(m, np.multiply, *factors)
    require_both_count(m, made, 1.0, *factors)
    return build.Mul(m[x], constant(m, build, made))


@rule(
    "addend-of-addend",
    LOWER,
    any_of(*outer_total),
    examples=(
        Rewrites("float x; a = Add(x, 2.0)  y = Add(a, 0.5)", to="float x; y = Add(x, 2.5)"),
        Rewrites("float[n,2] x; a = Sub(x, {2.0, 4.0})  y = Add(3.0, a)", to="float[n,2] x; y = Add(x, {1.0, -1.0})"),
        Rejects("float x; float z; a = Add(x, 2.0)  y = Add(a, z)", because="constant"),
        Rejects("float x; a = Add(x, 1e8)  y = Sub(a, 1e8)", because="undoes the other"),
        Rejects("float x; a = Add(x, 1.0)  y = Add(a, 1e-12)", because="lost in the other"),
        Rejects("float16 x; a = Add(x, 50000.0)  y = Add(a, 40000.0)", because="overflow"),
        Rejects("float x; a = Add(x, inf)  y = Sub(a, inf)", because="overflow"),
    ),
)
def addend_of_addend(m: Match, build: Builder) -> Value:
    """(x + c) + d ⟶ x + (c + d)."""
    addends = addend(m, inner_total, first), addend(m, outer_total, second)
    made = joined(m, np.add, *addends)
    require_both_count(m, made, 0.0, *addends)
    return build.Add(m[x], constant(m, build, made))


@rule(
    "factor-of-line",
    LOWER,
    any_of(*outer_line),
    examples=(
        Rewrites(
            "float x; a = Mul(x, 3.0)  b = Add(a, 1.0)  y = Mul(b, 0.5)",
            to="float x; a = Mul(x, 1.5)  y = Add(a, 0.5)",
        ),
        Rewrites(
            "float x; a = Mul(x, 2.0)  b = Add(a, 1.0)  y = Mul(b, 0.5)",
            to="float x; a = Mul(x, 1.0)  y = Add(a, 0.5)",
        ),
        Rewrites(
            "float[n,2] x; a = Mul(x, {1.0, 2.0})  b = Sub(a, 1.0)  y = Div(b, 2.0)",
            to="float[n,2] x; a = Mul(x, {0.5, 1.0})  y = Add(a, -0.5)",
        ),
        Rejects("float x; a = Mul(x, 3.0)  b = Add(a, 1.0)  y = Mul(b, z)", because="constant"),
        Rejects("float x; a = Add(x, 1.0)  y = Mul(a, 0.5)", because="expected Mul"),
        Rejects("float x; a = Mul(x, 1e-30)  b = Add(a, 1e-30)  y = Mul(b, 1e-15)", because="underflow"),
    ),
)
def factor_of_line(m: Match, build: Builder) -> Value:
    """(x·c + d)·e ⟶ x·(c·e) + d·e."""
    last = factor(m, outer_line, second)
    scaled = build.Mul(m[x], constant(m, build, joined(m, np.multiply, factor(m, inner_product, first), last)))
    return build.Add(scaled, constant(m, build, joined(m, np.multiply, addend(m, line, shift), last)))


QUOTIENT = rule(
    "product-with-reciprocal",
    LOWER,
    y * any_of(op.Div(1.0, x), op.Reciprocal(x)),
    op.Div(y, x),
    doc="y·(1/x) ⟶ y/x.",
    assumes=(Assumption.IN_RANGE,),
    examples=(
        Rewrites("float x; float z; a = Div(1.0, x)  y = Mul(a, z)", to="float x; float z; y = Div(z, x)"),
        Rewrites("float x; float z; a = Reciprocal(x)  y = Mul(z, a)", to="float x; float z; y = Div(z, x)"),
        Rejects("float x; float z; a = Div(2.0, x)  y = Mul(a, z)", because="expected"),
        Rejects("float x; float z; a = Div(1.0, x)  y = Mul(a, z)  u = Neg(a)", because="also used"),
    ),
)
