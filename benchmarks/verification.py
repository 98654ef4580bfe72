"""Verification: does the rule ladder refute wrong rules, and only those?

    python benchmarks/verification.py [--rules NAME ...] [--count 100] [--seed 0] [--json FILE]

Mutants are made of every built-in rule, one mistake each, and go up the ladder; so do published bugs of other tools,
written as rules.  The goals: at least 97 % of the mutants that can be wrong are refuted, every published bug is, and no
built-in rule.  Of the mutants do not count

- those that are *stillborn*: the engine refuses whatever they make, so that nothing wrong can come of them;
- those that are *equivalent*: what was changed makes no difference, for the reason in ``mutants/equivalent.py``.

Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import report
from benchmarks.forks import forked
from benchmarks.history import HISTORY
from benchmarks.mutants import KINDS, Mutant, Observed, mutants, mutate, observed, sampled
from benchmarks.mutants.equivalent import EQUIVALENT
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.verify.ladder import climb
from onnxrewrite.verify.ladder.verdict import UNTRIED, Verdict

REFUTED, STILLBORN, SAME, SURVIVED = "refuted", "stillborn", "equivalent", "survived"

GOAL = 97.0
"""At least so many of a hundred mutants that can be wrong are refuted."""


OLD = 150
"""At least so many instances of a published bug."""


@dataclass(frozen=True)
class Tried:
    """What became of a mutant.

    Attributes:
        mutant: Which.
        status: ``refuted``, ``stillborn``, ``equivalent`` or ``survived``.
        why: The counterexample, the reason why it is equivalent, or how it got through.
        seconds: How long it took.
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

    def watch(self, name: str) -> Observed:
        """What a right rule does."""
        return observed(self.rules[name], self.library, count=self.count, seed=self.seed)

    def challenge(self, mutant: Mutant) -> Tried:
        """What the ladder says of a mutant; to be called in a process of its own."""
        start = time.perf_counter()
        right = self.rules[mutant.rule]
        wrong, tally = mutate(right, mutant)
        verdict = climb(
            wrong, [wrong if r is right else r for r in self.library], seed=self.seed, count=self.count, thorough=False
        )
        if verdict.refuted:
            status, why = REFUTED, verdict.reason
        elif mutant.name in EQUIVALENT:
            status, why = SAME, EQUIVALENT[mutant.name]
        elif verdict.status == UNTRIED and not verdict.not_run:
            status, why = STILLBORN, "it fires nowhere"
        elif tally is not None and tally.acted and not tally.emitted:
            status, why = STILLBORN, "what it makes is refused"
        elif tally is not None and not tally.acted:
            status, why = SURVIVED, "nothing on which it matters was tried"
        else:
            emitted = f", {tally.emitted} rewrites wrong" if tally is not None else ""
            status = SURVIVED
            why = f"fired on {verdict.instances}{emitted}, {sum(verdict.not_run.values())} not run"
        return Tried(mutant, status, why, time.perf_counter() - start)

    def recall(self, name: str) -> Verdict:
        """What the ladder says of a published bug."""
        rule = next(b.rule for b in HISTORY if b.rule.name == name)
        return climb(rule, self.library, seed=self.seed, count=max(self.count, OLD), thorough=False)


def watched(bench: Bench, names: Iterable[str], most: int | None, tell: report.Report) -> list[Mutant]:
    """The mutants of rules, at the most so many of each; whether these themselves are refuted is told."""
    seen: dict[str, Observed] = {}
    for outcome in forked(names, bench.watch):
        if outcome.failure:
            raise RuntimeError(f"{outcome.task}: {outcome.failure}")
        seen[outcome.task] = outcome.result
    alarms = [
        {"rule": name, "reason": each.verdict.reason}
        for name, each in sorted(seen.items())
        if each.verdict is not None and each.verdict.refuted
    ]
    if alarms:
        tell.table("Built-in rules that are refuted", alarms)
    tell.goal("built-in rules that are refuted", len(alarms), 0, unit="rules")
    made = [mutants(bench.rules[name], seen[name]) for name in bench.rules if name in seen]
    return [m for of_rule in made for m in sampled(of_rule, len(of_rule) if most is None else most)]


def challenged(bench: Bench, made: Sequence[Mutant]) -> list[Tried]:
    """What became of each mutant, in their order."""
    found: dict[str, Tried] = {}
    for outcome in forked(made, bench.challenge):
        failed = Tried(outcome.task, SURVIVED, outcome.failure, 0.0)
        found[outcome.task.name] = failed if outcome.failure else outcome.result
    return [found[m.name] for m in made]


def recalled(bench: Bench, tell: report.Report) -> None:
    """Whether the published bugs are refuted."""
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
    options.add_argument("--mutants", action="store_true", help="no published bugs")
    options.add_argument("--all", action="store_true", help="every mutant of each rule")
    given = options.parse_args(arguments)
    library = list(registry.load(plugins=False))
    names = [r.name for r in library if not given.rules or r.name in given.rules]
    unknown = set(given.rules or ()) - set(names)
    if unknown:
        options.error(f"no such rule: {', '.join(sorted(unknown))}")
    bench = Bench(library, given.count or (20 if given.quick else 100), given.seed)
    tell = report.Report("verification")
    if not given.mutants:
        recalled(bench, tell)
    made = watched(bench, names, None if given.all else given.most, tell)
    tabulate(tell, challenged(bench, made))
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
