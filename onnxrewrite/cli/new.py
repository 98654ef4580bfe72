"""``onnxrewrite new``: a project of its own for rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli.console import say


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the project, lower case with hyphens.", show_default=False)
    ],
    into: Annotated[Path, typer.Option("--into", metavar="FOLDER", help="Where its folder is made.")] = Path(),
) -> None:
    """Write a project for rules: a rule, its tests, and what publishes it.

    Exit status: 0 written; 2 the name cannot be used, or the folder is there already.
    """
    from onnxrewrite.authoring.scaffold import new_project

    folder = new_project(name, into)
    say(f"Wrote {folder}; run its tests: cd {folder} && pip install --editable '.[test]' && pytest")
