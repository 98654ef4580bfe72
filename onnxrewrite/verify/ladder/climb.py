"""One rule up the ladder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.verify.ladder.guards import Guards
from onnxrewrite.verify.ladder.instances import Instance, instances
from onnxrewrite.verify.ladder.judge import classes, judged
from onnxrewrite.verify.ladder.minimise import counterexample_of, minimised
from onnxrewrite.verify.ladder.starts import starts
from onnxrewrite.verify.ladder.verdict import REFUTED, RING_CHECKED, TESTED, UNTRIED, Counterexample, Verdict, general

INSTANCES = 160
"""How many graphs a rule is tried on."""


def climb(
    rule: Rule, library: Sequence[Rule], *, seed: int = 0, count: int = INSTANCES, thorough: bool = True
) -> Verdict:
    """Try a rule on ``count`` graphs, up to the first that it rewrites wrongly; the same for the same ``seed``.

    Args:
        rule: The rule.
        library: Rules of the lower stage, without which a raised operator may not be legal.
        seed: Of all that is random.
        count: How many graphs to make; the rule fires on some of them.
        thorough: Whether to make a counterexample small and to ask whether guards are too strict: either takes longer
            than to find a counterexample.
    """
    start = time.perf_counter()
    exact, refused, not_run = 0, 0, Counter[str]()
    counterexample, guards = None, Guards()
    right: list[Instance] = []
    for instance in instances(starts(rule, library, seed), count, seed, right):
        finding = judged(instance, rule.assumes, seed)
        if finding is None:
            refused += 1
            if thorough:
                guards.ask(instance, rule.assumes, seed)
        elif finding.status == "not run":
            not_run[general(finding.reason)] += 1
        elif finding.differs:
            counterexample = (
                minimised(instance, finding, rule.assumes, seed) if thorough else counterexample_of(instance, finding)
            )
            break
        else:
            right.append(instance)
            exact += bool(finding.ring)
    return Verdict(
        rule.name,
        _status(len(right), exact, counterexample),
        instances=len(right),
        exact=exact,
        refused=refused,
        not_run=dict(not_run),
        classes=tuple(classes(rule.assumes)),
        assumes=tuple(map(str, rule.assumes)),
        warnings=guards.warnings(),
        counterexample=counterexample,
        seconds=time.perf_counter() - start,
    )


def _status(fired: int, exact: int, counterexample: Counterexample | None) -> str:
    if counterexample is not None:
        return REFUTED
    if not fired:
        return UNTRIED
    return RING_CHECKED if exact else TESTED
