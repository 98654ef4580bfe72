"""The driver's worklist of nodes to visit, and the guard that stops rules that go in circles."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable

import onnx_ir as ir

from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Key

_LOOP = 32
"""A rule that rewrites one value so often, while the graph gets no smaller, is in a loop."""

_PER_NODE, _AT_LEAST = 4, 64
"""A rule that is applied so often per node, and a few times more, while the graph gets no smaller, never ends."""


class Worklist:
    """Nodes to visit, each waiting at most once, round by round in the order in which they are computed.

    What comes in further down than the node visited last still has its turn in this round, so that a node is looked at
    when nothing above it is left to do; what comes in above waits for the next, so that it is looked at once for all
    that happens below.

    Args:
        nodes: All nodes, which wait from the start.
        rank: The place of a node in that order.
    """

    def __init__(self, nodes: Iterable[ir.Node], rank: Callable[[ir.Node], int]):
        self._rank = rank
        self._queue: list[tuple[int, int, int, ir.Node]] = []
        self._waiting: set[ir.Node] = set()
        self._changed: set[ir.Node] = set()
        self._count = itertools.count()
        self._here = (0, 0)
        self.extend(nodes)
        self._changed.clear()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def turn(self) -> int:
        """The number of the round."""
        return self._here[0]

    def extend(self, nodes: Iterable[ir.Node]) -> None:
        """Let nodes that are in a graph, and not waiting yet, wait."""
        turn, here = self._here
        for node in nodes:
            if node.graph is None:
                continue
            self._changed.add(node)
            if node not in self._waiting:
                self._waiting.add(node)
                rank = self._rank(node)
                heapq.heappush(self._queue, (turn + (rank < here), rank, next(self._count), node))

    def pop(self) -> tuple[ir.Node, bool]:
        """The node whose turn it is, and whether it has changed since the start."""
        *here, _, node = heapq.heappop(self._queue)
        self._here = (here[0], here[1])
        self._waiting.discard(node)
        return node, node in self._changed


class Refusals:
    """The rules that were refused at nodes, each with the number of rewrites that were applied before.

    A guard can look at any part of the graph, so that any later rewrite can be the one that it waits for.
    """

    def __init__(self) -> None:
        self._noted: dict[ir.Node, dict[Rule, int]] = {}

    def note(self, node: ir.Node, rule: Rule, applied: int) -> None:
        """Keep that a rule was refused."""
        self._noted.setdefault(node, {})[rule] = applied

    def take(self, rules: Container[Rule], before: int) -> dict[ir.Node, set[Rule]]:
        """The nodes at which ``rules`` were refused before so many rewrites were applied, with these; forgets them."""
        found: dict[ir.Node, set[Rule]] = {}
        for node, noted in list(self._noted.items()):
            again = {rule for rule, applied in noted.items() if applied < before and rule in rules}
            left = {rule: applied for rule, applied in noted.items() if rule not in again}
            if again and node.graph is not None:
                found[node] = again
            if left and node.graph is not None:
                self._noted[node] = left
            else:
                del self._noted[node]
        return found


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
        """True if a rule may not be applied at a value any more."""
        return key in self._stopped or key[0] in self._endless

    def stop(self, rule: str) -> None:
        """Let a rule not be applied any more."""
        self._endless.add(rule)

    def count(self, key: Key, growth: int) -> None:
        """Count one rewrite, which made the graph larger by ``growth`` nodes."""
        self._size += growth
        if self._size < self._smallest:
            self._smallest = self._size
            self._counts.clear()
            self._of_rule.clear()
        self._of_rule[key[0]] += 1
        if self._of_rule[key[0]] > self._most:
            rules = sorted(rule for rule, count in self._of_rule.items() if count > self._most // 2)
            self._endless.update(rules)
            done = "feed each other" if len(rules) > 1 else "applies to what it makes"
            self.warnings.append(f"{' and '.join(rules)} {done}, without end: stopped after {self._most} rewrites")
            self._of_rule.clear()
        self._counts[key] += 1
        if self._counts[key] > _LOOP:
            partners = {k for k, n in self._counts.items() if n >= _LOOP - 1 and k[1] == key[1]} | {key}
            self._stopped |= partners
            names = " and ".join(sorted({k[0] for k in partners}))
            verb = "undo each other" if len(partners) > 1 else "goes in circles"
            self.warnings.append(f"{names} {verb} at `{key[1]}`: stopped after {_LOOP} rounds")
            self._counts.clear()
