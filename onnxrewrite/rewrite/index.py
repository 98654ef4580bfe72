"""All rules of a stage in one decision tree."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.finder import Patterns, View
from onnxrewrite.pattern.look import passes
from onnxrewrite.pattern.match import Match
from onnxrewrite.rewrite.reach import Reach, anchors, covered, inner
from onnxrewrite.rewrite.rule import Rule, Stage


@functools.lru_cache(maxsize=16)
def index(rules: tuple[Rule, ...]) -> RuleIndex:
    """The index of some rules, made once: every rewrite is tried by a driver of its own, with the same rules."""
    return RuleIndex(rules)


class RuleIndex:
    """Rules that are looked for all at once, and tried by benefit, then by name; nothing is prepared before it is asked
    for, as many a model has nothing to lower.

    Attributes:
        rules: The rules in this order.
    """

    def __init__(self, rules: Iterable[Rule]):
        self.rules = sorted(rules, key=lambda r: (-r.benefit, r.name))
        self._rank = {rule: rank for rank, rule in enumerate(self.rules)}
        self._preceding: dict[Rule, frozenset[Rule]] = {}

    @functools.cached_property
    def reach(self) -> Reach:
        """The nodes at which they could match after a change."""
        return Reach(self.rules)

    @functools.cached_property
    def _covered(self) -> dict[Rule, frozenset[str | None]]:
        return {rule: frozenset[str | None]().union(*map(covered, rule.outputs)) for rule in self.rules}

    @functools.cached_property
    def _patterns(self) -> Patterns[Rule]:
        return Patterns((rule.outputs[0], rule) for rule in self.rules)

    def preceding(self, rule: Rule, match: Match) -> Iterator[tuple[ir.Node, frozenset[Rule]]]:
        """Nodes, and the rules of which a match at them may have to be tried before one of this rule: see ``precedes``.

        A match that covers another one covers a way down from its anchor, unless it has several anchors.
        """
        anchor = match.anchor.producer()
        operators = {n.op_type for n in match.nodes if not any(map(passes, n.outputs))}
        around = {o for o in self._around(rule) if None in self._covered[o] or operators <= self._covered[o]}
        beside = frozenset(o for o in self._around(rule) if rule.name in o.before)
        beside |= {o for o in around if len(o.outputs) > 1 or None in self._covered[o]}
        below = frozenset(around - beside)
        if anchor is None:
            return
        nodes = self.reach.after([anchor]) if beside else []
        yield from ((node, beside) for node in nodes if node.graph is anchor.graph)
        for other in sorted(below, key=self._rank.__getitem__):
            nodes = self.reach.below([anchor], other)
            yield from ((node, frozenset((other,))) for node in nodes if node.graph is anchor.graph)

    def _around(self, rule: Rule) -> frozenset[Rule]:
        """The rules of which some match may have to be tried before some match of this rule."""
        if rule not in self._preceding:
            tops = anchors(rule.outputs[0])
            self._preceding[rule] = frozenset(
                other
                for other in self.rules
                if rule.name in other.before
                or (
                    other is not rule
                    and other.stage == rule.stage != Stage.CANONICALIZE
                    and (tops is None or any(o in tops or o is None for t in other.outputs for o in inner(t)))
                )
            )
        return self._preceding[rule]

    def view(self, facts: Facts, graph: ir.Graph | None) -> View[Rule]:
        """One graph as these rules see it."""
        return self._patterns.view(facts, graph)

    def at(self, view: View[Rule], node: ir.Node) -> list[tuple[Rule, ir.Value]]:
        """The rules that can match at a node, each with the output that would be its anchor."""
        found = [(rule, output) for output in node.outputs for rule in view.at(output)]
        if len(node.outputs) > 1:
            found.sort(key=lambda hit: self._rank[hit[0]])
        return found


def precedes(other: Rule, around: Collection[ir.Node], rule: Rule, nodes: Collection[ir.Node]) -> bool:
    """True if a match of ``other``, which covers the nodes ``around``, is tried before one of ``rule``.

    If neither rule says which goes first, it is the one that covers more: a large fusion is not lost to a small one
    inside.  Canonicalizations do not ask, for what covers little of a graph makes it canonical as well.
    """
    if rule.name in other.before:
        return not set(around).isdisjoint(nodes)
    return (
        other.stage == rule.stage != Stage.CANONICALIZE and other.name not in rule.before and set(nodes) < set(around)
    )
