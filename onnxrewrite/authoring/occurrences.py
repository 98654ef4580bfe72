"""Further places in a graph where the operators of a region stand in the same arrangement.

Two arrangements are the same if they differ in nothing but what a pattern can capture: values at the border, constants,
sizes, attributes; and, where everything else agrees, in the operator at one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

import onnx_ir as ir

from onnxrewrite.authoring.region import Region, leak, reads, sizes, watched
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.skip_identity import resolve
from onnxrewrite.pattern.look import COMMUTATIVE

Use: TypeAlias = tuple[ir.Node, int]
"""An input of a node of the region."""

_ALIKE = 4
"""So many operators must agree besides one that differs."""

_STEPS = 40
"""So many comparisons are made for each node of the region before a place is given up."""

_NEAREST = 32
"""So many nodes are tried for each further output."""


@dataclass(frozen=True)
class Place:
    """The region, or a place where it recurs.

    Attributes:
        graph: The graph that it is in.
        nodes: Each node of the region to the one in its place.
        leaves: The value at each input of the region that no node of it computes; None for an absent one.
        outputs: The values that stand for the region's outputs.
        odd: The node of the region in whose place there is another operator; None where all agree.
        watched: Inner values whose shapes are asked for outside.
    """

    graph: ir.Graph
    nodes: Mapping[ir.Node, ir.Node]
    leaves: Mapping[Use, ir.Value | None]
    outputs: tuple[ir.Value, ...]
    odd: ir.Node | None = None
    watched: tuple[ir.Value, ...] = ()


class Shared(NamedTuple):
    """A place that cannot be rewritten, for an inner value is read outside."""

    place: Place
    value: ir.Value


@dataclass
class Found:
    """The places where a region recurs.

    Attributes:
        places: The region itself first; no two of them have a node in common.
        shared: Places that are the same but for a reader of what is inside.
    """

    places: list[Place] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)


def places(region: Region, graphs: Sequence[tuple[ir.Graph, Facts]]) -> Found:
    """The region and all places where it recurs, in order; exact ones are preferred where two overlap."""
    found = Found()
    taken: set[ir.Node] = set()
    own = next(sizes(graph, facts) for graph, facts in graphs if graph is region.graph)
    _add(found, taken, _Alignment(region, region.graph, lenient=False).at(region.outputs[0]), own)
    for lenient in (False, True) if len(region.nodes) > _ALIKE else (False,):
        for graph, facts in graphs:
            of_shapes = sizes(graph, facts)
            for value in _anchors(region, graph, lenient):
                if value.producer() not in taken:
                    place = _Alignment(region, graph, lenient=lenient).at(value)
                    if place is not None and (place.odd is not None) == lenient:
                        _add(found, taken, place, of_shapes)
    order = {o: i for i, o in enumerate(o for graph, _ in graphs for n in graph for o in n.outputs)}
    found.places[1:] = sorted(found.places[1:], key=lambda p: order[p.outputs[0]])
    return found


def _anchors(region: Region, graph: ir.Graph, lenient: bool) -> Iterator[ir.Value]:
    """The values that could stand for the region's first output."""
    anchor = region.outputs[0]
    node, index = anchor.producer(), anchor.index() or 0
    assert node is not None
    for other in graph:
        if len(other.outputs) > index and (lenient or _same_operator(node, other)):
            yield other.outputs[index]


def _add(found: Found, taken: set[ir.Node], place: Place | None, of_shapes: set[ir.Value]) -> None:
    if place is None or taken.intersection(place.nodes.values()):
        return
    nodes = list(place.nodes.values())
    leaking = leak(nodes, place.outputs, of_shapes)
    if leaking is not None:
        if place.odd is None:
            found.shared.append(Shared(place, leaking[0]))
        return
    taken.update(nodes)
    asked = watched(nodes, place.outputs, of_shapes)
    found.places.append(Place(place.graph, place.nodes, place.leaves, place.outputs, place.odd, asked))


def _same_operator(a: ir.Node, b: ir.Node) -> bool:
    return (a.domain, a.op_type, a.overload, len(a.outputs)) == (b.domain, b.op_type, b.overload, len(b.outputs))


# --------------------------------------------------------------------------------------------------- alignment


class _Task(NamedTuple):
    """Values of the region and of the place that have yet to be compared: a list that branches share."""

    use: Use
    theirs: ir.Value | None
    then: _Task | None


