"""The reports of ``sensitivity`` and ``half``: tables for people, a plot of the ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import HalfReport, QualityReport, SensitivityReport
from onnxrewrite.report.plots import plottable, save_plot
from onnxrewrite.report.summary import grouped
from onnxrewrite.report.table import facts_grid, plain_table

_NAME = 60
_LINES = 60
_REASONS = 6

_METHODS = {
    "alone": "each node alone quantized, against the outputs of the float model",
    "local": "each node's own result, on the float model's inputs",
    "accumulated": "each node's result, on inputs as the quantized model makes them",
}


def sensitivity_report(data: SensitivityReport, *, top: int | None = None) -> RenderableType:
    """The ranking, ``Sensitivity.to_json()`` with ``model``, ``excluded`` and ``output``, for people."""
    nodes = data["nodes"][:top]
    table = plain_table("", "node", "operator", "SNR, dB>", "drop>", "in float, larger by>")
    table.columns[1].no_wrap = True
    excluded = set(data.get("excluded", ()))
    for number, node in enumerate(nodes, 1):
        table.add_row(
            str(number),
            Text(human.shortened(node["name"], _NAME), "bold" if node["name"] in excluded else ""),
            node["operator"],
            "unchanged" if node["snr"] is None else f"{node['snr']:.1f}",
            f"{node['drop']:.2g}",
            human.size(node["bytes"]) if node["bytes"] else "",
        )
    if len(nodes) < len(data["nodes"]):
        table.add_row("", Text(f"{len(data['nodes']) - len(nodes)} more, see --top", "dim"))
    heading = Text.assemble((data["model"], "bold"), f": {data['name']}; {_METHODS[data['method']]}")
    return Group(heading, "", Padding(table, (0, 0, 0, 2)), "", facts_grid(_facts(data)))


def _facts(data: SensitivityReport) -> list[tuple[str, str]]:
    facts = [("All quantized", quality_line(data["quality"]))]
    if data["explained"] is not None:
        facts.append(("Adds up", f"the nodes' noises one by one are {data['explained']:.2f} times that of all at once"))
    facts += _of_data(data["quality"])
    if data.get("excluded"):
        facts.append(("In float", human.listed(data["excluded"], 6)))
    if (result := data.get("result")) is not None:
        facts.append(("Written", f"{data['output']}: {quality_line(result)}"))
    return facts


def quality_line(quality: QualityReport) -> str:
    """``worst output logits: 34.1 dB, cosine 0.9998``."""
    name = quality["worst"]
    if name is None:
        return "the model has no outputs"
    worst = quality["outputs"][name]
    parts = ["equal" if worst["snr"] is None else f"{worst['snr']:.1f} dB", f"cosine {worst['cosine']:.4f}"]
    if worst["agreement"] is not None:
        parts = [f"{worst['agreement']:.1%} equal"]
    if quality["metric"] is not None:
        parts.append(f"metric {quality['metric']:.4g} of {quality['baseline']:.4g}")
    return f"worst output {name}: {', '.join(parts)}"


def _of_data(quality: QualityReport) -> list[tuple[str, str]]:
    if not quality["generated"]:
        return [("Data", quality["data"]), *(("Doubt", doubt) for doubt in quality["doubts"])]
    return [("Data", "made up, which says little of real data; give --data")]


def half_report(data: HalfReport) -> RenderableType:
    """The result of ``half``, ``Halved.to_json()`` with ``model`` and ``output``, for people."""
    total = len(data["converted"]) + len(data["kept"])
    before, after = data["size"]["before"], data["size"]["after"]
    facts = [
        ("Converted", f"{len(data['converted'])} of {human.plural(total, 'node')} to {data['dtype']}"),
        ("Size", f"{human.size(before)} to {human.size(after)} {human.change(before, after)}".rstrip()),
    ]
    if data["quality"] is not None:
        facts += [("Quality", quality_line(data["quality"])), *_of_data(data["quality"])]
    facts += [("Note", note) for note in data["notes"]]
    parts: list[RenderableType] = [Text(data["model"], "bold"), ""]
    if data["kept"]:
        parts += [_kept(data["kept"]), ""]
    return Group(*parts, facts_grid(facts))


def _kept(kept: Mapping[str, str]) -> RenderableType:
    """Reasons, how many nodes each keeps, and one of them."""
    counts = Counter(map(grouped, kept.values()))
    table = plain_table("kept in float32>", "because", "as")
    for reason, count in counts.most_common(_REASONS):
        first = next(name for name, why in kept.items() if grouped(why) == reason)
        table.add_row(str(count), Text(reason), Text(human.shortened(first, _NAME)))
    rest = counts.total() - sum(count for _, count in counts.most_common(_REASONS))
    if rest:
        table.add_row(str(rest), Text("other reasons, see --json", "dim"))
    return Padding(table, (0, 0, 0, 2))


def plot_sensitivity(data: SensitivityReport, path: Path) -> None:
    """Bars of the signal-to-noise ratio, the most sensitive node on top, written to ``path``.

    Raises:
        UsageError: matplotlib is missing, or the name says no format.
        ModelError: The file cannot be written.
    """
    plottable(path)
    from matplotlib.figure import Figure

    nodes = [n for n in data["nodes"] if n["snr"] is not None][:_LINES]
    excluded = set(data.get("excluded", ()))
    figure = Figure(figsize=(9, 0.22 * len(nodes) + 1.2), layout="constrained")
    axes = figure.subplots()
    names = [human.shortened(n["name"], _NAME) for n in nodes]
    colours = ["tab:orange" if n["name"] in excluded else "tab:blue" for n in nodes]
    axes.barh(range(len(nodes)), [n["snr"] or 0.0 for n in nodes], color=colours)
    axes.set_yticks(range(len(nodes)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("signal-to-noise ratio in dB; lower is more sensitive")
    axes.set_title(f"{data['model']}: {data['name']}", fontsize=9)
    save_plot(figure, path)
