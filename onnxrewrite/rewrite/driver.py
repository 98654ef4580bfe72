"""The driver: rules over a graph to a fixpoint, stage by stage, each rewrite a transaction.

A worklist of nodes; at each node the rules anchored at its operator, by benefit; for each match guard, build, check
legality, let the caller check the numbers, and only then touch the graph.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxrewrite.errors import described
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import Target
from onnxrewrite.pattern.finder import Matcher, View
from onnxrewrite.pattern.match import Match, Refused
from onnxrewrite.rewrite import edit
from onnxrewrite.rewrite.index import index, precedes
from onnxrewrite.rewrite.layers import Marks, Refusal, Repetition, Visit
from onnxrewrite.rewrite.legality import illegal_node
from onnxrewrite.rewrite.rule import ON_REQUEST, Assumption, Rule, Stage
from onnxrewrite.rewrite.trace import Key, Site, Trace
from onnxrewrite.rewrite.transaction import (
    Change,
    Misbuilt,
    TooNew,
    Transaction,
    TurnedDown,
    Workspace,
    telling,
)
from onnxrewrite.rewrite.worklist import LoopGuard, Refusals, Worklist

SiteCheck: TypeAlias = Callable[[Site], str | None]
"""Asked about one rewrite before it is applied: None, or the reason why it is wrong, or does not pay."""

Progress: TypeAlias = Callable[[Stage, int, int], None]
"""Told of progress: the stage, nodes visited, nodes waiting."""

_TOTAL = 10
"""A stage does at most so many rewrites per node of the original graph, and a thousand more."""

_MATCHES = 64
"""A rule is tried in so many ways at one value: what it refuses so often it refuses."""

_MANY = 128
"""Where so many nodes wait, it is worth while to find layers that are alike."""

_TELL = 64
"""Progress is told every so many nodes."""


class Settled(Refused):
    """The replacement is what it replaces, as that of ``a + b + c`` by Sum is where the pattern takes the Sum, too: the
    rule is done at this value, in whichever order it takes the terms."""


@dataclass(frozen=True)
class Review:
    """The questions about every rewrite, before it is applied.

    Attributes:
        check: Whether it is right.
        loss: Of one that is right, why it does not pay.
        record: Of one that passed, what is to be kept of it: ``Applied.record``.
        conflicts: True to find out, at some cost, which rules it was chosen over.
    """

    check: SiteCheck | None = None
    loss: SiteCheck | None = None
    record: Callable[[Site], Any] | None = None
    conflicts: bool = False


class Driver:
    """Rewrites one model in place.

    Args:
        model: The model; overridable initializers have been set aside.
        rules: All rules, of any stage.
        target: The target that the result must run on.
        review: Asked about every rewrite before it is applied.
        quarantine: Sites, (rule, value name), that are not to be rewritten.
        progress: Told of progress.
        withheld: The assumptions that no rule may make.

    Attributes:
        trace: The trace of the runs.
    """

    def __init__(
        self,
        model: ir.Model,
        rules: Sequence[Rule],
        target: Target,
        *,
        review: Review = Review(),
        quarantine: Container[Key] = (),
        progress: Progress | None = None,
        withheld: Collection[Assumption] = ON_REQUEST,
    ):
        self.model = model
        self.trace = Trace()
        taken = tuple(r for r in rules if target.takes(r.name))
        self._index = index(taken)
        self._work = Workspace(model, target, [r for r in taken if r.stage == Stage.LOWER], withheld)
        self.trace.wished = self._work.wished
        self._review = review
        self._quarantine = quarantine
        self._progress = progress
        self._budget = _TOTAL * self._size() + 1000
        self._loops = LoopGuard(self._size())
        self._views: dict[ir.Graph, View[Rule]] = {}
        self._marks: dict[ir.Graph, Marks] = {}
        self._covers: dict[ir.Value, dict[Rule, list[tuple[ir.Node, ...]]]] = {}
        self._refusals = Refusals()

    def run(self, last: Stage = Stage.LOWER, first: Stage = Stage.CANONICALIZE) -> Trace:
        """Run every stage from the ``first`` to the ``last`` to its fixpoint.  Canonicalization stays active in all.

        Raises:
            ImpureRule: A rule changed the graph by itself; the model is of no use any more.
        """
        for stage in Stage:
            if not first <= stage <= last:
                continue
            if stage is Stage.CANONICALIZE or any(r.stage == stage for r in self._index.rules):
                self.run_stage(stage)
        return self.trace

    def wish(self, nodes: Iterable[ir.Node]) -> None:
        """Tell the trace of opsets in which the target would run nodes that are too new for the model's."""
        for node in nodes:
            if node.graph is not None:
                self.trace.wished |= self._work.runs_newer(node, self.facts(node.graph))

    def run_stage(self, stage: Stage, rules: Iterable[Rule] | None = None) -> None:
        """Apply the stage's rules, or certain ones only, until none of them applies any more; where that changed
        something, canonicalizations too."""
        known = self._index.rules
        own = frozenset(rules if rules is not None else (r for r in known if r.stage == stage))
        tidying = own.union(r for r in known if r.stage == Stage.CANONICALIZE and rules is None)
        nodes = [n for scope in self._work.scopes() for n in scope]
        edit.sweep(nodes)
        waiting: Mapping[ir.Node, Container[Rule]] = dict.fromkeys(nodes, own)
        most = len(self.trace.applied) + self._budget
        directions = itertools.cycle((1, -1))  # guards that look up are served on the way down, others on the way up
        while waiting:
            if not self._pass(stage, waiting, tidying, next(directions), most):
                self._exhausted(stage)
                break
            waiting = self._refusals.take(tidying, before=len(self.trace.applied))
        self.trace.warnings.extend(self._loops.warnings)
        self._loops.warnings.clear()
        self._sort()

    def _pass(
        self,
        stage: Stage,
        waiting: Mapping[ir.Node, Container[Rule]],
        tidying: Container[Rule],
        direction: int,
        most: int,
    ) -> bool:
        """Try rules at nodes, and the ``tidying`` ones at those that change; False after ``most`` rewrites."""
        rank = self._work.order.rank
        queue = Worklist(waiting, lambda node: direction * rank(node))
        seen, visited = self._layers(waiting, direction), 0
        while queue:
            if len(self.trace.applied) >= most:
                return False
            node, has_changed = queue.pop()
            if node.graph is None or not self._work.enclosing(node.graph):
                continue
            visited += 1
            if self._progress is not None and visited % _TELL == 0:
                self._progress(stage, visited, len(queue))
            scope, active = node.graph, tidying if has_changed else waiting[node]
            foretold = seen.foretold(node, queue.turn, active)
            found = self._repeat(node, scope, foretold) if foretold is not None else None
            if foretold is not None and found is None:
                queue.extend(seen.doubted())
            visit, change = found or self._visit(node, scope, active)
            built = change.built if change is not None else ()
            seen.note(node, queue.turn, active, visit, built, believed=found is not None and change is None)
            if change is not None:
                again = self._index.reach.after(change.nodes, change.released)
                again += self._work.owners(scope) if self._index.reach.sees_bodies else ()
                self._forget(scope, (*again, *change.removed))
                queue.extend(again)
        return True

    def facts(self, scope: ir.Graph) -> Facts:
        """The facts about the values of one scope."""
        return self._work.facts(scope)

    def transaction(self, rule: Rule, match: Match, scope: ir.Graph) -> Transaction:
        """One rule at one match, to be asked what would come of it."""
        return Transaction(self._work, rule, match, scope)

    def _layers(self, waiting: Mapping[ir.Node, Container[Rule]], direction: int) -> Repetition:
        """The layers that are alike, where many nodes wait."""
        seen = Repetition(direction)
        for scope in self._work.scopes() if len(waiting) >= _MANY and not self._review.conflicts else ():
            marks = self._marks.setdefault(scope, Marks(self.facts(scope)))
            seen.find(list(scope), marks)
        return seen

    def _repeat(self, node: ir.Node, scope: ir.Graph, foretold: Visit) -> tuple[Visit, Change | None] | None:
        """Do at ``node`` what was ``foretold``; None if that is not to be done, or cannot be."""
        for refused, place, reason in foretold.refused:
            self.trace.refuse(refused.name, node.outputs[place].name or "", reason)
            self._refusals.note(node, refused, len(self.trace.applied))
        if foretold.rule is None:
            return foretold, None
        output = node.outputs[foretold.output]
        if not self._takes_part(foretold.rule, output):
            return None
        matches = self._matches(Matcher(self._view(scope), is_expected=True), foretold.rule, output)
        match = next(itertools.islice(matches, foretold.match, None), None)
        outcome = self._attempt(foretold.rule, match, scope) if match is not None else None
        return (foretold, outcome) if isinstance(outcome, Change) else None

    def _visit(self, node: ir.Node, scope: ir.Graph, active: Container[Rule]) -> tuple[Visit, Change | None]:
        """Apply the first of the ``active`` rules that passes at ``node``; what came of it, and what it changed."""
        matcher = Matcher(self._view(scope))
        refused = list[Refusal]()
        is_told = not any(self._is_left_alone(r, o) for r, o in self._index.at(self._view(scope), node) if r in active)
        for rule, output in self._candidates(node, scope, active):
            place, refusals = node.outputs.index(output), list[Refused]()
            for number, match in enumerate(self._matches(matcher, rule, output)):
                for other, around in self._preceding(matcher, rule, match, active, scope):
                    outcome = self._attempt(other, around, scope)
                    if isinstance(outcome, Change):
                        return Visit(other, place, number, tuple(refused), is_told=False), outcome
                beaten = self._beaten(rule, match, node, scope, active) if self._review.conflicts else ()
                outcome = self._attempt(rule, match, scope)
                if isinstance(outcome, Change):
                    self.trace.conflicts.update((rule.name, other.name) for other in beaten)
                    return Visit(rule, place, number, tuple(refused), is_told), outcome
                refusals.append(outcome)
                if isinstance(outcome, Settled):
                    break
            self._note(rule, node, output.name or "", refusals)
            is_told &= not any(isinstance(r, TurnedDown) for r in refusals)
            refused += [(rule, place, telling(refusals).reason)] if refusals else []
        return Visit(refused=tuple(refused), is_told=is_told), None

    def _candidates(self, node: ir.Node, scope: ir.Graph, active: Container[Rule]) -> Iterator[tuple[Rule, ir.Value]]:
        """The ``active`` rules to try at ``node``, the first one first, each with the output that is its anchor."""
        for rule, output in self._index.at(self._view(scope), node):
            if rule in active and self._takes_part(rule, output):
                yield rule, output

    def _takes_part(self, rule: Rule, output: ir.Value) -> bool:
        """True if a rule is to be tried at a value."""
        return not self._is_left_alone(rule, output) and (len(rule.outputs) > 1 or edit.is_read(output))

    def _is_left_alone(self, rule: Rule, output: ir.Value) -> bool:
        """True if a rule may not be applied at a value, or not any more."""
        key = (rule.name, output.name or "")
        return key in self._quarantine or self._loops.has_stopped(key)

    def _preceding(
        self, matcher: Matcher, rule: Rule, match: Match, active: Container[Rule], scope: ir.Graph
    ) -> list[tuple[Rule, Match]]:
        """The matches of other rules that are to be tried before a match, the largest first; none where a check or a
        measurement turned the rule down already, or where this one would be refused and so is in nobody's way."""
        rivals = [
            (other, output)
            for node, preceding in self._index.preceding(rule, match)
            if isinstance(node.graph, ir.Graph)
            for other, output in self._candidates(node, node.graph, preceding)
            if other in active and not self.trace.has_turned_down((other.name, output.name or ""))
        ]
        if not rivals or not self._passes(rule, copy.copy(match), scope):
            return []
        found = [
            (other, around)
            for other, output in rivals
            if any(precedes(other, nodes, rule, match.nodes) for nodes in self._covered(matcher, other, output))
            for around in self._matches(matcher, other, output)
            if precedes(other, around.nodes, rule, match.nodes)
        ]
        return sorted(found, key=lambda each: -len(each[1].nodes))

    def _covered(self, matcher: Matcher, rule: Rule, output: ir.Value) -> list[tuple[ir.Node, ...]]:
        """The nodes that the matches of a rule at a value cover, remembered as long as it would find the same."""
        known = self._covers.setdefault(output, {})
        if rule not in known:
            known[rule] = [tuple(match.nodes) for match in self._matches(matcher, rule, output)]
        return known[rule]

    def _beaten(
        self, winner: Rule, match: Match, node: ir.Node, scope: ir.Graph, active: Container[Rule]
    ) -> list[Rule]:
        """The rules that come after ``winner`` and could be applied at the very same value; none if it cannot itself.

        This must be asked before ``winner`` is tried in earnest: the nodes on its tape are readers of what they read.
        """
        rivals = [rule for rule, output in self._candidates(node, scope, active) if output is match.anchor]
        rivals = rivals[rivals.index(winner) + 1 :]
        if not rivals or not self._passes(winner, copy.copy(match), scope):  # a rewrite may cover more nodes
            return []
        matcher = Matcher(self._view(scope))
        return [r for r in rivals if any(self._passes(r, m, scope) for m in self._matches(matcher, r, match.anchor))]

    def _passes(self, rule: Rule, match: Match, scope: ir.Graph) -> bool:
        return Transaction(self._work, rule, match, scope).passes()

    def _view(self, scope: ir.Graph) -> View[Rule]:
        """A scope as the rules see it."""
        if scope not in self._views:
            self._views[scope] = self._index.view(self.facts(scope), scope)
        return self._views[scope]

    def _forget(self, scope: ir.Graph, nodes: Iterable[ir.Node]) -> None:
        """Look at what ``nodes`` compute anew the next time; those of no graph were in ``scope``."""
        values: dict[ir.Graph, list[ir.Value]] = {}
        for node in nodes:
            values.setdefault(node.graph if isinstance(node.graph, ir.Graph) else scope, []).extend(node.outputs)
        for graph, changed in values.items():
            self._view(graph).forget(changed)
            for value in changed:
                self._covers.pop(value, None)

    def _matches(self, matcher: Matcher, rule: Rule, output: ir.Value) -> Iterator[Match]:
        """The matches of a rule at one value; none where a predicate of its pattern raises."""
        try:
            yield from itertools.islice(matcher.matches(rule.outputs, output), _MATCHES)
        except Exception as error:  # a predicate can fail in any way, and must not take the run down
            self.trace.warnings.append(
                f"{rule.name}: its pattern raised {described(error, rule.source)} (at `{output.name}`)"
            )

    def _attempt(self, rule: Rule, match: Match, scope: ir.Graph) -> Change | Refused:
        """Guard, build, check, commit; or why not."""
        transaction = Transaction(self._work, rule, match, scope)
        try:
            transaction.propose()
            self._refuse_settled(transaction)
            kept = self._ask(transaction)
        except Refused as refusal:
            transaction.discard()
            return refusal.with_traceback(None)  # which would keep all frames below alive
        applied, change = transaction.commit(kept)
        self.trace.applied.append(applied)
        self._loops.count(applied.key, applied.growth)
        return change

    def _refuse_settled(self, transaction: Transaction) -> None:
        """Refuse to make once more what is there; the first time a rule may, which is told, for at another constant it
        may make another."""
        if not transaction.is_vain():
            return
        rule, value = transaction.rule.name, transaction.match.anchor.name or ""
        if any(a.key == (rule, value) for a in self.trace.applied):
            raise Settled("it makes what is there")
        self._warn_once(f"{rule}: it makes what is there", value)

    def _warn_once(self, told: str, value: str) -> None:
        if not any(w.startswith(told) for w in self.trace.warnings):
            self.trace.warnings.append(f"{told} (at `{value}`)")

    def _ask(self, transaction: Transaction) -> Any:
        """The record to keep of a rewrite that passes its check and pays; raises ``TurnedDown`` otherwise."""
        if self._review == Review():
            return None
        site = transaction.site()
        wrong = self._review.check(site) if self._review.check is not None else None
        if wrong is not None:
            self.trace.failed[site.key] = wrong
            raise TurnedDown(f"check failed: {wrong}")
        loss = self._review.loss(site) if self._review.loss is not None else None
        if loss is not None:
            self.trace.declined[site.key] = loss
            raise TurnedDown(loss)
        return self._review.record(site) if self._review.record is not None else None

    def _note(self, rule: Rule, node: ir.Node, value: str, refusals: Sequence[Refused]) -> None:
        """Keep why a rule did not apply at a value, of several matches what ``telling`` tells."""
        if refusals:
            self.trace.refuse(rule.name, value, telling(refusals).reason)
        if any(not isinstance(r, TurnedDown) for r in refusals):
            self._refusals.note(node, rule, len(self.trace.applied))
        for refusal in refusals:
            if isinstance(refusal, TooNew):
                self.trace.too_new |= refusal.versions
            told = f"{rule.name}: {refusal.reason}"
            if refusal.__cause__ is not None or isinstance(refusal, Misbuilt):
                self._warn_once(told, value)

    def _exhausted(self, stage: Stage) -> None:
        """Warn, and leave the rule that used up the budget out of the stages to come."""
        most = Counter(a.rule for a in self.trace.applied[-self._budget :]).most_common(3)
        often = ", ".join(f"{name} ({n}×)" for name, n in most)
        done = f"stopped after {self._budget} rewrites of the {stage.name.lower()} stage"
        self.trace.warnings.append(f"{done}; most often applied: {often}")
        self._loops.stop(most[0][0])

    def _size(self) -> int:
        return sum(len(scope) for scope in self._work.scopes())

    def _sort(self) -> None:
        """Sort nodes, in a stable way, if rewrites have left some of them below a reader."""
        if self._work.order.is_sorted:
            return
        self.model.graph.sort()
        for function in self.model.functions.values():
            function.sort()
        self._work.order.is_sorted = True


