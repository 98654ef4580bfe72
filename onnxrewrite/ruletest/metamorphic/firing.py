"""Trying one rule alone on a model: where it applies, or why not; the lower stage makes legal what it raises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import target
from onnxrewrite.pattern.finder import Matcher
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.misses import Misses
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rewrite.driver import Driver, Review, SiteCheck
from onnxrewrite.rewrite.index import index
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.trace import Site

_TIDYING = frozenset({"identity", "cast-to-own-dtype", "fold-constants", "merge-equal-nodes"})


def matches(rule: Rule, facts: Facts, graph: ir.Graph, value: ir.Value) -> Iterator[Match]:
    """Every match of a rule's pattern at one value.  The one place that says which matcher is asked."""
    view = index((rule,)).view(facts, graph)
    return (match for each in view.at(value) for match in Matcher(view).matches(each.outputs, value))


@dataclass(frozen=True)
class Trial:
    """A rule on trial.

    Args:
        rule: The rule.
        lowering: The rules of the lower stage, this one left out.
        target: The name of what results must run on.
        tidying: The rules that take away what does nothing, this one left out.
    """

    rule: Rule
    lowering: tuple[Rule, ...]
    target: str
    tidying: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, rule: Rule, library: Sequence[Rule], target: str) -> Trial:
        """With the lower stage of a whole library, and with what its first stage does to any spelling."""
        others = [r for r in library if r is not rule]
        lowering = tuple(r for r in others if r.stage is Stage.LOWER)
        return cls(rule, lowering, target, tuple(r for r in others if r.name in _TIDYING))

    def drive(self, model: ir.Model, check: SiteCheck | None = None) -> Driver:
        """Run the rule on a copy of the model, to its fixpoint."""
        return self._run(model, [self.rule], check)

    def tidied(self, model: ir.Model) -> ir.Model:
        """A copy without what does nothing: Identities, Casts to the dtype that is there, what is there twice."""
        return self._run(model, self.tidying, None).model

    def _run(self, model: ir.Model, rules: Sequence[Rule], check: SiteCheck | None) -> Driver:
        copy = io.load(model)
        schema.date(copy)
        driver = Driver(copy, [*rules, *self.lowering], target(self.target), review=Review(check), withheld=())
        driver.run_stage(self.rule.stage, rules)
        return driver

    def sites(self, model: ir.Model) -> dict[str, Site]:
        """The places where the rule applies as the model stands: the value's name to the first site there."""
        found: dict[str, Site] = {}

        def veto(site: Site) -> str:
            found.setdefault(site.value, site)
            return "only asked"

        self.drive(model, veto)
        return found

    def fires(self, model: ir.Model, at: frozenset[str]) -> bool:
        """True if the rule takes one of these values in: as the model stands, or as the first stage leaves it."""
        return self._fires(model, at) or self._fires(self.tidied(model), at)

    def _fires(self, model: ir.Model, at: frozenset[str]) -> bool:
        """At once, or after the rule has applied elsewhere."""
        covered = (n for site in self.sites(model).values() for n in site.before)
        if any(o.name in at for n in covered for o in n.outputs):
            return True
        return any(a.rule == self.rule.name and a.value in at for a in self.drive(model).trace.applied)

    def rewritten(self, model: ir.Model) -> ir.Model | None:
        """The model after the rule and the lower stage; None where the rule does not apply."""
        driver = self.drive(model)
        if not any(a.rule == self.rule.name for a in driver.trace.applied):
            return None
        if self.rule.stage is not Stage.LOWER:
            driver.run_stage(Stage.LOWER, self.lowering)
        return driver.model


def why_not(rule: Rule, driver: Driver) -> str:
    """The reason why a rule does not apply to the driver's model: its refusal, an exception, or its nearest miss."""
    refused = driver.trace.refused.get(rule.name)
    if refused:
        return " | ".join(refused.values())
    of_rule = f"{rule.name}: "
    raised = next((w for w in driver.trace.warnings if w.startswith(of_rule)), None)
    if raised is not None:
        return raised.removeprefix(of_rule)
    misses = Misses()
    for graph in scopes(driver.model):
        matcher = RecursiveMatcher(driver.facts(graph), graph, misses)
        values: list[ir.Value] = [o for n in graph for o in n.outputs]
        for value in values:
            for _ in matcher.matches(rule.outputs, value):
                return "it matches"
    return misses.reason or "no operator of the pattern is there"
