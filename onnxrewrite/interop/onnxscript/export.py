"""Our patterns as onnxscript's: the text of a pattern function, and of a condition where there is something to ask.

Its patterns are literal, where ours are modulo order and spelling, so what comes out matches less than the rule does:
sums and products in the order and association in which they are written (``rule.commute()`` on their side adds the
orders), numbers as scalars of rank 0, no Identities in between, and no attribute that the pattern does not mention.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from onnxrewrite.errors import RuleError
from onnxrewrite.ir import schema
from onnxrewrite.pattern.terms import (
    REQUIRED,
    AnyOf,
    Attr,
    Call,
    Capture,
    Const,
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
from onnxrewrite.rewrite.rule import Rule


class NotExpressible(RuleError):
    """A pattern, or a part of it, that onnxscript has no words for."""


def export(rule: Rule, *, opset: int = 17) -> str:
    """The pattern of a rule as Python source for ``onnxscript.rewriter``.

    Args:
        rule: The rule; what it builds is not part of it.
        opset: Of the models that are to be matched: what is an attribute in one is an input in another.

    Returns:
        A function of (op, ...) that gives the pattern, named after the rule, and ``..._condition`` where dtypes, ranks
        or constants are asked for; both as ``RewriteRule(pattern, replacement, condition)`` takes them.  A pattern that
        ends in alternatives, which onnxscript has not, becomes several functions.

    Raises:
        NotExpressible: With the reason.
    """
    variants = list(_variants(rule))
    parts = ["from onnxscript.rewriter import pattern"]
    for number, outputs in enumerate(variants, 1):
        name = _identifier(rule.name) if len(variants) == 1 else f"{_identifier(rule.name)}_{number}"
        parts.append(_Writer(rule.name, outputs, opset).written(name, rule.summary))
    return "\n\n\n".join(parts) + "\n"


def _variants(rule: Rule) -> Iterator[tuple[Term, ...]]:
    """The pattern without alternatives at its end."""
    if len(rule.outputs) > 1:
        if any(len(list(_alternatives(o))) > 1 for o in rule.outputs):
            raise _cannot(rule.name, "one of several outputs is one of alternatives")
        yield rule.outputs
        return
    for item in _alternatives(rule.outputs[0]):
        yield (item,)


def _alternatives(item: Term) -> Iterator[Term]:
    match item:
        case AnyOf(alternatives=alternatives):
            for each in alternatives:
                yield from _alternatives(each)
        case Call(op_types=op_types) if len(op_types) > 1:
            yield from (Call(o, item.inputs, item.parameters, item.domain) for o in op_types)
        case _:
            yield item


def _identifier(name: str) -> str:
    """A name that Python takes."""
    made = re.sub(r"\W+", "_", name)
    return f"_{made}" if not made.isidentifier() or keyword.iskeyword(made) else made


@dataclass
class _Writer:
    """Writes one pattern function.

    Args:
        rule: The name of the rule, for errors.
        outputs: The pattern.
        opset: Of the models that are to be matched.
    """

    rule: str
    outputs: Sequence[Term]
    opset: int
    lines: list[str] = field(default_factory=list)
    parameters: dict[object, str] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    asked: dict[str, None] = field(default_factory=dict)
    written_as: dict[Term, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {"op", "pattern", "context"})

    def written(self, name: str, summary: str) -> str:
        """The source of the function, and of its condition."""
        terms = list(dict.fromkeys(t for o in self.outputs for t in walk(o)))
        self.uses = Counter(c for t in terms for c in children(t)) + Counter(self.outputs)
        self.counts = {t.call: t.index + 1 for t in terms if isinstance(t, Output)}
        for each in (t for t in terms if isinstance(t, Output)):
            self.counts[each.call] = max(self.counts[each.call], each.index + 1)
        results = [self._expression(o, root=True) for o in self.outputs]
        body = [f'"""{summary}"""'] if summary else []
        body += [*self.lines, f"return {', '.join(results)}"]
        made = self._function(name, ["op", *self.parameters.values()], body)
        if self.conditions:
            ask = f"return {' and '.join(self.conditions)}"
            made += "\n\n\n" + self._function(f"{name}_condition", ["context", *self.asked, "**_"], [ask])
        return made

    @staticmethod
    def _function(name: str, parameters: Iterable[str], body: Iterable[str]) -> str:
        return "\n".join([f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in body)])

    # -- terms -----------------------------------------------------------------------------------------------

    def _expression(self, item: Term, root: bool = False) -> str:
        """A term as Python; what the pattern has in several places becomes a variable."""
        if item not in self.written_as:
            text = self._term(item, root)
            is_short = isinstance(item, Capture | Literal | Output)
            self.written_as[item] = text if is_short or self.uses[item] < 2 else self._variable(text)
        return self.written_as[item]

    def _variable(self, text: str) -> str:
        if text.isidentifier():
            return text
        name = self._fresh("v1")
        self.lines.append(f"{name} = {text}")
        return name

    def _fresh(self, base: str) -> str:
        """``base``, or with the next number that is free."""
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base.rstrip('0123456789')}{number}"
        self.taken.add(name)
        return name

    def _term(self, item: Term, root: bool) -> str:
        match item:
            case Literal(value=value):
                return repr(value)
            case Capture():
                return self._capture(item)
            case Call():
                return self._call(item) if item not in self.counts else f"{self._outputs(item)}[0]"
            case Output(call=call, index=index):
                return f"{self._outputs(call)}[{index}]" if self.counts[call] > 1 else self._expression(call)
            case Sum(operands=operands):
                return self._sum(operands)
            case Product(operands=operands):
                return self._product(operands, root)
            case Power(base=base, exponent=exponent):
                return self._power(self._expression(base), exponent, root)
            case AnyOf(alternatives=alternatives):
                return self._either([self._expression(a) for a in alternatives])
            case _:
                raise self._cannot(f"{item!r}: onnxscript has no pattern for any node that a function picks")

    def _outputs(self, call: Call) -> str:
        """The variable that holds several outputs of a node."""
        if call not in self.written_as:
            self.written_as[call] = self._variable(self._call(call, self.counts[call]))
        return self.written_as[call].removesuffix("[0]")

    def _sum(self, operands: Sequence[tuple[Term, int]]) -> str:
        ordered = sorted(operands, key=lambda o: -o[1]) if operands[0][1] < 0 else list(operands)
        (first, sign), *rest = ordered
        text = self._expression(first) if sign > 0 else f"op.Neg({self._expression(first)})"
        for item, each in rest:
            text += f" {'+' if each > 0 else '-'} {self._expression(item)}"
        return f"({text})"

    def _product(self, operands: Sequence[tuple[Term, int]], root: bool) -> str:
        terms = [t for t, _ in operands]
        if len(operands) == 2 and isinstance(terms[0], Literal) and terms[0].value == -1:
            return f"op.Neg({self._expression(terms[1])})"
        runs = [(factor, len(list(run))) for factor, run in groupby(operands)]
        factors = [
            (
                self._expression(t) if times == 1 else self._power(self._expression(t), times, root and len(runs) == 1),
                sign,
            )
            for (t, sign), times in runs
        ]
        (first, sign), *rest = factors
        text = first if sign > 0 else f"1.0 / {first}"
        for each, sign in rest:
            text += f" {'*' if sign > 0 else '/'} {each}"
        return f"({text})" if rest or sign < 0 else text

    def _power(self, base: str, exponent: float, root: bool) -> str:
        """A power in both of its spellings; in its shorter one where the pattern ends."""
        base = self._variable(base)
        is_short = exponent in (2, 3, 4)
        spelled = f"op.Sqrt({base})" if exponent == 0.5 else " * ".join([base] * int(exponent)) if is_short else None
        general = f"op.Pow({base}, {float(exponent)!r})"
        if root or spelled is None:
            return f"({spelled})" if is_short else spelled or general
        return self._either([spelled, general])

    def _either(self, alternatives: Sequence[str]) -> str:
        """Alternatives; without a tag their ``commute`` raises."""
        return f"pattern.OrValue([{', '.join(alternatives)}], tag_var={self._fresh('way1')!r})"

    # -- captures --------------------------------------------------------------------------------------------

    def _capture(self, item: Capture) -> str:
        known = self.parameters.get(item)
        if known is not None:
            return known
        name = self._named(item)
        if item.optional:
            self.lines.append(f"{name} = pattern.Var({name!r}, can_match_none=True)")
        asked = []
        if isinstance(item, Const | Scalar):
            asked.append(f"{name}.const_value is not None")
        if isinstance(item, Scalar):
            asked.append(f"{name}.const_value.size == 1")
        if item.dtypes is not None:
            dtypes = sorted(d.name for d in item.dtypes)
            asked.append(f"{name}.dtype is not None and {name}.dtype.name in {dtypes}")
        if item.rank is not None:
            asked.append(f"{name}.shape is not None and len({name}.shape) == {item.rank}")
        if asked:
            self._ask(name, " and ".join(asked))
        return name

    def _ask(self, name: str, condition: str) -> None:
        """Ask something of what a name is bound to, if it is: not where another alternative was there."""
        self.asked[name] = None
        self.conditions.append(f"({name} is None or ({condition}))")

    def _named(self, item: Any) -> str:
        """The parameter that stands for a capture."""
        self.parameters[item] = self._fresh(_identifier(item.name))
        return self.parameters[item]

    # -- nodes -----------------------------------------------------------------------------------------------

    def _call(self, item: Call, outputs: int = 1) -> str:
        if len(item.op_types) > 1:
            each = (Call(o, item.inputs, item.parameters, item.domain) for o in item.op_types)
            for term in (t for t in (*item.inputs, *item.parameters.values()) if isinstance(t, Term)):
                self.written_as[term] = self._variable(self._expression(term))
            return self._either([self._call(call, outputs) for call in each])
        (op_type,) = item.op_types
        found = schema.schema(item.domain, op_type, self.opset if not item.domain else None)
        operands = [self._operand(op_type, i) for i in item.inputs]
        attributes = dict[str, str]()
        for name, expected in item.parameters.items():
            place = schema.formal_index(found, name)
            if place is None:
                attributes[name] = self._attribute(op_type, name, expected, found)
            else:
                operands += ["None"] * (place + 1 - len(operands))
                operands[place] = self._operand(op_type, expected)
        named = [f"{name}={text}" for name, text in attributes.items()]
        if found is None or set(found.attributes) - set(attributes):
            named.append("_allow_other_attributes=False")
        named += [f"_domain={item.domain!r}"] if item.domain else []
        named += [f"_outputs={outputs}"] if outputs > 1 else []
        return f"op.{op_type}({', '.join([*operands, *named])})"

    def _operand(self, op_type: str, given: object) -> str:
        """An input, which may be a parameter that is an attribute in another opset."""
        if given is None:
            return "None"
        if isinstance(given, Term):
            return self._expression(given)
        if isinstance(given, Attr):
            name = self.parameters.get(given) or self._named(given)
            self._ask(name, f"{name}.const_value is not None")
            if given.default is not REQUIRED:
                self.lines.append(f"{name} = pattern.Var({name!r}, can_match_none=True)")
            return name
        if isinstance(given, int | float):
            return repr(given)
        if isinstance(given, list | tuple):
            return repr(list(given))
        raise self._cannot(f"{op_type} takes any number of inputs")

    def _attribute(self, op_type: str, name: str, expected: object, found: schema.Schema | None) -> str:
        """The expression for the value that an attribute must have; one that is the default may be absent."""
        if isinstance(expected, Attr):
            known = self.parameters.get(expected) or self._named(expected)
            return known if expected.default is REQUIRED else f"pattern.AttrVar({known!r}, can_match_none=True)"
        if isinstance(expected, Term) or not isinstance(expected, int | float | str | list | tuple):
            raise self._cannot(f"{name} of {op_type} is an attribute in opset {self.opset}")
        value = list(expected) if isinstance(expected, list | tuple) else _stored(expected)
        default = found.attributes[name].default if found is not None and name in found.attributes else None
        if default is None or default != (tuple(value) if isinstance(value, list) else value):
            return repr(value)
        own = self._named(Attr(name))
        self._ask(own, f"{own}.value == {tuple(value) if isinstance(value, list) else value!r}")
        return f"pattern.AttrVar({own!r}, can_match_none=True)"

    def _cannot(self, what: str) -> NotExpressible:
        return _cannot(self.rule, what)


def _stored(value: int | float | str) -> int | float | str:
    """An attribute's number as a model holds it."""
    return float(np.float32(value)) if isinstance(value, float) else value


def _cannot(rule: str, what: str) -> NotExpressible:
    return NotExpressible(f"{rule} cannot be written for onnxscript: {what}")
