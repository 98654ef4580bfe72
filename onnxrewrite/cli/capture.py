"""``onnxrewrite capture``: a region of a model as the file of a rule."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import say_text, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError


class StageName(enum.StrEnum):
    """Values of ``--stage``."""

    CANONICALIZE = "canonicalize"
    RAISE = "raise"
    LOWER = "lower"


def capture(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)],
    from_: Annotated[
        list[str], typer.Option("--from", metavar="NAME", help="A value, or node, where it begins.  Repeatable.")
    ],
    to: Annotated[
        list[str], typer.Option("--to", metavar="NAME", help="A value, or node, where it ends.  Repeatable.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="RULE", help="What to call the rule.")] = "my-fusion",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE.py", help="The rule file; a test is written beside it.  - for stdout."
        ),
    ] = None,
    stage: Annotated[
        StageName, typer.Option("--stage", help="When the rule is to run; the model is cut as that stage finds it.")
    ] = StageName.RAISE,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite files.")] = False,
    rules: options.Rules = [],  # noqa: B006
    target: options.Target = options.CPU,
    opset: Annotated[
        int | None, typer.Option("--opset", min=1, metavar="N", help="Bring it to this ai.onnx opset first.")
    ] = None,
    json: options.Json = None,
) -> None:
    """Write a rule that matches what lies between named values, in all layers; you fill in what it becomes.

    What is the same everywhere stays in the pattern, what differs between layers becomes a capture.

    Exit status: 0 written; 2 bad arguments, an unreadable model, or no region that a pattern can have.
    """
    report = options.json_path(json, model)
    rule_path = None if output == "-" else Path(output or f"{name.replace('-', '_').replace('.', '_')}.py")
    test_path = None if rule_path is None else rule_path.with_name(f"test_{rule_path.name}")
    if rule_path is not None and test_path is not None:
        _check(rule_path, test_path, force)

    from onnxrewrite.authoring.captured_rule import capture as captured_from
    from onnxrewrite.report.authoring_report import captured_report
    from onnxrewrite.rewrite.rule import Stage
    from onnxrewrite.system.atomic import write_whole

    found = captured_from(
        model,
        from_,
        to,
        name=name,
        stage=Stage[stage.name],
        rules=rules,
        target=target,
        opset=opset,
    )
    if rule_path is None or test_path is None:
        say_text(found.rule.rstrip("\n"))
        return
    write_whole(test_path, found.test(rule_path.name, os.path.relpath(model, test_path.parent)), "--output")
    write_whole(rule_path, found.rule, "--output")
    data = {**found.to_json(), "model": model, "files": [str(rule_path), str(test_path)]}
    write_json(data, json, report)
    if json != "-":
        show(captured_report, data)


def _check(rule_path: Path, test_path: Path, force: bool) -> None:
    """UsageError unless both files can be written."""
    if rule_path.suffix != ".py":
        raise UsageError(f"--output {rule_path}: a rule file ends in .py")
    for path in (rule_path, test_path):
        options.writable(path, "--output")
        if os.path.lexists(path) and not force:
            raise UsageError(f"--output {path}: is there already; give another name, or --force")
