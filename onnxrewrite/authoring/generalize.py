"""From a region and the places where it recurs to a draft of one pattern: their least general generalization.

What is equal everywhere stays as it is; what differs becomes a capture, and what differs in the same way at two inputs,
one capture.   Plotkin, A note on inductive generalization, 1970.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.authoring.occurrences import Place, Use
from onnxrewrite.authoring.region import Region
from onnxrewrite.ir import schema
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.skip_identity import resolve
from onnxrewrite.ir.value_numbering import same_tensor
from onnxrewrite.ir.views import parameter
from onnxrewrite.pattern.numbers import same_parameter
from onnxrewrite.pattern.terms import FLOATS

_SHAPES = frozenset({"shape", "sizes", "output_shape"})
"""Names of operator inputs that give the size of the result."""


class Kind(enum.StrEnum):
    """The class of a capture."""

    VAR = "Var"
    CONST = "Const"
    SCALAR = "Scalar"
    ATTR = "Attr"


@dataclass(eq=False)
class Slot:
    """The values that a capture stands for.

    Attributes:
        kind: Its class.
        values: Its binding at each place: a value, or an attribute's; None where it is absent.
        node: The node of the region that reads it first.
        formal: Its name in the schema of that node's operator; empty if unknown.
        is_shape: True if it gives the size of a result.
        is_float: True if it is a floating-point tensor at all places.
    """

    kind: Kind
    values: tuple[Any, ...]
    node: ir.Node
    formal: str = ""
    is_shape: bool = False
    is_float: bool = False

    @property
    def is_optional(self) -> bool:
        """True if it is absent at some places."""
        return any(v is None for v in self.values)


@dataclass(frozen=True)
class Number:
    """A number that is the same everywhere."""

    value: float | int | bool
    dtype: ir.DataType | None


@dataclass(frozen=True)
class Inner:
    """An output of a node of the region."""

    node: ir.Node
    index: int


Operand: TypeAlias = Slot | Number | Inner | None


@dataclass(frozen=True)
class Form:
    """One operator that stands at a node, with its parameters: values, or slots."""

    op_type: str
    domain: str
    parameters: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A node of the pattern.

    Attributes:
        node: The node of the region.
        forms: The operators that may stand there, all of which read the same.
        operands: What they read, but for parameters.
        places: The input of the node that each operand is.
        named: Its other inputs, to the names of the parameters that they are.
        divides: True if it computes floating-point numbers, for which a quotient is a product.
    """

    node: ir.Node
    forms: tuple[Form, ...]
    operands: tuple[Operand, ...]
    places: tuple[int, ...]
    named: Mapping[int, str]
    divides: bool


@dataclass(frozen=True)
class Draft:
    """A pattern that has yet to be given names.

    Attributes:
        steps: Producers before readers.
        outputs: The values that it stands for.
        slots: Its captures, in the order of the region's inputs, then of first use.
        allow_shared: True if shape arithmetic needs the shape of an inner value, which is then computed anyway.
    """

    steps: tuple[Step, ...]
    outputs: tuple[Inner, ...]
    slots: tuple[Slot, ...]
    allow_shared: bool


@dataclass(frozen=True)
class Wanted:
    """Values and attributes that a rewrite needs, so that they are captured even where they are the same everywhere.

    Attributes:
        values: Values that the region reads, constants too.
        numbers: Constants of one element, of which the number is needed.
        attributes: Attributes of nodes of the region.
        constants: Constants that belong to the region: the rewrite does not hold at a place where another one stands,
            or none, unless its number is captured.
        handed_on: Nodes of which the rewrite takes all attributes as they are, so that none is part of the pattern.
        fixed: Nodes whose attributes belong to the region likewise, but for those that are wanted.
        ones: Values that the region reads whose axes of one belong to it, too.
    """

    values: frozenset[ir.Value] = frozenset()
    numbers: frozenset[ir.Value] = frozenset()
    attributes: frozenset[tuple[ir.Node, str]] = frozenset()
    constants: frozenset[ir.Value] = frozenset()
    handed_on: frozenset[ir.Node] = frozenset()
    fixed: frozenset[ir.Node] = frozenset()
    ones: frozenset[ir.Value] = frozenset()

    def may_hold_at(self, place: Place, region: Place, facts: Facts) -> bool:
        """True if the constants, attributes and axes of one that belong to the region are those of a place, too."""
        return (
            self._has_its_constants(place, region, facts)
            and all(self._has_its_attributes(place.nodes[node], node, facts) for node in self.fixed)
            and all(
                _ones(facts.shape(value)) == _ones(facts.shape(there))
                for use, value in region.leaves.items()
                if value in self.ones and (there := place.leaves.get(use)) is not None
            )
        )

    def _has_its_attributes(self, there: ir.Node, node: ir.Node, facts: Facts) -> bool:
        version = facts.version(node)
        known = schema.schema(node.domain, node.op_type, version)
        names = known.attributes if known is not None else node.attributes
        fixed = (name for name in names if (node, name) not in self.attributes)
        return all(same_parameter(*(schema.attribute(n, name, version) for n in (there, node))) for name in fixed)

    def _has_its_constants(self, place: Place, region: Place, facts: Facts) -> bool:
        for use, value in region.leaves.items():
            if value not in self.constants:
                continue
            theirs = place.leaves.get(use)
            mine, other = facts.tensor(value), None if theirs is None else facts.tensor(theirs)
            if mine is None or other is None or (value not in self.numbers and not same_tensor(mine, other)):
                return False
        return True


