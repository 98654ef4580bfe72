"""``onnxrewrite canary``: a model in several versions of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """The amount of what is run."""

    threads: Annotated[
        int, typer.Option("--threads", min=0, metavar="N", help="Within an operator; 0 leaves it to ONNX Runtime.")
    ] = 1
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, metavar="S", help="To run all versions by turns.")] = (
        3.0
    )
    search: Annotated[
        float, typer.Option("--search", min=0.0, metavar="S", help="To look for a small model that shows a fault.")
    ] = 120.0


def canary(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model.", show_default=False)],
    *,
    ort: Annotated[
        str,
        typer.Option(
            "--ort",
            metavar="V,V,...",
            help="Versions such as 1.31,1.32; the first is what the others are compared with.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to report a fault; else MODEL.canary.")
    ] = None,
    inputs: options.Inputs,
    runs: _Runs,
    seed: options.Seed = 0,
    told: options.Output,
) -> None:
    """Compare versions of ONNX Runtime on a model.

    Each version is installed from the package index into an environment of its own, which is kept in the cache folder;
    "installed" is the one that this program runs on.  Outputs, time, loading and memory are compared.  Where a version
    does not run the model or has other outputs, the optimizer of ONNX Runtime that causes it is searched for by
    disabling some of them, and DIR gets a report of ten lines with a small model that shows it.

    Exit status: 0 no drift; 1 a version fails, differs, or is slower or larger by more than a tenth; 2 bad arguments, a
    version that cannot be had, or a model that runs in none.
    """
    report = options.json_path(told.json, model)
    versions = [each.strip() for each in ort.split(",") if each.strip()]
    folder = output if output is not None else model.with_name(f"{model.name}.canary")
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"-o {output}: is not a folder")
    inputs.check()

    from onnxrewrite import io
    from onnxrewrite.report.canary_report import canary_line, canary_report
    from onnxrewrite.suite.canary.reproduction import write_report
    from onnxrewrite.suite.canary.version_comparison import canary as compared

    given = inputs.feeds(io.load(model))
    with progress_bar(wanted=not told.quiet) as progress:
        found = compared(
            model,
            versions,
            dims=inputs.dims,
            inputs=given,
            seed=seed,
            threads=runs.threads,
            seconds=runs.seconds,
            search=runs.search,
            progress=progress,
        )
    several = len(found.shown) > 1
    for shown in found.shown:
        place = folder / shown.version.split()[0] if several else folder
        write_report(place, found, shown)
        found.notes.append(f"{place}: a report, and a model of {len(shown.model.graph.node)} nodes that shows it")
    data = found.to_json()
    write_json(data, told.json, report)
    if told.table:
        show(canary_report, data)
        say("")
    if told.json != "-":
        say(canary_line(data))
    if data["regressions"]:
        raise typer.Exit(1)
