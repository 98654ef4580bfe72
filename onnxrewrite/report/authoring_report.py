"""Reports of ``capture`` and ``mine``, for people; made of the plain data of ``authoring``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report.human import duration, plural
from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.system.plain import Plain

_SHOWN = 6


def captured_report(data: Plain) -> RenderableType:
    """The files that were written, the captures of the pattern, and the next step."""
    count, places = plural(data["operators"], "operator"), plural(len(data["places"]), "place")
    parts: list[RenderableType] = [
        Text.assemble((data["name"], "bold"), f" matches {count} at {places} of ", (data["model"], "bold")),
        "",
    ]
    table = plain_table("capture", "kind", "here", "elsewhere")
    for each in data["captures"]:
        elsewhere = "differs" if each["differs"] else "the same" if len(data["places"]) > 1 else ""
        table.add_row(Text(each["name"]), each["kind"], Text(each["what"]), elsewhere)
    if data["captures"]:
        parts += [Padding(table, (0, 0, 0, 2)), ""]
    shown = [f"`{p}`" for p in data["places"][:_SHOWN]]
    more = len(data["places"]) - len(shown)
    facts = [("Places", ", ".join(shown) + (f" and {more} more" if more > 0 else ""))]
    facts += [("Note", note) for note in data["notes"]]
    rule, test = data["files"]
    facts.append(("Next", f"fill in the rewrite in {rule}, then: python -m pytest {test}"))
    parts += [facts_grid(facts), "", Text(f"Wrote {rule} and {test}")]
    return Group(*parts)


def mined_report(rows: Sequence[Plain]) -> RenderableType:
    """The subgraphs that recur, and the command for each."""
    if not rows:
        return Text("Nothing recurs that no rule takes in.")
    timed = any(r["seconds"] is not None for r in rows)
    many = len({model for r in rows for model in r["models"]}) > 1
    columns = [*(["time>"] if timed else []), "places>", *(["models>"] if many else []), "nodes>", "operators"]
    table = plain_table(">", *columns)
    for number, row in enumerate(rows, 1):
        cells = [duration(row["seconds"])] if timed else []
        cells += [str(row["places"]), *([str(len(row["models"]))] if many else []), str(len(row["operators"]))]
        table.add_row(str(number), *cells, Text(_operators(row["operators"])))
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2)), ""]
    for number, row in enumerate(rows, 1):
        parts.append(Text(f"{number}: {row['command']}", no_wrap=True))
    return Group(*parts)


def _operators(operators: Sequence[str]) -> str:
    """Operators in the order in which they first occur, with how many there are."""
    return ", ".join(f"{count}× {name}" if count > 1 else name for name, count in Counter(operators).items())