def _ones(shape: Sequence[Dim] | None) -> list[int]:
    return [axis for axis, size in enumerate(shape or ()) if size == 1]


NOTHING = Wanted()
"""No wishes: a constant that is the same everywhere is part of the pattern."""

FactsOf: TypeAlias = Callable[[ir.Graph], Facts]


def generalize(region: Region, places: Sequence[Place], facts_of: FactsOf, wanted: Wanted = NOTHING) -> Draft:
    """One pattern for the region and all places.

    Args:
        region: The nodes that were cut out.
        places: The places where it stands, the region itself first.
        facts_of: The facts about the values of each graph.
        wanted: What is captured in any case.
    """
    return _Generalization(region, places, facts_of, wanted).draft()


class _Generalization:
    def __init__(self, region: Region, places: Sequence[Place], facts_of: FactsOf, wanted: Wanted):
        self.region = region
        self.wanted = wanted
        self.places = places
        self.facts = facts_of(region.graph)
        self._all_facts = [facts_of(p.graph) for p in places]
        self._slots: dict[tuple[object, ...], Slot] = {}
        self._border = frozenset(region.border)

    def draft(self) -> Draft:
        for value in self.region.border:
            self._of_border(value)
        steps = tuple(self._step(n) for n in self.region.nodes)
        return Draft(
            steps=steps,
            outputs=tuple(self._inner(v) for v in self.region.outputs),
            slots=tuple(self._slots.values()),
            allow_shared=any(p.watched for p in self.places),
        )

    @staticmethod
    def _inner(value: ir.Value) -> Inner:
        node = value.producer()
        assert node is not None
        return Inner(node, value.index() or 0)

    # -- a node ----------------------------------------------------------------------------------------------

    def _step(self, node: ir.Node) -> Step:
        named = self._named_inputs(node) if not any(p.odd is node for p in self.places) else {}
        width = max((i + 1 for n, i in self.places[0].leaves if n is node), default=0)
        places = [i for i in range(max(len(node.inputs), width)) if i not in named]
        operands = [self._operand((node, i)) for i in places]
        while operands and operands[-1] is None:
            operands.pop()
        given = {name: self._given((node, i), name) for i, name in named.items()}
        dtype = self.facts.dtype(node.outputs[0])
        return Step(
            node=node,
            forms=tuple(self._forms(node, {k: v for k, v in given.items() if v is not None})),
            operands=tuple(operands),
            places=tuple(places[: len(operands)]),
            named=named,
            divides=dtype is not None and dtype.is_floating_point(),
        )

    def _named_inputs(self, node: ir.Node) -> dict[int, str]:
        """The inputs that are parameters: attributes in some opset."""
        found = schema.schema(node.domain, node.op_type, self.facts.version(node))
        formals = found.inputs if found is not None else ()
        names = {i: f.name for i, f in enumerate(formals) if f.name not in _SHAPES}
        return {i: n for i, n in names.items() if i > 0 and schema.is_parameter(node.domain, node.op_type, n)}

    def _forms(self, node: ir.Node, given: dict[str, object]) -> Iterator[Form]:
        """The operators that stand in the place of a node, the region's own first."""
        kinds = dict.fromkeys((p.nodes[node].domain, p.nodes[node].op_type) for p in self.places)
        for domain, op_type in kinds:
            theirs = [(p.nodes[node], f) for p, f in zip(self.places, self._all_facts, strict=True)]
            own = [(n, f) for n, f in theirs if (n.domain, n.op_type) == (domain, op_type)]
            yield Form(op_type, domain, {**given, **self._attributes(node, own)})

    def _attributes(self, node: ir.Node, own: Sequence[tuple[ir.Node, Facts]]) -> dict[str, object]:
        """The attributes off their default somewhere: the value where it is the same everywhere, else a capture."""
        found: dict[str, object] = {}
        if node in self.wanted.handed_on:
            return found
        asked = {name for of, name in self.wanted.attributes if of is node}
        for name in sorted({a for n, _ in own for a in n.attributes} | asked):
            values = [schema.attribute(n, name, f.version(n)) for n, f in own]
            defaults = [_default(n, name, f) for n, f in own]
            first = values[0]
            is_one = _is_plain(first) and all(_is_plain(v) and same_parameter(v, first) for v in values[1:])
            if name in asked or not is_one:
                found[name] = self._slot((name, *map(repr, values)), Kind.ATTR, tuple(values), node, name)
            elif any(d is None or not same_parameter(first, d) for d in defaults):
                found[name] = first
        return found

    def _given(self, use: Use, name: str) -> object:
        """A parameter that is an input: its value where it is the same everywhere; None where it is absent."""
        if use not in self.places[0].leaves:
            inner = use[0].inputs[use[1]] if use[1] < len(use[0].inputs) else None
            return None if inner is None else self._operand(use)
        read = self.places[0].leaves.get(use)
        if read in self.wanted.values:
            return self._operand(use)
        nodes = [p.nodes[use[0]] for p in self.places]
        values = [parameter(f, n, name) for n, f in zip(nodes, self._all_facts, strict=True)]
        if all(v is None for v in values):
            return None
        if any(v is schema.UNKNOWN for v in values):
            return self._operand(use)
        if read not in self.wanted.numbers and all(v is not None and same_parameter(v, values[0]) for v in values):
            return values[0]
        return self._slot((name, *map(repr, values)), Kind.ATTR, tuple(values), use[0], name)

    # -- an input --------------------------------------------------------------------------------------------

    def _operand(self, use: Use) -> Operand:
        node, place = use
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None and resolve(value) in self._border:
            return self._of_border(resolve(value))
        if use not in self.places[0].leaves:
            return None if value is None else self._inner(resolve(value))
        values = tuple(p.leaves.get(use) for p in self.places)
        if all(v is None for v in values):
            return None
        formal = self._formal(use)
        if formal in _SHAPES or (node.op_type, place) == ("ConstantOfShape", 0):
            return self._slot(("shape", use), Kind.VAR, values, node, formal, is_shape=True)
        return self._constant(use, values, formal)

    def _constant(self, use: Use, values: tuple[ir.Value | None, ...], formal: str) -> Operand:
        """The operand for a constant of the region, a variable if it is computed at another place."""
        pairs = [(v, f) for v, f in zip(values, self._all_facts, strict=True) if v is not None]
        key = ("constant", *map(id, values))
        if values[0] in self.wanted.values or not all(f.tensor(v) is not None for v, f in pairs):
            return self._slot(key, Kind.VAR, values, use[0], formal)
        numbers = [_number(v, f) for v, f in pairs]
        if any(n is None for n in numbers) or len(pairs) < len(values):
            return self._slot(key, Kind.CONST, values, use[0], formal)
        first = numbers[0]
        if values[0] not in self.wanted.numbers and first is not None and all(n == first for n in numbers):
            return Number(first, self.facts.dtype(pairs[0][0]))
        return self._slot(key, Kind.SCALAR, values, use[0], formal)

    def _of_border(self, value: ir.Value) -> Slot:
        """The capture of what is read at the border."""
        use = next(
            (n, i) for n in self.region.nodes for i, v in enumerate(n.inputs) if v is not None and resolve(v) is value
        )
        values = tuple(p.leaves.get(use) for p in self.places)
        return self._slot(("border", value), Kind.VAR, values, use[0], self._formal(use))

    def _slot(
        self, key: tuple[object, ...], kind: Kind, values: tuple[object, ...], node: ir.Node, formal: str, **more: bool
    ) -> Slot:
        if key not in self._slots:
            dtypes = [v.dtype for v in values if isinstance(v, ir.Value)]
            is_float = bool(dtypes) and all(d in FLOATS for d in dtypes)
            self._slots[key] = Slot(kind, values, node, formal, is_float=is_float, **more)
        return self._slots[key]

    def _formal(self, use: Use) -> str:
        """The name of an input in its operator's schema, empty if unknown."""
        node, place = use
        found = schema.schema(node.domain, node.op_type, self.facts.version(node))
        return found.inputs[place].name if found is not None and place < len(found.inputs) else ""


def _number(value: ir.Value, facts: Facts) -> float | int | None:
    """The number in a constant of one element; None for any other, and for what is no number."""
    tensor = facts.tensor(value)
    number = None if tensor is None else facts.number(tensor)
    if isinstance(number, complex) or (isinstance(number, float) and math.isnan(number)):
        return None
    return number


def _default(node: ir.Node, name: str, facts: Facts) -> object:
    found = schema.schema(node.domain, node.op_type, facts.version(node))
    formal = found.attributes.get(name) if found is not None else None
    return formal.default if formal is not None else None


def _is_plain(value: object) -> bool:
    """True if an attribute can be written as a literal."""
    if isinstance(value, tuple):
        return all(isinstance(v, int | float | str) for v in value)
    return isinstance(value, int | float | str | np.generic)
