"""Definedness of real terms: roots of no negative numbers, logarithms of positive ones, no division by zero.

Two terms that are equal where both are defined differ as soon as one of them is NaN, or infinite, where the other is
not.  So the conditions of each must follow from those of the other: they are the same, or hold always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import z3

from onnxrewrite.proof.index_terms import Term
from onnxrewrite.proof.polynomials import applied, depth_of, subterms
from onnxrewrite.proof.signs import sign_of

if TYPE_CHECKING:
    from onnxrewrite.proof.deciding import Decider

Path = frozenset[str]
"""The conditions of each ``If``, and the lengths of sums that may be empty, inside of which a term stands."""

Condition = tuple[str, Term, Path]
"""What must hold, ``root``, ``log``, ``divisor`` or ``power``, of which term, and where it matters."""


def undefined(decider: Decider, before: Term, after: Term, premises: Sequence[Term] = ()) -> str:
    """A condition that one of two terms has alone; empty if there is none."""
    old, new = (
        [c for c in _conditions(decider, t, premises) if not _always(decider, c[0], c[1], premises)]
        for t in (before, after)
    )  # what holds always by the form of one side, and of the other not, may fail there by rounding
    for mine, others, whose in ((old, new, "original"), (new, old, "replacement")):
        for kind, term, path in mine:
            if not any(k == kind and p == path and _is_same(decider, kind, term, t) for k, t, p in others):
                return f"the {whose} alone is not defined for some {kind}"
    return ""


def _is_same(decider: Decider, kind: str, term: Term, other: Term) -> bool:
    """True if a condition is another's.  What divides must be computed alike to the letter: of two zeros of different
    sign one makes ∞ and the other -∞."""
    if kind in ("root", "log"):
        return bool(term.eq(other)) or decider.equal_reals(term, other)
    return bool(term.eq(other)) and not any(map(_has_some_zero, subterms(term)))


def _has_some_zero(term: Term) -> bool:
    """True if the sign of a zero depends on how the term was written: |x| is max(x, -x) here, √x is x to the ½, and
    x + 0 what a Where may make of x."""
    if not z3.is_app(term) or not z3.is_real(term):
        return False
    if z3.is_add(term) and any(z3.is_rational_value(part) and part.as_fraction() == 0 for part in term.children()):
        return True
    name = term.decl().name()
    return name in ("max", "min") or (name == "sqrt" and not sign_of(term.arg(0)))


def _conditions(decider: Decider, term: Term, premises: Sequence[Term]) -> list[Condition]:
    """All conditions of a term, those inside of sums for variables of their own."""
    found: dict[tuple[str, int, Path], Condition] = {}
    waiting: list[tuple[Term, Path]] = [(term, frozenset())]
    seen = set()
    while waiting:
        each, path = waiting.pop()
        if (each.get_id(), path) in seen or not z3.is_app(each):
            continue
        seen.add((each.get_id(), path))
        for kind, part in _own(each):
            found[kind, part.get_id(), path] = (kind, part, path)
        waiting += _inside(decider, each, path, premises)
    return list(found.values())


def _own(term: Term) -> list[tuple[str, Term]]:
    """The conditions of a term itself, without those of its operands."""
    if not z3.is_real(term):
        return []
    name = term.decl().name()
    if term.decl().kind() == z3.Z3_OP_DIV:
        return [("divisor", factor) for factor in _factors(term.arg(1))]
    if name in ("sqrt", "log"):
        return [("root" if name == "sqrt" else "log", term.arg(0))]
    return [("power", term)] if name == "pow" else []


def _inside(decider: Decider, term: Term, path: Path, premises: Sequence[Term]) -> list[tuple[Term, Path]]:
    """The operands of a term, each with where it matters."""
    parts = term.children()
    if term.decl().kind() == z3.Z3_OP_ITE:
        told = parts[0].sexpr()
        return [(parts[0], path), (parts[1], path | {told}), (parts[2], path | {f"not {told}"})]
    if any(map(z3.is_quantifier, parts)):  # a sum, inside of which its variable is any number
        variable = z3.Int(f"any!{depth_of(term)}", term.ctx)
        may_be_empty = [p.sexpr() for p in parts if z3.is_int(p) and not decider.valid(p > 0, premises)]
        return [(applied(p, variable), path.union(may_be_empty)) for p in parts if z3.is_quantifier(p)]
    return [(p, path) for p in parts]


def _factors(term: Term) -> list[Term]:
    if z3.is_rational_value(term):
        return []
    return [f for c in term.children() for f in _factors(c)] if z3.is_mul(term) else [term]


def _always(decider: Decider, kind: str, term: Term, premises: Sequence[Term]) -> bool:
    """True if a condition holds whatever the inputs are."""
    if kind == "power":
        return False
    if term.decl().kind() == z3.Z3_OP_TO_REAL:
        return decider.valid(term.arg(0) != 0, premises)
    if term.decl().name() == "sqrt":
        return _always(decider, "log", term.arg(0), premises)
    sign = sign_of(term, lambda length: decider.valid(length > 0, premises))
    return sign == 2 or (kind == "root" and sign == 1)
