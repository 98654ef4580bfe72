"""The report of ``recheck``: figures as they were recorded and as they are now, and versions that have changed."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import FigureRow, RecheckReport
from onnxrewrite.report.table import facts_grid, plain_table


def recheck_report(data: RecheckReport) -> RenderableType:
    """The result of ``recheck``, ``Recheck.to_json()``."""
    table = plain_table("", "recorded>", "now>", "ratio>", "")
    for row in data["figures"]:
        verdict = Text("worse", "bold red") if row["regression"] else Text(row["note"] or "as recorded", "dim")
        table.add_row(row["name"], *_values(row), verdict)
    facts = [("Regression", each) for each in data["regressions"]]
    facts += [("Version", f"{d['name']} {d['recorded'] or 'none'} → {d['now'] or 'none'}") for d in data["drift"]]
    facts += [("Note", note) for note in data["notes"]]
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2))] if data["figures"] else []
    return Group(*parts, *([*([""] if parts else []), facts_grid(facts)] if facts else []))


def recheck_line(data: RecheckReport) -> str:
    """``deployed: as recorded``."""
    count = len(data["regressions"])
    return f"{data['folder']}: {human.plural(count, 'regression') if count else 'as recorded'}"


def _values(row: FigureRow) -> tuple[str, str, str]:
    recorded, now = row["recorded"], row["now"]
    show = human.size if row["unit"] == "bytes" else (lambda v: f"{v:.6f}" if not row["unit"] else f"{v:.3g}")
    ratio = f"{now / recorded:.2f}" if row["unit"] and now is not None and recorded else ""
    return show(recorded), "" if now is None else show(now), ratio
