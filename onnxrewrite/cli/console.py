"""What the commands print with: results on stdout, everything else on stderr.

Into a pipe there is neither colour nor a progress bar, and nothing breaks when the reader goes away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

Progress = Callable[[str, int, int], None]

_PIPE_WIDTH = 120
"""Columns where there is no terminal and COLUMNS is not set."""


def complain(message: str) -> None:
    """One line on stderr."""
    _write(sys.stderr, f"onnxrewrite: {' '.join(message.split())}\n")


def say(text: str) -> None:
    """Plain text on stdout."""
    _write(sys.stdout, f"{text}\n")


def show(what: RenderableType) -> None:
    """Something that rich renders, on stdout; text that must not be wrapped may be wider."""
    from rich.console import Console, Group
    from rich.text import Text

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        for part in what.renderables if isinstance(what, Group) else (what,):
            console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)
    lines = (line.rstrip() for line in captured.get().splitlines())
    _write(sys.stdout, "".join(f"{line}\n" for line in lines))


def _write(stream: object, text: str) -> None:
    try:
        stream.write(text)  # type: ignore[attr-defined]
        stream.flush()  # type: ignore[attr-defined]
    except BrokenPipeError:  # the reader has seen enough; what was done stays done
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[attr-defined]
        os.close(null)


@contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Progress | None]:
    """A bar on stderr that is gone when the work is done; None where nobody would see it."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("load", total=None)
        shown = "load"

        def update(phase: str, done: int, waiting: int) -> None:
            nonlocal task, shown
            if phase != shown:  # a task that has a total cannot lose it
                bar.remove_task(task)
                task, shown = bar.add_task(phase, total=None), phase
            bar.update(task, completed=done, total=done + waiting or None)

        yield update
