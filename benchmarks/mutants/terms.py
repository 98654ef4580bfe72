"""Mistakes in the pattern: a number off, a condition not asked, one value taken for two.

Rewrites look their captures up by identity, so terms are changed where they are: in a process of its own, before any
pattern was compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.mutants.guards import Vouched
from benchmarks.mutants.implied import implied, places
from benchmarks.mutants.mutant import CONSTANT, DEFAULT, DTYPE, GUARD, OPERAND, OPERATOR, Mutant
from benchmarks.mutants.values import other
from onnxrewrite.ir import schema
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Attr,
    Call,
    Capture,
    Literal,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    Var,
    children,
    walk,
)
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.metamorphic.mutations import ALIKE, PARTIAL


@dataclass(frozen=True)
class InTerm:
    """A field of a term by another value.

    Args:
        index: Of the term, in ``terms_of`` the rule.
        field: The name of the field.
        value: The value that it is set to.
        key: Of what is set in the field, where that is a mapping or a sequence; of a parameter's ``Attr`` the default.
    """

    index: int
    field: str
    value: Any = None
    key: Any = None

    def patch(self, rule: Rule) -> None:
        """Change the term."""
        term = terms_of(rule)[self.index]
        if isinstance(self.key, str):
            _parameters(term)[self.key].default = self.value
        else:
            setattr(term, self.field, self.value)


@dataclass(frozen=True)
class AnyParameter:
    """A parameter that may have any value, which the pattern says it considers."""

    index: int
    name: str

    def patch(self, rule: Rule) -> None:
        """Change the term."""
        _parameters(terms_of(rule)[self.index])[self.name] = Attr[Any](f"any {self.name}", default=None)


@dataclass(frozen=True)
class Turned:
    """An operand of a sum that is subtracted, of a product that divides, or the other way round."""

    index: int
    operand: int

    def patch(self, rule: Rule) -> None:
        """Change the term."""
        term = terms_of(rule)[self.index]
        assert isinstance(term, Sum | Product)
        term.operands = tuple((t, -s if i == self.operand else s) for i, (t, s) in enumerate(term.operands))


@dataclass(frozen=True)
class Split:
    """A value that the pattern has twice, taken for any other in one of the places."""

    index: int
    place: int

    def patch(self, rule: Rule) -> None:
        """Change the term that has it."""
        term, old = terms_of(rule)[self.index], None
        assert isinstance(term, Call | Sum | Product)
        if isinstance(term, Call):
            old = term.inputs[self.place]
            term.inputs = (*term.inputs[: self.place], _like(old), *term.inputs[self.place + 1 :])
        else:
            old, sign = term.operands[self.place]
            term.operands = (*term.operands[: self.place], (_like(old), sign), *term.operands[self.place + 1 :])


def _like(old: Any) -> Var:
    assert isinstance(old, Var)
    return Var(f"another {old.name}", dtype=old.dtypes, rank=old.rank)


def _parameters(term: Term) -> dict[str, Any]:
    assert isinstance(term, Call)
    return term.parameters


def terms_of(rule: Rule) -> list[Term]:
    """The terms of a rule's pattern, each once, in order."""
    return list(dict.fromkeys(t for output in rule.outputs for t in walk(output)))


def in_pattern(rule: Rule) -> Iterator[Mutant]:
    """The mistakes that can be made in a rule's pattern."""
    terms = terms_of(rule)
    for index, term in enumerate(terms):
        place = _short(term)
        match term:
            case Literal(value=value):
                wrong = value + 1 if _is_index(term, terms) else value * 1.07 + 0.03
                yield Mutant(rule.name, CONSTANT, f"{place}: off", InTerm(index, "value", wrong))
            case Power(exponent=exponent):
                yield Mutant(rule.name, CONSTANT, f"{place}: to the power -1", InTerm(index, "exponent", -exponent))
            case AnyNode(where=where) if where is not None:
                yield Mutant(rule.name, GUARD, f"{place}: any node", InTerm(index, "where"))
            case Capture():
                yield from _of_capture(rule, index, term, place)
            case Sum(operands=operands) | Product(operands=operands):
                for at, (operand, _) in enumerate(operands):
                    if not isinstance(operand, Literal | Scalar):
                        yield Mutant(rule.name, OPERATOR, f"{place}: operand {at} inverted", Turned(index, at))
            case Call():
                yield from _of_call(rule, index, term, place)
    yield from _splits(rule, terms)


def _is_index(literal: Literal, terms: Sequence[Term]) -> bool:
    """True if some operator takes only integers in its place: no other number would match there."""
    calls = (t for t in terms if isinstance(t, Call))
    known = ((c, schema.schema(c.domain, c.op_types[0], None)) for c in calls)
    formals = (f for c, k in known if k is not None for operand, f in places(k, c) if operand is literal)
    return any(f.types <= {"tensor(int32)", "tensor(int64)"} for f in formals)


