"""Signs of real terms, as far as the form that they are written in shows them: squares, exponentials, numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import z3

from onnxrewrite.proof.index_terms import Term
from onnxrewrite.proof.polynomials import applied


def sign_of(term: Term, is_positive: Callable[[Term], bool] = lambda length: False) -> int:
    """2: positive, 1: not negative, 0: unknown.  ``is_positive`` says so of the length of a sum."""
    if z3.is_rational_value(term):
        value = Fraction(term.numerator_as_long(), term.denominator_as_long())
        return 2 if value > 0 else 1 if value == 0 else 0
    if not z3.is_app(term):
        return 0
    kind, name, parts = term.decl().kind(), term.decl().name(), term.children()
    if name == "exp":
        return 2
    if name in ("sqrt", "rounded", "widened"):
        return sign_of(parts[0], is_positive)
    if kind == z3.Z3_OP_ADD:
        signs = [sign_of(p, is_positive) for p in parts]
        return 0 if 0 in signs else max(signs)
    if kind in (z3.Z3_OP_MUL, z3.Z3_OP_DIV):
        if kind == z3.Z3_OP_MUL and _is_square(parts):
            return 1
        signs = [sign_of(p, is_positive) for p in parts]
        return 0 if 0 in signs or (kind == z3.Z3_OP_DIV and signs[1] != 2 and not _is_count(parts[1])) else min(signs)
    if kind == z3.Z3_OP_TO_REAL:
        return 1
    if name.startswith("sum over"):
        inner = sign_of(applied(parts[0], z3.Int("sign!0", term.ctx)), is_positive)
        return inner if inner < 2 or is_positive(parts[1]) else 1
    if name == "max":
        return max(sign_of(p, is_positive) for p in parts)
    return 0


def _is_count(term: Term) -> bool:
    """True if a term is a size, which is positive where it divides at all."""
    return bool(term.decl().kind() == z3.Z3_OP_TO_REAL)


def _factors(term: Term) -> list[Term]:
    return [f for c in term.children() for f in _factors(c)] if z3.is_mul(term) else [term]


def _is_square(parts: list[Term]) -> bool:
    left = [f for p in parts for f in _factors(p)]
    while left:
        first = left.pop()
        if z3.is_rational_value(first) and sign_of(first):
            continue
        other = next((k for k, p in enumerate(left) if p.eq(first)), None)
        if other is None:
            return False
        del left[other]
    return True
