"""Explains why a rule does not apply: every place where it came near, and the first thing that is wrong there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.errors import UsageError
from onnxrewrite.explanation.condition_replay import Place, Replay
from onnxrewrite.explanation.near_miss import Explanation, Near, grouped, source_of
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver, make_runnable
from onnxrewrite.rewrite.rule import ON_REQUEST, Assumption, Rule, Stage
from onnxrewrite.rewrite.trace import Trace


def only_rule(library: registry.Registry, name: str) -> Rule:
    """The rule of that name; UsageError if there is none, or a set of several."""
    found = list(library.named(name))
    if len(found) != 1:
        raise UsageError(f"{name} is a set of {len(found)} rules; explain one of them")
    return found[0]


class Explainer:
    """Explains rules on one model.

    Args:
        model: The model, as loaded; it is not changed.
        rules: All rules.
        target: The target that the result must run on.
        check: True to run what would be.
        withheld: The assumptions that no rule may make.
    """

    def __init__(
        self,
        model: ir.Model,
        rules: Sequence[Rule],
        target: str,
        *,
        check: bool = True,
        withheld: Collection[Assumption] = ON_REQUEST,
    ):
        self.model = model
        self.rules = rules
        self.target = target_by_name(target)
        self._check = check
        self._withheld = withheld

    def explain(self, rule: Rule, at: str | None = None) -> Explanation:
        """Explain where ``rule`` applies or came near; only at the node ``at`` if it is given.

        Raises:
            UsageError: There is no such node.
        """
        if at is not None and not any(at in (n.name, *(o.name for o in n.outputs)) for n in _nodes(self.model)):
            raise UsageError(f"no node and no value is called '{at}'; onnxrewrite inspect --text shows all names")
        before, after = self._around_stage(rule.stage)
        return self._explain(rule, (after, before), at)

    def explain_all(self) -> Iterator[Explanation]:
        """Explain where each rule came near, stage by stage."""
        for stage in Stage:
            states = self._around_stage(stage)[1:]
            yield from (self._explain(rule, states, None, thorough=False) for rule in self.rules if rule.stage == stage)

    def explain_as_is(self, stage: Stage) -> Iterator[Explanation]:
        """Explain where each rule of a stage comes near in the model as it is: for one that is rewritten already."""
        driver = self._driver(self.model)
        yield from (self._explain(rule, (driver,), None, thorough=False) for rule in self.rules if rule.stage == stage)

    def _around_stage(self, stage: Stage) -> tuple[Driver, Driver]:
        """The model as a stage finds it, and as it leaves it."""
        driver = self._driver(self.model)
        if stage > Stage.CANONICALIZE:
            driver.run(Stage(stage - 1))
        before = self._driver(driver.model)
        driver.run(stage, stage)
        return before, driver

    def _driver(self, model: ir.Model) -> Driver:
        return Driver(io.load(model), self.rules, self.target, withheld=self._withheld)

    def _explain(self, rule: Rule, states: Sequence[Driver], at: str | None, *, thorough: bool = True) -> Explanation:
        """The explanation of a rule in several states of the model, of which the first is the last in time."""
        checker = self._checker() if self._check else None
        found = [(r, p) for r in (Replay(rule, d, checker, thorough) for d in states) for p in r.places(at)]
        trace = states[0].trace
        if at is not None:
            found = _around(found, at)
        applied = tuple(a.value for a in trace.applied if a.rule == rule.name)
        return Explanation(rule.name, applied, grouped(_told(found, trace, rule)), self._newer(trace))

    def _newer(self, trace: Trace) -> dict[str, int]:
        """The operators for which ``apply`` would look for a newer opset, as far as rules were run."""
        if self.target.portable or not self.target.knows_kernels:
            return {}
        wished = trace.too_new | trace.wished
        return {name: opset for name, opset in sorted(wished.items()) if opset <= self.target.opset_max}

    def _checker(self) -> SiteChecker:
        return SiteChecker(lower=lambda model: make_runnable(model, self.rules, self.target))


def _nodes(model: ir.Model) -> list[ir.Node]:
    return [n for graph in scopes(model) for n in graph]


def _around(found: Sequence[tuple[Replay, Place]], at: str) -> list[tuple[Replay, Place]]:
    """The findings about one node: as the anchor, or as a part of what has another one, or at all."""
    anchored = [(r, p) for r, p in found if at in (p.value.name, *(n.name for n in (p.value.producer(),) if n))]
    names = {n.name for _, p in anchored for n in (p.value.producer(),) if n is not None} | {at}
    near = [(r, p) for r, p in anchored if p.is_near]
    within = [(r, p) for r, p in found if p.is_near and p.nodes & names]
    if all(p.near is not None and p.near.missing for _, p in near):  # a part of a pattern that is all there elsewhere
        near = [(r, p) for r, p in within if p.near is not None and not p.near.missing] or near
    return near or within or anchored


def _told(found: Iterable[tuple[Replay, Place]], trace: Trace, rule: Rule) -> Iterator[Near]:
    """The places to tell, each once: what has most of its nodes in a better one is left out, as is where the rule
    applies; where it could have and another rule came first, that is told."""
    taken, whole = set[str](), set[str]()
    own = {name for a in trace.applied if a.rule == rule.name for name in a.before}
    for replay, place in sorted(found, key=lambda each: each[1].rank):
        name = place.value.name or ""
        if name in whole or (place.rank[0] and 2 * len(place.nodes & taken) > len(place.nodes)):
            continue
        is_past = replay.driver.trace is not trace
        if is_past and 2 * len(place.nodes & own) > len(place.nodes):
            continue
        taken |= place.nodes
        whole |= set() if place.rank[0] else {name}
        other = _taker(trace, place.nodes, rule) if is_past else ""
        if place.near is not None:
            near = replay.told(place)
            yield replace(near, reason=f"{near.reason}; {other}") if other else near
        elif other:
            node = place.value.producer()
            assert node is not None
            size = len(place.nodes)
            yield Near(name, node.name or "", source_of(node), size, size, other, is_guard=True)


def _taker(trace: Trace, nodes: frozenset[str], rule: Rule) -> str:
    """The other rule that has taken one of these nodes, as a sentence; empty if none has."""
    for applied in trace.applied:
        covered = [name for name in applied.before if name in nodes]
        if applied.rule != rule.name and covered:
            could_precede = applied.stage == rule.stage.name.lower() and applied.rule not in rule.before
            way = f'; before=("{applied.rule}",) lets {rule.name} go first' if could_precede else ""
            return f"{applied.rule} has taken `{covered[0]}` first, at `{applied.value}`{way}"
    return ""
