"""Verification: does the rule ladder refute wrong rules, and only those?

    python -m benchmarks.verification [--only PART ...] [--rules NAME ...] [--count 100] [--seed 0] [--json FILE]

Four parts:

- ``wrong``: rules written by hand (``wrong_rules/``), ten of each of fifteen kinds, each right in the common case.  At
  least 99 % are refuted; and where ``apply`` is given one with a model on which it is wrong, it never leaves it in.
- ``right``: rules written by hand (``right_rules/``) that are right and unusual.  None is refuted.
- ``published``: bugs of other tools, written as rules.  Every one is refuted.
- ``mutants``: of every built-in rule, one mistake each.  At least 97 % of those that can be wrong are refuted, and no
  built-in rule is.

No rule, built in or written by hand, is *not tried*; the latter come without examples.  Of the mutants do not count

- those that are *stillborn*: the engine refuses whatever they make, so that nothing wrong can come of them;
- those that are *equivalent*: what was changed makes no difference, by a law of ``mutants/laws.py`` or for the reason
  in ``mutants/equivalent.py``, each of which has to be about a mutant that there is.

Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnxrewrite as rw
from benchmarks import report, right_rules, wrong_rules
from benchmarks.forks import forked
from benchmarks.handwritten import Wrong, collected
from benchmarks.history import HISTORY
from benchmarks.mutants import KINDS, Mutant, Observed, mutants, mutate, observed, sampled
from benchmarks.mutants.equivalent import reason, unmatched
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz import INSTANCES, fuzz
from onnxrewrite.ruletest.fuzz.judge import differs_at
from onnxrewrite.ruletest.fuzz.verdict import UNTRIED, Verdict

REFUTED, STILLBORN, SAME, SURVIVED = "refuted", "stillborn", "equivalent", "survived"

PARTS = ("wrong", "right", "published", "mutants")

GOAL = 97.0
"""At least so many of a hundred mutants that can be wrong are refuted."""

BY_HAND = 99.0
"""At least so many of a hundred wrong rules that were written by hand are refuted."""

WRONG_RULES, KINDS_OF_WRONG, RIGHT_RULES = 150, 15, 60
"""At least so many rules are written by hand, and so many kinds of wrong ones."""

OLD = 150
"""At least so many instances of a published bug."""


@dataclass(frozen=True)
class Tried:
    """The outcome of a mutant.

    Attributes:
        mutant: The mutant.
        status: ``refuted``, ``stillborn``, ``equivalent`` or ``survived``.
        why: The counterexample, the reason why it is equivalent, or how it got through.
        seconds: The time it took.
    """

    mutant: Mutant
    status: str
    why: str
    seconds: float


class Bench:
    """The rules, and how hard the ladder tries."""

    def __init__(self, library: Sequence[Rule], count: int, seed: int):
        self.library = list(library)
        self.rules = {r.name: r for r in library}
        self.count = count
        self.seed = seed

    def try_wrong(self, wrong: Wrong) -> tuple[Verdict, str]:
        """The ladder's verdict on a wrong rule, and the error that ``apply`` leaves in its model."""
        return self.fuzz(wrong.rule), left_in(wrong)

    def fuzz(self, rule: Rule) -> Verdict:
        """The ladder's verdict on a rule that is not built in, as a user would get it; without the models of a
        counterexample, which a rule that fires on its own result makes too long for a pipe."""
        verdict = fuzz(rule, [*self.library, rule], seed=self.seed, count=INSTANCES, thorough=False)
        return replace(verdict, counterexample=None)

    def watch(self, name: str) -> Observed:
        """The observations of a right rule."""
        return observed(self.rules[name], self.library, count=self.count, seed=self.seed)

    def challenge(self, mutant: Mutant) -> Tried:
        """The outcome of a mutant on the ladder; to be called in a process of its own."""
        start = time.perf_counter()
        right = self.rules[mutant.rule]
        wrong, tally = mutate(right, mutant)
        verdict = fuzz(
            wrong, [wrong if r is right else r for r in self.library], seed=self.seed, count=self.count, thorough=False
        )
        if verdict.refuted:
            status, why = REFUTED, verdict.reason
        elif reason(mutant):
            status, why = SAME, reason(mutant)
        elif verdict.status == UNTRIED and not verdict.not_run:
            status, why = STILLBORN, "it fires nowhere"
        elif tally.laws and not tally.emitted:
            status, why = SAME, "; ".join(sorted(tally.laws))
        elif tally.acted and not tally.emitted:
            status, why = STILLBORN, "what it makes is refused"
        elif not tally.acted:
            status, why = SURVIVED, "nothing on which it matters was tried"
        else:
            status = SURVIVED
            why = f"fired on {verdict.instances}, of {tally.emitted} other rewrites {tally.judged} in models that run"
        return Tried(mutant, status, why, time.perf_counter() - start)

    def recall(self, name: str) -> Verdict:
        """The ladder's verdict on a published bug."""
        rule = next(b.rule for b in HISTORY if b.rule.name == name)
        return fuzz(rule, self.library, seed=self.seed, count=max(self.count, OLD), thorough=False)


