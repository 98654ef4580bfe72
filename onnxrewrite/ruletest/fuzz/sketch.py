"""A pattern drawn as a graph: one node a term, its alternatives chosen, and everything else still open.

Which dtypes there are is for ``dtypes`` to say; shapes, constants and attributes are for ``concretization``.
"""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.pattern.blocks import Body, Repeat
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
    walk,
)
from onnxrewrite.rewrite.rule import Rule

Choice = TypeVar("Choice")

OPSETS = (17, 13, 20, 11, 23)
"""Graphs are grown in these in turn."""


OTHERS = 0.3
"""So many nodes have attributes off their defaults that the pattern does not mention: half of these, or all."""


_LAYERS = 4
"""So many layers are drawn at the most."""


class CannotGrow(Exception):
    """No graph can be made of a pattern, or not this time: why."""


class Role(enum.Enum):
    """The role of a leaf in its graph."""

    FED = "fed"
    CONSTANT = "constant"
    NUMBER = "number"
    PARAMETER = "parameter"


@dataclass(eq=False)
class Leaf:
    """A value that no node computes.

    Attributes:
        value: Without a type and a shape.
        role: Its role in the graph.
        term: The part of the pattern that it stands for, if any; the same part has the same leaf.
        dtypes: Those it may have; None for any.
        rank: The one it must have; None for any.
        given: The number, or the list, that the pattern asks for; None for any.
    """

    value: ir.Value
    role: Role
    term: Term | Attr[Any] | None
    dtypes: frozenset[ir.DataType] | None = None
    rank: int | None = None
    given: object = None


@dataclass(frozen=True)
class Open:
    """An attribute that may have any legal value.

    Attributes:
        formal: Its declaration in the schema.
        term: The term by which the pattern captures it, or None where the pattern does not mention it.
    """

    formal: schema.Attribute
    term: object


@dataclass
class Sketch:
    """A graph of which only the operators are decided.

    Attributes:
        opset: The version of the standard operators.
        nodes: Producers first.
        leaves: By their values, in the order in which they are read.
        open: Node to its attributes that may have any legal value.
        outputs: The values that the pattern stands for.
    """

    opset: int
    nodes: list[ir.Node] = field(default_factory=list)
    leaves: dict[ir.Value, Leaf] = field(default_factory=dict)
    open: dict[ir.Node, list[Open]] = field(default_factory=dict)
    outputs: list[ir.Value] = field(default_factory=list)

    def schema(self, node: ir.Node) -> schema.Schema | None:
        """The schema of a node: of an operator that this opset has not got yet, the oldest."""
        return known(node.domain, node.op_type, self.opset)


def known(domain: str, op_type: str, opset: int) -> schema.Schema | None:
    """The schema in force at an opset, of an operator that it has not got yet the oldest; None where there is none."""
    if domain:
        return schema.schema(domain, op_type, None)
    return schema.schema("", op_type, schema.oldest_version("", op_type, opset) or opset)


def sketched(rule: Rule, opset: int, rng: random.Random, chosen: Counter[tuple[Term, object]]) -> Sketch:
    """One sketch of a rule's pattern.

    Args:
        rule: The rule.
        opset: Of the graph.
        rng: Makes the choices.
        chosen: Each alternative to the number of times it was taken before; those that were not come first.

    Raises:
        CannotGrow: Nothing is known of a term.
    """
    drawing = _Drawing(Sketch(opset), rng, chosen, _indexed(rule))
    results = [drawing.value(term) for term in rule.outputs]
    made = [r for r in results if r is not None and r.producer() is not None]
    if len(made) != len(results):
        raise CannotGrow("no node computes one of its outputs")
    drawing.sketch.outputs = list(dict.fromkeys(made))
    return drawing.sketch


def _indexed(rule: Rule) -> dict[Call, int]:
    """Call to how many of its outputs the pattern reads, of calls of which it reads others than the first."""
    found = Counter[Call]()
    for item in (t for term in rule.outputs for t in walk(term) if isinstance(t, Output)):
        found[item.call] = max(found[item.call], item.index + 1)
    return found


