"""The report of ``quantize``: what was quantized, what was left and why, how close and how fast it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.measure.timing import Span
from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import CandidateRow, ClosenessRow, QualityReport, QuantizedReport, TextRow
from onnxrewrite.report.table import facts_grid, plain_table

_MAX_NAMES = 2
_MAX_OPERATORS = 8
_WIDTH = 60


def quantize_report(data: QuantizedReport) -> RenderableType:
    """The result of ``quantize`` or ``compare``, its ``to_json()`` with ``model``, for people."""
    parts: list[RenderableType] = [Text.assemble((data["model"], "bold"), f": {data['name']}"), ""]
    if "candidates" in data:
        parts += [_candidates(data["candidates"], data["name"], data["size"]["before"]), ""]
    parts += [_operators(data), ""]
    if data["quality"] is not None:
        parts += [_closeness(data["quality"]["outputs"]), ""]
    return Group(*parts, facts_grid(_facts(data)))


def _candidates(found: Sequence[CandidateRow], best: str, before: int) -> RenderableType:
    """Each beside the float original; below 1 is faster and smaller."""
    table = plain_table("candidate", "time>", "95 %", "size>", "cosine>", "SNR>", "top-1>", "max error>", "mean>")
    metric = any(c["quality"] is not None and c["quality"]["metric"] is not None for c in found)
    if metric:
        table.add_column("metric", justify="right")
    table.add_column("", overflow="fold", ratio=1)
    for each in found:
        kept = each["name"] == best
        quality, ratio = each["quality"], each["ratio"]
        cells = [Text(each["name"], "bold" if kept else "")]
        cells += [Text(_number(ratio["median"])), Text(_span(ratio))] if ratio is not None else [Text(), Text()]
        cells += [Text(_number(each["size"] / before) if each["size"] and before else "")]
        cells += _measured(quality, metric)
        cells += [Text("kept", "bold") if kept else Text(each["failure"])]
        table.add_row(*cells)
    return Padding(table, (0, 0, 0, 2))


def _measured(quality: QualityReport | None, metric: bool) -> list[Text]:
    if quality is None:
        return [Text()] * (6 if metric else 5)
    worst = quality["outputs"][quality["worst"]] if quality["worst"] is not None else None
    cells = [Text(cell) for cell in _close(worst)] if worst is not None else [Text()] * 5
    if metric:
        cells.append(Text("" if quality["metric"] is None else f"{quality['metric']:.4g}"))
    return cells


def _close(found: ClosenessRow) -> list[str]:
    """Cosine, signal-to-noise ratio, top-1, largest and mean error."""
    score = found["cosine"] if found["agreement"] is None else found["agreement"]
    snr = "exact" if found["snr"] is None else f"{found['snr']:.1f} dB"
    top1 = "" if found["top1"] is None else human.share(found["top1"])
    return [f"{score:.4f}", snr, top1, human.error(found["largest"]), human.error(found["mean"])]


def _operators(data: QuantizedReport) -> RenderableType:
    """A row for each operator: how many were quantized, and why the others were not."""
    table = plain_table("operator", "quantized>", "left>", "why", "nodes")
    table.columns[4].overflow = "fold"
    left: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in data["left"]:
        left[each["operator"]][each["reason"]].append(each["name"])
    for operator in sorted({*data["operators"], *left}):
        count = str(data["operators"].get(operator, 0) or "-")
        for reason, names in left[operator].items() or (("", []),):
            shown = human.listed([human.shortened(n, _WIDTH) for n in names], _MAX_NAMES)
            table.add_row(Text(operator), count, str(len(names) or "-"), Text(reason), Text(shown))
            operator = count = ""
    return Padding(table, (0, 0, 0, 2))


def _closeness(outputs: Mapping[str, ClosenessRow]) -> RenderableType:
    table = plain_table("output", "cosine>", "SNR>", "top-1>", "max error>", "mean>")
    for name, found in outputs.items():
        table.add_row(Text(human.shortened(name, _WIDTH)), *(Text(cell) for cell in _close(found)))
    return Padding(table, (0, 0, 0, 2))


def _facts(data: QuantizedReport) -> list[tuple[str, str]]:
    before, after = data["size"]["before"], data["size"]["after"]
    share = f", {_number(after / before)} of it" if before else ""
    facts = [("Size", f"{human.size(before)} before, {human.size(after)} after{share}")]
    if data["ratio"] is not None:
        facts.append(
            ("Speed", f"{human.ratio(data['ratio'])} the float original's time, both as ONNX Runtime runs them")
        )
    quality = data["quality"]
    if quality is not None:
        facts.append(("Data", quality["data"]))
        facts += [("Doubt", doubt) for doubt in quality["doubts"]]
        if quality["text"] is not None:
            facts.append(("Tokens", text_line(quality["text"])))
        if quality["metric"] is not None:
            facts.append(("Metric", f"{quality['metric']:.4g}; the original has {quality['baseline']:.4g}"))
    if data["floats"]:
        shown = [f"{name} {count}" for name, count in data["floats"].items()]
        facts.append(("In float", human.listed(shown, _MAX_OPERATORS)))
    return facts + [("Note", note) for note in data["notes"]]


def text_line(found: TextRow) -> str:
    """The tokens and the perplexity of a decoder, in one line."""
    kept = f"{found['agreement']:.1%} of {found['tokens']} greedy tokens are the original's"
    perplexity, baseline = found["perplexity"], found["baseline"]
    if perplexity is None or baseline is None:
        return f"{kept}; the perplexity is infinite"
    return f"{kept}; perplexity {perplexity:.4g}, the original's {baseline:.4g} ({perplexity / baseline - 1:+.1%})"


def _number(value: float) -> str:
    return f"{value:.2f}"


def _span(ratio: Span) -> str:
    return f"{ratio['low']:.2f}–{ratio['high']:.2f}"
