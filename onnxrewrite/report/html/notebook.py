"""HTML for notebooks in place of a repr: a few lines and tables, without scripts and styles but for the cells' own."""

from __future__ import annotations

from collections.abc import Sequence

from onnxrewrite.report import human
from onnxrewrite.report.deploy_report import deploy_facts, headline, quality_text, ratio_text
from onnxrewrite.report.html import sections
from onnxrewrite.report.html.markup import Markup, facts, folded, joined, table, tag
from onnxrewrite.report.html.proposals import proposals, shown_of
from onnxrewrite.report.summary import Summary
from onnxrewrite.report.table import WARNINGS, apply_facts
from onnxrewrite.system.plain import Plain

_MAX_PLACES = 5


def result_html(data: Summary) -> str:
    """The result of ``apply``; ``data`` is what ``summary`` returned."""
    nodes, size = data["nodes"], data["size"]
    name = data["model"] or data["graph"] or "model"
    figures = [
        sections.headline(data),
        f"{nodes['before']} → {nodes['after']} nodes",
        f"{human.size(size['before'])} → {human.size(size['after'])}",
        f"{data['target']}, opset {data['opset']}",
    ]
    rows = [[tag("code", r["rule"]), r["applied"], r["refused"]] for r in data["rules"] if r["applied"]]
    parts: list[object] = [
        tag("p", tag("strong", name), ": ", "; ".join(figures)),
        tag("p", sections.verdict(data)[1]),
        facts(apply_facts(data, verbose=False), WARNINGS),
    ]
    if rows:
        parts.append(
            folded(f"{human.plural(len(rows), 'rule')} applied", table(["rule", "applied>", "refused>"], rows))
        )
        parts.append(folded("operators", sections.operators(data)))
    return _cell(parts)


def outcome_html(data: Plain) -> str:
    """The result of ``optimize``; ``data`` is ``Outcome.to_json()``."""
    columns = ["stage", "proposal", "of the original>", "size>", "quality>", "", "why"]
    rows: list[list[object]] = []
    for each in shown_of(data, proposals(data))[1:]:
        metrics = each.trial["metrics"]
        measured = [ratio_text(metrics["ratio"]), human.size(metrics["size"]), quality_text(metrics["quality"])]
        rows.append([each.stage, each.trial["how"], *measured, each.state, each.reason])
    rows += [[s["stage"], "", "", "", "", s["state"], s["reason"]] for s in data["steps"] if not s["trials"]]
    return _cell(
        [
            tag("p", tag("strong", data["model"]), f": {headline(data)}"),
            facts(deploy_facts(data)[1:], WARNINGS),
            folded(human.plural(len(data["steps"]), "stage"), table(columns, rows)),
        ]
    )


def explanation_html(data: Plain) -> str:
    """The reasons why a rule does not apply; ``data`` is ``Explanation.to_json()``."""
    applied = len(data["applied"])
    head = f" applies at {human.plural(applied, 'place')}" if applied else " does not apply"
    rows = []
    for group in data["groups"]:
        first = group["places"][0]
        have = "all" if first["guard"] else f"{first['matched']} of {first['operators']}"
        rows.append([len(group["places"]), have, _reason(first), _places(group["places"])])
    parts: list[object] = [tag("p", tag("strong", data["rule"]), head)]
    if rows:
        parts.append(table(["places>", "operators there", "what is in the way", "where"], rows))
    else:
        parts.append(tag("p", "Nothing else comes near." if applied else "It does not come near anywhere."))
    return _cell(parts)


def _reason(place: Plain) -> Markup:
    otherwise = [tag("div", f"without that: {place['otherwise']}")] if place["otherwise"] else []
    return joined([place["reason"], *otherwise])


def _places(places: Sequence[Plain]) -> Markup:
    named = [
        tag("div", tag("code", p["node"]), f" ({p['source']})" if p["source"] else "") for p in places[:_MAX_PLACES]
    ]
    rest = len(places) - len(named)
    return joined([*named, *([tag("div", f"and {rest} more")] if rest else [])])


def _cell(parts: Sequence[object]) -> str:
    return str(tag("div", *parts, class_="onnxrewrite"))
