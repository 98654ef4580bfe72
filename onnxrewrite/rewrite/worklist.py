"""What the driver has still to do: rules by operator, nodes waiting to be visited, and rules that go in circles."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence

import onnx_ir as ir

from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Key

_SPAN = 24
"""A chain has so many nodes: those that an n-ary term of a pattern spans."""

_CHAINED = frozenset("Add Sub Sum Neg Mul Div Reciprocal Pow Identity Cast".split())

_LOOP = 32
"""A rule that rewrites one value so often, while the graph gets no smaller, is in a loop."""

_PER_NODE, _AT_LEAST = 4, 64
"""A rule that is applied so often per node, and a few times more, while the graph gets no smaller, never ends."""


class RuleIndex:
    """Rules by the operator that they are anchored at, by benefit and then by name."""

    def __init__(self, rules: Iterable[Rule]):
        ranked = sorted(rules, key=lambda r: (-r.benefit, r.name))
        operators = {op_type for r in ranked for op_type in r.anchors or ()}
        self._anywhere = [r for r in ranked if r.anchors is None]
        self._by_operator = {o: [r for r in ranked if r.anchors is None or o in r.anchors] for o in operators}

    def at(self, node: ir.Node) -> Sequence[Rule]:
        """The rules that could match at ``node``."""
        return self._by_operator.get(node.op_type, self._anywhere)


class Worklist:
    """Nodes to visit, in order, each waiting at most once."""

    def __init__(self, nodes: Iterable[ir.Node]):
        self._queue: deque[ir.Node] = deque()
        self._waiting: set[ir.Node] = set()
        self.extend(nodes)

    def __len__(self) -> int:
        return len(self._queue)

    def extend(self, nodes: Iterable[ir.Node]) -> None:
        """Let nodes that are in a graph, and not waiting yet, wait."""
        for node in nodes:
            if node not in self._waiting and node.graph is not None:
                self._waiting.add(node)
                self._queue.append(node)

    def pop(self) -> ir.Node:
        """The node that has waited longest."""
        node = self._queue.popleft()
        self._waiting.discard(node)
        return node


class LoopGuard:
    """Finds rules that undo each other: one value rewritten again and again while the graph gets no smaller.  A rule
    that never comes back to a value, for it makes new ones all the time, is stopped altogether.

    Attributes:
        warnings: One line for each loop that was stopped, naming the rules.
    """

    def __init__(self, size: int):
        self.warnings: list[str] = []
        self._size = self._smallest = size
        self._most = _PER_NODE * size + _AT_LEAST
        self._of_rule: Counter[str] = Counter()
        self._endless: set[str] = set()
        self._counts: Counter[Key] = Counter()
        self._stopped: set[Key] = set()

    def has_stopped(self, key: Key) -> bool:
        """Whether a rule may not be applied at a value any more."""
        return key in self._stopped or key[0] in self._endless

    def count(self, key: Key, growth: int) -> None:
        """Count one rewrite, which made the graph larger by ``growth`` nodes."""
        self._size += growth
        if self._size < self._smallest:
            self._smallest = self._size
            self._counts.clear()
            self._of_rule.clear()
        self._of_rule[key[0]] += 1
        if self._of_rule[key[0]] > self._most:
            self._endless.add(key[0])
            self.warnings.append(f"{key[0]} applies to what it makes, without end: stopped after {self._most} rewrites")
        self._counts[key] += 1
        if self._counts[key] > _LOOP:
            partners = {k for k, n in self._counts.items() if n >= _LOOP - 1 and k[1] == key[1]} | {key}
            self._stopped |= partners
            names = " and ".join(sorted({k[0] for k in partners}))
            verb = "undo each other" if len(partners) > 1 else "goes in circles"
            self.warnings.append(f"{names} {verb} at `{key[1]}`: stopped after {_LOOP} rounds")
            self._counts.clear()


def reach(nodes: Iterable[ir.Node], depth: int) -> list[ir.Node]:
    """``nodes`` and what lies up to ``depth`` consumers below them: where a pattern could now match.

    A run of sums, products and what patterns look through counts as one node, for one term can span it.
    """
    found = dict.fromkeys(n for n in nodes if n.graph is not None)
    layer = list(found)
    for _ in range(depth):
        layer = _below(layer, found)
        run = [n for n in layer if n.op_type in _CHAINED]
        for _ in range(_SPAN):
            run = _below(run, found, _CHAINED)
            if not run:
                break
            layer += run
        if not layer:
            break
    return list(found)


def _below(
    nodes: Iterable[ir.Node], found: dict[ir.Node, None], op_types: Container[str] | None = None
) -> list[ir.Node]:
    """The consumers of ``nodes``, of certain operators only, that are not ``found`` yet, which they are then."""
    consumers = dict.fromkeys(c for n in nodes for o in n.outputs for c in o.consumers())
    layer = [c for c in consumers if c not in found and (op_types is None or c.op_type in op_types)]
    found.update(dict.fromkeys(layer))
    return layer
