"""``--run-limit`` and ``--memory-limit``, which every command has, for they are the process's."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from onnxrewrite.errors import UsageError
from onnxrewrite.system import address_space

SHARE: Final = 0.9
"""Of the memory of the machine, or of the container, that a process has at the most by default."""

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

_LEAST = 2**28
"""Bytes; with less than this the libraries do not start."""


def options() -> list[Any]:
    """The options, to be added to the parameters of a command; what they say holds for the process."""
    app = typer.Typer()
    app.command()(_declared)
    declared = typer.main.get_command(app).params
    found = [each for each in declared if each.name in ("run_limit", "memory_limit")]
    for each in found:
        each.expose_value = False
    return found


def limit_memory_by_default() -> None:
    """Let this process, which is ours alone, have what suits its models, and never all of the machine's."""
    from onnxrewrite.system.resources import memory as found

    there_is = found()
    address_space.limit_by_size(int(SHARE * min(there_is.total, there_is.limit or there_is.total)))


def memory_hint() -> str:
    """A hint for messages about insufficient memory, to be appended to them; empty where there is no limit."""
    limit = address_space.current()
    return f"; the limit is {limit / 2**30:.3g}G, see --memory-limit" if limit is not None else ""


def _limit_runs(seconds: float | None) -> None:
    if seconds is None:
        return
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"--run-limit {seconds:g}: write a number of seconds, or 0 for none")
    from onnxrewrite.runtime.limited import set_run_limit

    set_run_limit(seconds)


def _limit_memory(size: str | None) -> None:
    if size is None:
        return
    found = _SIZE.fullmatch(size.strip())
    wanted = int(float(found[1]) * _UNITS[found[2].upper()]) if found else -1
    if wanted and wanted < _LEAST:
        raise UsageError(f"--memory-limit {size}: write a size of 256M or more, as in 4G, or 0 for none")
    if not address_space.limit(wanted):
        raise UsageError("--memory-limit: this system has no such limit")


def _declared(
    run_limit: Annotated[
        float | None,
        typer.Option(
            "--run-limit",
            metavar="SECONDS",
            envvar="ONNXREWRITE_RUN_LIMIT",
            callback=_limit_runs,
            help="For one run of a model; what takes longer is not checked or measured, which is said.  0 for none; "
            "else 10, and one more for each 10 MB of weights.",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="SIZE",
            envvar="ONNXREWRITE_MEMORY_LIMIT",
            callback=_limit_memory,
            help="For each process, as in 8G.  0 for none; else 4G and 32 times the size of the models, at most nine "
            "tenths of the machine's.",
        ),
    ] = None,
) -> None:
    """Declares the options."""
