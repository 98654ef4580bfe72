"""``onnxrewrite capture``: a region of a model as the file of a rule."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class _Region:
    """The region that is cut out."""

    from_: Annotated[
        list[str], typer.Option("--from", metavar="NAME", help="A value, or node, where it begins.  Repeatable.")
    ]
    to: Annotated[list[str], typer.Option("--to", metavar="NAME", help="A value, or node, where it ends.  Repeatable.")]


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """The rule that comes of it."""

    name: Annotated[str, typer.Option("--name", metavar="RULE", help="What to call the rule.")] = "my-fusion"
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE.py", help="The rule file; a test is written beside it.  - for stdout."
        ),
    ] = None
    stage: Annotated[
        StageName, typer.Option("--stage", help="When the rule is to run; the model is cut as that stage finds it.")
    ] = StageName.RAISE
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite files.")] = False

    def paths(self) -> tuple[Path, Path] | None:
        """The files of the rule and of its test, None for stdout; UsageError unless both can be written."""
        if self.output == "-":
            return None
        rule = Path(self.output or f"{self.name.replace('-', '_').replace('.', '_')}.py")
        if rule.suffix != ".py":
            raise UsageError(f"--output {rule}: a rule file ends in .py")
        test = rule.with_name(f"test_{rule.name}")
        for path in (rule, test):
            options.writable(path, "--output")
            if os.path.lexists(path) and not self.force:
                raise UsageError(f"--output {path}: is there already; give another name, or --force")
        return rule, test


def capture(
    model: options.Model,
    *,
    region: _Region,
    rule: _Rule,
    rules: options.Rules = [],  # noqa: B006
    target: options.Target = options.CPU,
    opset: options.Opset = None,
    json: options.Json = None,
) -> None:
    """Write a rule that matches what lies between named values, in all layers; you fill in what it becomes.

    What is the same everywhere stays in the pattern, what differs between layers becomes a capture.

    Exit status: 0 written; 2 bad arguments, an unreadable model, or no region that a pattern can have.
    """
    report = options.json_path(json, model)
    paths = rule.paths()

    from onnxrewrite.authoring.captured_rule import capture as captured_from
    from onnxrewrite.report.authoring_report import captured_report
    from onnxrewrite.rewrite.rule import Stage
    from onnxrewrite.system.atomic import write_whole

    found = captured_from(
        model,
        region.from_,
        region.to,
        name=rule.name,
        stage=Stage[rule.stage.name],
        rules=rules,
        target=target,
        opset=opset,
    )
    if paths is None:
        say_text(found.rule.rstrip("\n"))
        return
    rule_path, test_path = paths
    write_whole(test_path, found.test(rule_path.name, os.path.relpath(model, test_path.parent)), "--output")
    write_whole(rule_path, found.rule, "--output")
    data = {**found.to_json(), "model": model, "files": [str(rule_path), str(test_path)]}
    write_json(data, json, report)
    if json != "-":
        show(captured_report, data)
