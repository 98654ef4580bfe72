"""Where a real term is defined: roots of no negative numbers, logarithms of positive ones, no division by zero.

Two terms that are equal where both are defined differ as soon as one of them is NaN, or infinite, where the other is
not.  So the conditions of each must follow from those of the other: they are the same, or hold always.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import z3

from onnxrewrite.proof.polynomials import subterms

if TYPE_CHECKING:
    from onnxrewrite.proof.equality import Decider

Condition = tuple[str, Any]
"""What must hold, ``root``, ``log``, ``divisor`` or ``power``, and of which term."""


def undefined(decider: Decider, before: Any, after: Any) -> str:
    """A condition that one of two terms has alone; empty if there is none."""
    old, new = _conditions(decider, before), _conditions(decider, after)
    for mine, others, whose in ((old, new, "original"), (new, old, "replacement")):
        for kind, term in mine:
            if _always(decider, kind, term):
                continue
            if not any(k == kind and decider.equal_reals(term, t) for k, t in others):
                return f"the {whose} alone is not defined for some {kind}"
    return ""


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
        found = next((t for t in subterms(term) if z3.is_app(t) and any(map(z3.is_quantifier, t.children()))), None)
        if found is None:
            return term
        variables = [z3.Int(f"any!{k}", term.ctx) for k in range(found.num_args())]
        bodies = [
            z3.substitute_vars(c.body(), v) if z3.is_quantifier(c) else c
            for c, v in zip(found.children(), variables, strict=True)
        ]
        opened = z3.Function(f"{found.decl().name()} opened", *(b.sort() for b in bodies), found.sort())(*bodies)
        term = z3.substitute(term, (found, opened))


def _factors(term: Any) -> list[Any]:
    if z3.is_rational_value(term):
        return []
    return [f for c in term.children() for f in _factors(c)] if z3.is_mul(term) else [term]


def _always(decider: Decider, kind: str, term: Any) -> bool:
    """True if a condition holds whatever the inputs are."""
    if kind == "power":
        return False
    if term.decl().kind() == z3.Z3_OP_TO_REAL:
        return decider.valid(term.arg(0) != 0)
    if term.decl().name() == "sqrt":
        return _always(decider, "log", term.arg(0))
    return _sign(term) == 2 or (kind == "root" and _sign(term) == 1)


def _sign(term: Any) -> int:
    """2: positive, 1: not negative, 0: unknown.  By the form that a term is written in."""
    if z3.is_rational_value(term):
        value = Fraction(term.numerator_as_long(), term.denominator_as_long())
        return 2 if value > 0 else 1 if value == 0 else 0
    if not z3.is_app(term):
        return 0
    kind, name, parts = term.decl().kind(), term.decl().name(), term.children()
    if name == "exp":
        return 2
    if name == "sqrt":
        return _sign(parts[0])
    if kind == z3.Z3_OP_ADD:
        signs = [_sign(p) for p in parts]
        return 0 if 0 in signs else max(signs)
    if kind in (z3.Z3_OP_MUL, z3.Z3_OP_DIV):
        if kind == z3.Z3_OP_MUL and _is_square(parts):
            return 1
        signs = [_sign(p) for p in parts]
        return 0 if 0 in signs or (kind == z3.Z3_OP_DIV and signs[1] != 2 and not _is_count(parts[1])) else min(signs)
    if kind == z3.Z3_OP_TO_REAL:
        return 1
    if name.startswith("sum over"):
        inner = parts[0].body() if z3.is_quantifier(parts[0]) else parts[0]
        return min(_sign(inner), 1)
    if name == "max":
        return max(map(_sign, parts))
    return 0


def _is_count(term: Any) -> bool:
    """True if a term is a size, which is positive where it divides at all."""
    return bool(term.decl().kind() == z3.Z3_OP_TO_REAL)


def _is_square(parts: list[Any]) -> bool:
    left = list(parts)
    while left:
        first = left.pop()
        if z3.is_rational_value(first) and _sign(first):
            continue
        other = next((k for k, p in enumerate(left) if p.eq(first)), None)
        if other is None:
            return False
        del left[other]
    return True
