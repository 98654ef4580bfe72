"""Verdicts of the ladder on rules, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.ruletest.fuzz.verdict import PROVED, REFUTED, RING_CHECKED, TESTED, UNTRIED
from onnxrewrite.system.plain import Plain

_STYLES = {REFUTED: "bold red", UNTRIED: "yellow"}

_MOST_REFUSALS = 5

_MEANINGS = {
    PROVED: "both sides compute the same at all sizes of its forms, and no graph showed otherwise",
    RING_CHECKED: "equal in exact arithmetic where that applies, and against float64",
    TESTED: "no difference found against float64",
    REFUTED: "it is wrong",
    UNTRIED: "it fired on no graph that runs, so nothing is known of it",
}


def verdict_line(verdicts: Sequence[Plain]) -> str:
    """All in one line: how many of each, and which are wrong."""
    counts = Counter(v["status"] for v in verdicts)
    told = ", ".join(f"{counts[s]} {s}" for s in (PROVED, RING_CHECKED, TESTED, UNTRIED, REFUTED) if counts[s])
    wrong = [v["rule"] for v in verdicts if v["status"] == REFUTED]
    return f"{human.plural(len(verdicts), 'rule')}: {told}" + (f" ({', '.join(wrong)})" if wrong else "")


def verdict_table(verdicts: Sequence[Plain]) -> RenderableType:
    """A row for each rule, then what is wrong, then why some were not tried."""
    table = plain_table("rule", "verdict", "graphs>", "exact>", "left alone>", "seconds>")
    for verdict in verdicts:
        took = "remembered" if verdict["cached"] else f"{verdict['seconds']:.1f}"
        status = Text(verdict["status"], _STYLES.get(verdict["status"], ""))
        counts = (str(verdict[key]) for key in ("instances", "exact", "refused"))
        table.add_row(verdict["rule"], status, *counts, took)
    parts: list[RenderableType] = [table, ""]
    for verdict in (v for v in verdicts if v["status"] == REFUTED):
        parts += [_page(verdict), ""]
    untried = [(v["rule"], _why_untried(v)) for v in verdicts if v["status"] == UNTRIED]
    if untried:
        parts += [Text("Not tried", "bold"), facts_grid(untried), ""]
    return Group(*parts, Text(verdict_line(verdicts)))


def verdict_pages(verdicts: Sequence[Plain]) -> RenderableType:
    """All that is known of each rule."""
    parts: list[RenderableType] = []
    for verdict in verdicts:
        parts += [_page(verdict), ""]
    return Group(*parts[:-1])


def _why_untried(verdict: Plain) -> str:
    """In one line: what there is to say of the process, or the most frequent reason."""
    reasons = {**verdict["refusals"], **verdict["not_run"]}
    return verdict["reason"] or max(reasons, key=lambda r: reasons[r], default=_MEANINGS[UNTRIED])


def _page(verdict: Plain) -> RenderableType:
    status, found = verdict["status"], verdict["counterexample"]
    heading = Text.assemble((verdict["rule"], "bold"), "  ", (status, _STYLES.get(status, "")))
    meaning = verdict["reason"] if found is None and verdict["reason"] else _MEANINGS[status]
    parts: list[RenderableType] = [heading.append(f": {meaning}"), facts_grid(_facts(verdict))]
    if found is not None:
        parts += ["", *_graph("the graph", found["before"]), *_graph("becomes", found["after"])]
    return Group(*parts)


def _facts(verdict: Plain) -> list[tuple[str, str]]:
    if not verdict["classes"]:  # nobody lived to tell
        return []
    found = verdict["counterexample"]
    rewritten = human.plural(verdict["instances"], "graph")
    facts = [("Tried on", f"{rewritten} that it rewrites rightly; it left {verdict['refused']} alone")]
    if verdict["exact"]:
        facts.append(("Exact", f"{verdict['exact']} of them equal in exact arithmetic"))
    if verdict["proof"]:
        facts.append(("Proof", verdict["proof"]))
    facts.append(("Inputs", ", ".join(verdict["classes"])))
    if verdict["assumes"]:
        facts.append(("Assumes", ", ".join(verdict["assumes"])))
    refusals = [*verdict["refusals"].items()][:_MOST_REFUSALS]
    facts += [("Left alone", f"{count} × {reason}") for reason, count in refusals]
    facts += [("Not run", f"{count} × {reason}") for reason, count in verdict["not_run"].items()]
    facts += [("Warning", line) for line in verdict["warnings"]]
    if found is not None:
        facts.append(("Differs", found["reason"]))
        facts += [("Changed", line) for line in found["variations"]]
        facts += [("Input", f"{name} = {_input(array)}") for name, array in found["inputs"].items()]
        facts += [("Saved", verdict["saved"])] if verdict["saved"] else []
    return facts


def _input(array: Plain) -> str:
    shape = ", ".join(map(str, array["shape"]))
    return f"{array['dtype']}[{shape}] {array['elements'] or ''}".rstrip()


def _graph(title: str, text: str) -> list[RenderableType]:
    return [Padding(Text(title), (0, 0, 0, 2)), Padding(Text(text.strip(), no_wrap=True), (0, 0, 0, 4))]
