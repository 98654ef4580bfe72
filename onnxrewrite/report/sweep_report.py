"""The report of ``sweep``: a row a model, and why models failed.  Made of the plain data of ``Sweep``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import SweepReport
from onnxrewrite.report.table import facts_grid, plain_table

_STYLES = {
    "done": "bold green",
    "failed": "bold red",
    "died": "bold red",
    "bug": "bold red",
    "unusable": "bold yellow",
}


def sweep_report(data: SweepReport, *, verbose: bool = False) -> RenderableType:
    """The result of ``sweep``, ``Sweep.to_json()``; ``verbose`` shows all notes."""
    rows = data["models"]
    measured = any(row["ratio"] is not None for row in rows)
    table = plain_table("model", "", "nodes>", "size>", *(["ratio>"] if measured else []), "seconds>")
    for row in rows:
        cells = [_change(row["nodes"], str), _change(row["size"], human.size)]
        if measured:
            cells.append("" if row["ratio"] is None else f"{row['ratio']:.2f}")
        status = f"{row['status']}, known" if row["resumed"] else row["status"]
        table.add_row(row["model"], Text(status, _STYLES.get(row["status"], "")), *cells, f"{row['seconds']:.1f}")
    facts = _facts(data, verbose=verbose)
    return Group(Padding(table, (0, 0, 0, 2)), *(["", facts_grid(facts)] if facts else []))


def sweep_line(data: SweepReport) -> str:
    """``38 models: 36 done, 1 failed, 1 unusable``."""
    rows = data["models"]
    counts = Counter(row["status"] for row in rows)
    known = sum(row["resumed"] for row in rows)
    told = human.listed(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    return f"{human.plural(len(rows), 'model')}: {told}{f' ({known} of them earlier)' if known else ''}"


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
