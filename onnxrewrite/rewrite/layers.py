"""Repetition: layers that are alike are searched once, and what was found there is done again in the others.

A stack of equal layers looks the same from each of them.  When the driver has done the same in two layers, one visit
after the other, it would do so in the next one, too; so where a rule was applied, that rule alone is tried, by its
match and its guards, and where nothing was, nothing is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import attributes, use_count
from onnxrewrite.rewrite.rule import Rule

_FEWEST = 5
"""A stack of fewer layers is searched as anything else."""

_GRAM = 8
"""So many nodes in a row tell where a layer may begin again."""

_PERIODS = 4
"""So many distances between equal rows are tried."""

_SMALL = 1024
"""Constants of no more elements are alike if they are equal, or both are no integers and not one number again and
again; larger ones are taken for weights, which are alike if their types and sizes are."""

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_NUMBERS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)

Refusal: TypeAlias = tuple[Rule, int, str]
"""A rule that did not apply at an output of a node, and why."""


class Place(NamedTuple):
    """The place of a node in a stack of equal layers; equal nodes of two layers have the same ``role``."""

    stack: int
    layer: int
    role: int


class Visit(NamedTuple):
    """The outcome of a visit to a node.

    Attributes:
        rule: The rule that was applied; None if none was.
        output: The output of the node that was its anchor.
        match: The number of the match, of those that were tried.
        refused: The rules that were refused before.
        is_told: True if that is all that there is to tell.
    """

    rule: Rule | None = None
    output: int = 0
    match: int = 0
    refused: tuple[Refusal, ...] = ()
    is_told: bool = True

    def is_like(self, other: Visit) -> bool:
        """True if the same rule was applied, and the same were refused."""
        if self is other:
            return True
        same = (self.rule, self.output, self.match) == (other.rule, other.output, other.match)
        return same and [r[:2] for r in self.refused] == [r[:2] for r in other.refused]


class _Event(NamedTuple):
    place: Place
    turn: int
    active: object
    node: ir.Node
    visit: Visit


@dataclass
class Repetition:
    """The visits of one pass over a graph, and what they foretell of the next ones.

    Args:
        step: 1 if layers are visited from the first to the last, -1 the other way round.
    """

    step: int
    _places: dict[ir.Node, Place] = field(default_factory=dict)
    _roles: dict[Hashable, int] = field(default_factory=dict)
    _layers: list[int] = field(default_factory=list)
    _log: list[_Event] = field(default_factory=list)
    _last: dict[Place, int] = field(default_factory=dict)
    _pointer: int = -1
    """The event that is like the next one, if all goes on as one layer before."""
    _agreed: int = 0
    """So many events in a row were like those one layer before."""
    _before: _Event | None = None
    """The event one layer before the visit that was foretold last."""
    _believed: set[int] = field(default_factory=set)
    """The numbers of the events that did not happen, as it was foretold that nothing would come of them."""

    def find(self, nodes: Sequence[ir.Node], marks: Marks) -> None:
        """Find the stacks in the nodes of a graph, which are in order."""
        for found in _stacks(nodes, marks):
            stack = len(self._layers)
            self._layers.append(len(found.nodes) // found.period)
            for number, node in enumerate(found.nodes):
                self._places[node] = Place(stack, number // found.period, self._role(number % found.period))

    def _role(self, *told: Hashable) -> int:
        return self._roles.setdefault(told, len(self._roles))

    def foretold(self, node: ir.Node, turn: int, active: object) -> Visit | None:
        """The outcome that a visit will have; None where that is not known.  What comes of it is to be noted next."""
        place = self._places.get(node)
        before = self._before = self._like(place, turn, active) if place is not None else None
        if before is None or place is None:
            return None
        is_known = self._agreed >= self._period and before.visit.is_told
        return before.visit if is_known and self._is_inside(place, turn) else None

    def note(
        self, node: ir.Node, turn: int, active: object, visit: Visit, built: Iterable[ir.Node], *, believed: bool
    ) -> None:
        """Keep what came of a visit, which nodes were built, and whether it was ``believed`` only."""
        place = self._places.get(node)
        if place is None:
            return
        before = self._before
        self._agreed = self._agreed + 1 if before is not None and before.visit.is_like(visit) else 0
        self._pointer = self._pointer + 1 if before is not None else -1
        self._last[place] = len(self._log)
        if believed:
            self._believed.add(len(self._log))
        self._log.append(_Event(place, turn, active, node, visit))
        for number, made in enumerate(built):
            name = visit.rule.name if visit.rule is not None else ""
            self._places[made] = place._replace(role=self._role(place.role, name, number))

    def doubted(self) -> list[ir.Node]:
        """The nodes to visit after all where something else came of a visit than was foretold."""
        recent = range(max(0, len(self._log) - self._period), len(self._log))
        self._agreed = 0
        return [self._log[number].node for number in recent if number in self._believed]

    @property
    def _period(self) -> int:
        """The number of events from one layer to the next."""
        return len(self._log) - self._pointer

    def _like(self, place: Place, turn: int, active: object) -> _Event | None:
        """The event one layer before, which the pointer is set to."""
        fellow = Place(place.stack, place.layer - self.step, place.role)
        if not self._is(self._pointer, fellow, turn, active):
            self._agreed, self._pointer = 0, self._last.get(fellow, -1)
        return self._log[self._pointer] if self._is(self._pointer, fellow, turn, active) else None

    def _is(self, number: int, place: Place, turn: int, active: object) -> bool:
        if not 0 <= number < len(self._log):
            return False
        event = self._log[number]
        is_same = event.turn == turn and event.place == place
        return is_same and (event.active is active or event.active == active)

    def _is_inside(self, place: Place, turn: int) -> bool:
        """True if what is ahead is alike, too: in every turn, the other end of the stack is felt one layer further."""
        ahead = self._layers[place.stack] - 1 - place.layer if self.step > 0 else place.layer
        return ahead > turn


class _Stack(NamedTuple):
    nodes: Sequence[ir.Node]
    period: int


def _stacks(nodes: Sequence[ir.Node], marks: Marks) -> Iterator[_Stack]:
    """The longest rows of layers that are alike, none of which overlap."""
    row = [marks.of(node) for node in nodes]
    positions = {node: number for number, node in enumerate(nodes)}
    found = [
        (start, end, period) for period in _periods(row) for start, end in _repeated(nodes, row, positions, period)
    ]
    taken = [False] * len(nodes)
    for start, end, period in sorted(found, key=lambda each: (each[0] - each[1], each[2])):
        if not any(taken[start:end]):
            taken[start:end] = [True] * (end - start)
            yield _Stack(nodes[start:end], period)


def _periods(row: Sequence[int]) -> list[int]:
    """The most common distances between equal rows of nodes."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for start in range(len(row) - _GRAM + 1):
        gram = tuple(row[start : start + _GRAM])
        if gram in last:
            distances[start - last[gram]] += 1
        last[gram] = start
    return [distance for distance, count in distances.most_common(_PERIODS) if count >= distance]


