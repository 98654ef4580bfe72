"""``onnxrewrite bench --generate``: how fast decoders write a text, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli.console import show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The generation of text with decoders."""

    generate: Annotated[
        bool,
        typer.Option(
            "--generate",
            help="Time decoders at the writing of a text: MODELs, files or folders, as they are, against the first.",
        ),
    ] = False
    prompt: Annotated[
        int, typer.Option("--prompt", min=1, metavar="N", help="Tokens of the prompt; with --generate.")
    ] = 128
    tokens: Annotated[
        int, typer.Option("--tokens", min=1, metavar="N", help="Tokens after the prompt; with --generate.")
    ] = 128


def refuse(unused: Mapping[str, object]) -> None:
    """UsageError where an option is given that is not for decoders."""
    for option, given in unused.items():
        if given:
            raise UsageError(f"{option} is not for --generate; leave it out")


def generate(
    models: Sequence[str],
    asked: Generation,
    place: tuple[str, int],
    runs: tuple[float, bool],
    json: str | None,
    report: Path | None,
) -> None:
    """Time decoders, and show or write what came of it.

    Args:
        models: Files or folders.
        asked: The text.
        place: Provider and threads.
        runs: Seconds, and whether memory is measured.
        json: As given on the command line.
        report: The file of it.
    """
    from onnxrewrite.report.generation_report import generation_report
    from onnxrewrite.runtime.settings import Setting
    from onnxrewrite.suite.decoders.generation_times import generation_times
    from onnxrewrite.system.versions import versions

    setting, (seconds, memory) = Setting(*place), runs
    timed = generation_times(
        models, prompt=asked.prompt, tokens=asked.tokens, setting=setting, seconds=seconds, memory=memory
    )
    found = timed.to_json()
    if json != "-":
        show(generation_report, found)
    write_json({**found, "versions": versions()}, json, report)
