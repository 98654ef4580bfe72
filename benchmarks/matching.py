"""Matching: what a thousand rules cost, and how that compares with onnxscript.rewriter.

    python -m benchmarks.matching [--quick] [--nodes N] [--json FILE]

Three graphs (transformer, cnn, random).  Two questions:

1. Rules that match nowhere: 1000 of them against 10.  Goal: at most twice the time, and under a second.
2. The same 300 rules here and in onnxscript.rewriter (goal: 50 times faster), and the built-in libraries of both on a
   graph that both have already rewritten as far as they can (goal: 20 times faster).

Timed is ``Driver(...).run()``: all matching and whatever else a run does.  ``Driver(...)`` itself infers the shapes of
all values, which costs the same with any rules; that is the column *facts*, and the peer, which infers nothing, is
compared without it (the goals) and with it.

The peer is ``RewriteRuleSet.apply_to_model``.  Its patterns are literal; ours match in any operand order.  The fair
equivalent is its ``commute=True``, which tries every order, and the goal is about that; ``commute=False``, which asks
for less than our rules do, is shown beside it.  A peer that takes longer than ``--cap`` seconds is stopped, and the
figure is a lower bound, marked ``>``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import onnx_ir as ir
import onnxscript.rewriter
from onnxscript.rewriter import pattern as peer

from benchmarks import graphs, report, rules
from onnxrewrite import io
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Rule

FEW, SOME, MANY = 10, 300, 1000
TARGET = "onnxruntime-cpu"


class _Ours:
    """Our rules on one model: what is timed, in its two parts.

    Attributes:
        applied: The number of times that a rule was applied in the last run.
        found: The number of times that one matched.
    """

    def __init__(self, model: ir.Model, chosen: Sequence[Rule]):
        self.model = model
        self.chosen = chosen
        self.applied = self.found = 0

    def facts(self) -> float:
        """Seconds to know the shapes of all values."""
        return report.timed(self._construct).seconds

    def run(self) -> float:
        """Seconds to match, facts not included."""
        driver = self._construct()
        seconds = report.timed(driver.run).seconds
        refused = sum(len(sites) for sites in driver.trace.refused.values())
        self.applied = len(driver.trace.applied)
        self.found = self.applied + refused
        return seconds

    def _construct(self) -> Driver:
        return Driver(self.model, self.chosen, target(TARGET))


class _Theirs:
    """The peer's rules on the same model."""

    def __init__(self, model: ir.Model, chosen: peer.RewriteRuleSet):
        self.model = model
        self.chosen = chosen
        self.applied = 0

    def run(self) -> float:
        """Seconds to match, and what little it does besides."""
        return self.capped(None).seconds

    def capped(self, cap: float | None) -> report.Timing:
        """The same, stopped after ``cap`` seconds."""
        return report.timed(self._apply, cap)

    def _apply(self) -> None:
        self.applied = self.chosen.apply_to_model(self.model)


def growth(tell: report.Report, nodes: int, rounds: int, seed: int) -> None:
    """1000 rules against 10."""
    chosen = rules.synthetic_rules(MANY, seed)
    rows: list[dict[str, report.Cell]] = []
    for kind, make in graphs.KINDS.items():
        model = io.load(make(nodes, seed))
        few, many = _Ours(model, chosen[:FEW]), _Ours(model, chosen)
        medians = report.interleaved({"facts": few.facts, "few": few.run, "many": many.run}, rounds)
        _require_none(few.found + many.found)
        rows.append(
            {
                "graph": kind,
                "nodes": len(model.graph),
                "facts (s)": medians["facts"],
                f"{FEW} rules (s)": medians["few"],
                f"{MANY} rules (s)": medians["many"],
                "ratio": medians["many"] / medians["few"],
            }
        )
    tell.table(f"{MANY} rules against {FEW}, none of which matches", rows, "the time of run(), facts not included")
    for row in rows:
        ratio, most = row["ratio"], row[f"{MANY} rules (s)"]
        assert isinstance(ratio, float)
        assert isinstance(most, float)
        tell.goal(f"{row['graph']}: {MANY} rules against {FEW}", ratio, 2)
        tell.goal(f"{row['graph']}: {MANY} rules", most, 1, unit="s")


