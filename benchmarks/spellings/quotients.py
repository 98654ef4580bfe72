"""Quotients, roots and powers."""

from __future__ import annotations

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("Div")
def times_reciprocal(s: Script) -> bool:
    """A / b as a * Reciprocal(b), or a * (1 / b)."""
    a, b = s.place.inputs
    if not s.is_float(a) or s.is_constant(b):
        return False
    inverse = s.new("Reciprocal", b) if s.rng.random() < 0.5 else s.new("Div", s.constant(1.0, a), b)
    return s.put(s.new("Mul", a, inverse))


@spelling("Div", "Mul")
def by_inverse_number(s: Script) -> bool:
    """A number that divides as its inverse that multiplies, and the other way round."""
    a, b = s.place.inputs
    if s.place.op_type == "Mul" and s.is_constant(a):
        a, b = b, a
    number = s.number(b)
    if not number or not s.is_float(a) or s.rank(b) != 0 or s.is_constant(a):
        return False
    other = "Div" if s.place.op_type == "Mul" else "Mul"
    return s.put(s.new(other, a, s.constant(1 / number, a)))


@spelling("Sqrt")
def root_as_power(s: Script) -> bool:
    """√x as x to the power of a half."""
    x = s.place.inputs[0]
    return s.is_float(x) and s.put(s.new("Pow", x, s.constant(0.5, x)))


@spelling("Reciprocal")
def one_by(s: Script) -> bool:
    """1/√x as the power of minus a half, or 1 / x as it stands."""
    x = s.place.inputs[0]
    root = s.made_by(x, "Sqrt")
    assert x is not None
    if root is not None and s.rng.random() < 0.5:
        return s.put(s.new("Pow", root.inputs[0], s.constant(-0.5, x)))
    return s.put(s.new("Div", s.constant(1.0, x), x))


@spelling("Pow")
def power_as_product(s: Script) -> bool:
    """x² as x·x, x³ as x·x·x."""
    x, exponent = s.place.inputs
    number = s.number(exponent)
    if number not in (2, 3) or not s.is_float(x):
        return False
    square = s.new("Mul", x, x)
    return s.put(square if number == 2 else s.new("Mul", *s.rng.sample([square, x], 2)))


@spelling("Mul")
def product_as_power(s: Script) -> bool:
    """x·x as x²."""
    a, b = s.place.inputs
    return a is b and s.is_float(a) and s.put(s.new("Pow", a, s.constant(2.0, a)))
