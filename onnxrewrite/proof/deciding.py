"""Equality of two terms where premises hold: by the solver, over the reals by normal forms and by cases.

Every question to the solver that has an answer is kept as SMT-LIB, so that a proof can be replayed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
import z3

from onnxrewrite.proof.bounded_solver import solver_for
from onnxrewrite.proof.domains import Reals
from onnxrewrite.proof.ieee_numbers import Bitwise
from onnxrewrite.proof.index_terms import OutOfTime, Term, negated, plain
from onnxrewrite.proof.polynomials import Normalizer, Polynomial, Rational, applied
from onnxrewrite.proof.rounding_bounds import excess, same_atoms
from onnxrewrite.proof.signs import sign_of
from onnxrewrite.proof.tensors import Encoding, is_exact
from onnxrewrite.reference.tolerance import TOLERANCES, Tolerance

SECONDS = 10.0
"""The time for one proof; what is not proved by then is unknown."""

_STEP = 3.0
"""Seconds for one question."""

_SHORT = 400
"""Characters of a term that the solver is asked about without a normal form."""

_BRANCHES = 4
"""So many conditions of terms that are no reals are taken as true and as false."""

_GUESS = 0.3
"""Seconds for a model with small sizes."""

_CASES = 9
"""So many conditions at most are taken as true and as false in turn, one inside of the other."""

_DEEP = 6
"""Functions, and sums, that stand inside of each other, are compared so deep."""

COEFFICIENT = 4
"""Units of roundoff by which two coefficients may differ that are the same number computed in two ways."""


@dataclass
class Decider:
    """Decides what holds in an encoding.

    Attributes:
        encoding: The encoding, with its premises.
        seconds: The time for all that is asked.
        tolerance: What the check of a site allows, in the dtype of the result.
        goals: What was shown, each a script of SMT-LIB that has no model.
        rounded: True if coefficients were taken for equal that differ in their last digits.
        zeros: True if two zeros of different sign were taken for equal.
        refusal: Why terms that are equal over the reals were not taken for equal; empty if none were.
        sizes: The names that sizes have, which a model should give small numbers.
        model: The model in which the last claim that failed is false; None where none is known.
    """

    encoding: Encoding
    seconds: float = SECONDS
    tolerance: Tolerance = TOLERANCES[np.dtype(np.float32)]
    goals: list[str] = field(default_factory=list)
    rounded: bool = False
    zeros: bool = False
    model: Term = None
    refusal: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    _end: float = field(default=0.0)
    _asked: dict[tuple[int, ...], bool] = field(default_factory=dict)
    _held: list[Term] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = time.process_time() + self.seconds

    def left(self) -> float:
        """The seconds that are left.

        Raises:
            OutOfTime: There are none.
        """
        left = self._end - time.process_time()
        if left <= 0:
            raise OutOfTime(f"no proof was found within {self.seconds:g} s")
        return left

    # -- the solver ------------------------------------------------------------------------------------------

    def valid(self, claim: Term, premises: Sequence[Term] = (), seconds: float = _STEP) -> bool:
        """True if a claim is shown to hold wherever the original runs and ``premises`` hold."""
        claim = plain(claim)
        if isinstance(claim, bool) and claim:
            return True
        claim = self.encoding.term(claim)
        key = (claim.get_id(), *(p.get_id() for p in premises), len(self.encoding.premises))
        if key not in self._asked:
            self._held += [claim, *premises]
            self._asked[key] = self._checked(claim, premises, seconds)
        return self._asked[key]

    def _checked(self, claim: Term, premises: Sequence[Term], seconds: float) -> bool:
        solver = self._solver(min(seconds, self.left()))
        solver.add(*self.encoding.premises, *premises, z3.Not(claim))
        found = solver.check()
        if found == z3.unsat:
            self.goals.append(solver.to_smt2())
            return True
        self.model = self._small_model(solver) if found == z3.sat else None
        return False

    def _solver(self, seconds: float) -> Term:
        return solver_for(self.encoding.domain.context, seconds)

    def _small_model(self, solver: Term) -> Term:
        """A model of sizes that are neither zero nor large, where there is one soon; else any.

        Each is asked of a solver of its own: z3 5.4 died of SIGSEGV in one that was asked again, with assumptions.
        """
        for low, high in ((1, 7), (1, 20), (0, 60)):
            small = self._solver(_GUESS)
            small.add(*solver.assertions())
            small.add(*(c for size in self.sizes.values() for c in (size >= low, size <= high)))
            if small.check() == z3.sat:
                return small.model()
        return solver.model()

    def _kept(self, claim: Term, premises: Sequence[Term]) -> bool:
        """Keep as a goal what is seen without the solver."""
        solver = z3.Solver(ctx=self.encoding.domain.context)
        solver.add(*premises, z3.Not(claim))
        self.goals.append(solver.to_smt2())
        return True

    def consistent(self) -> bool:
        """False if the premises contradict each other, so that anything would follow."""
        solver = self._solver(min(_STEP, self.left()))
        solver.add(*self.encoding.premises)
        return bool(solver.check() != z3.unsat)

    # -- elements --------------------------------------------------------------------------------------------

    def equal(self, a: Term, b: Term, dtype: ir.DataType, premises: Sequence[Term] = ()) -> bool:
        """True if two elements of a dtype are shown to be equal where premises hold."""
        if dtype != ir.DataType.BOOL and is_exact(a) and is_exact(b):
            return self.valid(a == b, premises)
        a, b = (self.encoding.domain.lifted(each, dtype) for each in (a, b))
        if a.eq(b):
            return self._kept(a == b, premises)
        if isinstance(self.encoding.domain, Reals) and z3.is_real(a):
            return self.equal_reals(a, b, premises)
        if self._in_branches(a, b, premises) or self.valid(a == b, premises, SECONDS):
            return True
        if isinstance(self.encoding.domain, Bitwise) and z3.is_fp(a):
            self.zeros = self.valid(
                z3.Or(a == b, z3.And(z3.fpIsZero(a, a.ctx), z3.fpIsZero(b, b.ctx))), premises, SECONDS
            )
            return self.zeros
        return False

    def _in_branches(self, a: Term, b: Term, premises: Sequence[Term], cases: int = 0) -> bool:
        """True if two terms are the same to the letter in each branch of their conditions."""
        a, b = z3.simplify(a), z3.simplify(b)
        if a.eq(b):
            return self._kept(a == b, premises)
        condition = next((c for c in (_branch(a), _branch(b)) if c is not None), None)
        if condition is None or cases >= _BRANCHES:
            return False
        for value in (True, False):
            first, second = (z3.substitute(t, (condition, self.encoding.term(value))) for t in (a, b))
            if not self._in_branches(first, second, premises, cases + 1):
                return False
        return True

    # -- real numbers ----------------------------------------------------------------------------------------

    def equal_reals(self, a: Term, b: Term, premises: Sequence[Term] = (), depth: int = 0) -> bool:
        """True if two real terms are shown to be equal."""
        self.left()
        if a.eq(b):
            return bool(depth) or self._kept(a == b, premises)
        if depth > _DEEP:
            return False
        if self._by_normal_form(a, b, premises, depth) or self._by_cases(a, b, premises, depth):
            return True
        wider = [_without_tanh(each) for each in (a, b)]
        is_wider = not (wider[0].eq(a) and wider[1].eq(b))
        if _tanhs(a) > _tanhs(b):  # 1 - exp(-2x) cancels near zero, tanh does not
            return False
        return is_wider and self._by_normal_form(wider[0], wider[1], premises, depth)

    def _by_normal_form(self, a: Term, b: Term, premises: Sequence[Term], depth: int) -> bool:
        forms = Normalizer()
        tried: set[tuple[int, int]] = set()
        while True:
            difference = self._difference(forms, forms.of(a), forms.of(b))
            if not difference:
                self.refusal = excess(forms, a, b, self.tolerance)
                return not self.refusal and self._kept(forms.identity(forms.of(a), forms.of(b), a.ctx), ())
            if not self._unified(forms, difference, tried, premises, depth):
                return False

    def _difference(self, forms: Normalizer, a: Rational, b: Rational) -> Polynomial:
        """The numerator of a difference; what is left of two coefficients that are nearly equal is nothing."""
        first, second = forms.product(a.above, b.below), forms.product(b.above, a.below)
        result: Polynomial = {}
        for monomial in sorted({*first, *second}):
            x, y = first.get(monomial, Fraction(0)), second.get(monomial, Fraction(0))
            if abs(x - y) > Fraction(COEFFICIENT * self.tolerance.unit) * max(abs(x), abs(y)):
                result[monomial] = x - y
            elif x != y:
                self.rounded = True
        return result

    def _unified(
        self,
        forms: Normalizer,
        difference: Polynomial,
        tried: set[tuple[int, int]],
        premises: Sequence[Term],
        depth: int,
    ) -> bool:
        """Find two atoms of a difference that are equal, and take them for one."""
        atoms = sorted({a for powers, _ in difference for a, _ in powers})
        for first, second in itertools.combinations(atoms, 2):
            if (first, second) in tried:
                continue
            tried.add((first, second))
            if self._equal_atoms(forms.atoms[first], forms.atoms[second], premises, depth):
                forms.merge(first, second)
                return True
        return False

    def _equal_atoms(self, a: Term, b: Term, premises: Sequence[Term], depth: int) -> bool:
        if not (z3.is_app(a) and z3.is_app(b)) or not a.decl().eq(b.decl()) or not a.num_args():
            return False
        if any(z3.is_array(x) for x in a.children()):
            return self._equal_sums(a, b, premises, depth)
        return all(self._equal_terms(x, y, premises, depth) for x, y in zip(a.children(), b.children(), strict=True))

    def _equal_terms(self, a: Term, b: Term, premises: Sequence[Term], depth: int) -> bool:
        if a.eq(b):
            return True
        if z3.is_real(a):
            return self.equal_reals(a, b, premises, depth + 1)
        return self.valid(a == b, premises)

    def _equal_sums(self, a: Term, b: Term, premises: Sequence[Term], depth: int) -> bool:
        """Two sums over as many variables, in some order of these."""
        bounds, body = self._opened(a)
        others, other = self._opened(b)
        if len(bounds) != len(others) or len(bounds) > 4:
            return False
        inside = [plain(c) for v, n in bounds for c in (v >= 0, v < n)]
        within = [*premises, *(c for c in inside if not isinstance(c, bool))]
        orders = [[(bounds[k], others[p]) for k, p in enumerate(o)] for o in itertools.permutations(range(len(others)))]
        for pairs in orders:  # what is the same to the letter is seen at once
            renamed = z3.substitute(other, *((w, v) for (v, _), (w, _) in pairs))
            if all(n.eq(m) for (_, n), (_, m) in pairs) and z3.simplify(renamed).eq(z3.simplify(body)):
                return True
        for pairs in orders:
            if all(self.valid(n == m, premises) for (_, n), (_, m) in pairs):
                renamed = z3.substitute(other, *((w, v) for (v, _), (w, _) in pairs))
                if self._equal_bodies(body, renamed, within, depth):
                    return True
        return False

    def _equal_bodies(self, a: Term, b: Term, premises: Sequence[Term], depth: int) -> bool:
        return self.equal_reals(a, b, premises, depth + 1) if z3.is_real(a) else self.valid(a == b, premises)

    def _opened(self, term: Term) -> tuple[list[tuple[Term, Term]], Term]:
        """The variables of a sum of sums, each with its length, and the innermost body."""
        bounds = []
        name = term.decl().name()
        while z3.is_app(term) and term.decl().name() == name and term.num_args() == 2:
            variable = self.encoding.symbol("s")
            bounds.append((variable, term.arg(1)))
            term = applied(term.arg(0), variable)
        return bounds, term

    def _by_cases(self, a: Term, b: Term, premises: Sequence[Term], depth: int, cases: int = 0) -> bool:
        """By taking a condition of an If, or of a maximum, as true and as false."""
        a, b = (_with_choices(each) for each in (a, b))
        condition = next((c for c in map(_condition, (a, b)) if c is not None), None)
        if condition is None:
            return False
        known = self._decided(condition, premises)
        for value, ruled_out in ((True, known[1]), (False, known[0])):
            if ruled_out:
                continue
            given = condition if value else plain(negated(condition))
            decided = [z3.substitute(t, (condition, self.encoding.term(value))) for t in (a, b)]
            if cases >= _CASES or not self._in_case(decided[0], decided[1], [*premises, given], depth, cases):
                return False
        return True

    def _decided(self, condition: Term, premises: Sequence[Term]) -> tuple[bool, bool]:
        """True for a condition that holds, and for one whose opposite does."""
        if z3.is_ge(condition) and z3.is_real(condition.arg(0)):
            value, bound = condition.children()
            if z3.is_rational_value(bound) and bound.numerator_as_long() == 0 and sign_of(value):
                return True, False
        return self.valid(condition, premises), self.valid(z3.Not(condition), premises)

    def _in_case(self, a: Term, b: Term, premises: Sequence[Term], depth: int, cases: int) -> bool:
        self.left()
        if a.eq(b):
            return True
        if _condition(a) is not None or _condition(b) is not None:
            return self._by_cases(a, b, premises, depth, cases + 1)
        return self._by_normal_form(a, b, premises, depth) or self._at_border(a, b, premises)

    def _at_border(self, a: Term, b: Term, premises: Sequence[Term]) -> bool:
        """True if premises leave so little that two terms are equal there: both cases of a maximum hold at a tie."""
        return len(a.sexpr()) < _SHORT and same_atoms(a, b) and self.valid(a == b, premises, _GUESS)


def _branch(term: Term) -> Term:
    """The condition of some If that has no If inside; None where there is none."""
    for each in _outside(term):
        if z3.is_app_of(each, z3.Z3_OP_ITE):
            inner = _branch(each.arg(0))
            return each.arg(0) if inner is None else inner
    return None


def _without_tanh(term: Term) -> Term:
    """A term with the exponentials that tanh is made of: (1 - e⁻²ˣ)/(1 + e⁻²ˣ)."""
    while True:
        found = next((t for t in _outside(term) if z3.is_app(t) and t.decl().name() == "tanh"), None)
        if found is None:
            return term
        real = z3.RealSort(term.ctx)
        power = z3.Function("exp", real, real)(-2 * found.arg(0))
        term = z3.substitute(term, (found, (1 - power) / (1 + power)))


def _tanhs(term: Term) -> int:
    return sum(z3.is_app(t) and t.decl().name() == "tanh" for t in _outside(term))


def _with_choices(term: Term) -> Term:
    """A term with an If for each maximum and minimum outside of sums, those inside first."""
    while True:
        found = next((t for t in _outside(term) if _is_extremum(t) and not _has_choice(t)), None)
        if found is None:
            return term
        x, y = sorted(found.children(), key=z3.is_rational_value)
        is_larger = found.decl().name() == "max"
        term = z3.substitute(term, (found, z3.If(x >= y, x if is_larger else y, y if is_larger else x)))


def _is_extremum(term: Term) -> bool:
    return z3.is_app(term) and term.decl().name() in ("max", "min") and z3.is_real(term)


def _has_choice(term: Term) -> bool:
    """True if an extremum stands inside of an extremum."""
    return any(_is_extremum(t) for c in term.children() for t in _outside(c))


def _condition(term: Term) -> Term:
    """The condition of some undecided If outside of sums that has no If inside; None where there is none.

    Terms are not simplified on the way: what is multiplied by zero must not get lost, for it may be infinite.
    """
    for each in _outside(term):
        if z3.is_app_of(each, z3.Z3_OP_ITE) and z3.is_real(each) and not isinstance(plain(each.arg(0)), bool):
            inner = _condition(each.arg(0))
            return each.arg(0) if inner is None else inner
    return None


def _outside(term: Term) -> list[Term]:
    """The terms inside of a term, but for those inside of sums."""
    found, waiting, seen = [], [term], set()
    while waiting:
        each = waiting.pop()
        if each.get_id() not in seen and not z3.is_quantifier(each):
            seen.add(each.get_id())
            found.append(each)
            waiting += each.children()
    return found