def vouching(rule: Rule, unread: Collection[int]) -> Iterator[Mutant]:
    """Calls with attributes that the rule leaves to the engine, which refuses them off their default."""
    for index, term in enumerate(terms_of(rule)):
        if index in unread and isinstance(term, Call) and any(_has_others(o, term) for o in term.op_types):
            what = f"{_short(term)}: attributes not looked at"
            yield Mutant(rule.name, DEFAULT, what, Vouched(index))


def _has_others(op_type: str, term: Call) -> bool:
    """True if the operator has attributes that the pattern does not mention, or no known schema."""
    known = schema.schema(term.domain, op_type, None)
    asked = {*term.parameters, *(["noop_with_empty_axes"] if "axes" in term.parameters else [])}  # axes are given
    return known is None or not known.attributes.keys() <= asked


def _of_capture(rule: Rule, index: int, term: Capture, place: str) -> Iterator[Mutant]:
    if term.dtypes is not None and not implied(rule.outputs, term, term.dtypes):
        yield Mutant(rule.name, DTYPE, f"{place}: of any dtype", InTerm(index, "dtypes"))
    if term.rank is not None:
        yield Mutant(rule.name, GUARD, f"{place}: of any rank", InTerm(index, "rank"))
    if isinstance(term.default, int | float):
        yield Mutant(
            rule.name, DEFAULT, f"{place}: another default", InTerm(index, "default", other("", term.default, "off"))
        )


def _of_call(rule: Rule, index: int, term: Call, place: str) -> Iterator[Mutant]:
    for name, wanted in term.parameters.items():
        if isinstance(wanted, Attr) and not _has_own_default(term, name):
            wrong = other(name, wanted.default, "off") if isinstance(wanted.default, int | float | str) else None
            if wrong is not None and wrong != wanted.default:
                change = InTerm(index, "parameters", wrong, name)
                yield Mutant(rule.name, DEFAULT, f"{place}: {name} is {wrong!r} by default", change)
        elif not isinstance(wanted, Term | Attr):
            yield Mutant(rule.name, GUARD, f"{place}: any {name}", AnyParameter(index, name))
    kin = _kin(term) if len(term.op_types) == 1 else None
    if kin is not None:
        change = InTerm(index, "op_types", (*term.op_types, kin))
        yield Mutant(rule.name, OPERATOR, f"{place}: {kin} will do, too", change)


def _has_own_default(term: Call, name: str) -> bool:
    """True if a call's operators have a default of their own in every opset, so that the pattern's is not asked for."""
    found = [s for op_type in term.op_types for s in schema.versions(term.domain, op_type)]
    return bool(found) and all(name in s.attributes and s.attributes[name].default is not None for s in found)


def _kin(term: Call) -> str | None:
    """The first operator that takes the same operands; not Identity, through which every pattern looks."""
    groups = (g for g in ALIKE if term.op_types[0] in g) if not term.domain else iter(())
    unfit = {*term.op_types, *PARTIAL, "Identity"}
    return next((o for g in groups for o in g if o not in unfit), None)


def _splits(rule: Rule, terms: list[Term]) -> Iterator[Mutant]:
    """Places of values that were there before, whichever alternatives match, in the order of the terms."""
    done = set[Term]()

    def visit(term: Term, seen: frozenset[Term]) -> Iterator[tuple[int, int, Var]]:
        """The places below a term, each told once: index of the term that has it, of the operand, the value."""
        below = term.inputs if isinstance(term, Call) else ()
        below = tuple(t for t, _ in term.operands) if isinstance(term, Sum | Product) else below
        for place, child in enumerate(below if term not in done else ()):
            if isinstance(child, Var) and child in seen and not child.optional:
                yield terms.index(term), place, child
        done.add(term)
        beside = frozenset(c for c in children(term) if isinstance(c, Var))
        for child in children(term):
            yield from visit(child, seen if isinstance(term, AnyOf) else seen | beside)
            if not isinstance(term, AnyOf):
                seen |= {*walk(child)}

    seen = frozenset[Term]()
    for output in rule.outputs:
        for index, place, child in visit(output, seen):
            what = f"{_short(terms[index])}: operand {place} need not be the same {child.name}"
            yield Mutant(rule.name, OPERAND, what, Split(index, place))
        seen |= {*walk(output)}


def _short(term: Term) -> str:
    """A term in few words, which stay when the pattern around it is spelled in another way."""
    if isinstance(term, Call | AnyNode) and term.op_types:
        first, *others = term.op_types
        return first + ("|…" if others else "")
    text = repr(term)
    return text if len(text) <= 60 else f"{text[:57]}..."
