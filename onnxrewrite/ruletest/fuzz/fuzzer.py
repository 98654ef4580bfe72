"""One rule up the ladder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from onnxrewrite.checks.assumed import classes
from onnxrewrite.rewrite.purity import ImpureRule
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz.guards import Guards
from onnxrewrite.ruletest.fuzz.instances import Instance, instances
from onnxrewrite.ruletest.fuzz.judge import judged
from onnxrewrite.ruletest.fuzz.minimise import counterexample_of, minimised
from onnxrewrite.ruletest.fuzz.starts import starts
from onnxrewrite.ruletest.fuzz.untried import why_untried
from onnxrewrite.ruletest.fuzz.verdict import (
    REFUTED,
    RING_CHECKED,
    TESTED,
    UNTRIED,
    Counterexample,
    Reasons,
    Verdict,
    general,
)

INSTANCES = 160
"""The number of graphs that a rule is tried on."""


def fuzz(
    rule: Rule, library: Sequence[Rule], *, seed: int = 0, count: int = INSTANCES, thorough: bool = True
) -> Verdict:
    """Try a rule on ``count`` graphs, up to the first that it rewrites wrongly; the same for the same ``seed``.

    Args:
        rule: The rule.
        library: Rules of the lower stage, without which a raised operator may not be legal.
        seed: Of all that is random.
        count: The number of graphs to make; the rule fires on some of them.
        thorough: True to make a counterexample small and to ask whether guards are too strict: either takes longer
            than to find a counterexample; and to say why a rule could not be tried.
    """
    start, ascent = time.perf_counter(), _Ascent(rule, seed, thorough)
    try:
        for instance in instances(starts(rule, library, seed), count, seed, ascent.right):
            ascent.step(instance)
            if ascent.counterexample is not None:
                break
        verdict = ascent.verdict()
        if thorough and verdict.status == UNTRIED and not (verdict.refusals or verdict.not_run):
            verdict = replace(verdict, refusals=why_untried(rule, library, seed))
    except ImpureRule as error:
        if error.rule != rule.name:  # that is not this rule's fault
            others = [r for r in library if r.name != error.rule]
            return fuzz(rule, others, seed=seed, count=count, thorough=thorough)
        verdict = replace(ascent.verdict(), status=REFUTED, reason=error.reason)
    return replace(verdict, seconds=time.perf_counter() - start)


class _Ascent:
    """A rule on its way up: what is known so far.

    Attributes:
        right: The instances that it rewrote rightly.
        counterexample: The graph that refutes it, or None.
    """

    def __init__(self, rule: Rule, seed: int, thorough: bool):
        self.right: list[Instance] = []
        self.counterexample: Counterexample | None = None
        self._rule = rule
        self._seed = seed
        self._thorough = thorough
        self._exact = 0
        self._refused = 0
        self._refusals = Reasons()
        self._not_run = Counter[str]()
        self._guards = Guards()

    def step(self, instance: Instance) -> None:
        """Try it on one more."""
        assumes, seed = self._rule.assumes, self._seed
        finding = judged(instance, assumes, seed)
        if finding is None:
            self._refused += 1
            self._refusals.add(instance.refusal)
            if self._thorough:
                self._guards.ask(instance, assumes, seed)
        elif finding.status == "not run":
            self._not_run[general(finding.reason)] += 1
        elif finding.differs:
            small = minimised(instance, finding, assumes, seed) if self._thorough else None
            self.counterexample = small or counterexample_of(instance, finding)
        else:
            self.right.append(instance)
            self._exact += bool(finding.ring)

    def verdict(self) -> Verdict:
        """The verdict after the instances tried so far."""
        return Verdict(
            self._rule.name,
            self._status,
            self.counterexample.reason if self.counterexample is not None else "",
            instances=len(self.right),
            exact=self._exact,
            refused=self._refused,
            refusals=self._refusals.counts(),
            not_run=dict(self._not_run),
            classes=tuple(classes(self._rule.assumes)),
            assumes=tuple(map(str, self._rule.assumes)),
            warnings=self._guards.warnings(),
            counterexample=self.counterexample,
        )

    @property
    def _status(self) -> str:
        if self.counterexample is not None:
            return REFUTED
        if not self.right:
            return UNTRIED
        return RING_CHECKED if self._exact else TESTED
