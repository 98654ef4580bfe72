"""``onnxrewrite doctor``: what this machine has, and what follows for how models are made and run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import show
from onnxrewrite.cli.output import write_json


def doctor(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Look at the weights of a model, too.", show_default=False)
    ] = None,
    *,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time matrix products in 8 bits, float16 and float32, some seconds.")
    ] = False,
    json: options.Json = None,
    verbose: options.Verbose = False,
) -> None:
    """Show what this machine has, and what follows for models.

    Processor, cores, memory, ONNX Runtime.  Execution providers that are built in are tried, and so is whether 8-bit
    products saturate.  Of a MODEL, weights with zeros, n:m patterns, empty channels or low rank are told, and what that
    brings here, measured.  With --verbose, the options of each provider and of sessions, with what they do.
    """
    report = options.json_path(json, model)

    from onnxrewrite.runtime.machine import machine

    here = machine()
    data: dict[str, object] = {**here.to_json()}
    if measure:
        from onnxrewrite.measure.number_formats import speeds

        data["measured"] = speeds(here.cores.threads)
    if model is not None:
        from onnxrewrite.suite.weights.weight_gains import report_of

        data["weights"] = report_of(str(model))
    write_json(data, json, report)
    if json != "-":
        from onnxrewrite.report.doctor_report import doctor_report

        show(doctor_report, data, verbose=verbose)
