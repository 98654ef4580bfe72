"""``onnxrewrite doctor``: what this machine has, and what follows for how models are made and run."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import show
from onnxrewrite.cli.output import write_json


def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Time matrix products in 8 bits, float16 and float32, some seconds.")
    ] = False,
    json: options.Json = None,
    verbose: options.Verbose = False,
) -> None:
    """Show what this machine has, and what follows for models.

    Processor, cores, memory, ONNX Runtime.  Execution providers that are built in are tried, and so is whether 8-bit
    products saturate.  With --verbose, the options of each provider and of sessions, with what they do.
    """
    report = options.json_path(json)

    from onnxrewrite.runtime.machine import machine

    here = machine()
    data: dict[str, object] = {**here.to_json()}
    if measure:
        from onnxrewrite.measure.number_formats import speeds

        data["measured"] = speeds(here.cores.threads)
    write_json(data, json, report)
    if json != "-":
        from onnxrewrite.report.doctor_report import doctor_report

        show(doctor_report, data, verbose=verbose)