class _Drawing:
    def __init__(
        self, sketch: Sketch, rng: random.Random, chosen: Counter[tuple[Term, object]], indexed: Mapping[Call, int]
    ):
        self.sketch = sketch
        self._rng = rng
        self._chosen_before = chosen
        self._indexed = indexed
        self._bound: dict[object, ir.Value | None] = {}
        self._calls: dict[Call, ir.Node] = {}

    def value(self, item: Term) -> ir.Value | None:
        """The value for a term; None for an operand that is left out."""
        if item not in self._bound:
            self._bound[item] = self._drawn(item)
        return self._bound[item]

    def _drawn(self, item: Term) -> ir.Value | None:
        match item:
            case Literal(value=number):
                return self._number(number)
            case Capture():
                return self._capture(item)
            case AnyOf(alternatives=alternatives):
                return self.value(self._next(item, alternatives))
            case Output(call=call, index=index):
                return self._output(self._made(call), index)
            case Call():
                return self._made(item).outputs[0]
            case Sum(operands=operands):
                return self._chain(operands, "Add", "Sub", 0.0)
            case Product(operands=operands):
                return self._chain(operands, "Mul", "Div", 1.0)
            case Power(base=base, exponent=exponent):
                return self._power(self.value(base), exponent)
            case AnyNode(op_types=op_types) if op_types:
                return self._any(self._next(item, op_types))
            case Repeat(block=block, carry=carry, shared=shared):
                return self._row(self._layers(item), block, carry, shared)[-1]
        raise CannotGrow("any node may stand in it; write examples")

    def _next(self, item: Term, choices: Sequence[Choice]) -> Choice:
        """One of those that were taken least often."""
        least = min(self._chosen_before[item, c] for c in choices)
        found = self._rng.choice([c for c in choices if self._chosen_before[item, c] == least])
        self._chosen_before[item, found] += 1
        return found

    # -- leaves ----------------------------------------------------------------------------------------------

    def _capture(self, item: Capture) -> ir.Value | None:
        if item.optional and self._rng.random() < 0.5:
            return None
        role = Role.CONSTANT if isinstance(item, Const) else Role.NUMBER if isinstance(item, Scalar) else Role.FED
        return self._leaf(item.name, role, item, dtypes=item.dtypes, rank=item.rank)

    def _number(self, number: float) -> ir.Value:
        return self._leaf("k", Role.NUMBER, None, given=number)

    def _leaf(self, name: str, role: Role, term: Any, **known: Any) -> ir.Value:
        value = ir.Value(name=f"{name}_{len(self.sketch.leaves)}")
        self.sketch.leaves[value] = Leaf(value, role, term, **known)
        return value

    # -- nodes -----------------------------------------------------------------------------------------------

    def _chain(self, operands: Sequence[tuple[Term, int]], joins: str, parts: str, neutral: float) -> ir.Value | None:
        """A sum or a product, from left to right, what is added or multiplied first."""
        total: ir.Value | None = None
        for item, sign in sorted(operands, key=lambda o: -o[1]):
            value = self.value(item)
            if value is None:
                continue
            if total is None and sign > 0:
                total = value
            else:
                start = self._number(neutral) if total is None else total
                total = self._node(joins if sign > 0 else parts, [start, value]).outputs[0]
        return total

    def _power(self, base: ir.Value | None, exponent: float) -> ir.Value:
        if exponent == 0.5 and self._rng.random() < 0.5:
            return self._node("Sqrt", [base]).outputs[0]
        return self._node("Pow", [base, self._number(exponent)]).outputs[0]

    def _made(self, item: Call) -> ir.Node:
        if item not in self._calls:
            self._calls[item] = self._call(item)
        return self._calls[item]

    def _output(self, node: ir.Node, index: int) -> ir.Value:
        """An output of a node, which gets as many as that takes."""
        if index >= len(node.outputs):
            node.resize_outputs(index + 1)
            for output in node.outputs:
                output.name = output.name or f"{node.outputs[0].name}_{output.index()}"
        return node.outputs[index]

    def _call(self, item: Call) -> ir.Node:
        op_type = self._next(item, item.op_types)
        found = known(item.domain, op_type, self.sketch.opset)
        inputs: list[ir.Value | None] = []
        for each in item.inputs:
            inputs += self._each(each) if isinstance(each, Each) else [None if each is None else self.value(each)]
        attributes: dict[str, Any] = {}
        opened: list[Open] = []
        for name, expected in item.parameters.items():
            if isinstance(expected, Body):
                raise CannotGrow(f"{op_type} has a body; write examples")
            formal = found.attributes.get(name) if found is not None else None
            is_any = isinstance(expected, Attr | Capture)
            if formal is not None and is_any:
                opened.append(Open(formal, expected))
            elif formal is not None or found is None:
                attributes |= {} if expected is None or is_any else {name: expected}
            else:
                self._parameter(schema.formal_index(found, name), name, expected, inputs)
        outputs = max(found.min_outputs if found is not None else 1, self._indexed.get(item, 1))
        return self._node(op_type, inputs, attributes, opened, item.domain, outputs)

    def _parameter(self, place: int | None, name: str, expected: Any, inputs: list[ir.Value | None]) -> None:
        """A parameter that this opset has as an input."""
        if place is None or expected is None:
            return
        is_any = isinstance(expected, Attr | Capture)
        is_optional = is_any and getattr(expected, "default", None) is not None and self._rng.random() < 0.4
        if is_optional and expected.default.__class__.__name__ != "_Required":
            return
        inputs += [None] * (place + 1 - len(inputs))
        if is_any and expected in self._bound:
            inputs[place] = self._bound[expected]
            return
        inputs[place] = self._leaf(
            name, Role.PARAMETER, expected if is_any else None, given=None if is_any else expected
        )
        if is_any:
            self._bound[expected] = inputs[place]

    def _layers(self, item: Repeat) -> int:
        """The number of layers to draw."""
        if item.at_least > _LAYERS:
            raise CannotGrow(f"it has {item.at_least} layers; write examples")
        return item.times or self._rng.randint(item.at_least, max(item.at_least, _LAYERS))

    def _row(
        self, count: int, block: Term, carry: Mapping[Capture, Term], shared: Sequence[Term | Attr[Any]]
    ) -> list[ir.Value | None]:
        """So many layers, each of which takes what the one before it gives."""
        before, calls = dict(self._bound), dict(self._calls)
        kept: dict[object, ir.Value | None] = {name: self.value(name) for name in carry}
        carried, values = dict(kept), list[ir.Value | None]()
        for _ in range(count):
            self._bound, self._calls = {**before, **kept, **carried}, dict(calls)
            values.append(self.value(block))
            carried = {name: self.value(term) for name, term in carry.items()}
            kept |= {t: self._bound[t] for t in shared if t in self._bound}
        self._bound, self._calls = {**before, **kept}, calls
        return values

    def _each(self, rest: Each[Any]) -> list[ir.Value | None]:
        count = self._rng.randint(rest.at_least, max(rest.at_least, 3))
        if rest.of is not None and rest.carry:
            return self._row(count, rest.of, rest.carry, rest.shared)
        if rest.of is None:
            return [self._leaf(rest.name, Role.FED, None) for _ in range(count)]
        before = dict(self._bound)
        values = []
        for _ in range(count):
            self._bound = {t: v for t, v in self._bound.items() if t in before or t in rest.shared}
            values.append(self.value(rest.of))
        return values

    def _any(self, op_type: str) -> ir.Value:
        found = known("", op_type, self.sketch.opset)
        if found is None:
            raise CannotGrow(f"{op_type} is no operator of opset {self.sketch.opset}")
        return self._node(op_type, [self._leaf("in", Role.FED, None) for _ in range(max(found.min_inputs, 1))]).outputs[
            0
        ]

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, AttributeValue] | None = None,
        opened: Sequence[Open] = (),
        domain: str = "",
        outputs: int = 1,
    ) -> ir.Node:
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        node = ir.Node(
            domain,
            op_type,
            given,
            ir.convenience.convert_attributes(dict(attributes or {})),
            num_outputs=outputs,
            name=f"{op_type}_{len(self.sketch.nodes)}",
        )
        for output in node.outputs:
            output.name = f"v{len(self.sketch.nodes)}_{output.index()}"
        self.sketch.nodes.append(node)
        self.sketch.open[node] = [*opened, *self._unmentioned(node, {o.formal.name for o in opened})]
        return node

    def _unmentioned(self, node: ir.Node, opened: set[str]) -> list[Open]:
        """Attributes that the pattern does not mention: those that the schema asks for, now and then some others."""
        found = self.sketch.schema(node)
        formals = found.attributes.values() if found is not None else ()
        also = self._rng.choice((0.5, 1.0)) if self._rng.random() < OTHERS else 0.0
        return [
            Open(f, None)
            for f in formals
            if f.name not in opened and f.name not in node.attributes and (f.required or self._rng.random() < also)
        ]