def against_peer(tell: report.Report, nodes: int, rounds: int, seed: int, cap: float) -> None:
    """The same 300 rules here and there."""
    chosen = rules.synthetic_rules(SOME, seed)
    literal = rules.peer_rules(SOME, seed)
    sets = {commute: peer.RewriteRuleSet(literal, commute=commute) for commute in (False, True)}
    rows: list[dict[str, report.Cell]] = []
    goals: list[tuple[str, float]] = []
    for kind, make in graphs.KINDS.items():
        model = io.load(make(nodes, seed))
        ours = _Ours(model, chosen)
        facts, run = _medians(ours, rounds)
        _require_none(ours.found)
        for commute, theirs in sets.items():
            timing = _Theirs(model, theirs).capped(cap)
            ratio = timing.seconds / run
            rows.append(
                {
                    "graph": kind,
                    "facts (s)": facts,
                    "ours (s)": run,
                    "peer": f"commute={commute}, {len(theirs.rules)} patterns",
                    "takes": str(timing),
                    "slower": f"{'> ' if timing.at_least else ''}{ratio:.3g} ×",
                    "with our facts": f"{timing.seconds / (run + facts):.3g} ×",
                }
            )
            if commute:
                goals.append((kind, ratio))
    tell.table(f"The same {SOME} rules in onnxscript.rewriter, none of which matches, {nodes:,} nodes", rows)
    for kind, ratio in goals:
        tell.goal(f"{kind}: {SOME} rules, faster than onnxscript.rewriter", ratio, 50, least=True)


def libraries(tell: report.Report, nodes: int, rounds: int, seed: int) -> None:
    """The rules that come with each, where none of them is left to apply."""
    ours_all, theirs_all = list(registry.load(plugins=False)), peer.RewriteRuleSet(_peer_library())
    rows: list[dict[str, report.Cell]] = []
    for kind, make in graphs.KINDS.items():
        model = io.load(make(nodes, seed))
        ours, theirs = _Ours(model, ours_all), _Theirs(model, theirs_all)
        for _ in range(2):  # what one of them makes may be something for the other
            ours.run()
            theirs.run()
        medians = report.interleaved({"facts": ours.facts, "ours": ours.run, "theirs": theirs.run}, rounds)
        rows.append(
            {
                "graph": kind,
                "nodes": len(model.graph),
                "still rewritten": f"{ours.applied} | {theirs.applied}",
                "facts (s)": medians["facts"],
                f"our {len(ours_all)} rules (s)": medians["ours"],
                f"their {len(theirs_all.rules)} rules (s)": medians["theirs"],
                "ratio": medians["theirs"] / medians["ours"],
                "with our facts": medians["theirs"] / (medians["ours"] + medians["facts"]),
            }
        )
    tell.table("The built-in libraries, on graphs that both have rewritten before", rows)
    for row in rows:
        assert isinstance(row["ratio"], float)
        tell.goal(f"{row['graph']}: library, faster than onnxscript's", row["ratio"], 20, least=True)


def _medians(ours: _Ours, rounds: int) -> tuple[float, float]:
    medians = report.interleaved({"facts": ours.facts, "run": ours.run}, rounds)
    return medians["facts"], medians["run"]


def _peer_library() -> Sequence[peer.RewriteRule]:
    """The rules of ``onnxscript.rewriter.rewrite(model)``."""
    found: Sequence[peer.RewriteRule] = onnxscript.rewriter._DEFAULT_REWRITE_RULES
    return found


def _require_none(found: int) -> None:
    if found:
        raise RuntimeError(f"the synthetic rules are to match nowhere, and matched {found} times: another --seed?")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--nodes", type=int, help="of each graph (default 10,000; 1,000 with --quick)")
    options.add_argument("--cap", type=float, default=60, help="seconds that the peer may take (default 60)")
    given = options.parse_args(argv)
    nodes = given.nodes or (1_000 if given.quick else 10_000)
    rounds = given.rounds if given.rounds is not None else (1 if given.quick else 5)
    tell = report.Report("matching")
    growth(tell, nodes, rounds, given.seed)
    against_peer(tell, nodes, rounds, given.seed, given.cap)
    libraries(tell, nodes, rounds, given.seed)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
