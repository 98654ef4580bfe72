"""Bars of time, size and quality stage by stage, and of time by operator, from the plain data of ``optimize``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxrewrite.report import human
from onnxrewrite.report.deploy_report import quality_text, ratio_text
from onnxrewrite.report.html.charts import Row, Stroke, bars, legend_of_bars
from onnxrewrite.report.html.markup import Markup, joined, tag
from onnxrewrite.report.html.proposals import Proposal, shown_of
from onnxrewrite.system.plain import Plain

_LONGEST = 1.5
"""Times the original's: a bar beyond is cut."""

_LOST = 1.25
"""Times what is allowed: a bar of lost quality beyond is cut."""

_MAX_OPERATORS = 8


def by_stage(data: Plain, found: Sequence[Proposal]) -> Markup:
    """Bars of time, size and quality: the original, then a proposal of each stage."""
    shown = shown_of(data, list(found))
    charts = [
        _chart("Time of a run", "of the original's, with its interval of 95 %", _times(shown), _LONGEST, 1.0),
        _chart("Size", "of the file and its weights", _sizes(shown), _LONGEST, 1.0),
        _lost(data, shown),
    ]
    keys = legend_of_bars(("was", "the original"), ("kept", "kept"), ("undone", "taken back"))
    more = sum(bool(p.number) for p in found) - sum(bool(p.number) for p in shown)
    note = (
        f"Of each stage what was kept, else its fastest; {human.plural(more, 'other proposal')} below." if more else ""
    )
    return joined(
        [tag("div", *charts, class_="thirds"), keys, *([tag("p", note, class_="faint small")] if note else [])]
    )


def _chart(title: str, note: str, rows: Sequence[Row], most: float, mark: float | None) -> Markup:
    return tag("div", tag("h3", title), tag("p", note, class_="faint small"), bars(rows, most, mark))


def _label(proposal: Proposal) -> Markup:
    """Its stage, what became of it, and what it is."""
    if not proposal.number:
        return tag("span", "the original", class_="what")
    state = "" if proposal.is_kept else ", taken back"
    return joined(
        [
            tag("a", f"{proposal.number} {proposal.stage}", href=f"#p{proposal.number}", class_="what"),
            tag("span", f" {proposal.trial['how']}{state}", class_="faint"),
        ]
    )


def _times(shown: Sequence[Proposal]) -> list[Row]:
    rows = []
    for each in shown:
        metrics = each.trial["metrics"]
        ratio, latency = metrics["ratio"], human.duration(metrics["latency"]["median"])
        interval = (ratio["low"], ratio["high"]) if each.number else (None, None)
        figure = f"{ratio_text(ratio)} · {latency}" if each.number else latency
        rows.append(Row(_label(each), figure, [Stroke(each.kind, ratio["median"], *interval)]))
    return rows


def _sizes(shown: Sequence[Proposal]) -> list[Row]:
    whole = shown[0].trial["metrics"]["size"]
    rows = []
    for each in shown:
        size = each.trial["metrics"]["size"]
        figure = f"{size / whole:.2f} · {human.size(size)}" if each.number else human.size(size)
        rows.append(Row(_label(each), figure, [Stroke(each.kind, size / whole)]))
    return rows


def _lost(data: Plain, shown: Sequence[Proposal]) -> Markup:
    """Bars of the lost quality relative to the allowed loss; where none is allowed or no limit set, to the largest."""
    allowed = data["gate"]["max_drop"]
    most = max((p.drop for p in shown if p.drop < float("inf")), default=0.0)
    unit = allowed or (most if most > 0 else 1.0)
    rows = []
    for each in shown:
        quality = each.trial["metrics"]["quality"]
        figure = f"{each.drop:.2g} · {quality_text(quality)}"
        rows.append(Row(_label(each), figure, [Stroke(each.kind, each.drop / unit)]))
    note = f"the line is what may be lost: {allowed:g}" if allowed else "nothing may be lost"
    return _chart("Quality lost", note if allowed is not None else "any", rows, _LOST, 1.0 if allowed else None)


def by_operator(data: Plain) -> Markup:
    """Bars of the operators that take most, before and after."""
    found = data["operators"]
    if found["missing"]:
        return tag("p", f"Not measured: {found['missing']}.", class_="faint")
    before, after = ({p["operator"]: p["seconds"] for p in found[side]} for side in ("before", "after"))
    if not before and not after:
        return tag("p", "Nothing runs: ONNX Runtime computed everything when it opened the model.", class_="faint")
    names = sorted({*before, *after}, key=lambda n: (-max(before.get(n, 0.0), after.get(n, 0.0)), n))
    sides = [("was", before)] if before == after else [("was", before), ("kept", after)]
    rows = [_operator(tag("code", name), [name], sides) for name in names[:_MAX_OPERATORS]]
    if names[_MAX_OPERATORS:]:
        rows.append(_operator(f"{len(names) - _MAX_OPERATORS} other", names[_MAX_OPERATORS:], sides))
    total = " → ".join(human.duration(sum(times.values())) for _, times in sides)
    told = "the result is the original" if len(sides) == 1 else "both ran by turns"
    keys = [legend_of_bars(("was", "before"), ("kept", "after"))] if len(sides) > 1 else []
    most = max((stroke.value for row in rows for stroke in row.strokes), default=0.0)
    note = tag("p", f"By ONNX Runtime's own profile; {told}: {total} in kernels.", class_="faint small")
    return joined([note, bars(rows, most or 1.0), *keys])


def _operator(label: object, names: Sequence[str], sides: Sequence[tuple[str, Mapping[str, float]]]) -> Row:
    """The time of some operators on each side that has them."""
    times = [(kind, sum(found.get(name, 0.0) for name in names)) for kind, found in sides]
    figure = " → ".join(human.duration(time) if time else "–" for _, time in times)
    return Row(label, figure, [Stroke(kind, time) for kind, time in times if time or len(sides) == 1])
