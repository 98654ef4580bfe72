"""One rule on one state of a model, asked once more everywhere: where it applies, what refuses it, how near it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import onnx_ir as ir

from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.explanation.cover import Cover, Fault
from onnxrewrite.explanation.near_miss import Near, count, source_of
from onnxrewrite.explanation.overlay import Overlay
from onnxrewrite.explanation.place import placed, with_maker
from onnxrewrite.explanation.relaxed import Forgiving
from onnxrewrite.ir.graph import scopes
from onnxrewrite.pattern.match import Match, Refused, overruled
from onnxrewrite.pattern.misses import Misses
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.reach import anchors
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.transaction import Broken, telling

_MATCHES = 16
"""So many ways to match at one value are tried."""


@dataclass(frozen=True)
class Place:
    """The finding about a rule at one value.

    Attributes:
        graph: The graph of the value.
        value: The value that the rule would replace.
        nodes: The names of the nodes of the pattern that are there.
        near: The near miss; None where the rule applies.
        cost: The cost of all that is not as it must be.
        item: The part of the pattern that is not met; None where it is no single one.
    """

    graph: ir.Graph
    value: ir.Value
    nodes: frozenset[str]
    near: Near | None
    cost: float = 0.0
    item: object = None

    @property
    def is_near(self) -> bool:
        """True if the rule applies or is refused, or at least half of the pattern's operators are there."""
        near = self.near
        return near is None or near.is_guard or (near.matched > 0 and 2 * near.matched >= near.operators)

    @property
    def rank(self) -> tuple[bool, float, int, int]:
        """The less is wrong the better: what matches as a whole comes first."""
        return (
            self.near is not None and not self.near.is_guard,
            self.cost,
            -len(self.nodes),
            -(self.near.bound if self.near else 0),
        )


