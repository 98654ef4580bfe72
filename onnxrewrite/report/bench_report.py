"""The report of ``bench``: tables for people, a plot for papers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.measure.timing import TimingRow
from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import BenchReport, ErrorRow, VariantRow
from onnxrewrite.report.plots import plottable, save_plot
from onnxrewrite.report.table import facts_grid, plain_table

_Timed: TypeAlias = Sequence[tuple[VariantRow, TimingRow]]


def bench_report(data: BenchReport) -> RenderableType:
    """The result of ``bench``, ``Bench.to_json()``, for people."""
    timed = [(v, v["timing"]) for v in data["variants"] if v["timing"] is not None]
    parts: list[RenderableType] = [
        _heading(data, timed),
        "",
        _times(timed, data["reference"]),
        "",
        _models(data["variants"]),
    ]
    if any(v["throughput"] for v, _ in timed):
        parts += ["", _throughputs(timed)]
    facts = _facts(data)
    return Group(*parts, *(["", facts_grid(facts)] if facts else []))


def _heading(data: BenchReport, timed: _Timed) -> Text:
    threads = human.plural(data["threads"], "thread") if data["threads"] else "threads as ONNX Runtime chooses"
    at = f"at {human.sizes(data['binding'])}, " if data["binding"] else ""
    rounds = human.plural(timed[0][1]["rounds"], "round") if timed else ""
    return Text.assemble((data["model"], "bold"), f": {at}{data['provider']}, {threads}, {rounds}")


def _times(timed: _Timed, reference: str) -> RenderableType:
    """Each beside the original as ONNX Runtime optimizes it; below 1 is faster."""
    table = plain_table("variant", "latency>", "95 %", "ratio>", "95 %", "CPU time>", "opens in>", "memory>")
    for column in (2, 4):
        table.columns[column].no_wrap = True
    for variant, timing in timed:
        latency, ratio, creation = timing["latency"], variant["ratio"], variant["creation"]
        table.add_row(
            Text(variant["name"], "bold" if variant["kind"] == "ours" else ""),
            human.duration(latency["median"]),
            human.durations(latency["low"], latency["high"]),
            f"{ratio['median']:.2f}" if ratio is not None else "",
            f"{ratio['low']:.2f}–{ratio['high']:.2f}" if ratio is not None and variant["name"] != reference else "",
            human.duration(timing["cpu"]),
            human.duration(creation["median"]) if creation is not None else "",
            human.size(variant["memory"]) if variant["memory"] is not None else "",
        )
    return Padding(table, (0, 0, 0, 2))


def _models(variants: Sequence[VariantRow]) -> RenderableType:
    """A row for each model; the original is one at all levels."""
    table = plain_table("model", "nodes>", "size>", "optimized in>", "largest error>")
    originals = [v for v in variants if v["kind"] == "original"][:1]
    for variant in [*originals, *(v for v in variants if v["kind"] != "original" and v["nodes"] is not None)]:
        took, error = variant["optimization"], variant["error"]
        name = "original" if variant["kind"] == "original" else variant["name"]
        table.add_row(
            Text(f"{name} {variant['version']}".rstrip()),
            str(variant["nodes"]),
            human.size(variant["size"] or 0),
            human.duration(took) if took is not None else "",
            _error(error) if error is not None else "",
        )
    return Padding(table, (0, 0, 0, 2))


def _error(error: ErrorRow) -> Text:
    if error["failure"]:
        return Text("differs", "bold red")
    return Text(human.error(error["largest"]))


def _throughputs(timed: _Timed) -> RenderableType:
    """Samples a second by batch size."""
    batches = list(dict.fromkeys(batch for v, _ in timed for batch in v["throughput"]))
    table = plain_table("samples a second", *(f"batch {batch}>" for batch in batches))
    for variant, _ in timed:
        found = (variant["throughput"].get(batch) for batch in batches)
        table.add_row(Text(variant["name"]), *(human.digits(f["median"]) if f is not None else "" for f in found))
    return Padding(table, (0, 0, 0, 2))


def _facts(data: BenchReport) -> list[tuple[str, str]]:
    facts = []
    for variant in data["variants"]:
        if variant["failure"]:
            facts.append(("Failed", f"{variant['name']}: {variant['failure']}"))
        if variant["error"] is not None and variant["error"]["failure"]:
            facts.append(("Differs", f"{variant['name']}: {variant['error']['failure']}"))
    return facts + [("Note", note) for note in data["notes"]]


def bars(data: BenchReport) -> list[tuple[str, float, float, float]]:
    """A bar for each timed variant: name, latency in milliseconds, extent of its interval below and above."""
    found = []
    for variant in data["variants"]:
        if variant["timing"] is not None:
            latency = variant["timing"]["latency"]
            low, median, high = (1e3 * each for each in (latency["low"], latency["median"], latency["high"]))
            found.append((variant["name"], median, median - low, high - median))
    return found


def plot(benches: Iterable[BenchReport], path: Path) -> None:
    """Horizontal bars with intervals, a panel for each model, written to ``path``.

    Raises:
        UsageError: see ``plots.plottable``.
        ModelError: The file cannot be written.
    """
    plottable(path)
    from matplotlib.figure import Figure

    shown = [(data["model"], bars(data)) for data in benches]
    heights = [len(rows) + 2 for _, rows in shown]
    figure = Figure(figsize=(8, 0.35 * sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(shown), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for panel, (model, rows) in zip(panels, shown, strict=True):
        names, medians, below, above = zip(*rows, strict=True)
        panel.barh(range(len(rows)), medians, xerr=(below, above), capsize=3)
        panel.set_yticks(range(len(rows)), names)
        panel.invert_yaxis()
        panel.set_xlabel("latency in ms, median and 95 % confidence interval")
        panel.set_title(model)
    save_plot(figure, path)
