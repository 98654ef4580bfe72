"""The models of a sweep as one page, made of the plain data of ``Sweep.to_json()`` and nothing else."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from onnxrewrite.report import human
from onnxrewrite.report.html.frame import Frame, file, filled
from onnxrewrite.report.html.markup import Markup, escaped, facts, joined, table, tag
from onnxrewrite.report.html.sections import tile
from onnxrewrite.report.plain_reports import ModelRow, SweepReport
from onnxrewrite.report.sweep_report import counted, status_text, sweep_line

_BAD = ("failed", "died", "bug", "unusable")


def sweep_page(data: SweepReport) -> str:
    """The page of all models on record in the output folder: those of this sweep, and those of other shards.

    The same data give the same bytes.
    """
    rows = sorted([*data["models"], *data["others"]], key=lambda row: row["output"])
    whole: SweepReport = {**data, "models": rows, "others": []}
    parts = {
        "verdict": _verdict(rows),
        "tiles": _tiles(rows),
        "reasons": _reasons(rows),
        "slowest": _slowest(rows),
        "models": table(
            ["model", "status", "nodes>", "size>", "ratio>", "seconds>"],
            [_cells(row) for row in rows],
            class_="models",
        ),
        "notes": _notes(data),
    }
    name = PurePath(data["out"]).name or data["out"]
    frame = Frame(
        kicker="onnxrewrite sweep",
        name=name,
        title=f"{name}: {sweep_line(whole)}",
        subtitle=sweep_line(whole),
        skip=("models", "Skip to the models"),
    )
    return frame.around(filled(file("sweep.html"), parts))


def _verdict(rows: Sequence[ModelRow]) -> Markup:
    counts = counted(rows)
    waiting, bad = counts.get("waiting", 0), sum(counts.get(status, 0) for status in _BAD)
    if waiting:
        sentence = f"{human.plural(waiting, 'model')} of {len(rows)} not done yet: the same command goes on."
        return tag("p", sentence, class_="verdict warning")
    if bad:
        return tag("p", f"{human.plural(bad, 'model')} of {len(rows)} not done.", class_="verdict warning")
    return tag("p", "All models are done.", class_="verdict good")


def _tiles(rows: Sequence[ModelRow]) -> Markup:
    done = [row for row in rows if row["status"] == "done"]
    found = [tile("Models", str(len(rows)), human.listed(f"{n} {s}" for s, n in counted(rows).items()))]
    for label, name, shown in (("Nodes", "nodes", str), ("Size", "size", human.size)):
        found.append(_total(label, [row[name] for row in done], shown))  # type: ignore[literal-required]
    ratios = [row["ratio"] for row in done if row["ratio"] is not None]
    if ratios:
        worst = f"slowest {max(ratios):.2f}, fastest {min(ratios):.2f}"
        found.append(tile("Time, median", f"{statistics.median(ratios):.2f}", worst))
    spent = sum(row["seconds"] for row in rows)
    found.append(tile("Work", human.duration(spent), f"{human.duration(spent / len(rows))} a model" if rows else ""))
    return tag("ul", *found, class_="tiles")


def _total(label: str, changes: Sequence[Mapping[str, int] | None], shown: Callable[[int], str]) -> Markup:
    before = sum(change["before"] for change in changes if change)
    after = sum(change["after"] for change in changes if change)
    return tile(label, f"{shown(before)} → {shown(after)}", human.change(before, after) if before else "")


def _reasons(rows: Sequence[ModelRow]) -> Markup:
    """Errors with the number of models that they are of, the most frequent first."""
    groups = Counter((row["status"], row["error"]) for row in rows if row["error"])
    if not groups:
        return tag("p", "None.", class_="faint")
    found = []
    for (status, error), count in sorted(groups.items(), key=lambda item: (-item[1], item[0])):
        names = [row["model"] for row in rows if (row["status"], row["error"]) == (status, error)]
        found.append((status, error, str(count), human.listed(names, 3)))
    return table(["status", "error", "models>", "such as"], found)


def _slowest(rows: Sequence[ModelRow]) -> Markup:
    """The models that took longest, and those whose result is slowest."""
    longest = sorted(rows, key=lambda row: -row["seconds"])[:5]
    pairs = [("Took longest", f"{row['model']}: {human.duration(row['seconds'])}") for row in longest]
    measured = [row for row in rows if row["ratio"] is not None]
    for row in sorted(measured, key=lambda row: -(row["ratio"] or 0.0))[:5]:
        at = f" on {row['machine']}" if row["machine"] else ""
        pairs.append(("Gained least", f"{row['model']}: {row['ratio']:.2f} of the time{at}"))
    return facts(pairs)


def _cells(row: ModelRow) -> list[object]:
    name: Markup = escaped(row["model"])
    if row["error"]:
        name = joined([name, tag("div", row["error"], class_="warning small")])
    status = tag("span", status_text(row), class_="warning" if row["status"] in _BAD else None)
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return [name, status, _change(row["nodes"], str), _change(row["size"], human.size), ratio, f"{row['seconds']:.1f}"]


def _change(values: Mapping[str, int] | None, shown: Callable[[int], str]) -> str:
    return "" if values is None else f"{shown(values['before'])} → {shown(values['after'])}"


def _notes(data: SweepReport) -> Markup:
    pairs = [("Left out", f"{each['path']}: {each['reason']}") for each in data["left_out"]]
    pairs += [("Note", note) for note in data["notes"]]
    return facts(pairs) if pairs else tag("p", "None.", class_="faint")
