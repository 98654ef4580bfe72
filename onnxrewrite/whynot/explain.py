"""Why a rule does not apply: every place where it came near, and the first thing that is not as it must be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.ir import io
from onnxrewrite.ir.convert import in_opset
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.pattern.match import Match, Refused, overruled
from onnxrewrite.pattern.misses import Misses
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver, make_runnable
from onnxrewrite.rewrite.reach import anchors
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.transaction import telling
from onnxrewrite.verify.rewrites import SiteChecker
from onnxrewrite.whynot.forgive import Forgiving, WrongAnchor
from onnxrewrite.whynot.near import Explanation, Near, count, grouped, source_of
from onnxrewrite.whynot.place import placed, with_maker

_MATCHES = 16
"""So many ways to match at one value are tried."""


def explain(
    model: io.Source,
    rule: str | Rule,
    *,
    rules: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    opset: int | None = None,
    at: str | None = None,
    check: bool = True,
) -> Explanation:
    """Where a rule applies in a model, where it came near, and what kept it there.

    The rule sees the model as it does in ``apply``: after the stages before its own, beside the other rules.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        rule: A rule, or its name.
        rules: Files or packages with rules beside the library's.
        target: What the result must run on.
        opset: Convert the model to this ai.onnx opset first.
        at: Only at this node, or the node that computes the value of this name.
        check: Also run what would come of it without the first requirement that fails.

    Raises:
        UsageError, ModelError, RuleError: Bad arguments, model or rules; no such node.
    """
    library = registry.load(rules)
    if isinstance(rule, Rule) and rule not in list(library):
        library.add([rule])
    subject = rule if isinstance(rule, Rule) else only_rule(library, rule)
    loaded = in_opset(io.load(model), opset)
    return Explainer(loaded, list(library), target, check=check).explain(subject, at)


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
        target: What the result must run on.
        check: Whether to run what would be.
    """

    def __init__(self, model: ir.Model, rules: Sequence[Rule], target: str, *, check: bool = True):
        self.model = model
        self.rules = rules
        self.target = target_by_name(target)
        self._check = check

    def explain(self, rule: Rule, at: str | None = None) -> Explanation:
        """Where ``rule`` came near; only at the node ``at`` if it is given.

        Raises:
            UsageError: There is no such node.
        """
        if at is not None and not any(at in (n.name, *(o.name for o in n.outputs)) for n in _nodes(self.model)):
            raise UsageError(f"no node and no value is called '{at}'; onnxrewrite inspect --text shows all names")
        return self._explain(rule, self._driver(rule.stage), at)

    def explain_all(self) -> Iterator[Explanation]:
        """Where each rule came near, stage by stage."""
        for stage in Stage:
            driver = self._driver(stage)
            yield from (self._explain(rule, driver, None, thorough=False) for rule in self.rules if rule.stage == stage)

    def explain_as_is(self, stage: Stage) -> Iterator[Explanation]:
        """Where each rule of a stage comes near in the model as it is: for one that is rewritten already."""
        driver = Driver(io.load(self.model), self.rules, self.target)
        yield from (self._explain(rule, driver, None) for rule in self.rules if rule.stage == stage)

    def _driver(self, stage: Stage) -> Driver:
        """A copy of the model after a stage."""
        driver = Driver(io.load(self.model), self.rules, self.target)
        driver.run(stage)
        return driver

    def _explain(self, rule: Rule, driver: Driver, at: str | None, *, thorough: bool = True) -> Explanation:
        found = _Replay(rule, driver, self._checker() if self._check else None, thorough).near(at)
        applied = tuple(a.value for a in driver.trace.applied if a.rule == rule.name)
        return Explanation(rule.name, applied, grouped(found))

    def _checker(self) -> SiteChecker:
        return SiteChecker(lower=lambda model: make_runnable(model, self.rules, self.target))


def _nodes(model: ir.Model) -> list[ir.Node]:
    return [n for graph in scopes(model) for n in graph]


