"""All rules of a stage in one decision tree."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.finder import Patterns, View
from onnxrewrite.rewrite.reach import Reach
from onnxrewrite.rewrite.rule import Rule


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
        self._patterns = Patterns((rule.outputs[0], rule) for rule in self.rules)

    def view(self, facts: Facts, graph: ir.Graph | None) -> View[Rule]:
        """One graph as these rules see it."""
        return self._patterns.view(facts, graph)

    def at(self, view: View[Rule], node: ir.Node) -> list[tuple[Rule, ir.Value]]:
        """The rules that can match at a node, each with the output that would be its anchor."""
        found = [(rule, output) for output in node.outputs for rule in view.at(output)]
        if len(node.outputs) > 1:
            found.sort(key=lambda hit: self._rank[hit[0]])
        return found
