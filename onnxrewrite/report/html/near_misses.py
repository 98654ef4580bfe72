"""Near misses: places where rules come near in the result, and where they matched as a whole and were refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from onnxrewrite.explanation.why_not import Explainer
from onnxrewrite.report.html.graph_view import Drawing
from onnxrewrite.report.summary import grouped, refusals
from onnxrewrite.rewrite.rule import Stage

if TYPE_CHECKING:
    from onnxrewrite.compiler.result import Result


class NearMissRow(TypedDict):
    """A rule that came near, and a reason why it does not apply; see ``near_misses``."""

    rule: str
    stage: str
    reason: str
    places: list[tuple[str, int, int]]
    guard: bool
    matched: int
    operators: int


def near_misses(result: Result, before: Drawing, after: Drawing) -> list[NearMissRow]:
    """One ``{rule, stage, guard, matched, operators, reason, places}`` per rule and reason, the nearest first.

    Fusions are looked for in the result, with reasons; what was refused at the lower stage is what ``apply`` noted.
    Canonicalizations look everywhere, and tell nobody anything.  ``guard``: whether the pattern matched as a whole;
    ``matched``: of ``operators``, how many are there; ``places``: ``(value, number before, number after)`` each, -1
    where no node computes it.
    """
    found = [
        NearMissRow(
            rule=near.rule,
            stage=near.stage.name.lower(),
            guard=near.is_guard,
            matched=near.matched,
            operators=near.operators,
            reason=near.reason if len(near.values) == 1 else grouped(near.reason),
            places=[(v, before.by_value.get(v, -1), after.by_value.get(v, -1)) for v in near.values],
        )
        for near in (*_fusions(result), *_lowerings(result))
    ]
    return sorted(found, key=lambda e: (not e["guard"], e["operators"] - e["matched"], -len(e["places"]), e["rule"]))


class _Near(NamedTuple):
    """A rule, and the values where one reason keeps it from applying."""

    rule: str
    stage: Stage
    reason: str
    values: list[str]
    is_guard: bool = True
    matched: int = 0
    operators: int = 0


def _fusions(result: Result) -> Iterator[_Near]:
    explainer = Explainer(result.model, list(result.rules), result.target.name, check=False)
    for explanation in explainer.explain_as_is(Stage.RAISE):
        for group in explanation.groups:
            first = group.first
            values = [near.value for near in group.places]
            found = first.is_guard, first.matched, first.operators
            yield _Near(explanation.rule, Stage.RAISE, first.reason, values, *found)


def _lowerings(result: Result) -> Iterator[_Near]:
    stages = {rule.name: rule.stage for rule in result.rules}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for rule, value, reason in refusals(result):
        if stages[rule] == Stage.LOWER:
            found.setdefault((rule, grouped(reason)), []).append((value, reason))
    for (rule, _), sites in found.items():
        yield _Near(rule, Stage.LOWER, sites[0][1], [value for value, _ in sites])