@dataclass
class _Replay:
    """The predicates of one rule once more, this time with their reasons; ``thorough`` at nodes of other operators than
    its anchor's, too."""

    rule: Rule
    driver: Driver
    checker: SiteChecker | None
    thorough: bool
    nodes: dict[ir.Graph, dict[str, ir.Node]] = field(default_factory=dict)

    def near(self, at: str | None) -> Iterator[Near]:
        """Every place where the rule came near; what was asked for, however far that is."""
        possible = anchors(self.rule.outputs[0])
        for graph in scopes(self.driver.model):
            for node, value in [(n, o) for n in graph for o in n.outputs]:
                if at is None and possible is not None and node.op_type not in possible:
                    found = self._mistaken(graph, node, value) if self.thorough else None
                else:
                    found = self._at(graph, node, value) if at in (None, node.name, value.name) else None
                if found is not None and (at is not None or _is_near(found)):
                    yield found

    def _mistaken(self, graph: ir.Graph, node: ir.Node, value: ir.Value) -> Near | None:
        """A place where everything is there but the anchor's own operator."""
        wrong = WrongAnchor(self.driver.facts(graph), graph).matches(self.rule.outputs, value)
        if next(wrong, None) is None:
            return None
        misses = Misses()
        for _ in RecursiveMatcher(self.driver.facts(graph), graph, misses).matches(self.rule.outputs, value):
            return None
        _, operators = count(self.rule.outputs, misses.binding)
        near = partial(Near, value=value.name or "", node=node.name or "", source=source_of(node))
        return near(matched=operators - 1, operators=operators, reason=misses.reason) if operators > 2 else None

    def _at(self, graph: ir.Graph, node: ir.Node, value: ir.Value) -> Near | None:
        """Why the rule does not apply at one value; None where it is not tried."""
        near = partial(Near, value=value.name or "", node=node.name or "", source=source_of(node))
        misses = Misses()
        matcher = RecursiveMatcher(self.driver.facts(graph), graph, misses)
        refused = dict[Refused, Match]()
        for match in islice(matcher.matches(self.rule.outputs, value), _MATCHES):
            refusal = self._refusal(match, graph)
            if refusal is None:
                return None
            refused[refusal] = match
        if refused:
            told = telling(list(refused))
            match = refused[told]
            otherwise = self._overruled(match, graph)
            _, operators = count(self.rule.outputs, misses.binding)
            reason = placed(told, match, self.driver.facts(graph))
            full = near(matched=operators, operators=operators, reason=reason, is_guard=True)
            return replace(full, held=told.held or 0, otherwise=otherwise)
        if not misses.reason:
            return None
        matched, operators = count(self.rule.outputs, misses.binding)
        otherwise = self._forgiven(misses, graph, value)
        lacking = near(
            matched=min(matched, operators), operators=operators, reason=with_maker(misses.reason, self._named(graph))
        )
        return replace(lacking, stands=misses.progress[1], otherwise=otherwise)

    def _named(self, graph: ir.Graph) -> dict[str, ir.Node]:
        """The nodes of a graph by their names, looked up once: a large model comes near at many places."""
        if graph not in self.nodes:
            self.nodes[graph] = {n.name or "": n for n in graph}
        return self.nodes[graph]

    def _refusal(self, match: Match, graph: ir.Graph) -> Refused | None:
        transaction = self.driver.transaction(self.rule, match, graph)
        try:
            transaction.propose()
        except Refused as refused:
            return refused.with_traceback(None)
        finally:
            transaction.discard()
        return None

    # -- what would be ---------------------------------------------------------------------------------------

    def _overruled(self, match: Match, graph: ir.Graph) -> str:
        """What comes of a match whose preconditions all pass."""
        with overruled():
            return self._outcome(match, graph)

    def _forgiven(self, misses: Misses, graph: ir.Graph, value: ir.Value) -> str:
        """What comes of the pattern without the part that is not there."""
        if misses.item is None or self.checker is None:
            return ""
        matcher = Forgiving(self.driver.facts(graph), graph, misses.item)
        match = next(matcher.matches(self.rule.outputs, value), None)
        return "" if match is None else self._outcome(match, graph)

    def _outcome(self, match: Match, graph: ir.Graph) -> str:
        """What the check says of a rewrite; empty where it cannot be asked."""
        if self.checker is None:
            return ""
        transaction = self.driver.transaction(self.rule, match, graph)
        try:
            transaction.propose()
            wrong = self.checker(transaction.site())
        except Refused as refused:
            return f"it would be refused: {refused.reason}"
        finally:
            transaction.discard()
        if wrong is not None:
            return f"it would be wrong: {wrong}"
        ran = self.checker.last.status == "ok"
        return "it would be equal" if ran else f"it could not be run: {self.checker.last.reason}"


def _is_near(found: Near) -> bool:
    """Whether at least half of the operators are there."""
    return found.is_guard or (found.matched > 0 and 2 * found.matched >= found.operators)
