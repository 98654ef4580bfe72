"""The report of ``sweep``: a row a model, and why models failed.  Made of the plain data of ``Sweep``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import ModelRow, SweepReport
from onnxrewrite.report.table import facts_grid, plain_table

_STYLES = {
    "done": "bold green",
    "failed": "bold red",
    "died": "bold red",
    "bug": "bold red",
    "unusable": "bold yellow",
    "waiting": "",
}


_MANY = 100
"""Models of which a table shows those that are not done only; the page has all."""


def sweep_report(data: SweepReport, *, verbose: bool = False) -> RenderableType:
    """The result of ``sweep``, ``Sweep.to_json()``; ``verbose`` shows all models and all notes."""
    rows = data["models"]
    shown = rows if verbose or len(rows) <= _MANY else [row for row in rows if row["status"] not in ("done", "waiting")]
    measured = any(row["ratio"] is not None for row in shown)
    table = plain_table("model", "", "nodes>", "size>", *(["ratio>"] if measured else []), "seconds>")
    for row in shown:
        cells = [_change(row["nodes"], str), _change(row["size"], human.size)]
        if measured:
            cells.append("" if row["ratio"] is None else f"{row['ratio']:.2f}")
        status = status_text(row)
        table.add_row(row["model"], Text(status, _STYLES.get(row["status"], "")), *cells, f"{row['seconds']:.1f}")
    facts = _facts(data, verbose=verbose)
    parts = [Padding(table, (0, 0, 0, 2))] if shown else []
    return Group(*parts, *([*([""] if parts else []), facts_grid(facts)] if facts else []))


def status_text(row: ModelRow) -> str:
    """``done``, ``done, known``, ``died, 2 attempts``."""
    known = ", known" if row["resumed"] else ""
    attempts = f", {row['attempts']} attempts" if row["attempts"] > 1 else ""
    return f"{row['status']}{known}{attempts}"


def sweep_line(data: SweepReport) -> str:
    """``38 models: 36 done, 1 failed, 1 unusable``."""
    rows = data["models"]
    counts = counted(rows)
    known = sum(row["resumed"] for row in rows)
    told = human.listed(f"{count} {status}" for status, count in counts.items())
    return f"{human.plural(len(rows), 'model')}: {told}{f' ({known} of them earlier)' if known else ''}"


def counted(rows: Sequence[ModelRow]) -> dict[str, int]:
    """The number of models of each status that occurs, what is done first and what waits last."""
    counts = Counter(row["status"] for row in rows)
    return {status: counts[status] for status in _STYLES if counts[status]}


def _change(values: Mapping[str, int] | None, shown: Callable[[int], str]) -> str:
    return "" if values is None else f"{shown(values['before'])} → {shown(values['after'])}"


def _facts(data: SweepReport, *, verbose: bool) -> list[tuple[str, str]]:
    """The errors of models, what was left out, and notes: those of single models only if ``verbose``."""
    rows = data["models"]
    facts = [(row["status"].capitalize(), f"{row['model']}: {row['error']}") for row in rows if row["error"]]
    facts.sort(key=lambda fact: list(_STYLES).index(fact[0].lower()))
    facts += [("Left out", f"{each['path']}: {each['reason']}") for each in data["left_out"]]
    facts += [("Note", note) for note in data["notes"]]
    done = [{note for note in row["notes"] if note.startswith("--dim ")} for row in rows if row["status"] == "done"]
    common = set.intersection(*done) if done else set()  # a size that no model has is a slip of the pen
    facts += [("Note", note) for note in sorted(common)]
    if verbose:
        facts += [("Note", f"{row['model']}: {note}") for row in rows for note in row["notes"] if note not in common]
    return facts
