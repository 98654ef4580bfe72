"""NaN beside the reals: which elements are no numbers, where floats are compared.

Over the reals a comparison has an opposite and a maximum is a choice; of NaN neither is true.  So each element of an
input may be NaN, which is a truth value of its own: what is computed of NaN is NaN, and a comparison with NaN is false.
"""

from __future__ import annotations

import z3

from onnxrewrite.proof.index_terms import Term, chosen, conjunction, disjunction, negated
from onnxrewrite.proof.polynomials import applied, subterms


def is_nan(term: Term) -> Term:
    """The condition that a real term is NaN: a ``bool``, or a term of z3."""
    known: dict[int, Term] = {}

    def of(each: Term) -> Term:
        if each.get_id() not in known:
            known[each.get_id()] = _is_nan(each, of)
        return known[each.get_id()]

    return of(term)


def _is_nan(term: Term, of: Term) -> Term:
    if z3.is_rational_value(term) or not z3.is_app(term):
        return False
    kind, name, parts = term.decl().kind(), term.decl().name(), term.children()
    if kind == z3.Z3_OP_TO_REAL or name.startswith("constant "):
        return False
    if kind == z3.Z3_OP_ITE:
        return chosen(parts[0], *_terms(term.ctx, of(parts[1]), of(parts[2])))
    reals = [p for p in parts if z3.is_real(p)]
    if reals and not (name == "pow" and not z3.is_rational_value(parts[1])):  # 1 and x to the 0 are 1, x NaN or not
        return disjunction([of(p) for p in reals])
    if name.endswith(" over"):
        variable = z3.Int("nan!0", term.ctx)
        inner = _terms(term.ctx, is_nan(applied(parts[0], variable)))[0]
        truth = z3.BoolSort(term.ctx)
        function = z3.Lambda([variable], inner)
        return z3.Function("any over", function.sort(), z3.IntSort(term.ctx), truth)(function, parts[1])
    truth = z3.BoolSort(term.ctx)
    if not parts:
        return z3.Const(f"NaN of {name}", truth)
    return z3.Function(f"NaN of {name}", *(p.sort() for p in parts), truth)(*parts)


def chooses(term: Term) -> bool:
    """True if a term has a maximum, a minimum or branches, in which a number can vanish, NaN or not."""
    reals = (t for t in subterms(term) if z3.is_app(t) and z3.is_real(t))
    return any(t.decl().name() in ("max", "min") or t.decl().kind() == z3.Z3_OP_ITE for t in reals)


def elements(term: Term) -> tuple[frozenset[str], frozenset[str], bool]:
    """The elements of inputs in a term outside of sums, the inputs that are read inside of them, and whether there are
    sums."""
    outside, inside, has_sums = set[str](), set[str](), False
    waiting = [(term, False)]
    seen = set()
    while waiting:
        each, is_inside = waiting.pop()
        if (each.get_id(), is_inside) in seen:
            continue
        seen.add((each.get_id(), is_inside))
        if z3.is_quantifier(each):
            waiting.append((each.body(), True))
            has_sums = True
            continue
        if z3.is_app(each) and each.decl().name().startswith("input "):
            (inside if is_inside else outside).add(each.decl().name() if is_inside else each.sexpr())
        waiting += [(c, is_inside) for c in each.children()]
    return frozenset(outside), frozenset(inside), has_sums


def reads_alike(a: Term, b: Term) -> bool:
    """True if two terms are made of the same elements of inputs; where there are sums, of those of the same inputs."""
    first, second = elements(a), elements(b)
    if first == second:
        return True
    return first[2] and second[2] and _inputs(a) == _inputs(b)


def _inputs(term: Term) -> set[str]:
    names = (t.decl().name() for t in subterms(term) if z3.is_app(t))
    return {n for n in names if n.startswith("input ")}


def _terms(context: Term, *conditions: Term) -> list[Term]:
    return [z3.BoolVal(c, context) if isinstance(c, bool) else c for c in conditions]


def compared(found: Term, a: Term, b: Term) -> Term:
    """A comparison of two numbers, false where one is NaN."""
    return conjunction([negated(is_nan(a)), negated(is_nan(b)), found])
