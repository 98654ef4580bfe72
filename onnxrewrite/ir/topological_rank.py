"""Dependencies without a walk of the whole graph: nodes are ranked, and kept so while the graph changes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnxrewrite.ir.graph import outer_values, subgraphs, with_inner


class Order:
    """A rank for every node, no smaller than those of the nodes that it depends on.

    What ranks lower than a node cannot depend on it, so that the walk which finds out whether one value depends on
    another ends where the ranks get too low, mostly before it has begun.

    Args:
        graphs: The main graph and the functions' bodies.
        owners: Each subgraph's node, which depends on whatever the nodes inside depend on.

    Attributes:
        is_sorted: True if the nodes of every graph are still in topological order.
    """

    def __init__(self, graphs: Iterable[ir.Graph], owners: Mapping[ir.Graph, ir.Node]):
        self.is_sorted = True
        self._owners = owners
        self._ranks: dict[ir.Node, int] = {}
        for graph in graphs:
            self._number(graph)

    def _number(self, graph: ir.Graph) -> None:
        for node in graph:
            for inner in subgraphs(node):
                self._number(inner)
            self._ranks[node] = len(self._ranks)

    def rank(self, node: ir.Node) -> int:
        """The rank of a node; of one that is not known the highest."""
        return self._ranks.get(node, sys.maxsize)

    def depends_on(self, values: Iterable[ir.Value], targets: Iterable[ir.Value]) -> bool:
        """True if any of ``values`` is computed from one of ``targets``."""
        wanted = {p for v in targets if (p := v.producer()) is not None}
        least = min(map(self.rank, wanted), default=sys.maxsize)
        stack = [v.producer() for v in values]
        seen: set[ir.Node] = set()
        while stack:
            node = stack.pop()
            if node is None or node in seen or self.rank(node) < least:
                continue
            if node in wanted:
                return True
            seen.add(node)
            stack.extend(v.producer() for v in _read(node))
        return False

    def insert(self, nodes: Iterable[ir.Node], anchor: ir.Node) -> None:
        """Rank new nodes, each before its readers, that have come in right before ``anchor``."""
        place = self.rank(anchor)
        inside: set[ir.Node] = set()
        for node in nodes:
            above = [p for v in _read(node) if (p := v.producer()) is not None]
            if any(self.rank(p) >= place for p in above if p not in inside):
                self.is_sorted = False
            self._ranks.update(dict.fromkeys(with_inner([node]), max([place, *map(self.rank, above)])))
            inside.add(node)

    def redirect(self, value: ir.Value, readers: Iterable[ir.Node]) -> None:
        """Let ``readers``, which read ``value`` now, and all that depends on them rank high enough."""
        producer = value.producer()
        stack = [(producer, r) for r in readers] if producer is not None else []
        while stack:
            node, reader = stack.pop()
            rank = self.rank(node)
            above: ir.Node | None = reader
            while above is not None and self.rank(above) <= rank:
                self.is_sorted = False
                if self.rank(above) < rank:
                    self._ranks[above] = rank
                    stack.extend((above, c) for o in above.outputs for c in o.consumers())
                above = self._owners.get(above.graph) if isinstance(above.graph, ir.Graph) else None

    def forget(self, nodes: Iterable[ir.Node]) -> None:
        """Drop nodes that left the graph."""
        for node in nodes:
            self._ranks.pop(node, None)


def _read(node: ir.Node) -> list[ir.Value]:
    """The values that a node and the graphs inside it read."""
    return [v for v in (*node.inputs, *outer_values(node)) if v is not None]
