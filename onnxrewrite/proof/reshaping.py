"""Indices through a Reshape: digits in a mixed radix, regrouped where sizes say how, and divided only where they must.

An index into an axis of size a·b that was merged from two axes is two digits, of radix a and b.  To take such an axis
apart again gives back the digits; to merge what was taken apart gives back the index.  So the solver is asked about no
product or quotient of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import z3

from onnxrewrite.proof.index_terms import (
    Index,
    Integer,
    Term,
    Unprovable,
    all_numbers,
    conjunction,
    equal,
    floor_divided,
    modulo,
    plain,
    product,
    quotient,
    same,
    within,
)

if TYPE_CHECKING:
    from onnxrewrite.proof.tensors import Encoding

Digit = tuple[Integer, Integer]
"""A place, and the radix that it lies below."""


def reshaped(e: Encoding, index: Index, dims: Sequence[Integer], source: Sequence[Integer]) -> Index:
    """The index into a tensor of sizes ``source`` of the element at ``index`` of its view of sizes ``dims``."""
    if len(dims) == len(source) and all(same(a, b) for a, b in zip(dims, source, strict=True)):
        return index
    if all_numbers((*index, *dims, *source)):
        return _unravelled(_linear(index, dims), source)
    digits = [d for i, n in zip(index, dims, strict=True) if not _is_one(n) for d in _digits(e, i, n)]
    found: list[Integer] = []
    for number, size in enumerate(reversed(source)):
        before = list(digits)
        try:
            found.append(0 if _is_one(size) else _taken(e, digits, size))
        except Unprovable:  # no group ends here: all that is left is one
            left = source[: len(source) - number]
            return (*_ungrouped(e, before, left), *reversed(found))
    return tuple(reversed(found))


def _ungrouped(e: Encoding, digits: Sequence[Digit], source: Sequence[Integer]) -> Index:
    """The index into a group of axes by the place in it, whose sizes are only known to have the same product."""
    key = tuple(_key(d) for d, _ in digits)
    known = e.unravelled.get(key)
    radices = [r for _, r in digits]
    is_whole = known is not None and all(map(same, known[2], radices))  # else the group was cut or padded
    place = known[0] if known is not None and is_whole else _linear(tuple(d for d, _ in digits), radices)
    if all_numbers(source):
        return _unravelled(place, source)
    sizes = [size for size in source if not _is_one(size)]
    if len(sizes) == 1:
        return tuple(0 if _is_one(size) else place for size in source)
    context = e.domain.context
    sort = z3.IntSort(context)
    given = [z3.IntVal(t, context) if isinstance(t, int) else t for t in (place, *sizes)]
    parts: list[Integer] = []
    for size in source:
        if _is_one(size):
            parts.append(0)
            continue
        axis = sum(not _is_number_zero(p) for p in parts)
        part = z3.Function(f"axis {axis} of {len(sizes)}", *[sort] * (len(given) + 1))(*given)
        inside = conjunction([plain(place >= 0), plain(place < product(source))])
        e.define(z3.Implies(e.term(inside), conjunction([part >= 0, plain(part < size)])))
        parts.append(part)
    e.unravelled[tuple(_key(p) for p in parts if not _is_number_zero(p))] = (place, tuple(parts), tuple(sizes))
    return tuple(parts)


def _is_one(size: Integer) -> bool:
    return isinstance(size, int) and size == 1


def _is_number_zero(place: Integer) -> bool:
    return isinstance(place, int) and place == 0


def _linear(index: Index, dims: Sequence[Integer]) -> Integer:
    result: Integer = 0
    for i, n in zip(index, dims, strict=True):
        result = result * n + i
    return plain(result)


def _unravelled(place: Integer, dims: Sequence[int]) -> Index:
    found: list[Integer] = []
    for number, size in enumerate(reversed(dims)):
        found.append(place if number == len(dims) - 1 else modulo(place, size))
        place = floor_divided(place, size)
    return tuple(reversed(found))


def _digits(e: Encoding, place: Integer, size: Integer) -> list[Digit]:
    """The digits of an index, one where it was never merged."""
    if isinstance(place, z3.ExprRef):
        known = e.digits.get(place.get_id())
        if known is not None and same(product(r for _, r in known[1]), size):
            return list(known[1])
    return [(place, size)]


def _taken(e: Encoding, digits: list[Digit], size: Integer) -> Integer:
    """The index into an axis of a size, made of the last digits, which are taken away."""
    taken: list[Digit] = []
    need = size
    while not _is_one(need):
        if not digits:
            raise Unprovable("a Reshape whose groups of axes cannot be told")
        place, radix = digits.pop()
        rest = quotient(need, radix)
        if rest is not None:
            taken.insert(0, (place, radix))
            need = rest
            continue
        rest = quotient(radix, need)
        if rest is None:
            raise Unprovable("a Reshape whose groups of axes cannot be told")
        high, low = _divided(e, place, radix, need)
        digits.append((high, rest))
        taken.insert(0, (low, need))
        need = 1
    return _merged(e, taken)


def _divided(e: Encoding, place: Integer, radix: Integer, by: Integer) -> tuple[Integer, Integer]:
    """Quotient and remainder of an index; by a name, functions that are known to be that."""
    if isinstance(by, int):
        return _noted(e, place, radix, by, floor_divided(place, by), modulo(place, by))
    sort = z3.IntSort(e.domain.context)
    whole, divisor = (z3.IntVal(t, e.domain.context) if isinstance(t, int) else t for t in (place, by))
    high, low = (z3.Function(name, sort, sort, sort)(whole, divisor) for name in ("quotient", "remainder"))
    inside = conjunction([plain(place >= 0), plain(place < radix), plain(by > 0)])
    bounds = conjunction([high >= 0, low >= 0, low < by, equal(place, high * by + low)])
    e.define(z3.Implies(e.term(inside), bounds))
    ratio = quotient(radix, by)
    if ratio is not None:
        e.define(z3.Implies(e.term(inside), e.term(plain(high < ratio))))
    return _noted(e, place, radix, by, high, low)


def _noted(
    e: Encoding, place: Integer, radix: Integer, by: Integer, high: Integer, low: Integer
) -> tuple[Integer, Integer]:
    e.parts[_key(high), _key(low)] = (place, radix, by, high, low)
    return high, low


def _key(place: Term) -> object:
    return place if isinstance(place, int) else ("z", place.get_id())


def _merged(e: Encoding, digits: Sequence[Digit]) -> Integer:
    """One index of several digits; quotient and remainder of the same index are that index."""
    left = list(digits)
    k = 0
    while k + 1 < len(left):
        (high, above), (low, below) = left[k], left[k + 1]
        known = e.parts.get((_key(high), _key(low)))
        if known is not None and same(known[2], below) and same(known[1], product([above, below])):
            left[k : k + 2] = [(known[0], known[1])]
            k = max(k - 1, 0)
        else:
            k += 1
    if len(left) == 1:
        return left[0][0]
    place = _linear(tuple(d for d, _ in left), [r for _, r in left])
    if isinstance(place, z3.ExprRef):
        e.digits[place.get_id()] = (place, tuple(left))
        sizes = [r for _, r in left]
        inside = within([d for d, _ in left], sizes)
        if not all_numbers(sizes):  # which the solver does not find out by itself
            whole = conjunction([place >= 0, plain(place < product(sizes))])
            e.define(z3.Implies(e.term(inside), e.term(whole)))
    return place