def _repeated(
    nodes: Sequence[ir.Node], row: Sequence[int], positions: Mapping[ir.Node, int], period: int
) -> Iterator[tuple[int, int]]:
    """Stretches of layers of one length: the first node of the first layer, and the one behind the last."""
    start = 0
    for here in range(len(nodes) - period + 1):
        there = here + period
        if there < len(nodes) and row[here] == row[there] and _reads_alike(nodes[here], nodes[there], positions):
            continue
        layers = (here - start) // period + 1
        if layers >= _FEWEST:
            yield start, start + layers * period
        start = here + 1


def _reads_alike(first: ir.Node, second: ir.Node, positions: Mapping[ir.Node, int]) -> bool:
    """True if two nodes with equal marks read the same, or what is as far above each of them."""
    distance = positions[second] - positions[first]
    for one, other in zip(first.inputs, second.inputs, strict=True):
        if one is other or one is None or other is None:
            continue
        above, beyond = one.producer(), other.producer()
        if above is None and beyond is None:  # inputs or constants, which their marks tell
            continue
        if above is None or beyond is None or one.index() != other.index():
            return False
        if above not in positions or beyond not in positions or positions[beyond] - positions[above] != distance:
            return False
    return True


class Marks:
    """Numbers for nodes, equal for those that are the same but for the names and the places of what they read.

    Args:
        facts: The facts about the values of the nodes' graph.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._numbers: dict[Hashable, int] = {}
        self._tensors: dict[int, tuple[ir.TensorProtocol, Hashable]] = {}

    def of(self, node: ir.Node) -> int:
        """The number of a node; one with a graph inside is like no other."""
        own = attributes(node)
        if any(a.type in _GRAPHS for a in own):
            return self._numbers.setdefault(object(), len(self._numbers))
        key = (
            (node.domain, node.op_type, node.overload, node.version),
            tuple([(a.name, a.ref_attr_name, self._attribute(a)) for a in own]),
            tuple([v is None if v is None or v.producer() is not None else self._read(v) for v in node.inputs]),
            tuple(map(self._computed, node.outputs)),
        )
        return self._numbers.setdefault(key, len(self._numbers))

    def _read(self, value: ir.Value) -> Hashable:
        tensor = value.const_value
        return self._tensor(tensor) if tensor is not None else None, self._computed(value)

    def _computed(self, value: ir.Value) -> Hashable:
        """All that is known of a value, and how it is used."""
        shape = value.shape
        dims = None if shape is None else tuple([d if isinstance(d, int) else self._symbol(d) for d in shape.dims])
        kind = value.type
        told = kind.dtype if type(kind) is ir.TensorType else kind  # what hashes at once, where it can be told
        return told, dims, use_count(value), value.is_graph_output()

    def _symbol(self, dim: ir.SymbolicDim) -> str | None:
        return None if self._facts.is_made_up(dim) else dim.value

    def _attribute(self, attribute: ir.Attr) -> Hashable:
        value = attribute.value
        if attribute.type == ir.AttributeType.TENSOR and value is not None:
            return self._tensor(value)
        if isinstance(value, int | float | str):
            return value
        return tuple(value) if attribute.type in _NUMBERS else repr(value)

    def _tensor(self, tensor: ir.TensorProtocol) -> Hashable:
        """All that two constants have in common if they are alike."""
        known = self._tensors.get(id(tensor))
        if known is None:
            content = tensor.dtype, tuple(tensor.shape), _elements(tensor)
            known = self._tensors[id(tensor)] = tensor, content  # which keeps the tensor, and so its id
        return known[1]


def _elements(tensor: ir.TensorProtocol) -> bytes | None:
    """The bytes of a constant that is no weight: of integers, or one number again and again."""
    if tensor.size > _SMALL or tensor.dtype == ir.DataType.STRING:
        return None
    data, width = tensor.tobytes(), math.ceil(tensor.dtype.itemsize)
    is_one = data[width:] == data[:-width]
    return data if is_one or not tensor.dtype.is_floating_point() else None
