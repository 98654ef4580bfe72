"""The report of ``tune list``: what the database of measurements holds, a line a group of rows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding

from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.system.plain import Plain

_SHOWN = 12


def tune_report(data: Plain) -> RenderableType:
    """``data`` is what ``suite.tuning.overview`` returned."""
    table = plain_table("machines", "ONNX Runtime", "from", "of", "rows>", "measured")
    for each in data["groups"]:
        days = each["first"] if each["first"] == each["last"] else f"{each['first']} to {each['last']}"
        cells = each["ort"].partition(" ")[0], each["source"][:_SHOWN] or "here", each["kind"], str(each["rows"]), days
        table.add_row(each["machine_class"], *cells)
    facts = [("Quarantine", f"{source[:_SHOWN]}: {why}") for source, why in data["quarantine"].items()]
    return Group(Padding(table, (0, 0, 0, 2)), *(["", facts_grid(facts)] if facts else []))
