"""The report of ``apply`` as one page: one file, nothing is fetched, the same result gives the same bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxrewrite.markup import Markup, digest, escaped, json_script, tag
from onnxrewrite.report.files import write_whole
from onnxrewrite.report.html import sections
from onnxrewrite.report.html.graph import Drawing, sides, twins
from onnxrewrite.report.html.links import rewrites
from onnxrewrite.report.html.near import near_misses

if TYPE_CHECKING:
    from onnxrewrite.result import Result

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src "
_SCRIPTS = ("vendor/dagre.min.js", "graph.js", "page.js")


def write_page(result: Result, data: Mapping[str, Any], path: str | os.PathLike[str], option: str = "report") -> None:
    """Write the page: all of it, or none.

    Args:
        result: What ``apply`` returned.
        data: What ``summary`` returned.
        path: Where to.
        option: What the message begins with if that fails.

    Raises:
        ModelError: The file cannot be written.
    """
    write_whole(Path(path), page(result, data), option)


def page(result: Result, data: Mapping[str, Any]) -> str:
    """The page; ``data`` is what ``summary`` returned."""
    before, after = Drawing.of(result.original), Drawing.of(result.model)
    near = near_misses(result, before, after)
    old, new = sides(before, after, twins(before, after))
    drawn = {"before": old, "after": new, **rewrites(result, before, after)}
    scripts = [_file(name) for name in _SCRIPTS]
    kind, sentence = sections.verdict(data)
    name = data["model"] or data["graph"] or "model"
    return _filled(
        _file("page.html"),
        {
            "policy": escaped(_POLICY + " ".join(map(digest, scripts))),
            "title": escaped(f"{Path(name).name}: {sections.headline(data)}"),
            "style": Markup(_file("page.css")),
            "name": escaped(Path(name).name),
            "subtitle": escaped(_subtitle(data)),
            "verdict": tag("p", sentence, class_=f"verdict {kind}"),
            "tiles": sections.tiles(data),
            "changed": sections.changed(data),
            "checked": sections.checked(data),
            "near": sections.missed(near),
            "data": json_script("data", drawn),
            "scripts": Markup("\n".join(f"<script>{script}</script>" for script in scripts)),
        },
    )


def _subtitle(data: Mapping[str, Any]) -> str:
    where = [f"from {data['model']}"] if data["model"] else []
    where += [f"written to {data['output']}"] if data["output"] else []
    return ", ".join([f"for {data['target']}", f"opset {data['opset']}", *where])


def _filled(template: str, parts: Mapping[str, Markup]) -> str:
    """The template with its ``{{name}}`` filled in, each once; what is filled in is not looked at again."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
