"""Shared code of all benchmarks: timing that can be trusted on a noisy machine, tables, goals, JSON, exit codes.

A figure alone means little on a shared machine, so whatever is compared is measured by turns, in one run, and the
medians are compared.  Seconds are those of the CPU, which do not run on while another process has it.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import statistics
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Cell: TypeAlias = str | int | float | None
Row: TypeAlias = dict[str, Cell]

clock = time.process_time
"""Seconds of CPU that this process has used."""


class TimeUp(BaseException):
    """The time allowed has passed.  No ``Exception``, for what is measured may catch those."""


@dataclass(frozen=True)
class Timing:
    """A duration in seconds; ``at_least`` if it was stopped then."""

    seconds: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'> ' if self.at_least else ''}{duration(self.seconds)}"

    def __sub__(self, other: float) -> Timing:
        return Timing(self.seconds - other, self.at_least)


def timed(work: Callable[[], object], cap: float | None = None) -> Timing:
    """Run ``work`` once, garbage collected before, and stop it after ``cap`` seconds."""
    gc.collect()
    start = clock()
    try:
        with _alarm(cap):
            start = clock()
            work()
    except TimeUp:
        return Timing(clock() - start, at_least=True)
    return Timing(clock() - start)


def interleaved(
    tasks: Mapping[str, Callable[[], float]], rounds: int, warm: Container[str] | None = None
) -> dict[str, float]:
    """The median of what each task returns (it measures itself), the tasks by turns.

    A round before, of the ``warm`` tasks or else of all, does not count; with 0 rounds it is the only one and does.
    The order is reversed every other round, so that nobody always comes after the same neighbour.
    """
    samples: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        order = list(tasks) if number % 2 else list(tasks)[::-1]
        for name in order:
            if rounds and not number and warm is not None and name not in warm:
                continue
            sample = tasks[name]()
            if number or rounds == 0:
                samples[name].append(sample)
    return {name: statistics.median(each) for name, each in samples.items()}


@contextmanager
def _alarm(cap: float | None) -> Iterator[None]:
    if cap is None:
        yield
        return

    def stop(*_: object) -> None:
        raise TimeUp

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cap, 1.0)  # again every second, should somebody swallow it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@dataclass
class Report:
    """Tables and goals of one benchmark, printed as they come."""

    title: str
    tables: dict[str, list[dict[str, Cell]]] = field(default_factory=dict)
    goals: list[dict[str, Any]] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(width=120, highlight=False))

    def table(self, title: str, rows: Sequence[Mapping[str, Cell]], note: str = "") -> None:
        """Print rows of the same columns; numbers go as they are into the JSON."""
        self.tables[title] = [dict(row) for row in rows]
        shown = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
        for name in rows[0]:
            shown.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
        for row in rows:
            shown.add_row(*(escape(_text(name, cell)) for name, cell in row.items()))
        self.console.print(shown)

    def goal(
        self, what: str, value: float, limit: float, *, unit: str = "×", least: bool = False, stopped: bool = False
    ) -> None:
        """State a goal: ``value`` is at most ``limit``, or at ``least``.  What had to be ``stopped`` misses it."""
        met = (value >= limit if least else value <= limit) and not stopped
        self.goals.append({"goal": what, "value": value, "limit": limit, "unit": unit, "least": least, "met": met})
        bound = f"{'≥' if least else '≤'} {limit:g} {unit}"
        verdict = "[green]met[/]" if met else "[red]missed[/]"
        self.console.print(f"  {verdict}  {what}: {'> ' if stopped else ''}{value:.3g} {unit} (goal {bound})")

    def finish(self, path: Path | None) -> int:
        """Write the JSON, if asked for; the exit code, 1 when a goal is missed."""
        missed = [g for g in self.goals if not g["met"]]
        self.console.print(f"{len(self.goals) - len(missed)} of {len(self.goals)} goals met")
        if path is not None:
            data = {"benchmark": self.title, "tables": self.tables, "goals": self.goals}
            path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return 1 if missed else 0


def _text(name: str, cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return duration(cell) if name.endswith("(s)") else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small graphs, few rounds; goals are stated all the same")
    made.add_argument("--seed", type=int, default=0, help="of graphs and rules")
    made.add_argument("--rounds", type=int, help="how often everything is measured")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the tables and goals there, too")
    return made
