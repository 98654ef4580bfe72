"""Questions of a decision tree: about places near the anchor, each with few possible answers.

A place is the way that leads to it from the anchor: input 0 of input 1 of the anchor's node.  It is looked up once
for each anchor, by whichever question asks first.  Every answer depends on the graph alone, never on what was bound
before, so that patterns can share it; and nothing is formatted, for most answers are of no use to most patterns.

This module knows nothing of patterns; ``conditions.py`` says which of them ask what.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.views import parameter, spellings
from onnxrewrite.pattern import numbers
from onnxrewrite.pattern.look import resolve

if TYPE_CHECKING:
    from onnxrewrite.pattern.among import Expected
    from onnxrewrite.pattern.chain import Piece

NOTHING: tuple[Hashable, ...] = ()

MOST = 64
"""Inputs of a node are counted up to this number."""


class Surroundings(Protocol):
    """A graph as a set of patterns sees it (``finder.View``)."""

    facts: Facts

    def producer(self, value: ir.Value) -> ir.Node | None:
        """The node of this graph that computes ``value``."""

    def grown(self, value: ir.Value, is_product: bool) -> list[Piece]:
        """The sum or product above ``value`` (``chain.grow``)."""

    def terms(self, value: ir.Value) -> Mapping[int, int]:
        """The numbers of the terms that match ``value``, each with the signs (``chain.SIGNS``) under which it does."""

    def chain(self, value: ir.Value, expected: Expected) -> Collection[Hashable]:
        """The answers for the sum or product above ``value``."""


class Probe:
    """One value and its surroundings, looked at no further than somebody asks.

    Args:
        view: The graph around.
        anchor: The value.
    """

    __slots__ = ("answers", "nodes", "values", "view")

    def __init__(self, view: Surroundings, anchor: ir.Value):
        self.view = view
        self.values: dict[int, ir.Value | None] = {0: anchor}
        self.nodes: dict[int, ir.Node | None] = {}
        self.answers: dict[int, Collection[Hashable]] = {}


_UNSEEN = ir.Value(name="unseen")


class Position:
    """A place: an input of the node at another place, or, without a parent, the anchor.

    Args:
        slot: A number of its own; 0 for the anchor.
        parent: The place whose node has the input.
        step: The index of the input.
        named: Inputs that are found by name, in the opsets where they are inputs, and are not counted.
    """

    __slots__ = ("depth", "named", "parent", "slot", "step")

    def __init__(self, slot: int, parent: Position | None = None, step: int = 0, named: frozenset[str] = frozenset()):
        self.slot = slot
        self.parent = parent
        self.step = step
        self.named = named
        self.depth: int = parent.depth + 1 if parent is not None else 0

    def value(self, probe: Probe) -> ir.Value | None:
        """The value at this place; None where there is none."""
        found = probe.values.get(self.slot, _UNSEEN)
        if found is _UNSEEN:
            assert self.parent is not None
            node = self.parent.node(probe)
            found = probe.values[self.slot] = None if node is None else self._input(node, probe.view.facts)
        return found

    def node(self, probe: Probe) -> ir.Node | None:
        """The node that computes the value at this place, seen through Identities."""
        if self.slot in probe.nodes:
            return probe.nodes[self.slot]
        value = self.value(probe)
        found = probe.nodes[self.slot] = None if value is None else probe.view.producer(resolve(value))
        return found

    def _input(self, node: ir.Node, facts: Facts) -> ir.Value | None:
        inputs = positional(node, facts, self.named) if self.named else node.inputs
        return inputs[self.step] if self.step < len(inputs) else None


def positional(node: ir.Node, facts: Facts, named: Iterable[str]) -> list[ir.Value | None]:
    """The inputs of a node but for those that are found by name."""
    found = schema.schema(node.domain, node.op_type, facts.version(node))
    taken = {schema.formal_index(found, name) for name in named}
    return [v for i, v in enumerate(node.inputs) if i not in taken]


@dataclass(frozen=True)
class Question:
    """Something to be asked of a place.

    ``answers`` gives everything that holds there: at most one answer for most questions, several for some.

    Attributes:
        cost: The effort to find the answer, compared with other questions.
        doubt: A guess of the probability that the answer is not the one that a pattern needs.
    """

    position: Position
    cost: ClassVar[int]
    doubt: ClassVar[float]

    def answers(self, probe: Probe) -> Collection[Hashable]:
        """The answers at the probed anchor."""
        raise NotImplementedError


def operator_key(op_type: str, domain: str = "", index: int = 0) -> Hashable:
    """An operator and which of its outputs, as an answer; short for what is asked most."""
    return (domain, op_type, index) if domain or index else op_type


class Operator(Question):
    """The operator that computes the value, and the index of the output that the value is."""

    cost = 0
    doubt = 0.9

    def answers(self, probe: Probe) -> Collection[Hashable]:
        node = self.position.node(probe)
        if node is None:
            return NOTHING
        index = 0
        if len(node.outputs) > 1:
            value = self.position.value(probe)
            index = resolve(value).index() or 0 if value is not None else 0
        return (operator_key(node.op_type, node.domain, index),)


class Producer(Question):
    """The standard operator that computes the value itself, Identities not looked through, whatever the output."""

    cost = 0
    doubt = 0.9

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        node = None if value is None else probe.view.producer(value)
        return (node.op_type,) if node is not None and not node.domain else NOTHING


@dataclass(frozen=True)
class Count(Question):
    """The number of inputs, up to the last one that is not left out; named ones are not counted."""

    named: frozenset[str] = frozenset()
    cost = 1
    doubt = 0.1

    def answers(self, probe: Probe) -> Collection[Hashable]:
        node = self.position.node(probe)
        if node is None:
            return NOTHING
        inputs = positional(node, probe.view.facts, self.named) if self.named else node.inputs
        count = len(inputs)
        while count and inputs[count - 1] is None:
            count -= 1
        return (min(count, MOST),)


_CONSTANT, _SINGLE = ("constant",), ("constant", "single")


class IsConstant(Question):
    """Is the value constant, and is it a single number?"""

    cost = 2
    doubt = 0.1

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        tensor = None if value is None else probe.view.facts.tensor(resolve(value))
        if tensor is None:
            return NOTHING
        return _CONSTANT if probe.view.facts.number(tensor) is None else _SINGLE


@dataclass(frozen=True)
class Constants(Question):
    """The first inputs of the node that are constant: one answer, as bits, for patterns want different ones."""

    named: frozenset[str] = frozenset()
    cost = 2
    doubt = 0.2

    WIDTH: ClassVar[int] = 6

    @classmethod
    def needed(cls, inputs: Iterable[int]) -> Iterator[int]:
        """The answers where at least ``inputs`` are constant."""
        mask = sum(1 << i for i in inputs)
        return (bits for bits in range(1 << cls.WIDTH) if bits & mask == mask)

    def answers(self, probe: Probe) -> Collection[Hashable]:
        node, facts = self.position.node(probe), probe.view.facts
        if node is None:
            return NOTHING
        inputs = positional(node, facts, self.named) if self.named else node.inputs
        first = enumerate(inputs[: self.WIDTH])
        return (sum(1 << i for i, v in first if v is not None and facts.tensor(resolve(v)) is not None),)


class Dtype(Question):
    """The dtype of the value."""

    cost = 2
    doubt = 0.1

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        return NOTHING if value is None else (probe.view.facts.dtype(value),)


class Rank(Question):
    """The number of dimensions of the value."""

    cost = 2
    doubt = 0.2

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        return NOTHING if value is None else (probe.view.facts.rank(value),)


@dataclass(frozen=True)
class Number(Question):
    """The numbers expected here by patterns that equal the value, each rounded to its dtype."""

    expected: dict[float, None] = field(default_factory=dict, compare=False)
    _rounded: dict[ir.DataType | None, dict[float, tuple[float, ...]]] = field(default_factory=dict, compare=False)
    cost = 3
    doubt = 0.9

    def expect(self, number: float) -> float:
        """Let ``number`` be one of the answers."""
        self.expected[number] = None
        self._rounded.clear()
        return number

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        found = None if value is None else numbers.scalar(probe.view.facts, value)
        if value is None or found is None:
            return NOTHING
        dtype = probe.view.facts.dtype(value)
        table = self._rounded.get(dtype)
        if table is None:
            table = self._rounded[dtype] = self._table(dtype)
        return table.get(found, NOTHING)

    def _table(self, dtype: ir.DataType | None) -> dict[float, tuple[float, ...]]:
        table: dict[float, tuple[float, ...]] = {}
        for number in self.expected:
            rounded = numbers.rounded(number, dtype)
            table[rounded] = (*table.get(rounded, ()), number)
        return table


@dataclass(frozen=True)
class Parameter(Question):
    """The value of an attribute, or of the input that carries it in this opset."""

    name: str = ""
    cost = 4
    doubt = 0.5

    def answers(self, probe: Probe) -> Collection[Hashable]:
        node = self.position.node(probe)
        if node is None:
            return NOTHING
        value = parameter(probe.view.facts, node, self.name)
        return tuple(map(comparable, spellings(node, self.name, value)))


_EXACT = 2**24
"""Integers up to here are what they are in float32."""


def _is_short(value: object) -> bool:
    """True if a value is a tuple of small integers, which is a key as it is."""
    return (
        type(value) is tuple
        and len(value) > 0
        and type(value[0]) is int
        and -_EXACT < min(value) <= max(value) < _EXACT
    )


def comparable(value: object) -> Hashable:
    """A parameter so that equal ones, floats as float32 holds them, are one key."""
    if isinstance(value, int):
        return value if -_EXACT < value < _EXACT else ctypes.c_float(value).value
    if isinstance(value, float):
        return ctypes.c_float(value).value
    if isinstance(value, list | tuple):
        return tuple(value) if _is_short(value) else tuple(map(comparable, value))
    return value if isinstance(value, str) else type(value).__name__


@dataclass(frozen=True)
class Same(Question):
    """Is it the value of another place too?  Two constants could be equal: it takes their content to tell."""

    other: Position = field(default_factory=lambda: Position(0))
    cost = 3
    doubt = 0.9

    def answers(self, probe: Probe) -> Collection[Hashable]:
        a, b = self.position.value(probe), self.other.value(probe)
        if a is None or b is None:
            return NOTHING
        a, b = resolve(a), resolve(b)
        facts = probe.view.facts
        return (a is b or (facts.tensor(a) is not None and facts.tensor(b) is not None),)
