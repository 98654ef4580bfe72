"""``onnxrewrite mine``: what recurs in models and no rule takes in."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import show
from onnxrewrite.cli.output import write_json


def mine(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="The .onnx files.", show_default=False)],
    profile: Annotated[
        bool, typer.Option("--profile", help="Run the models, and rank by the time that is spent there.")
    ] = False,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="So many at the most.")] = 10,
    rules: options.Rules = [],  # noqa: B006
    target: options.Target = options.CPU,
    json: options.Json = None,
) -> None:
    """Find the subgraphs that recur and that no rule takes in, and the command that would capture each.

    Exit status: 0 told, also when there are none; 2 bad arguments, or an unreadable model.
    """
    report = options.json_path(json, *models)

    from onnxrewrite.authoring.mining import mine as mined
    from onnxrewrite.report.authoring_report import mined_report

    found = [r.to_json() for r in mined(models, rules=rules, target=target, profile=profile, top=top)]
    write_json({"models": models, "subgraphs": found}, json, report)
    if json != "-":
        show(mined_report, found)
