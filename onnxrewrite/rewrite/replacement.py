"""Terms as the right-hand side of a rule: what they build in a match.

A part of the pattern is what it was bound to.  Any other operator is a new node, and so is one that is replaced; sums,
products and powers are nodes of the arithmetic operators, or one constant where all that they consist of is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.errors import RuleError
from onnxrewrite.pattern.blocks import Body, Repeat
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.mathematics import formula
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Attr,
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
    children,
    walk,
)

if TYPE_CHECKING:
    from onnxrewrite.rewrite.build import Builder

Made: TypeAlias = "ir.Value | npt.NDArray[Any] | float | None"

_Operation: TypeAlias = tuple[str, Callable[[Any, Any], Any]]
"""An operator, and the same of constants."""


class Replacement:
    """A rewrite that is given by terms, one for each term of the pattern.

    It reads no attributes of matched nodes: the engine refuses a match in which one is off its default and the pattern
    does not mention it.

    Args:
        pattern: The terms of the pattern.
        terms: The terms of the replacement.
        doc: ``lhs ⟶ rhs``; written from the terms if it is empty.
        module: The name of the module that declares the rule.

    Attributes:
        replaced: The terms of the pattern whose values are replaced.
        bound: What every match binds and keeps.
        counts: New nodes of several outputs to their number.

    Raises:
        RuleError: A term has several meanings, or the pattern does not bind it in every match.
    """

    def __init__(self, pattern: Sequence[Term], terms: Sequence[Term], doc: str = "", module: str = ""):
        if not all(isinstance(item, Term) for item in terms):
            raise RuleError("the replacement must be a function, a term or a tuple of terms")
        self.terms = tuple(terms)
        self.__doc__ = doc or f"{_listed(pattern)} ⟶ {_listed(terms)}."
        self.__module__ = module
        self.replaced = frozenset(pattern)
        self.bound = frozenset(each for item in pattern for each in _bound(item)) - self.replaced
        self.counts = {
            item.call: max(o.index + 1 for o in self._outputs() if o.call is item.call) for item in self._outputs()
        }
        if len(self.terms) != len(pattern):
            raise RuleError(f"the pattern has {len(pattern)} values, the replacement {len(self.terms)}")
        for item in self.terms:
            self._check(item)

    def __call__(self, m: Match, build: Builder) -> list[ir.Value]:
        """The values that replace those of the pattern."""
        tape = _Tape(m, build, self)
        made = [tape.operand(item) for item in self.terms]
        return [
            value if isinstance(value, ir.Value) else build.const(value, like=old)
            for value, old in zip(made, m.outputs, strict=True)
        ]

    def __fingerprint__(self) -> object:
        return self.terms

    def _outputs(self) -> list[Output]:
        return [item for root in self.terms for item in walk(root) if isinstance(item, Output)]

    def _check(self, item: object) -> None:
        """Raise RuleError for what has no meaning, or several."""
        if isinstance(item, Each) and item.of is not None:
            raise RuleError(f"the replacement has {item!r}, which stands for matches and not for values")
        if item in self.bound:
            return
        if isinstance(item, Capture | AnyNode | Attr | Each):
            raise RuleError(f"the replacement has {item!r}, which not every match of the pattern binds")
        if isinstance(item, AnyOf) or (isinstance(item, Call) and len(item.op_types) > 1):
            raise RuleError(f"the replacement has alternatives: {item!r}")
        for each in _parts(item):
            self._check(each)


def _listed(terms: Sequence[Term]) -> str:
    text = ", ".join(map(formula, terms))
    return text if len(terms) == 1 else f"({text})"


def _parts(item: object) -> Sequence[object]:
    """The parts of a term, captured attributes and rests of inputs too."""
    if isinstance(item, Call):
        given = (*item.inputs, *item.parameters.values())
        inside = (t for body in given if isinstance(body, Body) for t in body.parts)
        return [*(each for each in given if isinstance(each, Term | Attr | Each)), *inside]
    if isinstance(item, Repeat):  # what else is in a layer is bound in each anew
        return [*item.carry, *item.shared]
    return children(item) if isinstance(item, Term) else ()


def _bound(item: object) -> frozenset[object]:
    """All that every match of a term binds: of alternatives only what each of them does."""
    inside = [_bound(part) for part in _parts(item)]
    if isinstance(item, AnyOf):
        return frozenset.intersection(*inside) | {item}
    own = () if isinstance(item, Literal | Output | Sum | Product | Power) else (item,)
    return frozenset(own).union(*inside)


class _Tape:
    """The replacement of one match, in which each term is made once."""

    def __init__(self, m: Match, build: Builder, replacement: Replacement):
        self._m, self._build, self._replacement = m, build, replacement
        self._made: dict[Term, Sequence[Made]] = {}

    def operand(self, item: Any) -> Any:
        """A value, a number or an array for a term; of an attribute what it is, and anything else as it stands."""
        if isinstance(item, Attr):
            return self._m[item]
        if isinstance(item, Output):
            return self._outputs(item.call)[item.index]
        return self._outputs(item)[0] if isinstance(item, Term) else item

    def _outputs(self, item: Term) -> Sequence[Made]:
        if item not in self._made:
            self._made[item] = self._known(item) if self._is_known(item) else self._new(item)
        return self._made[item]

    def _is_known(self, item: Term) -> bool:
        is_part = item not in self._replacement.replaced
        return is_part and (item in self._replacement.bound or item in self._m)

    def _known(self, item: Term) -> Sequence[Made]:
        value = self._m.value(item)
        node = value.producer() if isinstance(item, Call) and value is not None else None
        if node is not None:
            return node.outputs
        return [value if isinstance(item, Const) and value is not None else self._m[item]]

    def _new(self, item: Term) -> Sequence[Made]:
        match item:
            case Call():
                inputs = [o for i in item.inputs for o in (self._m[i] if isinstance(i, Each) else [self.operand(i)])]
                parameters = {name: self.operand(given) for name, given in item.parameters.items()}
                tape = self._build.domain(item.domain)
                return tape.node(item.op_types[0], inputs, parameters, self._replacement.counts.get(item, 1))
            case Sum():
                return [self._folded(self._signed(item), 0.0, ("Add", np.add), ("Sub", np.subtract))]
            case Product():
                return [self._folded(self._signed(item), 1.0, ("Mul", np.multiply), ("Div", np.divide))]
            case Power(exponent=exponent):
                ((base, _),) = self._signed(item)
                return [self._power(base, exponent)]
            case Literal(value=number):
                return [number]
        raise AssertionError(f"{item!r} was not refused")

    def _signed(self, item: Sum | Product | Power) -> list[tuple[Made, int]]:
        """The operands of a term; of one that is constant as arrays and numbers, to be computed with."""
        signed = [(item.base, 1)] if isinstance(item, Power) else item.operands
        is_constant = all(isinstance(part, Const | Scalar | Literal | Sum | Product | Power) for part in walk(item))
        return [
            (self._m[part] if is_constant and isinstance(part, Const) else self.operand(part), sign)
            for part, sign in signed
        ]

    def _folded(
        self, operands: Sequence[tuple[Made, int]], neutral: float, ahead: _Operation, back: _Operation
    ) -> Made:
        """A chain from left to right."""
        first, sign = operands[0]
        made, rest = (first, operands[1:]) if sign > 0 else (neutral, operands)
        for other, sign in rest:
            made = self._combined(made, other, ahead if sign > 0 else back)
        return made

    def _combined(self, left: Made, right: Made, operation: _Operation) -> Made:
        op_type, of_constants = operation
        if not isinstance(left, ir.Value) and not isinstance(right, ir.Value):
            folded: Made = of_constants(left, right)
            return folded
        if op_type == "Mul" and np.isscalar(left) and left == -1:
            return self._build.Neg(right)
        return self._build.node(op_type, [left, right])[0]

    def _power(self, base: Made, exponent: float) -> Made:
        if not isinstance(base, ir.Value):
            folded: Made = np.power(base, exponent)  # type: ignore[arg-type]
            return folded
        return self._build.Sqrt(base) if exponent == 0.5 else self._build.Pow(base, exponent)
