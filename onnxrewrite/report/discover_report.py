"""The report of ``discover``: what was found, what was turned down and why, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report.human import plural
from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.system.plain import Plain

_STYLES = {"found": "bold green", "refuted": "bold red", "not tried": "bold yellow", "not written": "bold yellow"}


def discover_report(data: Plain, *, verbose: bool = False) -> RenderableType:
    """The result of ``discover``, ``Discovery.to_json()``; ``verbose`` tells also why candidates were turned down."""
    table = plain_table("rule", "", "verdict", "nodes>", "places>", "time>", "becomes")
    for each in data["findings"]:
        status = Text(each["status"], _STYLES.get(each["status"], ""))
        verdict = each["verdict"] if each["verdict"] not in (each["status"], "not tried") else ""
        places = sum(len(values) for values in each["places"].values())
        cells = verdict, str(len(each["operators"])), str(places), _span(each["times"]), ", ".join(each["substitute"])
        table.add_row(each["name"], status, *cells)
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2)), ""] if data["findings"] else []
    return Group(*parts, facts_grid(list(_facts(data, verbose=verbose))))


def discover_line(data: Plain) -> str:
    """``2 models: 3 found, 2 too slow, 1 refuted``."""
    counts = Counter(each["status"] for each in data["findings"])
    told = ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing found"
    return f"{plural(len(data['models']), 'model')}: {told}"


def _span(times: list[Plain]) -> str:
    """The lowest and the highest ratio, by the medians."""
    ratios = [f"{t['median']:.2f}" for t in times]
    return "" if not ratios else min(ratios) if min(ratios) == max(ratios) else f"{min(ratios)} to {max(ratios)}"


def _facts(data: Plain, *, verbose: bool) -> Iterator[tuple[str, str]]:
    models = data["models"]
    total = {name: sum(m[name] for m in models) for name in ("regions", "left", "evaluations", "cut_short", "died")}
    left = f", {total['left']} more left out" if total["left"] else ""
    yield "Regions", f"{total['regions']} of {plural(len(models), 'model')}{left}"
    cut = f"; not all uses were tried for {plural(total['cut_short'], 'region')}" if total["cut_short"] else ""
    yield "Kernels", f"{total['evaluations']} uses were evaluated{cut}"
    if total["died"]:
        yield "Died", f"{plural(total['died'], 'region')} at which ONNX Runtime ended the process"
    for model in models:
        if model["error"]:
            yield "Failed", f"{model['model']}: {model['error']}"
    if not data["complete"]:
        yield "Left", "the time ran out, or a model failed; the same command goes on"
    for each in data["findings"]:
        if each["reason"] and (verbose or each["status"] == "refuted"):
            yield each["name"], each["reason"]
    for name, file in data["files"].items():
        yield "Wrote", f"{file}: {name}"
