"""Subgraphs that recur, grown from one node by the neighbours that most of their places have.

All places grow at once, and each node is looked at a bounded number of times, so that the time is in proportion to the
graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import onnx_ir as ir

from onnxrewrite.authoring.unmatched import Label, Left
from onnxrewrite.ir.graph import use_count
from onnxrewrite.ir.skip_identity import resolve

MOST = 24
"""A subgraph grows to so many nodes."""

_BEGINNINGS = 3
"""From each operator it grows in so many first directions."""

_READERS = 4
"""A value that more nodes read is no inner value of a pattern."""

Step: TypeAlias = tuple[int, bool, int, int, Label]
"""A way from a node of a subgraph to a neighbour: the node's number, whether it reads the neighbour, the places."""


class _Occurrence:
    """One place of a subgraph that grows."""

    def __init__(self, left: Left, node: ir.Node):
        self.left = left
        self.nodes: list[ir.Node] = []
        self.steps: dict[Step, ir.Node] = {}
        self.add(node)

    def add(self, node: ir.Node) -> None:
        """Take a node in, with the ways that lead on from it."""
        number = len(self.nodes)
        self.nodes.append(node)
        for step, other in _neighbours(self.left, node, number):
            if other not in self.nodes:
                self.steps.setdefault(step, other)
        self.steps = {s: n for s, n in self.steps.items() if n is not node}

    def copy(self) -> _Occurrence:
        """One that grows on its own."""
        made = _Occurrence.__new__(_Occurrence)
        made.left, made.nodes, made.steps = self.left, list(self.nodes), dict(self.steps)
        return made


def _neighbours(left: Left, node: ir.Node, number: int) -> Iterator[tuple[Step, ir.Node]]:
    """The ways from a node to others that no rule has taken."""
    for place, value in enumerate(node.inputs):
        source = resolve(value) if value is not None else None
        producer = source.producer() if source is not None else None
        if source is None or producer not in left.labels or producer is node or producer.graph is not node.graph:
            continue
        if use_count(source) <= _READERS:
            yield (number, True, place, source.index() or 0, left.labels[producer]), producer
    for value in node.outputs:
        uses = value.uses() if use_count(value) <= _READERS else ()
        for reader, place in sorted(uses, key=lambda u: (left.order[u[0]], u[1])):
            if reader in left.labels and reader.graph is node.graph:
                yield (number, False, place, value.index() or 0, left.labels[reader]), reader


class Grown(NamedTuple):
    """A subgraph at one size."""

    occurrences: tuple[tuple[Left, tuple[ir.Node, ...]], ...]
    weight: float


def grown(left: Sequence[Left]) -> list[Grown]:
    """Subgraphs of all beginnings and sizes."""
    beginnings: dict[Label, list[_Occurrence]] = defaultdict(list)
    for each in left:
        for node, label in each.labels.items():
            beginnings[label].append(_Occurrence(each, node))
    found: list[Grown] = []
    for occurrences in beginnings.values():
        often = Counter(step for o in occurrences for step in o.steps)
        first = sorted((s for s, n in often.items() if n > 1), key=lambda s: (-often[s], repr(s)))
        for step in first[:_BEGINNINGS]:
            found += _grow([o.copy() for o in occurrences], step)
    return found


def _grow(occurrences: list[_Occurrence], step: Step | None) -> Iterator[Grown]:
    """One subgraph at every size at which to go on would lose some of its places."""
    last: Grown | None = None
    while step is not None and len(occurrences[0].nodes) < MOST:
        occurrences = _extended(occurrences, step)
        if len(occurrences) < 2:
            break
        if last is not None and len(occurrences) < len(last.occurrences):
            yield last
        weight = sum(o.left.weights.get(n, 0.0) for o in occurrences for n in o.nodes)
        last = Grown(tuple((o.left, tuple(o.nodes)) for o in occurrences), weight)
        often = Counter(s for o in occurrences for s in o.steps)
        step = min((s for s, n in often.items() if n > 1), key=lambda s: (-often[s], repr(s)), default=None)
    if last is not None:
        yield last


def _extended(occurrences: Iterable[_Occurrence], step: Step) -> list[_Occurrence]:
    """Those that can take the step, as long as no two have a node in common."""
    kept: list[_Occurrence] = []
    taken: set[ir.Node] = set()
    for each in occurrences:
        other = each.steps.get(step)
        if other is None or other in taken or not taken.isdisjoint(each.nodes):
            continue
        each.add(other)
        taken.update(each.nodes)
        kept.append(each)
    return kept
