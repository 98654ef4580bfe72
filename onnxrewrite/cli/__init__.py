"""The command line.  One file a command, which parses, calls the library and hands the result to ``report``.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.  This module owns the
exit status: 0 done, 1 a check failed, 2 bad arguments, an unreadable model, or one that this machine cannot take, 3 a
bug of ours, 130 and 143 interrupted and terminated.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from onnxrewrite.cli import limits
from onnxrewrite.cli.apply import apply
from onnxrewrite.cli.bench import bench
from onnxrewrite.cli.canary import canary
from onnxrewrite.cli.capture import capture
from onnxrewrite.cli.check import check
from onnxrewrite.cli.console import all_printed, complain, open_standard_streams, say, show_traceback
from onnxrewrite.cli.discover import discover
from onnxrewrite.cli.doctor import doctor
from onnxrewrite.cli.explain import explain
from onnxrewrite.cli.genai import genai
from onnxrewrite.cli.half import half
from onnxrewrite.cli.inspect import inspect
from onnxrewrite.cli.mine import mine
from onnxrewrite.cli.new import new
from onnxrewrite.cli.optimize import optimize
from onnxrewrite.cli.option_groups import ungrouped
from onnxrewrite.cli.profile import profile
from onnxrewrite.cli.quantize import quantize
from onnxrewrite.cli.recheck import recheck
from onnxrewrite.cli.replay import replay
from onnxrewrite.cli.rules import rules
from onnxrewrite.cli.sensitivity import sensitivity
from onnxrewrite.cli.supervisor import Stopped, listen, supervised
from onnxrewrite.cli.sweep import sweep
from onnxrewrite.cli.tune import tune
from onnxrewrite.cli.verify import verify
from onnxrewrite.errors import OnnxRewriteError, bug, is_out_of_memory

INTERNAL_ERROR = 3

EXIT_CODES = (
    "Exit status: 0 done, also when no rule applied; 1 a check failed and nothing was written; "
    "2 bad arguments, an unreadable model, or memory that does not suffice; 3 an internal error."
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
    recheck,
    quantize,
    half,
    genai,
    sensitivity,
    sweep,
    bench,
    canary,
    profile,
    check,
    replay,
    inspect,
    explain,
    mine,
    capture,
    discover,
    new,
    rules,
    verify,
    doctor,
)
for _command in _COMMANDS:
    app.command(epilog=EXIT_CODES if _command is apply else None)(ungrouped(_command))
app.add_typer(tune, name="tune")


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
    group: Any = typer.main.get_command(app)
    for command in group.commands.values():
        command.params += limits.options()
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    Without ``arguments``, those of the process are taken, and the work is done under a supervisor.  ``--debug``
    anywhere among them, or ONNXREWRITE_DEBUG=1, shows the traceback of every error.
    """
    if arguments is None:
        open_standard_streams()
        return supervised(_own)
    return _run(arguments)


def _own() -> int:
    if any(not each.startswith("-") for each in sys.argv[1:]):  # else no command is there, and nothing is read
        limits.limit_memory_by_default()
    return _run(sys.argv[1:])


_GARBAGE = 50_000
"""A graph is many objects that stay: to look for garbage among them as often as by default is a fifth of the time."""


def _run(arguments: Sequence[str]) -> int:
    gc.set_threshold(_GARBAGE, 20, 100)
    given = list(arguments)
    debug = "--debug" in given or os.environ.get("ONNXREWRITE_DEBUG", "0") not in ("", "0")
    given = [a for a in given if a != "--debug"] or ["--help"]
    open_standard_streams()
    _report_to_nobody()
    heard = listen()
    return all_printed(_done(given, debug, heard))


def _done(given: Sequence[str], debug: bool, heard: Sequence[Stopped]) -> int:
    try:
        code = _commands()(given, prog_name="onnxrewrite", standalone_mode=False)
    except BaseException as error:  # whatever it is, it ends here, with a status that tells
        if debug:
            show_traceback(error)
        return _explain(heard[0] if heard else error)
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
    if isinstance(error, Stopped):
        complain(f"{error}; nothing was left half done")
        return error.status
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        complain("interrupted; nothing was left half done")
        return 128 + signal.SIGINT
    if is_out_of_memory(error):
        complain(f"out of memory; nothing was written{limits.memory_hint()}")
        return 2
    complain(bug(error))
    return INTERNAL_ERROR


def _report_to_nobody() -> None:
    """No telemetry of ONNX Runtime unless somebody asks for it: what is compiled is nobody else's business, and where
    its files cannot be written it warns on stderr.  To be called before ONNX Runtime is imported."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _versions() -> str:
    from onnxrewrite.system.versions import versions

    found = versions()
    packages = ("onnx", "onnxruntime", "onnx-ir", "numpy")
    return f"onnxrewrite {found['onnxrewrite']} ({', '.join(f'{p} {found[p]}' for p in packages)})"


__all__ = ["EXIT_CODES", "app", "main"]