def left_in(wrong: Wrong) -> str:
    """The error that ``apply``, with all of its checks, leaves in the model of a wrong rule; empty if there is none."""
    model, rules = wrong.model(), rw.rules.RuleSet("by-hand", [wrong.rule])
    result = rw.apply(model, rules=[rules], only=["by-hand"], lower="fused")
    return differs_at(wrong.model(), result.model, wrong.feeds()) or ""


def is_wrong(wrong: Wrong) -> str:
    """The error of a wrong rule on its model, without checks; empty if there is none, or the rule does not apply."""
    rules = rw.rules.RuleSet("by-hand", [wrong.rule])
    result = rw.apply(wrong.model(), rules=[rules], only=["by-hand"], lower="fused", check="off")
    applied = result.trace.counts().get(wrong.rule.name, 0)
    return (differs_at(wrong.model(), result.model, wrong.feeds()) or "") if applied else ""


def wrong_by_hand(bench: Bench, tell: report.Report) -> None:
    """The rules that are written wrong: whether they are refuted, and whether ``apply`` lets them through."""
    kinds: dict[str, Sequence[Wrong]] = collected(wrong_rules)
    of_kind = {w.rule.name: kind for kind, rules in kinds.items() for w in rules}
    given = [w for rules in kinds.values() for w in rules]
    found = {o.task.rule.name: o for o in forked(given, bench.try_wrong)}
    rows: list[dict[str, report.Cell]] = []
    survivors: list[dict[str, report.Cell]] = []
    for wrong in given:
        outcome = found[wrong.rule.name]
        verdict, wrongly = outcome.result or (None, outcome.failure)
        status = verdict.status if verdict is not None else outcome.failure
        if status != REFUTED or wrongly:
            survivors.append(
                {"rule": wrong.rule.name, "kind": of_kind[wrong.rule.name], "verdict": status, "applied": wrongly}
            )
    for kind, rules in kinds.items():
        names = {w.rule.name for w in rules}
        alive = [s for s in survivors if s["rule"] in names]
        refuted = len(rules) - sum(s["verdict"] != REFUTED for s in alive)
        rows.append(
            {
                "kind": kind,
                "rules": len(rules),
                "refuted": refuted,
                "left in by apply": sum(bool(s["applied"]) for s in alive),
            }
        )
    tell.table("Wrong rules, written by hand", rows)
    if survivors:
        tell.table("Wrong rules that got through", survivors)
    share = 100 * sum(int(r["refuted"] or 0) for r in rows) / max(len(given), 1)
    tell.goal("wrong rules, written by hand", len(given), WRONG_RULES, unit="rules", least=True)
    tell.goal("kinds of them", len(kinds), KINDS_OF_WRONG, unit="kinds", least=True)
    tell.goal("wrong rules that are refuted", share, BY_HAND, unit="%", least=True)
    tell.goal("wrong rules that are not tried", sum(s["verdict"] == UNTRIED for s in survivors), 0, unit="rules")
    tell.goal("wrong results that apply leaves in", sum(bool(s["applied"]) for s in survivors), 0, unit="models")


def right_by_hand(bench: Bench, tell: report.Report) -> None:
    """The rules that are written right: whether they are refuted, or not tried."""
    families: dict[str, Sequence[Rule]] = collected(right_rules)
    given = [r for rules in families.values() for r in rules]
    verdicts = {o.task.name: o for o in forked(given, bench.fuzz)}
    rows: list[dict[str, report.Cell]] = []
    alarms: list[dict[str, report.Cell]] = []
    for family, rules in families.items():
        statuses = Counter(_status(verdicts[r.name].result, verdicts[r.name].failure) for r in rules)
        rows.append(
            {"family": family, "rules": len(rules), "refuted": statuses[REFUTED], "not tried": statuses[UNTRIED]}
        )
    for rule in given:
        verdict = verdicts[rule.name].result
        if verdict is None or not verdict.passed:
            reason = verdict.reason if verdict is not None else verdicts[rule.name].failure
            alarms.append({"rule": rule.name, "verdict": _status(verdict, ""), "reason": reason})
    tell.table("Right rules, written by hand", rows)
    if alarms:
        tell.table("Right rules that did not pass", alarms)
    tell.goal("right rules, written by hand", len(given), RIGHT_RULES, unit="rules", least=True)
    tell.goal("right rules that do not pass", len(alarms), 0, unit="rules")


def _status(verdict: Verdict | None, failure: str) -> str:
    return verdict.status if verdict is not None else failure or "failed"


