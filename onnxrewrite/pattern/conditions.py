"""From a pattern to its conditions: what must hold at a value, whatever the pattern's captures are bound to.

They are necessary, and very nearly sufficient: what they leave open is whether operands that match one by one also fit
together, and that is settled by the matcher, for the few patterns whose conditions hold.

What can stand in several places has no position of its own: the operands of a sum or a product, those of a
commutative operator, the terms of ``any_of``.  All such terms that patterns expect around one place are the entries of
a tree of their own, in which one walk from each value that comes into question finds those that match it.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern import chain, numbers
from onnxrewrite.pattern.chain import is_optional
from onnxrewrite.pattern.look import COMMUTATIVE
from onnxrewrite.pattern.questions import (
    MOST,
    Count,
    Dtype,
    IsConstant,
    Number,
    Operator,
    Parameter,
    Position,
    Probe,
    Producer,
    Question,
    Rank,
    Same,
    comparable,
    operator_key,
    positional,
)
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Call,
    Capture,
    Const,
    Each,
    Literal,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    flipped,
)
from onnxrewrite.pattern.tree import Condition, Tree

Option = tuple[Term, int]
"""A term, and the sign that a value must have in its chain for it: +1, -1, or 0 for either."""


class Conditions:
    """Writes the conditions of patterns, with questions and places that all of them share."""

    def __init__(self) -> None:
        self._anchor = Position(0)
        self._places: dict[tuple[Any, ...], Position] = {}
        self._questions: dict[Question, Question] = {}
        self._known: dict[Term, tuple[Condition, ...]] = {}

    def of(self, pattern: Term) -> tuple[Condition, ...]:
        """The conditions of one pattern, or of a part of it; parts that patterns share are written once."""
        if pattern not in self._known:
            self._known[pattern] = tuple(dict.fromkeys(self._term(pattern, self._anchor, {})))
        return self._known[pattern]

    # -- one term at one place -------------------------------------------------------------------------------

    def _term(self, item: Term, at: Position, bound: dict[Term, Position]) -> Iterable[Condition]:
        if item in bound:
            yield self._is(Same(at, bound[item]), True)
            return
        match item:
            case Literal(value=value):
                question = self._shared(Number(at))
                assert isinstance(question, Number)
                yield self._is(question, question.expect(value))
                return
            case Output(call=call, index=index):
                yield from self._call(call, at, bound, index)
                return
            case AnyNode(op_types=op_types):
                if op_types is not None:
                    yield self._is(Producer(at), *op_types)
                return
        bound[item] = at
        match item:
            case Capture():
                yield from self._capture(item, at)
            case Call():
                yield from self._call(item, at, bound)
            case Power(base=base, exponent=exponent):
                yield self._is(Operator(at), *(("Sqrt", "Pow") if exponent == 0.5 else ("Pow",)))
                yield from self._term(base, self._place(at, 0), bound)
            case AnyOf(alternatives=alternatives):
                yield from self._operators(item, at)
                yield from self._among(self._shared(Alternatives(at)), [(a, 0) for a in alternatives])
            case Sum() | Product():
                yield from self._operators(item, at)
                yield from self._chain(item, at)

    def _capture(self, item: Capture, at: Position) -> Iterable[Condition]:
        if isinstance(item, Const):
            yield self._is(IsConstant(at), "constant")
        elif isinstance(item, Scalar):
            yield self._is(IsConstant(at), "single")
        if item.dtypes is not None:
            yield self._is(Dtype(at), *item.dtypes)
        if item.rank is not None:
            yield self._is(Rank(at), item.rank)

    def _operators(self, item: Term, at: Position) -> Iterable[Condition]:
        """What an n-ary term or ``any_of`` can begin with, where that is not just anything: asked first, for it is
        asked most."""
        keys = heads(item)
        if keys is not None:
            yield self._is(Operator(at), *keys)

    # -- calls -----------------------------------------------------------------------------------------------

    def _call(self, item: Call, at: Position, bound: dict[Term, Position], index: int = 0) -> Iterable[Condition]:
        yield self._is(Operator(at), *(operator_key(o, item.domain, index) for o in item.op_types))
        inputs = frozenset[str]().union(*(schema.input_names(item.domain, o) for o in item.op_types))
        named = inputs.intersection(item.parameters)
        rest = next((t for t in item.inputs[-1:] if isinstance(t, Each)), None)
        terms = item.inputs if rest is None else item.inputs[:-1]
        yield self._count(at, named, terms, rest)
        if len(terms) == 2 and not item.domain and COMMUTATIVE.intersection(item.op_types):
            either = self._shared(Either(at, named=named))
            for operand in terms:
                if isinstance(operand, Term) and not is_optional(operand):
                    yield from self._among(either, [(operand, 0)])
        else:
            for place, operand in enumerate(terms):
                if isinstance(operand, Term) and not is_optional(operand):
                    yield from self._term(operand, self._place(at, place, named), bound)
        if rest is not None and rest.of is not None and rest.at_least > 0:
            yield from self._term(rest.of, self._place(at, len(terms), named), {})
        for name, expected in item.parameters.items():
            if isinstance(expected, int | float | str | list | tuple) and not isinstance(expected, bool):
                yield self._is(Parameter(at, name), comparable(expected))

    def _count(
        self, at: Position, named: frozenset[str], terms: Sequence[Term | Each[Any] | None], rest: Each[Any] | None
    ) -> Condition:
        """As many inputs as terms, less the optional ones at the end."""
        least = max((i + 1 for i, t in enumerate(terms) if t is not None and not is_optional(t)), default=0)
        if rest is None:
            most = max((i + 1 for i, t in enumerate(terms) if t is not None), default=0)
        else:
            least, most = (len(terms) + rest.at_least if rest.at_least else least), MOST
        return self._is(Count(at, named), *range(min(least, MOST), most + 1))

    # -- terms that can stand in several places --------------------------------------------------------------

    def _chain(self, item: Sum | Product, at: Position) -> Iterable[Condition]:
        question = self._shared(Chain(at, is_product=isinstance(item, Product)))
        assert isinstance(question, Chain)
        plan = chain.plan(item)
        if plan.required > 1:
            yield self._is(question, question.expect_leaves(plan.required))
        if plan.needs_numbers and not plan.scalars:
            yield self._is(question, question.expect_number(plan.literals))
        elif plan.needs_numbers or any(not is_optional(s) for s, _ in plan.scalars):
            yield self._is(question, ANY_NUMBER)
        for operand, sign in plan.operands:
            if not is_optional(operand):
                yield from self._among(question, _options(operand, sign, question.is_product))

    def _among(self, question: Among, options: Sequence[Option]) -> Iterable[Condition]:
        """That one of ``options`` is found; nothing where one of them is found anywhere."""
        number = question.expect(options)
        if number is not None:
            yield self._is(question, number)

    # -- what is shared --------------------------------------------------------------------------------------

    def _is(self, question: Question, *answers: Hashable) -> Condition:
        return Condition(self._shared(question), frozenset(answers))

    def _shared(self, question: Any) -> Any:
        return self._questions.setdefault(question, question)

    def _place(self, parent: Position, step: int, named: frozenset[str] = frozenset()) -> Position:
        key = (parent.slot, step, named)
        if key not in self._places:
            self._places[key] = Position(len(self._places) + 1, parent, step, named)
        return self._places[key]


@dataclass(frozen=True)
class Among(Question):
    """Which terms match one of several values?  The answers are numbers of terms with equal conditions."""

    tree: Tree[tuple[int, int]] = field(default_factory=Tree, compare=False)
    conditions: Conditions = field(default_factory=Conditions, compare=False)
    numbers: dict[frozenset[tuple[frozenset[Condition], int]], int] = field(default_factory=dict, compare=False)

    def expect(self, options: Sequence[Option]) -> int | None:
        """The number that is answered where one of ``options`` matches; None if one of them matches everything."""
        written = [(self.conditions.of(term), sign) for term, sign in options]
        if any(not conditions for conditions, _ in written):
            return None
        key = frozenset((frozenset(conditions), sign) for conditions, sign in written)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.numbers)
            for conditions, sign in written:
                self.tree.add(conditions, (number, sign))
        return number

    def answers(self, probe: Probe) -> Iterable[Hashable]:
        known = probe.answers.get(id(self))
        if known is None:
            known = probe.answers[id(self)] = self._found(probe)
        return known

    def _found(self, probe: Probe) -> Iterable[Hashable]:
        raise NotImplementedError

    def _matching(self, probe: Probe, values: Iterable[tuple[ir.Value | None, int]]) -> set[Hashable]:
        found: set[Hashable] = set()
        if len(self.tree) == 0:
            return found
        for value, sign in values:
            if value is not None:
                hits = self.tree.walk(Probe(probe.facts, probe.graph, value))
                found.update(number for number, its in hits if its in (0, sign))
        return found


class Alternatives(Among):
    """Which alternatives match the value?"""

    cost = 5

    def _found(self, probe: Probe) -> Iterable[Hashable]:
        return self._matching(probe, [(self.position.value(probe), 1)])


@dataclass(frozen=True)
class Either(Among):
    """Which operands of a commutative operator match one of its two inputs?"""

    named: frozenset[str] = frozenset()
    cost = 6

    def _found(self, probe: Probe) -> Iterable[Hashable]:
        node = self.position.node(probe)
        inputs = positional(node, probe.facts, self.named) if node is not None else []
        return self._matching(probe, [(value, 1) for value in inputs])


ANY_NUMBER = "number"
"""What a chain answers that has a number among its leaves."""


@dataclass(frozen=True)
class Chain(Among):
    """What does a sum or a product consist of: which operands, how many, and what do its numbers come to?

    Beside the numbers of operands the answers are ``ANY_NUMBER``, ``("leaves", n)`` for chains of n and more, and
    ``("total", x)`` for those whose numbers could come to x.
    """

    is_product: bool = False
    leaves: list[int] = field(default_factory=list, compare=False)
    totals: list[float] = field(default_factory=list, compare=False)
    cost = 7

    def expect_leaves(self, count: int) -> Hashable:
        """What is answered of a chain of so many leaves."""
        if count not in self.leaves:
            bisect.insort(self.leaves, count)
        return ("leaves", count)

    def expect_number(self, literals: Sequence[tuple[float, int]]) -> Hashable:
        """What is answered where numbers could come to what ``literals`` come to."""
        total = float(numbers.product(literals) if self.is_product else numbers.total(literals))
        if total not in self.totals:
            bisect.insort(self.totals, total)
        return ("total", total)

    def _found(self, probe: Probe) -> Iterable[Hashable]:
        value = self.position.value(probe)
        if value is None:
            return ()
        pieces = chain.grow(probe.facts, probe.producer, value, self.is_product)
        found = self._matching(probe, ((p.value, p.sign) for p in pieces))
        ends = [p for p in pieces if not p.parts]
        found.update(("leaves", count) for count in self.leaves[: bisect.bisect_right(self.leaves, len(ends))])
        signed = [(n, p.sign) for p in ends if (n := chain.number(probe.facts, p)) is not None]
        if signed:
            found.add(ANY_NUMBER)
            found.update(("total", t) for t in self._near(signed, probe.facts, value))
        return found

    def _near(self, signed: Sequence[tuple[float, int]], facts: Facts, value: ir.Value) -> set[float]:
        """The expected totals that these numbers, or one of them, could come to."""
        dtype = facts.dtype(value)
        if dtype is None or not self.totals:
            return set()
        if len(signed) > 2:
            return set(self.totals)  # an operand may take any of them
        found: set[float] = set()
        for group in (signed, *([s] for s in signed)):
            total = numbers.product(group) if self.is_product else numbers.total(group)
            found.update(self._around(float(total), max(abs(n) for n, _ in group), dtype))
        return found

    def _around(self, total: float, largest: float, dtype: ir.DataType) -> Sequence[float]:
        """The expected totals that differ from ``total`` by what rounding could explain."""
        slack = _SLACK * numbers.epsilon(dtype) if dtype.is_floating_point() else 0.0
        size = abs(total) if self.is_product else max(abs(total), largest)
        if not numbers.is_normal(total, dtype):
            return self.totals
        low = bisect.bisect_left(self.totals, total - slack * size)
        return self.totals[low : bisect.bisect_right(self.totals, total + slack * size)]


_SLACK = 16
"""Numbers that the matcher takes for equal differ by less than so many roundings."""


def _options(operand: Term, sign: int, is_product: bool) -> list[Option]:
    """How an operand may stand in a chain: as it is, or as its opposite under the other sign."""
    if isinstance(operand, Const):
        return [(operand, 0)]
    opposite = flipped(operand, is_product)
    return [(operand, sign)] if opposite is None else [(operand, sign), (opposite, -sign)]


def heads(item: Term) -> frozenset[Hashable] | None:
    """What can compute a term's value, as answers of ``Operator``; None for anything."""
    match item:
        case Call(op_types=op_types, domain=domain):
            return frozenset(operator_key(o, domain) for o in op_types)
        case Output(call=Call(op_types=op_types, domain=domain), index=index):
            return frozenset(operator_key(o, domain, index) for o in op_types)
        case Power():
            return frozenset({"Sqrt", "Pow"})
        case AnyOf(alternatives=alternatives):
            return _union(map(heads, alternatives))
        case Sum(operands=operands) | Product(operands=operands):
            own: frozenset[Hashable] = chain.PRODUCT_OPS if isinstance(item, Product) else chain.SUM_OPS
            plan = chain.plan(item)
            if plan.required > 1:
                return own
            # With every other operand absent, the chain is one operand itself, or a number.
            alone = [heads(t) for t, _ in operands if not isinstance(t, Literal) and not is_optional(t)]
            return _union([own, *alone]) if alone and not plan.needs_numbers else None
        case _:
            return None


def _union(sets: Iterable[frozenset[Hashable] | None]) -> frozenset[Hashable] | None:
    found: set[Hashable] = set()
    for each in sets:
        if each is None:
            return None
        found |= each
    return frozenset(found)
