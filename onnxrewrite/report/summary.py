"""The findings of ``apply`` and ``check`` as plain data: the JSON report, and the source of the tables.

The same call gives the same data, but for ``seconds`` and what is measured for the first time.  Errors are relative;
None stands for one that is not finite.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from onnxrewrite import io
from onnxrewrite.checks.findings import ModelFindings, model_check
from onnxrewrite.io import preserved
from onnxrewrite.io.statistics import file_bytes, operator_counts, stored_bytes
from onnxrewrite.report import human
from onnxrewrite.system.plain import Plain

if TYPE_CHECKING:
    from onnxrewrite.compiler.result import Checks, Result

_BRIEF, _NOTES = 6, 3
"""Of a result in a few lines, so many rules and notes are shown."""

STEPS = ("whole model", "sites only", "structure only")
"""The extents of checks, the furthest first."""

_PLACE = re.compile(r" \(at `[^`]*`\)")
_NAMES = re.compile(r"`[^`]*`")
_LISTS = re.compile(r"\[[^\[\]]*\]")
_MADE_UP = re.compile(r"\b_d\d+\b")


class RuleRow(TypedDict):
    """A rule that matched anywhere; ``asked``: it was asked for by name, or given."""

    rule: str
    stage: str
    applied: int
    refused: int
    undone: int
    asked: bool
    reasons: dict[str, int]


class SiteRow(TypedDict):
    """A rewrite that was applied."""

    rule: str
    stage: str
    value: str
    scope: str
    before: list[str]
    after: list[str]


class RefusedRow(TypedDict):
    """A match that was refused in the end."""

    rule: str
    value: str
    reason: str


class UndoneRow(RefusedRow):
    """A rewrite that a check turned down: ``by`` the check of its ``site`` or of the ``model``."""

    by: str


class ConflictRow(TypedDict):
    """Two rules that could be applied at the same values."""

    winner: str
    loser: str
    benefits: list[int]
    places: int


class SitesChecked(TypedDict):
    """The checks of single rewrites."""

    run: int
    distinct: int
    remembered: int
    not_run: dict[str, int]


class ChecksDone(TypedDict):
    """The extent and the results of the checks, see ``checks``."""

    level: str
    reached: str
    why: str | None
    structure: list[str]
    sites: SitesChecked
    model: ModelFindings | None


class Summary(TypedDict):
    """The result of ``apply`` as plain data, see ``summary``."""

    model: str | None
    output: str | None
    graph: str | None
    target: str
    opset: int
    rules: list[RuleRow]
    operators: dict[str, dict[str, int]]
    nodes: dict[str, int]
    size: dict[str, int]
    checks: ChecksDone
    speed: Plain
    assumes: dict[str, list[str]]
    undone: list[UndoneRow]
    sites: list[SiteRow]
    refused: list[RefusedRow]
    conflicts: list[ConflictRow]
    notes: list[str]
    seconds: dict[str, float]


def summary(
    result: Result,
    *,
    model: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Summary:
    """Everything that the report of ``apply`` shows: a dictionary with these keys.

    - ``model``, ``output``: paths, or None; ``graph``: its name;
    - ``target``: its name; ``opset``: ai.onnx opset of the result;
    - ``rules``: one ``{rule, stage, applied, refused, undone, reasons}`` per rule that matched anywhere, in
      the order in which they run; ``reasons`` counts refusals by reason, names and shapes left out;
    - ``operators``: ``{before, after}``, each operator to count, in subgraphs and functions too, constants
      not counted; ``nodes``: ``{before, after}``, their sums; ``size``: ``{before, after}`` in bytes;
    - ``checks``: see the function ``checks``;
    - ``speed``: what was measured, see ``Speed``: times are in seconds, ratios have ``median``, ``low`` and ``high``;
    - ``assumes``: what is taken for granted of the data, each to the names of the applied rules that do, or to none
      where all that is known of sizes rests on it;
    - ``undone``: one ``{rule, value, reason, by}`` per rewrite that a check turned down, ``by`` being
      ``site`` or ``model``;
    - ``sites``: one ``{rule, stage, value, scope, before, after}`` per rewrite, in order: the names of the
      nodes that it covered, the operators that it built;
    - ``refused``: one ``{rule, value, reason}`` per refusal;
    - ``conflicts``: one ``{winner, loser, benefits, places}`` per pair of rules that could be applied at the same
      value, and in how many places ``winner`` was; none unless ``apply`` was asked for ``conflicts``;
    - ``notes``: repairs of the input, plugins and rules that failed;
    - ``seconds``: phase to time.

    ``model`` says where the model came from, without it what ``io.load`` remembers; ``output`` where the
    result was written.
    """
    operators = {"before": operator_counts(result.original), "after": operator_counts(result.model)}
    known = preserved.origin(result.original)
    source = model if model is not None else known.path if known is not None else None
    return {
        "model": os.fspath(source) if source is not None else None,
        "output": os.fspath(output) if output is not None else None,
        "graph": result.model.graph.name,
        "target": result.target.name,
        "opset": io.opset(result.model),
        "rules": _rules(result),
        "operators": operators,
        "nodes": {side: sum(counts.values()) for side, counts in operators.items()},
        "size": {"before": file_bytes(result.original), "after": stored_bytes(result.model, output)},
        "checks": checks(result),
        "speed": result.speed.to_json(),
        "assumes": result.assumes,
        "undone": _undone(result),
        "sites": [
            {
                "rule": a.rule,
                "stage": a.stage,
                "value": a.value,
                "scope": a.scope,
                "before": list(a.before),
                "after": list(a.after),
            }
            for a in result.trace.applied
        ],
        "refused": [{"rule": r, "value": v, "reason": reason} for r, v, reason in refusals(result)],
        "conflicts": _conflicts(result),
        "notes": list(result.notes),
        "seconds": {phase: round(time, 3) for phase, time in result.seconds.items()},
    }


def brief(result: Result) -> str:
    """A summary of a result in a few lines."""
    counts, sizes = result.trace.counts(), [sum(operator_counts(m).values()) for m in (result.original, result.model)]
    head = human.plural(counts.total(), "rewrite") if counts else "no rule applied"
    lines = [f"{head}, {sizes[0]} → {sizes[1]} nodes, for {result.target.name}, opset {io.opset(result.model)}"]
    if counts:
        lines.append(f"applied: {human.listed((f'{rule} {n}×' for rule, n in counts.most_common()), _BRIEF)}")
    model, undone = result.checks.model, len(result.checks.undone)
    whole = "not compared as a whole"
    if model is not None and not model.skipped:
        whole = f"{'equal' if model.ok else 'not equal'} as a whole in {human.plural(model.runs, 'run')}"
    sites = f", {human.plural(result.checks.sites, 'rewrite')} run by itself" if result.checks.sites else ""
    lines.append(f"checked: {whole}{sites}{f', {undone} undone' if undone else ''}")
    lines += [f"note: {note}" for note in result.notes[:_NOTES]]
    return "\n".join(lines)


def checks(result: Result) -> ChecksDone:
    """The extent and the results of the checks, as plain data.

    ``level``: ``full``, ``fast`` or ``off``; ``reached``: ``whole model``, ``sites only`` or ``structure only``, and
    ``why``: what kept them from going further, or None; ``structure``: problems, which the original has too;
    ``sites``: ``{run, distinct, remembered, not_run}``, rewrites run beside what they replace, how many of them are
    different, how many of these were run in an earlier run and not again, and reason to number of those that could not
    be; ``model``: see ``model_check``, None with ``off``.
    """
    done = result.checks
    reached, why = _reached(done)
    return {
        "level": done.level,
        "reached": reached,
        "why": why,
        "structure": list(done.structure),
        "sites": {
            "run": done.sites,
            "distinct": done.distinct_sites,
            "remembered": done.remembered_sites,
            "not_run": grouped_counts(done.sites_not_run),
        },
        "model": model_check(done.model) if done.model is not None else None,
    }


def _reached(done: Checks) -> tuple[str, str | None]:
    """The extent of the checks, and the reason why they went no further, or None."""
    if done.model is None:
        return STEPS[2], "as --check off asked for"
    if done.model.skipped is None:
        return STEPS[0], None
    return STEPS[1] if done.sites else STEPS[2], done.model.skipped


def refusals(result: Result) -> list[tuple[str, str, str]]:
    """(rule, value, reason) of every match that was refused in the end.

    Without those where the rule did apply at last, and those that a check undid.
    """
    settled = {a.key for a in result.trace.applied} | result.checks.undone.keys()
    return [
        (rule, value, reason)
        for rule in _order(result)
        for value, reason in result.trace.refused.get(rule, {}).items()
        if (rule, value) not in settled
    ]


def grouped(reason: str) -> str:
    """A reason without what differs from site to site: names, shapes, dimensions."""
    return _MADE_UP.sub("…", _LISTS.sub("[…]", _NAMES.sub("`…`", _PLACE.sub("", reason))))


def grouped_counts(reasons: Mapping[str, int]) -> dict[str, int]:
    """Reasons counted by group, the most frequent first."""
    counts: Counter[str] = Counter()
    for reason, count in reasons.items():
        counts[grouped(reason)] += count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _order(result: Result) -> Iterable[str]:
    """The names of the rules, in the order in which they run."""
    return dict.fromkeys(r.name for r in result.rules)


def _rules(result: Result) -> list[RuleRow]:
    applied = result.trace.counts()
    undone = Counter(rule for rule, _ in result.checks.undone)
    reasons: dict[str, Counter[str]] = {}
    for rule, _, reason in refusals(result):
        reasons.setdefault(rule, Counter())[reason] += 1
    stages = {r.name: r.stage.name.lower() for r in result.rules}
    return [
        {
            "rule": rule,
            "stage": stages[rule],
            "applied": applied[rule],
            "refused": sum(reasons.get(rule, {}).values()),
            "undone": undone[rule],
            "asked": rule in result.asked,
            "reasons": grouped_counts(reasons.get(rule, {})),
        }
        for rule in _order(result)
        if applied[rule] or undone[rule] or rule in reasons
    ]


def _undone(result: Result) -> list[UndoneRow]:
    failed = result.trace.failed
    return [
        {"rule": rule, "value": value, "reason": reason, "by": "site" if (rule, value) in failed else "model"}
        for (rule, value), reason in result.checks.undone.items()
    ]


def _conflicts(result: Result) -> list[ConflictRow]:
    """The pairs of a rule and one that it won over, the most frequent first."""
    found = sorted(result.trace.conflicts.items(), key=lambda item: (-item[1], item[0]))
    return [
        {
            "winner": winner,
            "loser": loser,
            "benefits": [result.rules[r].benefit for r in (winner, loser)],
            "places": count,
        }
        for (winner, loser), count in found
    ]
