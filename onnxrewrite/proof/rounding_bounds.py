"""A-priori bounds on rounding, for two terms that are equal over the reals.

A term that is computed in n roundings, one after the other, of a polynomial whose addends have the magnitudes |m|, has
an error of at most γₙ·Σ|m| with γₙ = n·u/(1 - n·u), whatever the order (Higham, *Accuracy and Stability of Numerical
Algorithms*, 2nd ed., Any3.1 and eq. 3.7).  So the replacement's bound is at most k times the original's, or ``floor``
units of roundoff, as ``reference.tolerance`` allows, if

    n'·|m'|  ≤  max(k·n, floor)·|m|        for each addend m.

That bound is one of a sum.  Where the original multiplies two sums, each of which is right to a few units of roundoff
of its own, as (x - z)² does, its error is far below that of x² - 2xz + z²; so such products stay.  The argument of a
function is bounded like the whole, for what cancels in it on one side is lost there.

No addend may appear on one side alone, also where it cancels or is multiplied by zero: then the two differ where it is
infinite, or large.  What is counted for a sum over L elements is L, for a division, a root and a function one each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeAlias

import z3

from onnxrewrite.proof.index_terms import Term
from onnxrewrite.proof.polynomials import ONE, Normalizer, Polynomial, Rational, opened, subterms
from onnxrewrite.reference.tolerance import Tolerance

Counts: TypeAlias = dict[str, int]
"""The number of roundings: "1" to those that are always there, the length of a sum to the number of such sums."""


FEW_DIGITS = "digits"
"""The count of roundings in a dtype of fewer digits than the result has, of which no bound is known."""


def roundings(term: Term) -> Counts:
    """The largest number of roundings, one after the other, between the elements of inputs and a term."""
    known: dict[tuple[int, bool], Counts] = {}
    held = []

    def of(each: Term, is_wide: bool) -> Counts:
        key = each.get_id(), is_wide
        if key not in known:
            held.append(each)
            known[key] = _roundings(each, of, is_wide=is_wide)
        return known[key]

    return of(term, False)


_FREE = (z3.Z3_OP_UMINUS, z3.Z3_OP_ITE, z3.Z3_OP_TO_REAL)
"""What rounds nothing; a size becomes a float exactly."""

_EXACT = ("max", "min", "input ", "constant ")


def _roundings(term: Term, of: Callable[[Term, bool], Counts], *, is_wide: bool) -> Counts:
    """``is_wide``: in a dtype of more digits than the result, in which roundings do not count."""
    if not z3.is_app(term) or not z3.is_real(term) or not term.num_args():
        return {}
    name = term.decl().name()
    if name == "rounded":
        return _joined(of(term.arg(0), True), {"1": 1}, add=True)
    if name == "widened":
        inner = of(term.arg(0), False)
        return inner if is_wide or not inner else {FEW_DIGITS: 1}
    if name.endswith(" over"):
        _, body = opened(term.arg(0), "b!0")
        own = {} if is_wide else {str(term.arg(1)): 1}
        return _joined(of(body, is_wide), own, add=True)
    result: Counts = {}
    for each in term.children():
        result = _joined(result, of(each, is_wide))
    if is_wide or term.decl().kind() in _FREE or name.startswith(_EXACT):
        return result
    steps = term.num_args() - 1 if term.decl().kind() in (z3.Z3_OP_ADD, z3.Z3_OP_MUL, z3.Z3_OP_SUB) else 1
    return _joined(result, {"1": steps}, add=True)


def _joined(a: Counts, b: Counts, *, add: bool = False) -> Counts:
    keys = {*a, *b}
    return {k: a.get(k, 0) + b.get(k, 0) if add else max(a.get(k, 0), b.get(k, 0)) for k in keys}


class _Magnitudes(Normalizer):
    """Normal forms in which nothing cancels: all addends are positive, those that are zero stay."""

    def __init__(self, forms: Normalizer):
        super().__init__()
        self._forms = forms
        self.cancelling: dict[tuple[object, ...], Rational] = {}
        self.products: set[frozenset[object]] = set()
        self.atoms, self.conditions, self.same = forms.atoms, forms.conditions, forms.same
        self._numbers, self._guards = forms._numbers, forms._guards

    def _of(self, term: Term) -> Rational:
        if z3.is_rational_value(term):
            return Rational({ONE: abs(Fraction(term.numerator_as_long(), term.denominator_as_long()))})
        if z3.is_mul(term):
            sums = [_monic(f) for f in map(self._forms.of, _factors(term)) if len(f.above) > 1]
            if len(sums) > 1:
                self.products.add(frozenset(sums))
        return super()._of(term)

    def _function(self, term: Term) -> Rational:
        if term.decl().name() in ("sum over", "rounded", "widened"):
            return super()._function(term)
        found = self._forms.of(term)
        for place, each in enumerate(term.children()):
            if z3.is_real(each):
                self._note((term.decl().name(), place, *_frozen(self._forms.of(each))), each)
        return Rational({m: abs(c) for m, c in found.above.items()}, found.below)

    def _note(self, key: tuple[object, ...], argument: Term) -> None:
        """Keep the magnitudes of the argument of a function in which something cancels."""
        exact, sizes = self._forms.of(argument), self.of(argument)
        if _frozen(sizes) != _frozen(_without_signs(exact)):
            self.cancelling[key] = sizes

    def scaled(self, a: Rational, factor: Fraction) -> Rational:
        return super().scaled(a, abs(factor))

    def plus(self, a: Rational, b: Rational) -> Rational:
        if _is_zero(b) or _is_zero(a):
            return a if _is_zero(b) else b
        if a.below == b.below:
            return Rational(_added(a.above, b.above), a.below)
        above = _added(self.product(a.above, b.below), self.product(b.above, a.below))
        return Rational(above, self.product(a.below, b.below))

    def product(self, a: Polynomial, b: Polynomial) -> Polynomial:
        result = super().product(
            {m: c or Fraction(1) for m, c in a.items()}, {m: c or Fraction(1) for m, c in b.items()}
        )
        if all(a.values()) and all(b.values()):
            return result
        exact = super().product(a, b)
        return {m: exact.get(m, Fraction(0)) for m in result}


def _added(a: Polynomial, b: Polynomial) -> Polynomial:
    return {m: a.get(m, Fraction(0)) + b.get(m, Fraction(0)) for m in {*a, *b}}


def excess(forms: Normalizer, before: Term, after: Term, row: Tolerance) -> str:
    """The reason why the bound of ``after`` is not within what is allowed beside that of ``before``; empty if it is."""
    if _narrowed(forms, before) != _narrowed(forms, after):
        return "a cast to fewer digits of another number"
    own, new = roundings(before), roundings(after)
    allowed = _ratio(own, new, row)
    if allowed is None:
        return f"{_told(new)} roundings, were {_told(own)}"
    old, changed = _Magnitudes(forms), _Magnitudes(forms)
    found = _grown(forms, old, old.of(before), changed.of(after), allowed)
    if found:
        return found
    if not old.products <= changed.products:
        return "a product of sums that is multiplied out"
    if old.cancelling.keys() != changed.cancelling.keys():
        return "an argument of a function in which something cancels, on one side alone"
    pairs = ((sizes, changed.cancelling[key]) for key, sizes in old.cancelling.items())
    return next(filter(None, (_grown(forms, old, x, y, allowed) for x, y in pairs)), "")


def _factors(term: Term) -> list[Term]:
    return [f for c in term.children() for f in _factors(c)] if z3.is_mul(term) else [term]


def _monic(value: Rational) -> object:
    first = value.above[min(value.above)]
    return _frozen(Rational({m: c / first for m, c in value.above.items()}, value.below))


def _frozen(value: Rational) -> tuple[frozenset[Term], frozenset[Term]]:
    return frozenset(value.above.items()), frozenset(value.below.items())


def _without_signs(value: Rational) -> Rational:
    return Rational(*({m: abs(c) for m, c in part.items()} for part in (value.above, value.below)))


def _grown(forms: Normalizer, sizes: _Magnitudes, a: Rational, b: Rational, allowed: Fraction) -> str:
    """The reason why the magnitudes ``b`` are not within what is allowed beside ``a``; empty if they are."""
    first, second = sizes.product(a.above, b.below), sizes.product(b.above, a.below)
    for monomial in sorted({*first, *second}):
        x, y = first.get(monomial), second.get(monomial)
        if not x and not y and all(_is_constant(forms.atoms[a]) for a, _ in monomial[0]):
            continue
        if x is None or y is None:
            return "an addend that cancels, or is multiplied by zero, on one side alone"
        if y > x * allowed:
            return "an addend that is much larger than it was"
    return ""


def _narrowed(forms: Normalizer, term: Term) -> set[str]:
    """The numbers that are cast to fewer digits: what was summed up before costs a rounding of the sum, and what is
    summed up after that one of each addend, however much these cancel."""
    found = set()
    for each in subterms(term):
        if z3.is_app(each) and each.decl().name() == "rounded":
            inner = each.arg(0)
            is_open = any(z3.is_var(t) for t in subterms(inner))
            found.add((inner if is_open else forms.term(forms.of(inner), inner.ctx)).sexpr())
    return found


def same_atoms(before: Term, after: Term) -> bool:
    """True if two terms are made of the same atoms, those that are multiplied by zero among them."""
    forms = Normalizer()
    sizes = _Magnitudes(forms)
    found = []
    for term in (before, after):
        value = sizes.of(term)
        found.append({a for part in (value.above, value.below) for powers, _ in part for a, _ in powers})
    return found[0] == found[1]


def _is_zero(value: Rational) -> bool:
    """True if a term is the number zero, and nothing that is multiplied by it."""
    return not any(value.above.values()) and set(value.above) <= {ONE}


def _is_constant(term: Term) -> bool:
    """True if an atom is an element of a constant, which is finite."""
    return bool(z3.is_app(term) and term.decl().name().startswith("constant "))


def _ratio(own: Mapping[str, int], new: Mapping[str, int], row: Tolerance) -> Fraction | None:
    """The factor by which magnitudes may grow beside the numbers of roundings; None where these are too many."""
    k, floor = Fraction(row.k), Fraction(row.floor)
    factor = None
    if FEW_DIGITS in new:
        return None
    for length, count in new.items():
        most = max(k * own.get(length, 0), floor) if length == "1" else k * own.get(length, 0)
        if count > most:
            return None
        factor = most / count if count and (factor is None or most / count < factor) else factor
    return factor if factor is not None else k


def _told(counts: Mapping[str, int]) -> str:
    return " + ".join(str(n) if length == "1" else f"{n}·{length}" for length, n in sorted(counts.items())) or "0"
