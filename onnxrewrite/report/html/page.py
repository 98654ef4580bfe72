"""The report of ``apply`` as one page: one file, nothing is fetched, the same result gives the same bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onnxrewrite.report.html import sections
from onnxrewrite.report.html.frame import Frame, file, filled
from onnxrewrite.report.html.graph_view import Drawing, sides, twins
from onnxrewrite.report.html.links import rewrites
from onnxrewrite.report.html.markup import json_script, tag
from onnxrewrite.report.html.near_misses import near_misses
from onnxrewrite.report.summary import Summary
from onnxrewrite.system.atomic import write_whole

if TYPE_CHECKING:
    from onnxrewrite.compiler.result import Result


def write_page(result: Result, data: Summary, path: str | os.PathLike[str], option: str = "report") -> None:
    """Write the page: all of it, or none.

    Args:
        result: The result of ``apply``.
        data: The result of ``summary``.
        path: The file to write.
        option: The beginning of the error message if that fails.

    Raises:
        ModelError: The file cannot be written.
    """
    write_whole(Path(path), page(result, data), option)


def page(result: Result, data: Summary) -> str:
    """The page; ``data`` is what ``summary`` returned."""
    before, after = Drawing.of(result.original), Drawing.of(result.model)
    near = near_misses(result, before, after)
    old, new = sides(before, after, twins(before, after))
    drawn = {"before": old, "after": new, **rewrites(result, before, after)}
    kind, sentence = sections.verdict(data)
    parts = {
        "verdict": tag("p", sentence, class_=f"verdict {kind}"),
        "tiles": sections.tiles(data),
        "changed": sections.changed(data),
        "checked": sections.checked(data),
        "near": sections.missed(near),
    }
    name = Path(data["model"] or data["graph"] or "model").name
    frame = Frame(
        kicker="onnxrewrite",
        name=name,
        title=f"{name}: {sections.headline(data)}",
        subtitle=_subtitle(data),
        skip=("graph", "Skip to the graph"),
        styles=("graph.css",),
        scripts=("vendor/dagre.min.js", "graph.js", "apply.js"),
    )
    return frame.around(filled(file("apply.html"), parts), json_script("data", drawn))


def _subtitle(data: Summary) -> str:
    where = [f"from {data['model']}"] if data["model"] else []
    where += [f"written to {data['output']}"] if data["output"] else []
    return ", ".join([f"for {data['target']}", f"opset {data['opset']}", *where])