def watched(bench: Bench, names: Iterable[str], most: int | None, tell: report.Report) -> list[Mutant]:
    """The mutants of rules, at the most so many of each; whether these themselves are refuted is told."""
    seen: dict[str, Observed] = {}
    broken: list[dict[str, report.Cell]] = []
    for outcome in forked(names, bench.watch):
        if outcome.failure:
            broken.append({"rule": outcome.task, "reason": outcome.failure})
        else:
            seen[outcome.task] = outcome.result
    if broken:
        tell.table("Built-in rules that could not be observed", broken)
    tell.goal("built-in rules that could not be observed", len(broken), 0, unit="rules")
    alarms = [
        {"rule": name, "reason": each.verdict.reason}
        for name, each in sorted(seen.items())
        if each.verdict is not None and each.verdict.refuted
    ]
    if alarms:
        tell.table("Built-in rules that are refuted", alarms)
    tell.goal("built-in rules that are refuted", len(alarms), 0, unit="rules")
    untried = sum(each.verdict is not None and each.verdict.status == UNTRIED for each in seen.values())
    tell.goal("built-in rules that are not tried", untried, 0, unit="rules")
    made = [mutants(bench.rules[name], seen[name]) for name in bench.rules if name in seen]
    lost = unmatched([m for of_rule in made for m in of_rule], seen, of_all=len(seen) == len(bench.rules))
    if lost:
        tell.table("Equivalent mutants that there are not", [{"mutant": name} for name in lost])
    tell.goal("equivalent mutants that there are not", len(lost), 0, unit="mutants")
    return [m for of_rule in made for m in sampled(of_rule, len(of_rule) if most is None else most)]


def challenged(bench: Bench, made: Sequence[Mutant]) -> list[Tried]:
    """The outcome of each mutant, in their order."""
    found: dict[str, Tried] = {}
    for outcome in forked(made, bench.challenge):
        failed = Tried(outcome.task, SURVIVED, outcome.failure, 0.0)
        found[outcome.task.name] = failed if outcome.failure else outcome.result
    return [found[m.name] for m in made]


def recalled(bench: Bench, tell: report.Report) -> None:
    """Report whether the published bugs are refuted."""
    verdicts = {o.task: o for o in forked([b.rule.name for b in HISTORY], bench.recall)}
    rows: list[dict[str, report.Cell]] = []
    for bug in HISTORY:
        outcome = verdicts[bug.rule.name]
        verdict = outcome.result
        status = verdict.status if verdict is not None else outcome.failure
        after = verdict.instances if verdict is not None else 0
        rows.append(
            {"rule": bug.rule.name, "overlooks": bug.overlooks, "source": bug.source, "verdict": status, "after": after}
        )
    tell.table("Published bugs, and after how many instances that were right", rows)
    missed = sum(row["verdict"] != REFUTED for row in rows)
    tell.goal("published bugs that are not refuted", missed, 0, unit="bugs")


def tabulate(tell: report.Report, tried: Sequence[Tried]) -> None:
    """Tables by kind and by rule, of equivalent mutants and of survivors; the goals."""
    _table(tell, "kind", {k: [t for t in tried if t.mutant.kind == k] for k in KINDS})
    _table(
        tell, "rule", {r: [t for t in tried if t.mutant.rule == r] for r in dict.fromkeys(t.mutant.rule for t in tried)}
    )
    for status in (SAME, SURVIVED):
        rows = [{"mutant": t.mutant.name, "why": t.why} for t in tried if t.status == status]
        if rows:
            tell.table(f"Mutants that are {status}" if status == SAME else "Mutants that survived", rows)
    counts = Counter(t.status for t in tried)
    alive = counts[REFUTED] + counts[SURVIVED]
    tell.goal("mutants that are refuted", 100 * counts[REFUTED] / max(alive, 1), GOAL, unit="%", least=True)


def _table(tell: report.Report, title: str, groups: Mapping[str, Sequence[Tried]]) -> None:
    counts = {name: Counter(t.status for t in group) for name, group in groups.items() if group}
    rows = [_row(title, name, each) for name, each in counts.items()]
    tell.table(f"Mutants by {title}", [*rows, _row(title, "all", sum(counts.values(), Counter[str]()))])


def _row(title: str, name: str, counts: Counter[str]) -> dict[str, report.Cell]:
    return {title: name, "made": counts.total(), **{s: counts[s] for s in (STILLBORN, SAME, REFUTED, SURVIVED)}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--rules", nargs="+", metavar="NAME", help="mutants of these rules only")
    options.add_argument("--count", type=int, help="instances of each rule (default 100; 20 with --quick)")
    options.add_argument("--most", type=int, default=6, help="mutants of each rule (default 6)")
    options.add_argument("--only", nargs="+", metavar="PART", choices=PARTS, default=PARTS, help=", ".join(PARTS))
    options.add_argument("--all", action="store_true", help="every mutant of each rule")
    given = options.parse_args(arguments)
    library = list(registry.load(plugins=False))
    names = [r.name for r in library if not given.rules or r.name in given.rules]
    unknown = set(given.rules or ()) - set(names)
    if unknown:
        options.error(f"no such rule: {', '.join(sorted(unknown))}")
    bench = Bench(library, given.count or (20 if given.quick else 100), given.seed)
    tell = report.Report("verification")
    parts = {"wrong": wrong_by_hand, "right": right_by_hand, "published": recalled}
    for part in (p for p in parts if p in given.only):
        parts[part](bench, tell)
    if "mutants" in given.only:
        made = watched(bench, names, None if given.all else given.most, tell)
        tabulate(tell, challenged(bench, made))
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
