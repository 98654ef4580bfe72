"""``onnxrewrite recheck``: a deployed model against the figures that were recorded with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import say, show
from onnxrewrite.cli.output import write_json

_SHIPPED = (
    "model.onnx",
    "report.json",
    "report.html",
    "run.py",
    "reference.npz",
    "startup.onnx",
    "startup.ort",
    "startup.data",
)
"""Files that ``optimize`` writes, over which no report is written."""


def recheck(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that optimize wrote.", show_default=False)],
    *,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, metavar="S", help="To run the model and a yardstick by turns.")
    ] = 2.0,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether to measure memory, where it was recorded.")
    ] = True,
    told: options.Output,
) -> None:
    """Run a deployed model again, and compare it with what was recorded.

    optimize records digests of what it ships, a few samples with the original's outputs, and times in units of a
    yardstick, work of numpy that is timed by turns.  Compared are the files, the closeness of outputs, times, memory
    and versions.  Times of another processor are shown, not judged.

    Exit status: 0 as recorded; 1 a regression: a changed file, outputs that are further off, more than 1.1 times the
    time or memory, 1.25 times the time to open; 2 a folder without a record.
    """
    report = options.json_path(told.json, *(folder / name for name in _SHIPPED))

    from onnxrewrite.report.recheck_report import recheck_line, recheck_report
    from onnxrewrite.suite.deploy.regression_check import recheck as rechecked

    data = rechecked(folder, seconds=seconds, memory=memory).to_json()
    write_json(data, told.json, report)
    if told.table:
        show(recheck_report, data)
        say("")
    if told.json != "-":
        say(recheck_line(data))
    if data["regressions"]:
        raise typer.Exit(1)
