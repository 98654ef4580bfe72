"""Definedness of real terms: roots of no negative numbers, logarithms of positive ones, no division by zero.

Two terms that are equal where both are defined differ as soon as one of them is NaN, or infinite, where the other is
not.  So the conditions of each must follow from those of the other: they are the same, or hold always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import z3

from onnxrewrite.proof.polynomials import applied, subterms
from onnxrewrite.proof.signs import sign_of

if TYPE_CHECKING:
    from onnxrewrite.proof.deciding import Decider

Condition = tuple[str, Any]
"""What must hold, ``root``, ``log``, ``divisor`` or ``power``, and of which term."""


def undefined(decider: Decider, before: Any, after: Any, premises: Sequence[Any] = ()) -> str:
    """A condition that one of two terms has alone; empty if there is none."""
    old, new = _conditions(decider, before), _conditions(decider, after)
    for mine, others, whose in ((old, new, "original"), (new, old, "replacement")):
        for kind, term in mine:
            if _always(decider, kind, term, premises):
                continue
            if not any(k == kind and _is_same(decider, kind, term, t) for k, t in others):
                return f"the {whose} alone is not defined for some {kind}"
    return ""


def _is_same(decider: Decider, kind: str, term: Any, other: Any) -> bool:
    """True if a condition is another's.  What divides must be computed alike to the letter: of two zeros of different
    sign one makes ∞ and the other -∞."""
    return bool(term.eq(other)) or (kind in ("root", "log") and decider.equal_reals(term, other))


def _conditions(decider: Decider, term: Any) -> list[Condition]:
    """All conditions of a term, those inside of sums for variables of their own."""
    found: dict[tuple[str, int], Condition] = {}
    for each in subterms(_opened(decider, term)):
        if not z3.is_app(each) or not z3.is_real(each):
            continue
        name = each.decl().name()
        if each.decl().kind() == z3.Z3_OP_DIV:
            for factor in _factors(each.arg(1)):
                found["divisor", factor.get_id()] = ("divisor", factor)
        elif name in ("sqrt", "log"):
            kind = "root" if name == "sqrt" else "log"
            found[kind, each.arg(0).get_id()] = (kind, each.arg(0))
        elif name == "pow":
            found["power", each.get_id()] = ("power", each)
    return list(found.values())


def _opened(decider: Decider, term: Any) -> Any:
    """A term with an unknown for the variable of each sum."""
    while True:
        found = next((t for t in subterms(term) if z3.is_app(t) and any(map(z3.is_array, t.children()))), None)
        if found is None:
            return term
        variables = [z3.Int(f"any!{k}", term.ctx) for k in range(found.num_args())]
        bodies = [applied(c, v) if z3.is_array(c) else c for c, v in zip(found.children(), variables, strict=True)]
        opened = z3.Function(f"{found.decl().name()} opened", *(b.sort() for b in bodies), found.sort())(*bodies)
        term = z3.substitute(term, (found, opened))


def _factors(term: Any) -> list[Any]:
    if z3.is_rational_value(term):
        return []
    return [f for c in term.children() for f in _factors(c)] if z3.is_mul(term) else [term]


def _always(decider: Decider, kind: str, term: Any, premises: Sequence[Any]) -> bool:
    """True if a condition holds whatever the inputs are."""
    if kind == "power":
        return False
    if term.decl().kind() == z3.Z3_OP_TO_REAL:
        return decider.valid(term.arg(0) != 0, premises)
    if term.decl().name() == "sqrt":
        return _always(decider, "log", term.arg(0), premises)
    sign = sign_of(term, lambda length: decider.valid(length > 0, premises))
    return sign == 2 or (kind == "root" and sign == 1)