class _Alignment:
    """Lays a region upon one place of a graph, with full backtracking over the order of commutative operands."""

    def __init__(self, region: Region, graph: ir.Graph, *, lenient: bool):
        self.region = region
        self.graph = graph
        self._lenient = lenient
        self._inside = frozenset(region.nodes)
        self._border = frozenset(region.border)
        self._sizes = frozenset(region.sizes)
        self._steps = _STEPS * len(region.nodes)
        self._nodes: dict[ir.Node, ir.Node] = {}
        self._theirs: set[ir.Node] = set()
        self._leaves: dict[Use, ir.Value | None] = {}
        self._values: dict[ir.Value, ir.Value | None] = {}
        self._odd: ir.Node | None = None

    def at(self, value: ir.Value) -> Place | None:
        """The place whose first output is ``value``; None where the region is not there."""
        outputs = [value]
        if not self._output(self.region.outputs[0], value):
            return None
        for mine in self.region.outputs[1:]:
            theirs = next((v for v in self._nearest(mine) if self._output(mine, v)), None)
            if theirs is None:
                return None
            outputs.append(theirs)
        ordered = {n: self._nodes[n] for n in self.region.nodes}
        uses = [(mine, i) for mine, theirs in ordered.items() for i in range(_width(mine, theirs))]
        leaves = {use: self._leaves[use] for use in uses if use in self._leaves}
        return Place(self.graph, ordered, leaves, tuple(outputs), self._odd)

    def _output(self, mine: ir.Value, theirs: ir.Value) -> bool:
        node, other = mine.producer(), resolve(theirs).producer()
        if node is None or other is None or resolve(theirs).index() != mine.index():
            return False
        return self._pair(node, other, None)

    def _nearest(self, mine: ir.Value) -> list[ir.Value]:
        """The values that could stand for a further output, those first that lie as the region's do."""
        node, index, first = mine.producer(), mine.index() or 0, self.region.nodes[0]
        assert node is not None
        known = self._nodes.get(node)
        if known is not None:
            return [known.outputs[index]]
        order = {n: i for i, n in enumerate(self.graph)}
        own = order if self.graph is self.region.graph else {n: i for i, n in enumerate(self.region.graph)}
        anchor = next(n for n in self.region.nodes if n in self._nodes) if first not in self._nodes else first
        expected = order[self._nodes[anchor]] + own[node] - own[anchor]
        same = [n for n in self.graph if _same_operator(node, n)]
        same.sort(key=lambda n: abs(order[n] - expected))
        return [n.outputs[index] for n in islice(same, _NEAREST)]

    # -- comparing ------------------------------------------------------------------------------------------

    def _solve(self, task: _Task | None) -> bool:
        """True if everything left to compare agrees; the notes of a failed attempt are taken back."""
        if task is None:
            return True
        self._steps -= 1
        if self._steps < 0:
            return False
        (node, place), theirs, then = task
        value = node.inputs[place] if place < len(node.inputs) else None
        mine, theirs = (None if v is None else resolve(v) for v in (value, theirs))
        producer = mine.producer() if mine is not None else None
        if mine is None or mine in self._border or mine in self._sizes or producer not in self._inside:
            return self._leaf((node, place), mine, theirs, then)
        other = theirs.producer() if theirs is not None else None
        if other is None or other.graph is not self.graph or theirs is None or theirs.index() != mine.index():
            return False
        assert producer is not None
        return self._pair(producer, other, then)

    def _leaf(self, use: Use, mine: ir.Value | None, theirs: ir.Value | None, then: _Task | None) -> bool:
        """Anything may stand at the border, the same wherever the region reads the same."""
        is_new = mine in self._border and mine not in self._values
        if mine is not None and mine in self._border:
            if theirs is None or self._values.get(mine, theirs) is not theirs:
                return False
            self._values[mine] = theirs
        self._leaves[use] = theirs
        if self._solve(then):
            return True
        del self._leaves[use]
        if is_new and mine is not None:
            del self._values[mine]
        return False

    def _pair(self, mine: ir.Node, theirs: ir.Node, then: _Task | None) -> bool:
        """True if two nodes agree, with all above them in the region, and with everything left to compare."""
        if mine in self._nodes or theirs in self._theirs:
            return self._nodes.get(mine) is theirs and self._solve(then)
        is_odd = not _same_operator(mine, theirs)
        if is_odd and not self._may_be_odd(mine, theirs):
            return False
        if not is_odd and not _same_width(mine, theirs):
            return False
        self._nodes[mine] = theirs
        self._theirs.add(theirs)
        before, self._odd = self._odd, mine if is_odd else self._odd
        if any(self._solve(task) for task in self._orders(mine, theirs, then, is_odd)):
            return True
        del self._nodes[mine]
        self._theirs.remove(theirs)
        self._odd = before
        return False

    def _orders(self, mine: ir.Node, theirs: ir.Node, then: _Task | None, is_odd: bool) -> Iterator[_Task | None]:
        inputs = [*reads(theirs), *[None] * max(len(mine.inputs) - len(theirs.inputs), 0)]
        yield _tasks(mine, inputs, then)
        if mine.op_type in COMMUTATIVE and not mine.domain and not is_odd and len(inputs) == 2:
            yield _tasks(mine, inputs[::-1], then)

    def _may_be_odd(self, mine: ir.Node, theirs: ir.Node) -> bool:
        """True if another operator may stand there: one with the same number of inputs, and one output."""
        counts = len(mine.inputs), len(mine.outputs)
        is_like = counts == (len(theirs.inputs), len(theirs.outputs)) and len(theirs.outputs) == 1
        return self._lenient and self._odd is None and is_like and theirs.op_type not in ("Identity", "Constant")


def _tasks(mine: ir.Node, theirs: Sequence[ir.Value | None], then: _Task | None) -> _Task | None:
    for place in reversed(range(len(theirs))):
        then = _Task((mine, place), theirs[place], then)
    return then


def _width(mine: ir.Node, theirs: ir.Node) -> int:
    return max(len(mine.inputs), len(theirs.inputs))


def _same_width(mine: ir.Node, theirs: ir.Node) -> bool:
    """True if two nodes of one operator have the same number of inputs, but for optional ones."""
    if len(mine.inputs) == len(theirs.inputs):
        return True
    formals = getattr(schema.schema(mine.domain, mine.op_type, mine.version), "inputs", ())
    fewer = min(len(mine.inputs), len(theirs.inputs))
    more = formals[fewer : _width(mine, theirs)]
    return len(more) == _width(mine, theirs) - fewer and all(f.optional for f in more)
