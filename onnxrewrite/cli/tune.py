"""``onnxrewrite tune``: measurements that several machines share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import say, show
from onnxrewrite.cli.output import write_json

tune = typer.Typer(
    help="Share measurements between machines: signed files of them, and the database of this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of tune export.", show_default=False)]


@tune.command("key")
def key(path: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.", show_default=False)]) -> None:
    """Make a key to sign with: FILE is the private one, FILE.pub the public one."""
    from onnxrewrite.measure.database import signing

    options.writable(path, "FILE")
    say(f"Wrote {path}, which nobody else may see, and {signing.generate(path)}")


@tune.command("export")
def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write.", show_default=False)],
    key: Annotated[Path, typer.Option("--key", metavar="KEY", help="The private key to sign with.")],
    every: Annotated[bool, typer.Option("--all", help="Rows of other classes of machines, too.")] = False,
) -> None:
    """Write the measurements of machines like this one to FILE; what was measured here is signed."""
    options.writable(path, "FILE")
    from onnxrewrite.suite import tuning

    count = tuning.export(path, key, every=every)
    say(f"Wrote {path}: {_rows(count)}")


@tune.command("import")
def import_(paths: _Files, signed_by: options.SignedBy = []) -> None:  # noqa: B006
    """Add what other machines measured to the database of this one; only rows that a named key has signed."""
    from onnxrewrite.suite import tuning

    taken = tuning.take(paths, signed_by)
    say(f"{_rows(taken.rows)}, {taken.added} of them new{_refused(taken.refused)}")


@tune.command("merge")
def merge(
    paths: _Files,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Where to write; rows in it stay.")],
    signed_by: options.SignedBy = [],  # noqa: B006
) -> None:
    """Write the union of files; only rows that a named key has signed."""
    options.writable(output, "-o")
    from onnxrewrite.suite import tuning

    taken = tuning.merge(paths, signed_by, output)
    say(f"Wrote {output}: {_rows(taken.rows)}, {taken.added} of them new{_refused(taken.refused)}")


@tune.command("list")
def list_(json: options.Json = None) -> None:
    """Show what the database of this machine holds, and whose measurements are in quarantine."""
    path = options.json_path(json)
    from onnxrewrite.report.tune_report import tune_report
    from onnxrewrite.suite import tuning

    data = tuning.overview()
    write_json(data, json, path)
    if json != "-":
        show(tune_report, data)


@tune.command("forget")
def forget(
    source: Annotated[str | None, typer.Option("--source", metavar="KEY", help="Rows of this key, by its id.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Rows of another ONNX Runtime, or of a changed rule.")] = False,
    every: Annotated[bool, typer.Option("--all", help="All rows, and all decisions and checks.")] = False,
    quarantine: Annotated[
        str | None, typer.Option("--quarantine", metavar="KEY", help="That this key is in quarantine, by its id.")
    ] = None,
) -> None:
    """Forget rows of the database of this machine."""
    from onnxrewrite.suite import tuning

    if quarantine is not None:
        say(f"{tuning.release(quarantine)} is no longer in quarantine")
    if quarantine is None or source is not None or stale or every:
        say(f"Forgot {_rows(tuning.forget(source=source, stale=stale, every=every))}")


def _rows(count: int) -> str:
    from onnxrewrite.report.human import plural

    return plural(count, "measurement")


def _refused(reasons: Mapping[str, int]) -> str:
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"; refused: {told}" if told else ""
