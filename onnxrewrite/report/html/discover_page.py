"""The findings of ``discover`` as one page, made of the plain data of ``Discovery.to_json()`` and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from onnxrewrite.report import human
from onnxrewrite.report.discover_report import discover_line, search_facts, span
from onnxrewrite.report.html.frame import Frame
from onnxrewrite.report.html.markup import Markup, facts, folded, joined, table, tag
from onnxrewrite.report.html.sections import tile
from onnxrewrite.system.plain import Plain

_OUTCOMES = {
    "found": ("Found", "Right on every graph that was tried, and faster at some size; written as a file."),
    "too slow": ("Too slow", "Right on every graph that was tried, and not faster beyond doubt."),
    "known": ("Known already", "Rules that there are make the same of the region, or what costs no more."),
    "refuted": ("Refuted", "A graph is rewritten wrongly, and no precondition tells it apart."),
    "not tried": ("Not tried", "No graph was made that it rewrites, or ONNX Runtime ended the process."),
    "not written": ("Not written", "No pattern matches the region and nothing else."),
}
"""What becomes of a candidate, in the order of the page: the heading, and what it means."""

NAME = "discover.html"
"""The file, in the folder of the rules."""


def discover_page(data: Plain, out: str) -> str:
    """The page of a search whose rules are in the folder ``out``.  The same data give the same bytes."""
    groups = {status: [f for f in data["findings"] if f["status"] == status] for status in _OUTCOMES}
    groups = {status: found for status, found in groups.items() if found}
    links = [tag("a", _OUTCOMES[status][0], href=f"#{_id(status)}") for status in groups]
    line = discover_line(data)
    name = PurePath(out).name or out
    frame = Frame(
        kicker="onnxrewrite discover",
        name=name,
        title=f"{name}: {line}",
        subtitle=line,
        skip=("search", "Skip to how much was searched"),
    )
    search = tag("section", tag("h2", "The search"), facts(search_facts(data), ["Failed", "Left"]), id="search")
    body = [
        _verdict(data, len(groups.get("found", ()))),
        _tiles(data, groups),
        tag("nav", *links, tag("a", "The search", href="#search"), aria_label="Sections"),
        *(_section(status, found, data["files"]) for status, found in groups.items()),
        search,
    ]
    return frame.around(joined(body, "\n"))


def _id(status: str) -> str:
    return status.replace(" ", "-")


def _verdict(data: Plain, found: int) -> Markup:
    told = f"{human.plural(found, 'rule')} found." if found else "No rule that is new, right and faster."
    if data["complete"]:
        return tag("p", told, class_="verdict good" if found else "verdict")
    return tag("p", f"{told} The search is not complete.", class_="verdict warning")


def _tiles(data: Plain, groups: Mapping[str, Sequence[Plain]]) -> Markup:
    found = [
        tile(_OUTCOMES[status][0], str(len(each)), human.plural(_places(each), "place"))
        for status, each in groups.items()
    ]
    regions = sum(part["regions"] for part in data["models"])
    searched = human.plural(len({part["model"] for part in data["models"]}), "part")
    return tag("ul", *found, tile("Compared", str(regions), f"of {searched}"), class_="tiles")


def _places(found: Sequence[Plain]) -> int:
    return sum(len(values) for each in found for values in each["places"].values())


def _section(status: str, found: Sequence[Plain], files: Mapping[str, str]) -> Markup:
    """All candidates of one outcome: a row each, and each in detail where it is asked for."""
    heading, meaning = _OUTCOMES[status]
    rows = table(["rule", "region", "becomes", "verdict", "places>", "time>"], map(_cells, found))
    details = [folded(each["name"], facts(_details(each, files)), *_text(each)) for each in found]
    return tag(
        "section",
        tag("h2", f"{heading}: {len(found)}"),
        tag("p", meaning, class_="faint"),
        rows,
        *details,
        id=_id(status),
    )


def _cells(finding: Plain) -> list[object]:
    verdict = finding["verdict"] if finding["verdict"] != finding["status"] else ""
    return [
        tag("code", finding["name"]),
        ", ".join(finding["operators"]),
        ", ".join(finding["substitute"]) or "an operand",
        verdict,
        str(_places([finding])),
        span(finding["times"]),
    ]


def _details(finding: Plain, files: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    if finding["name"] in files:
        yield "File", tag("code", files[finding["name"]])
    if finding["reason"]:
        yield "Why", finding["reason"]
    for guard in finding["guards"]:
        yield "Where", tag("code", guard)
    if finding["instances"]:
        yield "Tried", human.plural(finding["instances"], "graph")
    if finding["proof"]:
        yield "Proof", finding["proof"]
    for model, values in finding["places"].items():
        yield "Places", f"{model}: {human.listed(values, 5)}"
    for each in finding["times"]:
        sizes = " ".join(f"{name}={size}" for name, size in each["sizes"].items()) or "its own sizes"
        yield "Time", f"{each['median']:.2f} ({each['low']:.2f} to {each['high']:.2f}) at {sizes}"


def _text(finding: Plain) -> list[Markup]:
    return [tag("pre", finding["text"], class_="listing", tabindex=0)] if finding["text"] else []
