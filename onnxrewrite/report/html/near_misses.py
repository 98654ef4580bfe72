"""Near misses: places where rules come near in the result, and where they matched as a whole and were refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onnxrewrite.explanation.why_not import Explainer
from onnxrewrite.report.html.graph_view import Drawing
from onnxrewrite.report.summary import grouped, refusals
from onnxrewrite.rewrite.rule import Stage

if TYPE_CHECKING:
    from onnxrewrite.compiler.result import Result


def near_misses(result: Result, before: Drawing, after: Drawing) -> list[dict[str, Any]]:
    """One ``{rule, stage, guard, matched, operators, reason, places}`` per rule and reason, the nearest first.

    Fusions are looked for in the result, with reasons; what was refused at the lower stage is what ``apply`` noted.
    Canonicalizations look everywhere, and tell nobody anything.  ``guard``: whether the pattern matched as a whole;
    ``matched``: of ``operators``, how many are there; ``places``: ``[value, number before, number after]`` each, -1
    where no node computes it.
    """
    found = [*_fusions(result), *_lowerings(result)]
    for each in found:
        each["places"] = [[v, before.by_value.get(v, -1), after.by_value.get(v, -1)] for v in each["places"]]
    return sorted(found, key=lambda e: (not e["guard"], e["operators"] - e["matched"], -len(e["places"]), e["rule"]))


def _fusions(result: Result) -> Iterator[dict[str, Any]]:
    explainer = Explainer(result.model, list(result.rules), result.target.name, check=False)
    for explanation in explainer.explain_as_is(Stage.RAISE):
        for group in explanation.groups:
            first = group.first
            values = [near.value for near in group.places]
            row = _row(explanation.rule, Stage.RAISE, first.reason, values)
            yield {**row, "guard": first.is_guard, "matched": first.matched, "operators": first.operators}


def _lowerings(result: Result) -> Iterable[dict[str, Any]]:
    stages = {rule.name: rule.stage for rule in result.rules}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for rule, value, reason in refusals(result):
        if stages[rule] == Stage.LOWER:
            found.setdefault((rule, grouped(reason)), []).append((value, reason))
    for (rule, _), sites in found.items():
        row = _row(rule, Stage.LOWER, sites[0][1], [value for value, _ in sites])
        yield {**row, "guard": True, "matched": 0, "operators": 0}


def _row(rule: str, stage: Stage, reason: str, values: list[str]) -> dict[str, Any]:
    told = reason if len(values) == 1 else grouped(reason)
    return {"rule": rule, "stage": stage.name.lower(), "reason": told, "places": values}
