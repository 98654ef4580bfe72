"""From a pattern to its conditions: what must hold at a value, whatever the pattern's captures are bound to.

They are necessary, and very nearly sufficient: what they leave open is whether operands that match one by one also fit
together, and that is settled by the matcher, for the few patterns whose conditions hold.

What can stand in several places has no position of its own: the operands of a sum or a product, those of a
commutative operator, the terms of ``any_of``.  Such a term is an entry of the tree in its own right, with a number, as
if it were a pattern; a pattern that has it as a part asks whether that number is among those found at the values that
come into question.  What is found at a value is found once, for all patterns and all places in them.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import TRAITS
from onnxrewrite.pattern import chain
from onnxrewrite.pattern.among import ANY_NUMBER, Chain, Either, Expected, Here
from onnxrewrite.pattern.blocks import Repeat
from onnxrewrite.pattern.chain import SIGNS, is_optional, plan
from onnxrewrite.pattern.look import COMMUTATIVE
from onnxrewrite.pattern.questions import (
    MOST,
    Constants,
    Count,
    Dtype,
    IsConstant,
    Number,
    Operator,
    Parameter,
    Position,
    Producer,
    Question,
    Rank,
    Same,
    comparable,
    operator_key,
)
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Call,
    Capture,
    Const,
    Each,
    Literal,
    Operands,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    flipped,
)
from onnxrewrite.pattern.tree import Condition, Tree

Numbered: TypeAlias = tuple[int, int]
"""The number of a term, and the signs under which a value in a chain is that: bits of ``chain.SIGNS``."""


class Conditions:
    """Writes the conditions of patterns into one tree, with questions and places that all of them share.

    Attributes:
        tree: The patterns by what stands for them, and the numbered terms by number and sign.
        operands: The number of an operand, given as term, sign and whether of a product; None if it matches everything.
    """

    def __init__(self) -> None:
        self.tree: Tree[int | Numbered] = Tree()
        self.operands: dict[tuple[Term, int, bool], int | None] = {}
        self._sums, self._products = Expected(is_product=False), Expected(is_product=True)
        self._anchor = Position(0)
        self._places: dict[tuple[object, ...], Position] = {}
        self._questions: dict[Question, Question] = {}
        self._written: dict[Term, tuple[Condition, ...]] = {}
        self._numbers: dict[frozenset[tuple[frozenset[Condition], int]], int] = {}

    def add(self, pattern: Term, rank: int) -> None:
        """Let ``rank`` be found where ``pattern`` can match."""
        for form in forms(pattern):
            self.tree.add(self._of(form), rank)

    def _number(self, options: Iterable[tuple[Term, int]]) -> int | None:
        """The number that is found where one of the terms matches a value of the right sign, 0 being any; None if one
        of them matches everything."""
        written = [(self._of(form), sign) for item, sign in options for form in forms(item)]
        if any(not conditions for conditions, _ in written):
            return None
        key = frozenset((frozenset(conditions), sign) for conditions, sign in written)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            for conditions, sign in written:
                self.tree.add(conditions, (number, SIGNS[sign]))
        return number

    def _of(self, form: Term) -> tuple[Condition, ...]:
        """The conditions of one form of a term; those of a term that patterns share are written once."""
        if form not in self._written:
            self._written[form] = tuple(dict.fromkeys(self._form(form, self._anchor, {})))
        return self._written[form]

    # -- one term at one place -------------------------------------------------------------------------------

    def _term(self, item: Term, at: Position, bound: dict[Term, Position]) -> Iterable[Condition]:
        if item in bound:
            yield self._is(Same(at, bound[item]), True)
        elif isinstance(item, Repeat):  # its captures are its own
            yield from self._term(item.block, at, {})
        elif len(forms(item)) == 1:
            yield from self._form(forms(item)[0], at, bound)
        else:
            heads = [_heads(form) for form in forms(item)]
            if all(heads):  # asked first, for it is asked most
                yield self._is(Operator(at), *frozenset[Hashable]().union(*heads))
            yield from self._among(Here(at), [(item, 0)])
        if not isinstance(item, Literal | Output | AnyNode):
            bound[item] = at

    def _form(self, item: Term, at: Position, bound: dict[Term, Position]) -> Iterable[Condition]:
        """The conditions of a term of one form at one place."""
        match item:
            case Literal(value=value):
                question = self._shared(Number(at))
                yield self._is(question, question.expect(value))
            case Capture():
                yield from self._capture(item, at)
            case Call():
                yield from self._call(item, at, bound)
            case Output(call=call, index=index):
                yield from self._call(call, at, bound, index)
            case Power(base=base):
                yield self._is(Operator(at), *_heads(item))
                yield from self._term(base, self._place(at, 0), bound)
            case AnyNode(op_types=op_types) if op_types is not None:
                yield self._is(Producer(at), *op_types)
            case Sum() | Product() if plan(item).required > 0:
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

    # -- calls -----------------------------------------------------------------------------------------------

    def _call(self, item: Call, at: Position, bound: dict[Term, Position], index: int = 0) -> Iterable[Condition]:
        yield self._is(Operator(at), *(operator_key(o, item.domain, index) for o in item.op_types))
        inputs = frozenset[str]().union(*(schema.input_names(item.domain, o) for o in item.op_types))
        named = inputs.intersection(item.parameters)
        rest = next((t for t in item.inputs[-1:] if isinstance(t, Each)), None)
        terms = item.inputs if rest is None else item.inputs[:-1]
        silent = max((_with_implied(o) for o in item.op_types), default=0) if not item.domain else 0
        yield self._count(at, named, terms, rest, silent)
        if len(terms) == 2 and not item.domain and COMMUTATIVE.intersection(item.op_types):
            for operand in terms:
                if isinstance(operand, Term) and not is_optional(operand):
                    yield from self._among(Either(at, named), [(operand, 0)])
        else:
            required = {i: t for i, t in enumerate(terms) if isinstance(t, Term) and not is_optional(t)}
            constant = [i for i, t in required.items() if isinstance(t, Const) and i < Constants.WIDTH]
            if constant:
                yield self._is(Constants(at, named), *Constants.needed(constant))
            for place, operand in required.items():
                written = self._term(operand, self._place(at, place, named), bound)
                yield from (c for c in written if place not in constant or not isinstance(c.question, IsConstant))
        if rest is not None and rest.of is not None and rest.at_least > 0:
            yield from self._term(rest.of, self._place(at, len(terms), named), {})
        for name, expected in item.parameters.items():
            if isinstance(expected, int | float | str | list | tuple) and not isinstance(expected, bool):
                yield self._is(Parameter(at, name), comparable(expected))

    def _count(
        self,
        at: Position,
        named: frozenset[str],
        terms: Sequence[Term | Operands | None],
        rest: Operands | None,
        silent: int,
    ) -> Condition:
        """As many inputs as terms, less optional ones at the end; or up to ``silent``, of which one says nothing."""
        least = max((i + 1 for i, t in enumerate(terms) if t is not None and not is_optional(t)), default=0)
        if rest is None:
            most = max((i + 1 for i, t in enumerate(terms) if t is not None), default=0)
            most = max(most, silent)
        else:
            least, most = (len(terms) + rest.at_least if rest.at_least else least), MOST
        return self._is(Count(at, named), *range(min(least, MOST), most + 1))

    # -- terms that can stand in several places --------------------------------------------------------------

    def _chain(self, item: Sum | Product, at: Position) -> Iterable[Condition]:
        asked = plan(item)
        if _heads(item):
            yield self._is(Operator(at), *_heads(item))
        expected = self._products if isinstance(item, Product) else self._sums
        question = Chain(at, expected)
        if asked.required > 1:
            yield self._is(question, expected.leaves(asked.required))
        if asked.needs_numbers and not asked.scalars:
            takers = sum(not isinstance(t, Call | Output | Power) for t, _ in asked.operands)
            yield self._is(question, expected.total(asked.literals, takers))
        elif asked.needs_numbers or any(not is_optional(s) for s, _ in asked.scalars):
            yield self._is(question, ANY_NUMBER)
        for operand in asked.operands:
            number = self._number(_signed(*operand, expected.is_product))
            self.operands[(*operand, expected.is_product)] = number
            if number is not None and not is_optional(operand[0]):
                yield self._is(question, number)

    def _among(self, question: Question, options: Iterable[tuple[Term, int]]) -> Iterable[Condition]:
        """That one of the terms is found; nothing where one of them matches everything."""
        number = self._number(options)
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


def _with_implied(op_type: str) -> int:
    """The number of inputs of an operator up to the one that may be there and say nothing; 0 where there is none."""
    implied = TRAITS[op_type].implied if op_type in TRAITS else None
    index = schema.formal_index(schema.schema("", op_type, None), implied[0]) if implied is not None else None
    return 0 if index is None else index + 1


def _signed(operand: Term, sign: int, is_product: bool) -> list[tuple[Term, int]]:
    """The forms of an operand in a chain: as it is, or as its opposite under the other sign."""
    if isinstance(operand, Const):
        return [(operand, 0)]
    opposite = flipped(operand, is_product)
    return [(operand, sign)] if opposite is None else [(operand, sign), (opposite, -sign)]


@functools.cache
def forms(item: Term) -> tuple[Term, ...]:
    """The terms that stand for ``item``, one of which matches wherever it does: its alternatives; and for a chain that
    needs one operand only, which can be all there is, that operand."""
    if isinstance(item, AnyOf):
        return tuple(dict.fromkeys(form for each in item.alternatives for form in forms(each)))
    if isinstance(item, Repeat):
        return forms(item.block)
    if isinstance(item, Sum | Product) and plan(item).required == 1:
        alone = (forms(t) for t, _ in item.operands if not isinstance(t, Literal | Scalar) and not is_optional(t))
        return (item, *(form for each in alone for form in each))
    return (item,)


def _heads(form: Term) -> frozenset[Hashable]:
    """The operators that can compute the value of a form, as answers of ``Operator``; empty if any can."""
    match form:
        case Call(op_types=op_types, domain=domain):
            return frozenset(operator_key(o, domain) for o in op_types)
        case Output(call=Call(op_types=op_types, domain=domain), index=index):
            return frozenset(operator_key(o, domain, index) for o in op_types)
        case Power(exponent=exponent):
            return frozenset({"Sqrt", "Pow"} if exponent == 0.5 else {"Pow"})
        case Sum() | Product() if plan(form).required > 1 or any(not is_optional(t) for t, _ in plan(form).operands):
            return chain.PRODUCT_OPS if isinstance(form, Product) else chain.SUM_OPS
        case _:
            return frozenset()
