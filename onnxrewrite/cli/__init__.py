"""The command line.  One file a command, which parses, calls the library and hands the result to ``report``.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.  This module owns the
exit status: 0 done, 1 a check failed, 2 bad arguments or unreadable model, 3 a bug of ours, 130 and 143
interrupted and terminated.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, Any

import typer

from onnxrewrite.cli.apply import apply
from onnxrewrite.cli.bench import bench
from onnxrewrite.cli.capture import capture
from onnxrewrite.cli.check import check
from onnxrewrite.cli.console import complain, say
from onnxrewrite.cli.doctor import doctor
from onnxrewrite.cli.explain import explain
from onnxrewrite.cli.half import half
from onnxrewrite.cli.inspect import inspect
from onnxrewrite.cli.mine import mine
from onnxrewrite.cli.new import new
from onnxrewrite.cli.optimize import optimize
from onnxrewrite.cli.profile import profile
from onnxrewrite.cli.quantize import quantize
from onnxrewrite.cli.replay import replay
from onnxrewrite.cli.rules import rules
from onnxrewrite.cli.sensitivity import sensitivity
from onnxrewrite.cli.sweep import sweep
from onnxrewrite.cli.verify import verify
from onnxrewrite.errors import OnnxRewriteError

INTERNAL_ERROR = 3

EXIT_CODES = (
    "Exit status: 0 done, also when no rule applied; 1 a check failed and nothing was written; "
    "2 bad arguments or an unreadable model; 3 an internal error."
)

app = typer.Typer(
    help="Rewrite ONNX graphs by rules; every rewrite is checked by running it.",
    epilog=EXIT_CODES,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_COMMANDS = (
    apply,
    optimize,
    quantize,
    half,
    sensitivity,
    sweep,
    bench,
    profile,
    check,
    replay,
    inspect,
    explain,
    mine,
    capture,
    new,
    rules,
    verify,
    doctor,
)
for _command in _COMMANDS:
    app.command(epilog=EXIT_CODES if _command is apply else None)(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(_versions())
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Options before the command."""


@functools.cache
def _commands() -> Any:
    """The commands with their options, which typer makes of the signatures anew each time that it is asked."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    ``--debug`` anywhere among the arguments, or ONNXREWRITE_DEBUG=1, shows the traceback of every error.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or os.environ.get("ONNXREWRITE_DEBUG", "0") not in ("", "0")
    given = [a for a in given if a != "--debug"] or ["--help"]
    _print_anything()
    _report_to_nobody()
    _stop_cleanly()
    try:
        code = _commands()(given, prog_name="onnxrewrite", standalone_mode=False)
    except (Exception, KeyboardInterrupt, _Stopped) as error:
        if debug:
            import traceback

            traceback.print_exc()
        return _explain(error)
    if code == 128 + signal.SIGINT:  # typer's own answer to Ctrl-C
        complain("interrupted; nothing was left half done")
    return code if isinstance(code, int) else 0


def _explain(error: BaseException) -> int:
    """Say in one line what went wrong; the exit status."""
    if isinstance(error, OnnxRewriteError):
        complain(str(error))
        return error.exit_code
    if hasattr(error, "format_message"):  # typer's usage errors, of whatever version
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "onnxrewrite"
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        complain(f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else ';'} see {command} --help")
        return 2
    if isinstance(error, _Stopped):
        complain(f"{error}; nothing was left half done")
        return error.status
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        complain("interrupted; nothing was left half done")
        return 128 + signal.SIGINT
    if isinstance(error, MemoryError):
        complain("out of memory; nothing was written")
        return INTERNAL_ERROR
    text = str(error).strip()
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    complain(f"internal error: {what[:500]}; this is a bug: please report it with what --debug shows")
    return INTERNAL_ERROR


class _Stopped(SystemExit):
    """A signal asked us to stop.  A SystemExit, for libraries and typer let that one pass."""

    def __init__(self, number: int):
        super().__init__("interrupted" if number == signal.SIGINT else "terminated")
        self.status = 128 + number


def _stop_cleanly() -> None:
    """Let SIGINT and SIGTERM unwind the stack, so that temporary files are removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped(number)

    try:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        pass


def _print_anything() -> None:
    """A terminal that lacks a character shows a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _report_to_nobody() -> None:
    """No telemetry of ONNX Runtime unless somebody asks for it: what is compiled is nobody else's business, and where
    its files cannot be written it warns on stderr.  To be called before ONNX Runtime is imported."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _versions() -> str:
    from onnxrewrite.verify.certificate import versions

    found = versions()
    packages = ("onnx", "onnxruntime", "onnx-ir", "numpy")
    return f"onnxrewrite {found['onnxrewrite']} ({', '.join(f'{p} {found[p]}' for p in packages)})"


__all__ = ["EXIT_CODES", "app", "main"]