def make_runnable(model: ir.Model, rules: Iterable[Rule], target: Target) -> None:
    """Lower what the target cannot run as it is, and nothing else: a wrong rule that lowers is not to spoil what runs,
    and what computes the same bits is soon judged.

    Args:
        model: The replacement of one site, as a model of its own.
        rules: Of any stage; those that are for speed alone are left out.
        target: The target that must run it.
    """

    def is_illegal(node: ir.Node, facts: Facts) -> bool:
        return illegal_node(node, facts, target, model.opset_imports, ()) is not None

    def runs(site: Site) -> str | None:
        return None if any(is_illegal(n, site.facts) for n in site.before) else "it runs as it is"

    lowering = [r for r in rules if r.stage == Stage.LOWER and not r.needs_speedup]
    driver = Driver(model, lowering, target, review=Review(check=runs))
    if any(is_illegal(n, driver.facts(g)) for g in scopes(model) for n in g):
        driver.run_stage(Stage.LOWER)


def stuck(model: ir.Model, rules: Iterable[Rule], target: Target) -> dict[str, str]:
    """The operators of a model that the target cannot run, lowered or not, each with the reason.

    Args:
        model: The model; it is not changed.
        rules: Of any stage.
        target: The target that must run it.
    """
    return Workspace(model, target, [r for r in rules if r.stage == Stage.LOWER]).stuck()