@dataclass
class Replay:
    """The predicates of one rule once more, this time with their reasons.

    Args:
        rule: The rule.
        driver: Has brought the model to the state that is looked at.
        checker: Runs what would be, if given.
        thorough: Wherever any part of the pattern is, not only at its anchor's operators.
    """

    rule: Rule
    driver: Driver
    checker: SiteChecker | None
    thorough: bool
    _nodes: dict[ir.Graph, dict[str, ir.Node]] = field(default_factory=dict)

    def places(self, at: str | None = None) -> Iterator[Place]:
        """The places where the rule applies, is refused, or comes near; any finding about the value or node ``at``."""
        possible = anchors(self.rule.outputs[0])
        for graph in scopes(self.driver.model):
            overlay = Overlay(self.driver.facts(graph), graph)
            for node, value in [(n, o) for n in graph for o in n.outputs]:
                is_asked = at is not None and at in (node.name, value.name)
                is_anchor = possible is None or node.op_type in possible
                plain = self._plainly(graph, node, value) if is_anchor or is_asked else None
                if plain is not None and plain.rank[0] is False:
                    yield plain
                    continue
                laid = self._laid(graph, overlay, node, value) if self.thorough else None
                found = _better(plain, laid)
                if found is not None and (found.is_near or is_asked):
                    yield found

    def told(self, place: Place) -> Near:
        """The near miss at a place where the rule does not apply, with what would come of it without that reason."""
        assert place.near is not None
        if place.near.is_guard or place.item is None:
            return place.near
        return replace(place.near, otherwise=self._forgiven(place.item, place.graph, place.value))

    # -- at one value ----------------------------------------------------------------------------------------

    def _laid(self, graph: ir.Graph, overlay: Overlay, node: ir.Node, value: ir.Value) -> Place | None:
        """The pattern laid over what is there, the anchor right or wrong."""
        cover = overlay.lay(self.rule.outputs, value)
        if not cover.faults or not cover.there:
            return None
        first = next(iter(sorted(cover.faults.values(), key=_telling)))
        reason = with_maker(first.reason, self._named(graph))
        near = Near(
            value=value.name or "",
            node=node.name or "",
            source=source_of(node),
            matched=cover.there,
            operators=cover.operators,
            reason=reason,
            faults=len(cover.faults),
            bound=len(cover.bound),
        )
        return Place(graph, value, _names(cover), near, cover.cost, first.item)

    def _plainly(self, graph: ir.Graph, node: ir.Node, value: ir.Value) -> Place | None:
        """The matcher's finding at one value, whether the rule applies or not; None where it gives no reason."""
        near = partial(Near, value=value.name or "", node=node.name or "", source=source_of(node))
        misses = Misses()
        matcher = RecursiveMatcher(self.driver.facts(graph), graph, misses)
        refused = dict[Refused, Match]()
        for match in islice(matcher.matches(self.rule.outputs, value), _MATCHES):
            refusal = self._refusal(match, graph)
            if refusal is None:
                return Place(graph, value, frozenset(n.name or "" for n in match.nodes), None)
            refused[refusal] = match
        if refused:
            told = telling(list(refused))
            match = refused[told]
            names = frozenset(n.name or "" for n in match.nodes)
            otherwise = self._overruled(match, graph)
            if otherwise.endswith(f": {told.reason}"):  # the engine refuses it, whatever the rule asks for
                otherwise = ""
            _, operators = count(self.rule.outputs, misses.binding)
            reason = placed(told, match, self.driver.facts(graph))
            full = near(matched=operators, operators=operators, reason=reason, is_guard=True)
            return Place(graph, value, names, replace(full, held=told.held or 0, otherwise=otherwise))
        if not misses.reason:
            return None
        matched, operators = count(self.rule.outputs, misses.binding)
        reason = with_maker(misses.reason, self._named(graph))
        lacking = near(matched=min(matched, operators), operators=operators, reason=reason, stands=misses.progress[1])
        names = frozenset(n.name or "" for n in misses.binding.nodes)
        return Place(graph, value, names, lacking, max(lacking.missing, 0.5), misses.item)

    def _named(self, graph: ir.Graph) -> dict[str, ir.Node]:
        """The nodes of a graph by their names, looked up once: a large model comes near at many places."""
        if graph not in self._nodes:
            self._nodes[graph] = {n.name or "": n for n in graph}
        return self._nodes[graph]

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
        """The outcome of a match if all its preconditions passed."""
        with overruled():
            return self._outcome(match, graph)

    def _forgiven(self, item: object, graph: ir.Graph, value: ir.Value) -> str:
        """The outcome of the pattern without the part that is not there."""
        if self.checker is None:
            return ""
        matcher = Forgiving(self.driver.facts(graph), graph, item)
        match = next(matcher.matches(self.rule.outputs, value), None)
        return "" if match is None else self._outcome(match, graph)

    def _outcome(self, match: Match, graph: ir.Graph) -> str:
        """The check's verdict on a rewrite; empty without a checker."""
        if self.checker is None:
            return ""
        transaction = self.driver.transaction(self.rule, match, graph)
        try:
            transaction.propose()
            wrong = self.checker(transaction.site())
        except Broken:  # an overruled refusal may leave it without what it needs
            return "the rule cannot go on"
        except Refused as refused:
            return f"it would be refused: {refused.reason}"
        finally:
            transaction.discard()
        if wrong is not None:
            return f"it would be wrong: {wrong}"
        ran = self.checker.last.status == "ok"
        return "it would be equal" if ran else f"it could not be run: {self.checker.last.reason}"


def _better(plain: Place | None, laid: Place | None) -> Place | None:
    """The finding to report at one value: the alignment's if one thing is wrong, or less than the matcher found."""
    if plain is None or plain.near is None or laid is None or laid.near is None:
        return plain or laid
    if laid.near.faults == 1 or laid.near.missing < plain.near.missing:
        return laid
    return replace(plain, nodes=plain.nodes | laid.nodes, cost=laid.cost)


def _telling(fault: Fault) -> float:
    """Operators are told before what is wrong with those that are there."""
    return -min(fault.cost, 1.0)


def _names(cover: Cover) -> frozenset[str]:
    return frozenset(n.name or "" for n in cover.nodes())
