"""``onnxrewrite inspect``: what is in a model."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import say_text, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError


def inspect(
    model: options.Model,
    text: Annotated[bool, typer.Option("--text", help="Print the whole graph in text form.")] = False,
    json: options.Json = None,
    verbose: options.Verbose = False,
) -> None:
    """Show what is in a model: inputs, outputs, operators, weights."""
    if text and (json is not None or verbose):
        raise UsageError("--text excludes --json and --verbose")
    report = options.json_path(json, model)

    from onnxrewrite import io

    loaded = io.load(model)
    if text:
        from onnxrewrite.ir.text import print_model

        say_text(print_model(loaded).rstrip("\n"))
        return
    from onnxrewrite.report.inspection import inspection, inspection_report

    options.keep_weights(loaded, report, "--json")
    data = inspection(loaded, model)
    write_json(data, json, report)
    if json != "-":
        show(inspection_report, data, verbose=verbose)
