"""Proofs: how many rules are proved, whether wrong ones are refuted, whether the prover means what kernels do.

    python -m benchmarks.proofs [--only PART ...] [--rules NAME ...] [--depth 20] [--points 100000] [--json FILE]

Five parts:

- ``points``: what the prover takes operators to compute, against ONNX Runtime on 10⁵ random elements an operator.
- ``pairs``: random pairs of graphs that agree on ordinary inputs.  No run at corners tells apart what is proved.
- ``rules``: the built-in rules.  At least 80 are proved, each within 10 seconds.
- ``wrong``: the rules of ``wrong_rules/``.  None is proved; of the kinds that are about indices, conditions, clamps,
  NaN and integers, which need no bound on rounding, each is refuted by inputs that are run.
- ``fuzz``: the rules that were proved, by the fuzzer at so many times its depth.  None is refuted.

Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from benchmarks import report, wrong_rules
from benchmarks.forks import forked
from benchmarks.handwritten import Wrong, collected
from benchmarks.proof_pairs import FAMILIES, tried
from benchmarks.proof_points import CASES
from onnxrewrite.proof.crosscheck import agreement
from onnxrewrite.proof.validation import Refutation, prove
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz import INSTANCES, fuzz
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.ruletest.proving import RuleProof, prove_rule

PARTS = ("points", "pairs", "rules", "wrong", "fuzz")

PROVED = 80
"""At least so many built-in rules are proved."""

SECONDS = 10.0
"""A proof takes no longer."""

BATCHES, GRAPHS = 3, 1000
"""So many times as many random graphs of each family are compared with each other."""

DECIDED = (
    "batch_1", "broadcasting", "coupled_attributes", "coupled_constants", "equal_sizes", "integer_extremes", "masks",
    "not_a_number", "opset_semantics", "padding", "signed_zeros", "square_weights",
)  # fmt: skip
"""The kinds of wrong rules whose mistakes are in indices, conditions, clamps, NaN or integers."""


class Bench:
    """The rules, and how hard they are tried."""

    def __init__(self, library: Sequence[Rule], depth: int, points: int, seed: int):
        self.library = list(library)
        self.rules = {r.name: r for r in library}
        self.depth, self.points, self.seed = depth, points, seed

    def proof(self, name: str) -> dict[str, report.Cell]:
        """What came of the attempt to prove a rule."""
        found = prove_rule(self.rules[name], self.library, seed=self.seed, seconds=SECONDS)
        return _row(found)

    def refute(self, wrong: Wrong) -> str:
        """``proved``, ``refuted`` or ``unknown``: by the model that it comes with, and by the forms of its pattern."""
        trial = Trial.of(wrong.rule, [*self.library, wrong.rule], "onnxruntime-cpu")
        driver = trial.drive(wrong.model())
        if driver.trace.counts().get(wrong.rule.name) and isinstance(prove(wrong.model(), driver.model), Refutation):
            return "refuted"
        found = prove_rule(wrong.rule, [*self.library, wrong.rule], seed=self.seed, seconds=SECONDS)
        return "proved" if found.is_proved else "refuted" if found.refutation is not None else "unknown"

    def fuzzed(self, name: str) -> str:
        """The fuzzer's verdict on a rule."""
        count = self.depth * INSTANCES
        return fuzz(self.rules[name], self.library, seed=self.seed, count=count, thorough=False).status

    def agree(self, name: str) -> tuple[int, str]:
        """The number of points at which an operator's semantics were compared, and the first difference."""
        compared, cases = 0, CASES[name]
        for case in cases:
            found = agreement(case.graph, case.domain, -(-self.points // len(cases)), opset=case.opset, seed=self.seed)
            compared += found.points
            if found.differs:
                return compared, f"{case.graph}: {found.differs}"
        return compared, ""


def _row(found: RuleProof) -> dict[str, report.Cell]:
    refuted = found.refutation
    return {
        "rule": found.rule,
        "verdict": "proved" if found.is_proved else "refuted" if refuted else "unknown",
        "forms": len(found.forms),
        "seconds": round(found.seconds, 2),
        "strength": found.strength if found.is_proved else "",
        "reason": refuted[1].reason if refuted else found.reason,
    }


def _failed(name: str, failure: str) -> dict[str, report.Cell]:
    return {"rule": name, "verdict": "unknown", "forms": 0, "seconds": 0.0, "strength": "", "reason": failure}


def points(bench: Bench, tell: report.Report) -> None:
    """Report whether the semantics are the kernels'."""
    rows: list[dict[str, report.Cell]] = []
    for outcome in forked(CASES, bench.agree, limit=600):
        compared, differs = outcome.result or (0, outcome.failure)
        rows.append({"operator": outcome.task, "points": compared, "difference": differs})
    wrong = [r for r in rows if r["difference"]]
    if wrong:
        tell.table("Operators whose semantics differ", wrong)
    tell.goal("operators compared", len(rows), len(CASES), unit="operators", least=True)
    tell.goal(
        "points of each operator", min(int(r["points"] or 0) for r in rows), bench.points, unit="points", least=True
    )
    tell.goal("operators whose semantics differ", len(wrong), 0, unit="operators")


def pairs(bench: Bench, tell: report.Report, graphs: int) -> None:
    """Report what runs say of pairs that are proved."""
    counts: dict[str, Counter[str]] = {family: Counter() for family in FAMILIES}
    differ: list[dict[str, report.Cell]] = []
    tasks = [(family, graphs, bench.seed + k) for k in range(BATCHES) for family in FAMILIES]
    for outcome in forked(tasks, lambda task: tried(*task), limit=1200):
        family, tally = outcome.task[0], outcome.result
        if tally is None:
            differ.append({"pair": f"{family}, seed {outcome.task[2]}", "difference": outcome.failure})
            continue
        counts[family].update(pairs=tally.pairs, proved=tally.proved)
        differ += [{"pair": pair, "difference": told} for pair, told in tally.differ]
    tell.table("Random pairs", [{"family": f, "pairs": c["pairs"], "proved": c["proved"]} for f, c in counts.items()])
    if differ:
        tell.table("Proved pairs that a run tells apart", differ)
    tell.goal(
        "random pairs that are proved", sum(c["proved"] for c in counts.values()), graphs, unit="pairs", least=True
    )
    tell.goal("proved pairs that a run tells apart", len(differ), 0, unit="pairs")


def rules(bench: Bench, names: Sequence[str], tell: report.Report) -> list[str]:
    """Report how many rules are proved; their names."""
    rows = []
    for outcome in forked(names, bench.proof, limit=300):
        rows.append(outcome.result or _failed(outcome.task, outcome.failure))
    rows.sort(key=lambda r: names.index(r["rule"]))
    tell.table("Rules", rows)
    proved = [r for r in rows if r["verdict"] == "proved"]
    counts = Counter(r["strength"] for r in proved)
    tell.table(
        "Proved rules by strength",
        [{"strength": s, "rules": n} for s, n in sorted(counts.items())] or [{"strength": "", "rules": 0}],
    )
    tell.goal("rules that are proved", len(proved), min(PROVED, len(names)), unit="rules", least=True)
    tell.goal("the longest proof", max((float(r["seconds"] or 0) for r in proved), default=0.0), SECONDS, unit="s")
    tell.goal("built-in rules that are refuted", sum(r["verdict"] == "refuted" for r in rows), 0, unit="rules")
    return [str(r["rule"]) for r in proved]


def wrong_ones(bench: Bench, tell: report.Report) -> None:
    """Report whether wrong rules are refuted."""
    kinds: dict[str, Sequence[Wrong]] = collected(wrong_rules)
    of_kind = {w.rule.name: kind for kind, group in kinds.items() for w in group}
    given = [w for group in kinds.values() for w in group]
    found = {o.task.rule.name: o.result or o.failure for o in forked(given, bench.refute, limit=180)}
    rows: list[dict[str, report.Cell]] = []
    for kind, group in kinds.items():
        counts = Counter(found[w.rule.name] for w in group)
        rows.append({"kind": kind, "rules": len(group), "refuted": counts["refuted"], "proved": counts["proved"]})
    tell.table("Wrong rules", rows)
    left = [{"rule": n, "kind": of_kind[n], "verdict": v} for n, v in found.items() if v != "refuted"]
    if left:
        tell.table("Wrong rules that are not refuted", left)
    decided = [n for n, kind in of_kind.items() if kind in DECIDED]
    share = 100 * sum(found[n] == "refuted" for n in decided) / len(decided)
    tell.goal("wrong rules that are proved", sum(v == "proved" for v in found.values()), 0, unit="rules")
    tell.goal("wrong rules of the prover's kinds that are refuted", share, 100, unit="%", least=True)


def fuzzed(bench: Bench, names: Sequence[str], tell: report.Report) -> None:
    """Report whether the fuzzer refutes a rule that is proved."""
    found = []
    for outcome in forked(names, bench.fuzzed, limit=3600):
        found.append(outcome)
        print(f"{len(found)} of {len(names)}: {outcome.task} {outcome.result or outcome.failure}", file=sys.stderr)
    refuted = [o.task for o in found if o.result == "refuted"]
    if refuted:
        tell.table("Proved rules that the fuzzer refutes", [{"rule": n} for n in refuted])
    failed = [{"rule": o.task, "failure": o.failure} for o in found if o.result is None]
    if failed:
        tell.table("Proved rules that the fuzzer came to no end with", failed)
    tell.goal(
        f"proved rules fuzzed at {bench.depth} × the depth",
        len(found) - len(failed),
        len(names),
        unit="rules",
        least=True,
    )
    tell.goal("proved rules that the fuzzer refutes", len(refuted), 0, unit="rules")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--rules", nargs="+", metavar="NAME", help="these rules only")
    options.add_argument("--depth", type=int, help="times the fuzzer's depth (default 20; 1 with --quick)")
    options.add_argument("--points", type=int, help="elements of an operator (default 100000; 2000 with --quick)")
    options.add_argument("--only", nargs="+", metavar="PART", choices=PARTS, default=PARTS, help=", ".join(PARTS))
    given = options.parse_args(arguments)
    library = list(registry.load(plugins=False))
    names = [r.name for r in library if not given.rules or r.name in given.rules]
    depth = given.depth or (1 if given.quick else 20)
    bench = Bench(library, depth, given.points or (2000 if given.quick else 100_000), given.seed)
    tell = report.Report("proofs")
    if "points" in given.only:
        points(bench, tell)
    if "pairs" in given.only:
        pairs(bench, tell, 60 if given.quick else GRAPHS)
    proved = rules(bench, names, tell) if {"rules", "fuzz"} & set(given.only) else []
    if "wrong" in given.only:
        wrong_ones(bench, tell)
    if "fuzz" in given.only:
        fuzzed(bench, proved, tell)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
