"""Graphs grown from a pattern alone: one node a term, at random where the pattern leaves a choice, with shapes at which
ONNX Runtime runs them.

Nothing here knows what the rule's guards ask for: what it refuses is thrown away, and another is grown.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
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
from onnxrewrite.verify.respell.firing import Trial
from onnxrewrite.verify.respell.mistakes import WORDS
from onnxrewrite.verify.respell.running import feeder_or_reason
from onnxrewrite.verify.respell.seeds import Seed, named, seed_of

Choice = TypeVar("Choice")

OPSETS = (17, 13, 20, 23)

TARGET = "onnxruntime-cpu"

_SHAPE_TRIES = 24

_BASES: tuple[tuple[int, ...], ...] = ((2, 3, 5, 5), (2, 5, 3), (3, 3), (2, 3, 3), (3,), (2, 2, 4, 4))
"""Shapes of what a model is fed."""

_CONSTANTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()), ((3,), (3,)), ((3, 3), (3,)), ((3, 3, 3, 3), (3,)), ((3, 3, 1, 1), (3,)), ((3, 1, 1), (3, 1, 1)),
    ((3, 3, 3), (3,)), ((1, 3, 1, 1), (1, 3, 1, 1)), ((3, 4), (4,)), ((1,), (1,)), ((3, 3), (3, 3)),
)  # fmt: skip
"""Shapes of the first constant, a weight more often than not, and of all others."""


class CannotGrow(Exception):
    """A term of which nothing is known: why no graph can be made of the pattern."""


def grown(rule: Rule, library: Sequence[Rule], wanted: int, seed: int = 0) -> Iterator[Seed]:
    """Up to ``wanted`` seeds from the pattern, in so many tries each; none for a pattern that says nothing."""
    trial = Trial.of(rule, library, TARGET)
    models = (m for m in attempts(rule, wanted, seed) if not isinstance(m, str))
    return itertools.islice((s for model in models for s in seed_of(model, trial)), wanted)


def attempts(rule: Rule, wanted: int, seed: int = 0) -> Iterator[ir.Model | str]:
    """What ``grown`` tries: graphs of the pattern, most of which a rule refuses, or why there is none that runs."""
    chosen, indexed = Counter[Any](), _indexed(rule)
    for number in range(4 * wanted):
        try:
            made = _sized(Grower(random.Random(f"{seed}/grown/{number}"), chosen, indexed), rule)
        except CannotGrow as reason:
            yield f"no graph can be made of its pattern: {reason}"
            return
        yield made if isinstance(made, str) else named(made)


class Grower:
    """Makes one graph of a pattern.

    Args:
        rng: Makes the choices.
        chosen: How often each alternative was taken before; those that were not come first.
        indexed: Call to how many outputs its pattern reads, where it reads others than the first.

    Attributes:
        fed: The values of captures that can be anything.
        constants: Those that must be constant.
    """

    def __init__(self, rng: random.Random, chosen: Counter[Any], indexed: Mapping[Call, int]):
        self.opset = rng.choice(OPSETS)
        self.nodes: list[ir.Node] = []
        self.fed: list[ir.Value] = []
        self.constants: list[ir.Value] = []
        self.given: list[ir.Value] = []
        self.ranks: dict[ir.Value, int | None] = {}
        self.rng = rng
        self._chosen_before = chosen
        self._indexed = indexed
        self._bound: dict[Term, ir.Value | None] = {}
        self._calls: dict[Call, ir.Node] = {}

    def value(self, item: Term) -> ir.Value | None:
        """What stands for a term; None for an operand that is left out."""
        if item not in self._bound:
            self._bound[item] = self._grow(item)
        return self._bound[item]

    def _grow(self, item: Term) -> ir.Value | None:
        match item:
            case Literal(value=number):
                return self._number(number)
            case Scalar():
                return self._number(round(self.rng.uniform(0.2, 2.0), 2))
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
                root = exponent == 0.5 and self.rng.random() < 0.5
                return self._node("Sqrt" if root else "Pow", [self.value(base)] + [self._number(exponent)] * (not root))
            case AnyNode(op_types=op_types) if op_types:
                return self._any(self.rng.choice(op_types))
        raise CannotGrow("any node may stand in it; write examples")

    def _next(self, item: Term, choices: Sequence[Choice]) -> Choice:
        """One of those that were taken least often."""
        least = min(self._chosen_before[item, c] for c in choices)
        found = self.rng.choice([c for c in choices if self._chosen_before[item, c] == least])
        self._chosen_before[item, found] += 1
        return found

    # -- captures and numbers --------------------------------------------------------------------------------

    def _capture(self, item: Capture) -> ir.Value | None:
        if item.optional and self.rng.random() < 0.5:
            return None
        dtypes = item.dtypes or {ir.DataType.FLOAT}
        dtype = ir.DataType.FLOAT if ir.DataType.FLOAT in dtypes else min(dtypes)
        return self._input(self.constants if isinstance(item, Const) else self.fed, item.name, dtype, item.rank)

    def _input(
        self, kind: list[ir.Value], name: str, dtype: ir.DataType = ir.DataType.FLOAT, rank: int | None = None
    ) -> ir.Value:
        value = ir.Value(name=f"{name}_{len(self.fed) + len(self.constants)}", type=ir.TensorType(dtype))
        kind.append(value)
        self.ranks[value] = rank
        return value

    def shape(self, value: ir.Value, proposed: Sequence[int]) -> ir.Shape:
        """The shape that is proposed for a value, of the rank that it has to have."""
        rank = self.ranks[value]
        if rank is None:
            return ir.Shape(proposed)
        return ir.Shape([*[2] * (rank - len(proposed)), *proposed[len(proposed) - min(rank, len(proposed)) :]])

    def _number(self, number: float) -> ir.Value:
        return self._given(np.array(number, np.float32))

    def _given(self, array: np.ndarray[Any, Any]) -> ir.Value:
        name = f"k{len(self.given)}"
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)  # type: ignore[arg-type]
        self.given.append(value)
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
                total = self._node(joins if sign > 0 else parts, [start, value])
        return total

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
        known = schema.schema(item.domain, op_type, self.opset if not item.domain else None)
        inputs: list[ir.Value | None] = []
        for each in item.inputs:
            inputs += self._each(each) if isinstance(each, Each) else [None if each is None else self.value(each)]
        attributes: dict[str, Any] = {}
        for name, expected in item.parameters.items():
            self._parameter(known, name, expected, inputs, attributes)
        outputs = max(known.min_outputs if known else 1, self._indexed.get(item, 1))
        self._node(op_type, inputs, attributes, item.domain, outputs=outputs)
        return self.nodes[-1]

    def _each(self, rest: Each[Any]) -> list[ir.Value | None]:
        count = self.rng.randint(rest.at_least, 3)
        if rest.of is None:
            return [self._input(self.fed, rest.name) for _ in range(count)]
        before = dict(self._bound)
        values = []
        for _ in range(count):
            self._bound = {t: v for t, v in self._bound.items() if t in before or t in rest.shared}
            values.append(self.value(rest.of))
        return values

    def _parameter(
        self,
        known: schema.Schema | None,
        name: str,
        expected: Any,
        inputs: list[ir.Value | None],
        attributes: dict[str, Any],
    ) -> None:
        """A parameter as the attribute, or as the constant input, that this opset has it as."""
        formal = known.attributes.get(name) if known is not None else None
        place = schema.formal_index(known, name)
        if isinstance(expected, Attr | Capture):
            chosen = self._chosen(name, formal)
        else:
            chosen = expected
        if chosen is None:
            return
        if formal is not None or known is None:
            attributes[name] = chosen
        elif place is not None:
            inputs += [None] * (place + 1 - len(inputs))
            kind = np.float32 if isinstance(chosen, float) else np.int64
            inputs[place] = self._given(np.array(chosen, kind))

    def _chosen(self, name: str, formal: schema.Attribute | None) -> Any:
        """A value for an attribute that the pattern captures; None to leave it out."""
        if formal is None:
            return self.rng.choice((None, [0], [1], [-1]))
        if self.rng.random() < 0.4 and not formal.required:
            return None
        match formal.type:
            case ir.AttributeType.INT:
                return self.rng.choice((0, 1) if name in schema.FLAGS else (0, 1, -1, 2))
            case ir.AttributeType.FLOAT:
                return round(self.rng.uniform(0.05, 1.5), 3)
            case ir.AttributeType.STRING:
                return self.rng.choice(WORDS.get(name, (formal.default,)))
            case ir.AttributeType.INTS:
                return self.rng.choice(([0, 2, 1], [0, 2, 3, 1], [1], [-1], [1, 1]))
        return None

    def _any(self, op_type: str) -> ir.Value:
        known = schema.schema("", op_type, self.opset)
        if known is None:
            raise CannotGrow(f"{op_type} is no operator of opset {self.opset}")
        return self._node(op_type, [self._input(self.fed, "in") for _ in range(max(known.min_inputs, 1))])

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
        outputs: int = 1,
    ) -> ir.Value:
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        node = ir.Node(domain, op_type, given, ir.convenience.convert_attributes(attributes or {}), num_outputs=outputs)
        for output in node.outputs:
            output.name = f"v{len(self.nodes)}_{output.index()}"
        self.nodes.append(node)
        return node.outputs[0]


def _indexed(rule: Rule) -> dict[Call, int]:
    """Call to how many of its outputs the pattern reads, of calls of which it reads others than the first."""
    found = Counter[Call]()
    for item in (t for term in rule.outputs for t in walk(term) if isinstance(t, Output)):
        found[item.call] = max(found[item.call], item.index + 1)
    return found


# -- shapes --------------------------------------------------------------------------------------------------


def _sized(grower: Grower, rule: Rule) -> ir.Model | str:
    """The graph of a rule's pattern, at shapes at which it runs, its constants filled in; or why it does not run."""
    results = [grower.value(term) for term in rule.outputs]
    made = [r for r in results if r is not None and r.producer() is not None]
    if len(made) != len(results):
        return "no graph can be made of its pattern: no node computes one of its outputs"
    outputs = dict.fromkeys(made)
    graph = ir.Graph(
        [*grower.fed, *grower.constants], list(outputs), nodes=grower.nodes, initializers=grower.given,
        opset_imports={"": grower.opset} | {n.domain: 1 for n in grower.nodes if n.domain}, name="grown",
    )  # fmt: skip
    model = ir.Model(graph, ir_version=10)
    rng = np.random.default_rng(0)
    proposals = list(itertools.product(_BASES, _CONSTANTS if grower.constants else _CONSTANTS[:1]))
    grower.rng.shuffle(proposals)
    reason = ""
    for base, (first, rest) in proposals[:_SHAPE_TRIES]:
        copy = model.clone()
        inputs = {v.name: v for v in copy.graph.inputs}
        for value in grower.fed:
            inputs[value.name].shape = grower.shape(value, base)
        for place, value in enumerate(grower.constants):
            shape = rest if place else first
            _settle(copy.graph, inputs[value.name], rng.uniform(0.5, 2.0, grower.shape(value, shape).numpy()).round(2))
        found = feeder_or_reason(copy)
        if not isinstance(found, str):
            return copy
        reason = found
    return f"ONNX Runtime does not run what was made of its pattern: {reason}"


def _settle(graph: ir.Graph, value: ir.Value, array: np.ndarray[Any, Any]) -> None:
    """Make a constant of an input."""
    assert value.dtype is not None
    graph.inputs.remove(value)
    value.const_value = ir.tensor(array.astype(value.dtype.numpy()), name=value.name)
    value.shape = ir.Shape(array.shape)
    graph.register_initializer(value)
