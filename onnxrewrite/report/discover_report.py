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


_MODES = ("kernels", "regions", "identities")

_COMPARED = {"kernels": "against kernels", "regions": "against regions", "identities": "identities"}


def discover_report(data: Plain, *, verbose: bool = False) -> RenderableType:
    """The result of ``discover``, ``Discovery.to_json()``; ``verbose`` tells also why candidates were turned down, and
    which identities are known already."""
    table = plain_table("rule", "", "verdict", "nodes>", "places>", "time>", "becomes")
    shown = [each for each in data["findings"] if verbose or (each["by"], each["status"]) != ("identities", "known")]
    for each in shown:
        status = Text(each["status"], _STYLES.get(each["status"], ""))
        verdict = each["verdict"] if each["verdict"] not in (each["status"], "not tried") else ""
        places = sum(len(values) for values in each["places"].values())
        cells = verdict, str(len(each["operators"])), str(places), span(each["times"]), ", ".join(each["substitute"])
        table.add_row(each["name"], status, *cells)
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2)), ""] if shown else []
    return Group(*parts, facts_grid(list(_facts(data, verbose=verbose))))


def discover_line(data: Plain) -> str:
    """``2 models: 3 found, 2 too slow, 1 refuted``; of several modes, each by itself."""
    modes = _modes(data)
    told = [_counted(data, by) for by in modes]
    models = sum(m["by"] == "kernels" for m in data["models"])
    if modes == ["kernels"]:
        return f"{plural(models, 'model')}: {told[0]}"
    return "; ".join(f"{_COMPARED[by]}: {each}" for by, each in zip(modes, told, strict=True))


def _modes(data: Plain) -> list[str]:
    """The modes of the search."""
    asked = {m["by"] for m in data["models"]}
    return [by for by in _MODES if by in asked]


def _counted(data: Plain, by: str) -> str:
    """The outcomes of one mode."""
    counts = Counter(each["status"] for each in data["findings"] if each["by"] == by)
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing found"


def span(times: list[Plain]) -> str:
    """The lowest and the highest ratio, by the medians."""
    ratios = [f"{t['median']:.2f}" for t in times]
    return "" if not ratios else min(ratios) if min(ratios) == max(ratios) else f"{min(ratios)} to {max(ratios)}"


def _facts(data: Plain, *, verbose: bool) -> Iterator[tuple[str, str]]:
    yield from search_facts(data)
    for each in data["findings"]:
        if each["reason"] and (verbose or each["status"] == "refuted"):
            yield each["name"], each["reason"]
    for name, file in data["files"].items():
        yield "Wrote", f"{file}: {name}"


def search_facts(data: Plain) -> Iterator[tuple[str, str]]:
    """The extent of the search, and what is left of it."""
    modes = _modes(data)
    for by in modes:
        yield from _extent(by, [m for m in data["models"] if m["by"] == by])
        if len(modes) > 1:
            yield "", _counted(data, by)
    died = sum(m["died"] for m in data["models"])
    if died:
        yield "Died", f"{plural(died, 'region')} at which ONNX Runtime ended the process"
    for model in data["models"]:
        if model["error"]:
            yield "Failed", f"{model['model']}: {model['error']}"
    for note in data["notes"]:
        yield "Note", note
    if not data["complete"]:
        yield "Left", "the time ran out, or a model failed; the same command goes on"


def _extent(by: str, parts: list[Plain]) -> Iterator[tuple[str, str]]:
    """The extent of one mode."""
    total = {name: sum(m[name] for m in parts) for name in ("regions", "left", "sampled", "evaluations", "cut_short")}
    left = f", {total['left']} more left out" if total["left"] else ""
    if by == "kernels":
        yield "Regions", f"{total['regions']} of {plural(len(parts), 'model')}{left}"
        cut = f"; not all uses were tried for {plural(total['cut_short'], 'region')}" if total["cut_short"] else ""
        yield "Kernels", f"{total['evaluations']} uses were evaluated{cut}"
    elif by == "regions":
        yield "Spellings", f"{total['regions']} regions{left}, {total['evaluations']} pairs of one fingerprint"
    else:
        yield "Identities", f"{total['regions']} small graphs{left}, {total['evaluations']} pairs that are equal"
