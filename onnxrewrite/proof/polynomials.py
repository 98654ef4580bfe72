"""Terms of real numbers in normal form: quotients of polynomials in *atoms*, equal where they are multiplied out alike.

An atom is anything that no law here takes apart: an element of an input, a function of a normalized argument, a sum
over a variable.  The laws: sums and products commute, associate and distribute; Σ is linear, and what does not depend
on its variable comes out of it; eᵃ⁺ᵇ = eᵃ·eᵇ, e⁰ = 1; (√a)² = a.  ``If`` is a sum of products with 0 or 1, one for
each condition.

A coefficient that differs in its last digits, because a rule computed a constant, counts as equal and as rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import z3

from onnxrewrite.proof.index_terms import Term, Unprovable, conjunction, plain

Powers: TypeAlias = tuple[tuple[int, int], ...]
Guards: TypeAlias = tuple[int, ...]
Monomial: TypeAlias = tuple[Powers, Guards]
"""Atoms with their powers, and the conditions under which it counts, all by number, sorted."""

Polynomial: TypeAlias = dict[Monomial, Fraction]

MAX_TERMS = 4000
"""A polynomial of more is given up."""

ONE: Monomial = ((), ())


@dataclass
class Rational:
    """A quotient of polynomials."""

    above: Polynomial
    below: Polynomial = field(default_factory=lambda: {ONE: Fraction(1)})

    @property
    def is_whole(self) -> bool:
        """True if the divisor is a number."""
        return set(self.below) == {ONE}


def number(value: Fraction | int) -> Polynomial:
    """A constant polynomial."""
    return {ONE: Fraction(value)} if value else {}


class Normalizer:
    """Brings terms into normal form; equal atoms have one number.

    Attributes:
        atoms: The atoms, as terms.
        conditions: The conditions that guard, as terms.
        same: An atom to another that was shown to be equal.
    """

    def __init__(self) -> None:
        self.atoms: list[Term] = []
        self.conditions: list[Term] = []
        self.same: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._guards: dict[int, int] = {}
        self._known: dict[int, tuple[Term, Rational]] = {}

    def merge(self, a: int, b: int) -> None:
        """Take two atoms for one from now on."""
        self.same[max(a, b)] = min(a, b)
        self._known.clear()

    # -- terms to quotients ----------------------------------------------------------------------------------

    def of(self, term: Term) -> Rational:
        """The normal form of a term of the sort Real."""
        key = term.get_id()
        if key not in self._known:
            self._known[key] = term, self._of(term)
        return self._known[key][1]

    def _of(self, term: Term) -> Rational:
        if z3.is_rational_value(term):
            return Rational(number(Fraction(term.numerator_as_long(), term.denominator_as_long())))
        kind, parts = term.decl().kind(), term.children()
        if kind == z3.Z3_OP_ADD:
            return self._folded(parts, self.plus)
        if kind == z3.Z3_OP_SUB:
            return self._folded([parts[0]], self.plus) if len(parts) == 1 else self._difference(parts)
        if kind == z3.Z3_OP_UMINUS:
            return self.scaled(self.of(parts[0]), Fraction(-1))
        if kind == z3.Z3_OP_MUL:
            return self._folded(parts, self.times)
        if kind == z3.Z3_OP_DIV:
            return self.divided(self.of(parts[0]), self.of(parts[1]))
        if kind == z3.Z3_OP_ITE:
            return self._either(*parts)
        if kind == z3.Z3_OP_TO_REAL:
            return self._size(parts[0])
        return self._function(term)

    def _folded(self, parts: Term, join: Term) -> Rational:
        result = self.of(parts[0])
        for each in parts[1:]:
            result = join(result, self.of(each))
        return result

    def _difference(self, parts: Term) -> Rational:
        result = self.of(parts[0])
        for each in parts[1:]:
            result = self.plus(result, self.scaled(self.of(each), Fraction(-1)))
        return result

    def _size(self, size: Term) -> Rational:
        """A size as a polynomial in its names."""
        found = z3.simplify(z3.ToReal(size), som=True)
        if found.decl().kind() == z3.Z3_OP_TO_REAL:
            return self._atom(found)
        return self.of(found)

    def _either(self, condition: Term, yes: Term, no: Term) -> Rational:
        decided = plain(condition)
        if isinstance(decided, bool):
            return self.of(yes if decided else no)
        guard, opposite = self._guard(condition), self._guard(z3.simplify(z3.Not(condition)))
        return self.plus(self._guarded(self.of(yes), guard), self._guarded(self.of(no), opposite))

    def _guard(self, condition: Term) -> int:
        key = condition.get_id()
        if key not in self._guards:
            self._guards[key] = len(self.conditions)
            self.conditions.append(condition)
        return self._guards[key]

    def _guarded(self, value: Rational, guard: int) -> Rational:
        above = {(p, tuple(sorted({*g, guard}))): c for (p, g), c in value.above.items()}
        return Rational(above, value.below)

    # -- functions -------------------------------------------------------------------------------------------

    def _function(self, term: Term) -> Rational:
        name = term.decl().name()
        if name == "sum over":
            return self._sum(term)
        if name in ("rounded", "widened"):
            return self.of(term.arg(0))
        if name == "exp":
            return self._exponential(self.of(term.arg(0)), term)
        if name in _ODD:
            argument = self.of(term.arg(0))
            if argument.above and min(argument.above.items())[1] < 0:
                turned = term.decl()(self.term(self.scaled(argument, Fraction(-1)), term.ctx))
                return self.scaled(self._atom(turned), Fraction(-1))
        if name in _LAWFUL:
            arguments = [self.term(self.of(a), term.ctx) for a in term.children()]
            if name in _SYMMETRIC:
                arguments.sort(key=lambda t: t.sexpr())
            return self._atom(term.decl()(*arguments))
        return self._atom(term)

    def _exponential(self, argument: Rational, term: Term) -> Rational:
        """A product of an exponential of each addend."""
        if not argument.is_whole:
            return self._atom(term.decl()(self.term(argument, term.ctx)))
        scale = argument.below[ONE]
        result = Rational(number(1))
        for monomial, coefficient in sorted(argument.above.items()):
            share = coefficient / scale
            whole = share.denominator == 1 and abs(share) <= 8
            inner = Rational({monomial: Fraction(1) if whole else share})
            factor = self._atom(term.decl()(self.term(inner, term.ctx)))
            for _ in range(abs(int(share)) if whole else 1):
                down = whole and share < 0
                result = self.divided(result, factor) if down else self.times(result, factor)
        return result

    def _sum(self, term: Term) -> Rational:
        """Σ of each addend, without the factors that do not depend on the variable."""
        bound, body = opened(term.arg(0), f"bound!{depth_of(term)}")
        length = term.arg(1)
        inner = self.of(body)
        below = inner.below if any(self._depends(m, bound) for m in inner.below) else number(1)
        result = Rational({})
        for monomial, coefficient in sorted(inner.above.items()):
            outside, inside = self._apart(monomial, bound)
            if inside == ONE and below == number(1):
                factor = self._size(length)
            else:
                addend = self.term(Rational({inside: Fraction(1)}, below), term.ctx)
                factor = self._atom(term.decl()(z3.Lambda([bound], addend), length))
            result = self.plus(result, self.times(Rational({outside: coefficient}), factor))
        return result if below != number(1) else self.divided(result, Rational(inner.below))

    def _depends(self, monomial: Monomial, bound: Term) -> bool:
        return self._apart(monomial, bound)[1] != ONE

    def _apart(self, monomial: Monomial, bound: Term) -> tuple[Monomial, Monomial]:
        """The factors that do not depend on a variable, and those that do."""
        powers, guards = monomial
        of_atom = [_mentions(self.atoms[a], bound) for a, _ in powers]
        of_guard = [_mentions(self.conditions[g], bound) for g in guards]
        parts = []
        for wanted in (False, True):
            chosen = tuple(p for p, m in zip(powers, of_atom, strict=True) if m == wanted)
            parts.append((chosen, tuple(g for g, m in zip(guards, of_guard, strict=True) if m == wanted)))
        return parts[0], parts[1]

    def _atom(self, term: Term) -> Rational:
        key = term.get_id()
        if key not in self._numbers:
            self._numbers[key] = len(self.atoms)
            self.atoms.append(term)
        found = self._numbers[key]
        while found in self.same:
            found = self.same[found]
        return Rational({(((found, 1),), ()): Fraction(1)})

    # -- arithmetic ------------------------------------------------------------------------------------------

    def plus(self, a: Rational, b: Rational) -> Rational:
        """The sum of two."""
        if a.below == b.below:
            return Rational(_added(a.above, b.above), a.below)
        above = _added(self.product(a.above, b.below), self.product(b.above, a.below))
        return Rational(above, self.product(a.below, b.below))

    def times(self, a: Rational, b: Rational) -> Rational:
        """The product of two."""
        return self._reduced(Rational(self.product(a.above, b.above), self.product(a.below, b.below)))

    def divided(self, a: Rational, b: Rational) -> Rational:
        """The quotient of two."""
        if not b.above:
            raise Unprovable("a division by zero")
        return self._reduced(Rational(self.product(a.above, b.below), self.product(a.below, b.above)))

    def scaled(self, a: Rational, factor: Fraction) -> Rational:
        """A multiple."""
        return Rational({m: c * factor for m, c in a.above.items()}, a.below)

    def _reduced(self, value: Rational) -> Rational:
        """Without common factors where the divisor is a single monomial."""
        if len(value.below) != 1 or not value.above:
            return value
        ((powers, guards), coefficient) = next(iter(value.below.items()))
        if guards:
            return value
        common = dict(powers)
        for other, _ in value.above:
            held = dict(other)
            common = {a: min(p, held.get(a, 0)) for a, p in common.items()}
        above = {(_less(p, common), g): c / coefficient for (p, g), c in value.above.items()}
        return Rational(above, {(_less(powers, common), ()): Fraction(1)})

    def product(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """The product of two polynomials; squares of roots are what they are roots of."""
        if len(a) * len(b) > MAX_TERMS * 4:
            raise Unprovable("a polynomial of too many terms")
        result: Polynomial = {}
        for (p, g), c in a.items():
            for (q, h), d in b.items():
                powers = dict(p)
                for atom, power in q:
                    powers[atom] = powers.get(atom, 0) + power
                guards = tuple(sorted({*g, *h}))
                for (r, i), f in self._squared(powers).items():
                    key = r, tuple(sorted({*guards, *i}))
                    result[key] = result.get(key, Fraction(0)) + c * d * f
        if len(result) > MAX_TERMS:
            raise Unprovable("a polynomial of too many terms")
        return {m: c for m, c in result.items() if c}

    def _squared(self, powers: Mapping[int, int]) -> Polynomial:
        for atom, power in powers.items():
            term = self.atoms[atom]
            if power >= 2 and z3.is_app(term) and term.decl().name() == "sqrt":
                inner = self.of(term.arg(0))
                if not inner.is_whole:
                    continue
                rest = {**powers, atom: power - 2}
                scale = Fraction(1) / inner.below[ONE]
                within = {m: c * scale for m, c in inner.above.items()}
                return self.product({_monomial(rest): Fraction(1)}, within)
        return {_monomial(powers): Fraction(1)}

    # -- quotients to terms ----------------------------------------------------------------------------------

    def term(self, value: Rational, context: Term) -> Term:
        """A normal form as a term, the same for the same."""
        above = self._sum_of(value.above, context)
        return above if value.below == number(1) else above / self._sum_of(value.below, context)

    def identity(self, a: Rational, b: Rational, context: Term) -> Term:
        """The equation of two quotients that are equal, multiplied out, with a variable for each atom and condition.

        Coefficients that are equal but for their last digits are those of the first.
        """
        first, second = self.product(a.above, b.below), self.product(b.above, a.below)
        sides = [self._in_variables(first, first, context), self._in_variables(second, first, context)]
        return sides[0] == sides[1]

    def _in_variables(self, polynomial: Polynomial, rounded: Polynomial, context: Term) -> Term:
        parts = []
        for (powers, guards), coefficient in sorted(polynomial.items()):
            value = rounded.get((powers, guards), coefficient)
            variables = [z3.Real(f"atom!{a}", context) for a, p in powers for _ in range(p)]
            variables += [z3.Real(f"condition!{g}", context) for g in guards]
            parts.append(z3.Product(z3.RealVal(str(value), context), *variables))
        return z3.Sum(z3.RealVal(0, context), *parts)

    def _sum_of(self, polynomial: Polynomial, context: Term) -> Term:
        parts = [self._product_of(m, c, context) for m, c in sorted(polynomial.items())]
        if not parts:
            return z3.RealVal(0, context)
        return parts[0] if len(parts) == 1 else z3.Sum(*parts)

    def _product_of(self, monomial: Monomial, coefficient: Fraction, context: Term) -> Term:
        powers, guards = monomial
        parts = [self.atoms[a] for a, p in powers for _ in range(p)]
        if coefficient != 1 or not parts:
            parts.insert(0, z3.RealVal(str(coefficient), context))
        found = parts[0] if len(parts) == 1 else z3.Product(*parts)
        if not guards:
            return found
        return z3.If(conjunction(self.conditions[g] for g in guards), found, z3.RealVal(0, context))


_LAWFUL = frozenset(("sqrt", "log", "tanh", "erf", "sin", "cos", "pow", "max", "min"))
"""Functions whose arguments are normalized."""

_ODD = frozenset(("tanh", "erf", "sin"))
"""Functions of which f(-x) = -f(x)."""

_SYMMETRIC = frozenset(("max", "min"))


def opened(function: Term, name: str) -> tuple[Term, Term]:
    """The variable and the body of a function of z3."""
    bound = z3.Int(name, function.ctx)
    return bound, applied(function, bound)


def applied(function: Term, argument: Term) -> Term:
    """The element of a function of z3; one that is constant is no abstraction any more."""
    if z3.is_quantifier(function):
        return z3.substitute_vars(function.body(), argument)
    return z3.simplify(function[argument])


def depth_of(term: Term) -> int:
    """The number of sums that stand inside of each other, so that variables of inner and outer ones differ."""
    if z3.is_quantifier(term):
        return 1 + depth_of(term.body())
    return max(map(depth_of, term.children()), default=0)


def _mentions(term: Term, variable: Term) -> bool:
    """True if a variable occurs in a term."""
    return any(each.eq(variable) for each in subterms(term))


def subterms(term: Term) -> Iterator[Term]:
    """A term and all terms inside, each once."""
    seen = set()
    waiting = [term]
    while waiting:
        each = waiting.pop()
        if each.get_id() in seen:
            continue
        seen.add(each.get_id())
        yield each
        waiting += [each.body()] if z3.is_quantifier(each) else each.children()


def _monomial(powers: Mapping[int, int]) -> Monomial:
    return tuple(sorted((a, p) for a, p in powers.items() if p)), ()


def _less(powers: Powers, gone: Mapping[int, int]) -> Powers:
    return tuple((a, p - gone.get(a, 0)) for a, p in powers if p > gone.get(a, 0))


def _added(a: Polynomial, b: Polynomial) -> Polynomial:
    result = dict(a)
    for monomial, coefficient in b.items():
        result[monomial] = result.get(monomial, Fraction(0)) + coefficient
    return {m: c for m, c in result.items() if c}
