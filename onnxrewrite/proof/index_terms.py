"""Sizes, indices and conditions: numbers of Python where they are known, terms of z3 where they are not.

Python's own operators ``+ - * < <= > >= ==`` work on any mixture.  What is here decides what can be decided at once,
so that a graph of known sizes never reaches the solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import z3

Term: TypeAlias = z3.ExprRef
"""An expression of z3, of whatever sort."""

Integer: TypeAlias = Any
"""An ``int``, or a z3 term of the sort Int."""

Condition: TypeAlias = Any
"""A ``bool``, or a z3 term of the sort Bool."""

Index: TypeAlias = tuple[Integer, ...]


class Unprovable(Exception):
    """Something that the prover has no semantics of, or no way to decide; the message says what."""


class OutOfTime(Unprovable):
    """The time for a proof is up."""


def plain(term: Term) -> Term:
    """A term in simplified form, as a Python number or truth value where it is one."""
    if isinstance(term, bool | int):
        return term
    found = z3.simplify(term, som=True)
    if z3.is_int_value(found):
        return found.as_long()
    if z3.is_true(found) or z3.is_false(found):
        return z3.is_true(found)
    return found


def is_number(term: Term) -> bool:
    """True if a term is a Python number; truth values count as such."""
    return isinstance(term, int)


def all_numbers(terms: Iterable[Term]) -> bool:
    """True if all terms are Python numbers."""
    return all(isinstance(t, int) for t in terms)


def same(a: Integer, b: Integer) -> bool:
    """True if two sizes are equal as polynomials in their names."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    found = plain(a - b)
    return isinstance(found, int) and found == 0


def negated(condition: Condition) -> Condition:
    """The opposite of a condition."""
    return not condition if isinstance(condition, bool) else z3.Not(condition)


def conjunction(conditions: Iterable[Condition]) -> Condition:
    """True if all are."""
    left = []
    for each in conditions:
        if each is False:
            return False
        if each is not True:
            left.append(each)
    return True if not left else left[0] if len(left) == 1 else z3.And(*left)


def disjunction(conditions: Iterable[Condition]) -> Condition:
    """True if one is."""
    return negated(conjunction(negated(c) for c in conditions))


def equal(a: Term, b: Term) -> Condition:
    """The condition that two integers, or two truth values, are equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return plain(a == b)


def chosen(condition: Condition, yes: Term, no: Term) -> Term:
    """``yes`` where a condition holds, else ``no``: two terms of one sort, or numbers."""
    if isinstance(condition, bool):
        return yes if condition else no
    if isinstance(yes, int) and isinstance(no, int) and yes == no and type(yes) is type(no):
        return yes
    if isinstance(yes, z3.ExprRef) and isinstance(no, z3.ExprRef) and yes.eq(no):
        return yes
    return z3.If(condition, yes, no, ctx=condition.ctx)


def floor_divided(a: Integer, b: Integer) -> Integer:
    """The quotient by a positive divisor, rounded down."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return a if b == 1 and isinstance(b, int) else plain(_term(a, b) / b)


def modulo(a: Integer, b: Integer) -> Integer:
    """The remainder by a positive divisor, from 0 on."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    return 0 if b == 1 and isinstance(b, int) else plain(_term(a, b) % b)


def truncated(a: Integer, b: Integer) -> Integer:
    """The quotient, rounded towards zero, as C++ divides."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    positive = chosen(_term(a, b) >= 0, _term(a, b), -_term(a, b)) / chosen(_term(b, a) >= 0, b, -_term(b, a))
    return plain(chosen((_term(a, b) >= 0) == (_term(b, a) >= 0), positive, -positive))


def _term(a: Integer, beside: Integer) -> Term:
    return z3.IntVal(a, beside.ctx) if isinstance(a, int) else a


def smaller(a: Integer, b: Integer) -> Integer:
    """The smaller of two."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else plain(chosen(plain(a < b), a, b))


def larger(a: Integer, b: Integer) -> Integer:
    """The larger of two."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else plain(chosen(plain(a < b), b, a))


def product(sizes: Iterable[Integer]) -> Integer:
    """The number of elements."""
    result: Integer = 1
    for size in sizes:
        result = result * size
    return plain(result)


def within(index: Sequence[Integer], sizes: Sequence[Integer]) -> Condition:
    """The condition that an index lies inside of sizes."""
    parts = (plain(c) for i, n in zip(index, sizes, strict=True) for c in (i >= 0, i < n))
    return conjunction(parts)


def factors(size: Integer) -> tuple[int, list[Term]]:
    """A size as a number and the other factors of a product."""
    if isinstance(size, int):
        return size, []
    if not z3.is_mul(size):
        return 1, [size]
    number, others = 1, list[Term]()
    for each in size.children():
        known, rest = factors(plain(each))
        number, others = number * known, others + rest
    return number, others


def quotient(dividend: Integer, divisor: Integer) -> Integer | None:
    """``dividend / divisor``, of a divisor that is not zero, where it is seen to leave no remainder; None where not."""
    if isinstance(divisor, int) and divisor == 1:
        return dividend
    whole, parts = factors(plain(dividend)), factors(plain(divisor))
    if parts[0] == 0 or whole[0] % parts[0]:
        return None
    left = list(whole[1])
    for part in parts[1]:
        place = next((k for k, each in enumerate(left) if each.eq(part)), None)
        if place is None:
            return None
        del left[place]
    return product([whole[0] // parts[0], *left])
