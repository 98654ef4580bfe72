"""Output of the commands: results on stdout, everything else on stderr.

Into a pipe there is neither colour nor a progress bar, and nothing breaks when the reader goes away.  Text from a
file reaches a terminal only through here, where it can do nothing but be shown: see ``printable``.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from onnxrewrite.cli import phase
from onnxrewrite.cli.rate import Rate
from onnxrewrite.errors import printable, printable_data, reason

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Progress = Callable[[str, int, int], None]

_PIPE_WIDTH = 120
"""Columns where there is no terminal and COLUMNS is not set."""

_NARROWEST, _WIDEST = 40, 1000
"""Columns of what is laid out: narrower nothing can be read, wider nothing is."""

_LONGEST = 4000
"""Characters of a complaint: a name may have a million."""

_PAUSE = 10.0
"""Seconds between two lines that tell of progress."""

_LOST = 2
"""Exit status where all went well but for what was to be printed."""

_lost: list[OSError] = []
"""Errors in printing on stdout."""


def complain(message: str) -> None:
    """One line on stderr."""
    line = printable(" ".join(message.split()))
    _write(sys.stderr, f"onnxrewrite: {line if len(line) <= _LONGEST else f'{line[:_LONGEST]}…'}\n")


def say(line: str) -> None:
    """A line on stdout."""
    _write(sys.stdout, f"{printable(line)}\n")


def say_text(text: str) -> None:
    """Several lines on stdout: lines of our own making, not of what a file holds."""
    _write(sys.stdout, f"{printable(text, keep=chr(10))}\n")


def show_traceback(error: BaseException) -> None:
    """Print the traceback of an error on stderr."""
    import traceback

    _write(sys.stderr, printable("".join(traceback.format_exception(error)), keep="\n"))


def show(report: Callable[..., RenderableType], data: object, *others: object, **options: object) -> None:
    """A report of plain data, on stdout; no name in it can pass for a line of ours.

    Args:
        report: Makes something that rich renders.
        data: The data that it is made of.
        others: More of it.
        options: More for ``report``.
    """
    render(report(printable_data(data), *map(printable_data, others), **options))


def render(what: RenderableType) -> None:
    """Something that rich renders, on stdout; text that must not be wrapped may be wider."""
    from rich.console import Group
    from rich.segment import Segment, Segments
    from rich.text import Text

    buffer = io.StringIO()
    console = _console(buffer, sys.stdout)
    for part in what.renderables if isinstance(what, Group) else (what,):
        is_wide = isinstance(part, Text) and part.no_wrap is True
        wide = console.options.update(no_wrap=True, overflow="ignore")
        made = console.render(part, wide if is_wide else console.options)
        safe = [Segment(printable(s.text, keep="\n"), s.style) for s in made]
        console.print(Segments(safe), soft_wrap=is_wide, end="")
    lines = (line.rstrip() for line in buffer.getvalue().splitlines())
    _write(sys.stdout, "".join(f"{line}\n" for line in lines))


def _console(file: TextIO, shown: TextIO) -> Console:
    """A rich console that prints to ``file`` for the terminal or pipe ``shown``; it does not detect the width."""
    from rich.console import Console

    told = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return Console(
        file=file,
        force_terminal=shown.isatty() or None,
        width=_width(shown),
        highlight=False,
        emoji=False,
        markup=False,
        _environ=told,
    )


def _width(stream: TextIO) -> int:
    """Columns: what COLUMNS says where that is a number, else the terminal's."""
    given = os.environ.get("COLUMNS", "")
    asked = int(given) if given.isdecimal() and len(given) < 10 else 0
    with suppress(OSError, ValueError):
        asked = asked or os.get_terminal_size(stream.fileno()).columns
    return min(max(asked or _PIPE_WIDTH, _NARROWEST), _WIDEST)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:  # the reader has seen enough; what was done stays done
        _silence(stream)
    except OSError as error:
        _lost.extend([error] if stream is sys.stdout else [])
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Nothing more is printed there, not even what is left in its buffer when Python ends."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def open_standard_streams() -> None:
    """Have standard streams that take every character, a question mark for one that a terminal lacks.

    What is opened while one of them is closed would get its number, and then whatever is printed there.
    """
    for number, mode in enumerate(("r", "w", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest number that is free
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    _lost.clear()


def all_printed(code: int) -> int:
    """The exit status, given that of the work: another one if the work went well and what it found was not printed."""
    if _lost:
        complain(f"not all of the result could be printed: {reason(_lost[0])}")
    return code or (_LOST if _lost else 0)


@contextmanager
def progress_bar(*, wanted: bool, unit: str | None = None) -> Iterator[Progress]:
    """A bar on stderr that is gone when the work is done, if it is wanted; where stderr is no terminal, a line every
    ``_PAUSE`` seconds.  The phase is noted in any case.

    ``unit``: the noun for one of many pieces of work that are alike, of which the rate and the time left are told.
    """
    phase.note("load")
    if not wanted:
        yield lambda name, done, waiting: phase.note(name)
        return
    if not sys.stderr.isatty():
        with _progress_lines(unit) as progress:
            yield progress
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    rate = [TextColumn("{task.fields[rate]}")] if unit is not None else []
    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *rate)
    pace = Rate()
    with Progress(*columns, console=_console(sys.stderr, sys.stderr), transient=True) as bar:
        task = bar.add_task("load", total=None, rate="")
        shown = "load"

        def update(name: str, done: int, waiting: int) -> None:
            nonlocal task, shown
            if name != shown:  # a task that has a total cannot lose it
                bar.remove_task(task)
                task, shown = bar.add_task(printable(name), total=None, rate=""), name
                phase.note(name)
            pace.note(done)
            told = pace.text(unit, waiting) if unit is not None else ""
            bar.update(task, completed=done, total=done + waiting or None, rate=told)

        yield update


@contextmanager
def _progress_lines(unit: str | None) -> Iterator[Progress]:
    """Lines that tell the phase, how much of it is done where that is known, and the seconds so far: by a thread of its
    own, for much of the work tells nothing while it lasts."""
    start, over, pace = time.monotonic(), threading.Event(), Rate()
    shown = ("load", 0, 0)

    def update(name: str, done: int, waiting: int) -> None:
        nonlocal shown
        phase.note(name)
        shown = name, done, waiting
        pace.note(done)

    def tell() -> None:
        while not over.wait(_PAUSE):
            name, done, waiting = shown
            part = f", {done} of {done + waiting}" if waiting else ""
            rate = pace.text(unit, waiting) if unit is not None else ""
            complain(f"{name}{part}{f', {rate}' if rate else ''} ({time.monotonic() - start:.0f} s)")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield update
    finally:
        over.set()
        teller.join()
