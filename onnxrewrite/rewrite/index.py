"""All rules of a stage in one decision tree."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.skip_identity import TRANSPARENT
from onnxrewrite.pattern.finder import Patterns, View
from onnxrewrite.rewrite.reach import Reach, anchors, inner, span
from onnxrewrite.rewrite.rule import Rule, Stage


@functools.lru_cache(maxsize=16)
def index(rules: tuple[Rule, ...]) -> RuleIndex:
    """The index of some rules, made once: every rewrite is tried by a driver of its own, with the same rules."""
    return RuleIndex(rules)


class RuleIndex:
    """Rules that are looked for all at once, and tried by benefit, then by name.

    Attributes:
        rules: The rules in this order.
        reach: The nodes at which they could match after a change.
    """

    def __init__(self, rules: Iterable[Rule]):
        self.rules = sorted(rules, key=lambda r: (-r.benefit, r.name))
        self.reach = Reach(self.rules)
        self._rank = {rule: rank for rank, rule in enumerate(self.rules)}
        self._preceding: dict[tuple[Rule, frozenset[str]], frozenset[Rule]] = {}
        self._patterns = Patterns((rule.outputs[0], rule) for rule in self.rules)

    def preceding(self, rule: Rule, nodes: Iterable[ir.Node]) -> frozenset[Rule]:
        """The rules of which some match may have to be tried before one of this rule that covers ``nodes``: see
        ``precedes``."""
        covered = frozenset(node.op_type for node in nodes).difference(TRANSPARENT)
        if (rule, covered) not in self._preceding:
            tops = anchors(rule.outputs[0])
            self._preceding[rule, covered] = frozenset(
                other
                for other in self.rules
                if rule.name in other.before
                or (
                    other is not rule
                    and other.stage == rule.stage != Stage.CANONICALIZE
                    and (tops is None or any(o in tops or o is None for t in other.outputs for o in inner(t)))
                    and _can_cover(other, covered)
                )
            )
        return self._preceding[rule, covered]

    def view(self, facts: Facts, graph: ir.Graph | None) -> View[Rule]:
        """One graph as these rules see it."""
        return self._patterns.view(facts, graph)

    def at(self, view: View[Rule], node: ir.Node) -> list[tuple[Rule, ir.Value]]:
        """The rules that can match at a node, each with the output that would be its anchor."""
        found = [(rule, output) for output in node.outputs for rule in view.at(output)]
        if len(node.outputs) > 1:
            found.sort(key=lambda hit: self._rank[hit[0]])
        return found


def _can_cover(rule: Rule, op_types: frozenset[str]) -> bool:
    """True if a match of ``rule`` can cover nodes of all these operators, as far as the pattern's operators tell."""
    spanned = frozenset[str | None]().union(*map(span, rule.outputs))
    return None in spanned or op_types <= spanned


def precedes(other: Rule, around: Collection[ir.Node], rule: Rule, nodes: Collection[ir.Node]) -> bool:
    """True if a match of ``other``, which covers the nodes ``around``, is tried before one of ``rule``.

    If neither rule says which goes first, it is the one that covers more: a large fusion is not lost to a small one
    inside.  Canonicalizations do not ask, for what covers little of a graph makes it canonical as well.
    """
    around = frozenset(around)
    if rule.name in other.before:
        return not around.isdisjoint(nodes)
    return other.stage == rule.stage != Stage.CANONICALIZE and other.name not in rule.before and around > set(nodes)
