"""The report of ``canary``: a row a version, what is worse, and how the optimized models differ."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import CanaryReport, VersionRow
from onnxrewrite.report.table import facts_grid, plain_table


def canary_report(data: CanaryReport) -> RenderableType:
    """The result of ``canary``, ``Canary.to_json()``."""
    table = plain_table("onnxruntime", "outputs", "opens>", "run>", "ratio>", "memory>", "nodes>")
    for row in data["versions"]:
        table.add_row(row["name"], _outputs(row), *_figures(row))
    facts = [(f"{v['name']}", _cause(v)) for v in data["versions"] if v["failure"] or v["difference"]]
    facts += [("Worse", each) for each in data["regressions"] if not any(each.startswith(f"{n}:") for n, _ in facts)]
    first = data["versions"][0]
    facts += [("Optimized", changed) for v in data["versions"][1:] if (changed := _changed(first, v))]
    facts += [("Note", note) for note in data["notes"]]
    return Group(Padding(table, (0, 0, 0, 2)), *(["", facts_grid(facts)] if facts else []))


def canary_line(data: CanaryReport) -> str:
    """``1.31.0, 1.32.0: no drift``."""
    names = human.listed(v["name"] for v in data["versions"])
    worse = data["regressions"]
    return f"{names}: {human.plural(len(worse), 'regression') if worse else 'no drift'}"


def _outputs(row: VersionRow) -> Text:
    if row["failure"]:
        return Text("does not run", "bold red")
    if row["difference"]:
        return Text("differ", "bold red")
    return Text("equal" if not row["error"] else f"error {human.error(row['error'])}", "bold green")


def _figures(row: VersionRow) -> list[str]:
    creation, latency, span = row["creation"], row["latency"], row["ratio"]
    return [
        "" if creation is None else human.duration(creation["median"]),
        "" if latency is None else human.duration(latency["median"]),
        "" if span is None else f"{span['median']:.2f}",
        "" if row["memory"] is None else human.size(row["memory"]),
        str(sum(row["operators"].values())) if row["operators"] else "",
    ]


def _cause(row: VersionRow) -> str:
    fault = row["failure"] or row["difference"]
    if row["unoptimized"]:
        return f"{fault}; the same without optimizations, so no optimizer is the cause"
    if not row["culprit"]:
        return f"{fault}; right without optimizations; no optimizer that can be disabled by name is the cause"
    names = " and ".join(row["culprit"])
    more = f", with {' and '.join(row['with'])}" if row["with"] else ""
    return f"{fault}; caused by {names}{more}: right without it"


def _changed(first: VersionRow, other: VersionRow) -> str:
    """Operators of the optimized model of which there are more or fewer than in the first version."""
    if not first["operators"] or not other["operators"]:
        return ""
    names = sorted({*first["operators"], *other["operators"]})
    moves = [(n, other["operators"].get(n, 0) - first["operators"].get(n, 0)) for n in names]
    told = [f"{human.signed(count)} {name}" for name, count in moves if count]
    return f"{other['name']} against {first['name']}: {human.listed(told, 8)}" if told else ""
