"""The nodes of the original that a rewrite covered in the end, and the nodes of the result that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxrewrite.checks.site_record import CheckRecord, SiteRecord
from onnxrewrite.report import human
from onnxrewrite.report.html.graph_view import Drawing
from onnxrewrite.rewrite.trace import Applied
from onnxrewrite.system.plain import Json

if TYPE_CHECKING:
    from onnxrewrite.compiler.result import Result


def rewrites(result: Result, before: Drawing, after: Drawing) -> dict[str, Json]:
    """The rewrites in their order, as plain data.

    - ``rewrites``: ``{rule, stage, value, before, after, text}`` each: the numbers of the original nodes that it took
      in, directly or by way of what earlier ones had built; those of the nodes of the result that it built, or that
      later ones built of these; the number of its text;
    - ``texts``: ``{before, after, check}`` each, once for equal rewrites: the lines of both sides, and what running
      them side by side showed.
    """
    texts: dict[str, int] = {}
    shown: list[Json] = []
    made: list[Json] = []
    covered, built = _covered(result.trace.applied, before), _built(result.trace.applied, after)
    for each, old, new in zip(result.trace.applied, covered, built, strict=True):
        record: SiteRecord = each.record
        identity = record.id
        if identity not in texts:
            texts[identity] = len(shown)
            shown.append({"before": record.before, "after": record.after, "check": said(record)})
        made.append(
            {
                "rule": each.rule,
                "stage": each.stage,
                "value": each.value,
                "before": old,
                "after": new,
                "text": texts[identity],
            }
        )
    return {"rewrites": made, "texts": shown}


def _covered(applied: Sequence[Applied], before: Drawing) -> list[list[int]]:
    """The original nodes of each rewrite.  A node that is built may take over a name, so the order counts."""
    stands_for: dict[str, frozenset[int]] = {}
    found = []
    for each in applied:
        own = frozenset[int]().union(*(stands_for.get(name, _number(name, before)) for name in each.before))
        stands_for.update(dict.fromkeys(each.nodes, own))
        found.append(sorted(own))
    return found


def _number(name: str, drawing: Drawing) -> frozenset[int]:
    number = drawing.by_name.get(name)
    return frozenset() if number is None else frozenset((number,))


def _built(applied: Sequence[Applied], after: Drawing) -> list[list[int]]:
    """The nodes of the result of each rewrite."""
    made_by: dict[str, frozenset[int]] = {}
    for place, each in enumerate(applied):
        makers = frozenset((place,)).union(*(made_by.get(name, frozenset()) for name in each.before))
        made_by.update(dict.fromkeys(each.nodes, makers))
    found: list[list[int]] = [[] for _ in applied]
    for number, vertex in enumerate(after.vertices):
        for place in sorted(made_by.get(vertex.name, ())) if vertex.is_made else ():
            found[place].append(number)
    return found


def said(record: SiteRecord) -> str:
    """The result of running both sides of a rewrite, in a few words."""
    check: CheckRecord | None = record.check
    if check is None:
        return "not run: --check off"
    if check.status != "ok":
        return f"{check.status}: {check.reason}"
    runs = human.plural(check.runs, "run")
    if check.error_rewritten == 0:
        return f"equal, bit by bit, in {runs}"
    error, own, allowed = map(human.error, (check.error_rewritten, check.error_original, check.bound))
    if not check.reference.startswith("float64"):
        return f"error {error} against the original, allowed is {allowed}; {runs}"
    return f"error {error} against {check.reference}, the original's own is {own}, allowed is {allowed}; {runs}"
