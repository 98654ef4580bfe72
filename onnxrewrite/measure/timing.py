"""Timing that can be trusted on a noisy machine: by turns, medians with intervals, ratios of what ran side by side.

A figure alone says little where others share the processor.  So whatever is compared is run by turns, in rounds, and
compared within each round: a slow spell hits all of them alike.  This module knows neither models nor sessions.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict, TypeVar

_Name = TypeVar("_Name", bound=Hashable)

LEAST, MOST = 7, 200
"""Rounds: an interval of 95 % has to leave out something; beyond this many it gets hardly any narrower."""

LOOKS, DOUBT = (9, 13, 19, 28, 42, 63, 95, 142), 320
"""The numbers of rounds after which ``interleave`` asks whether they are enough.  Each question takes an interval that
leaves out the median in one case of ``DOUBT`` on each side, so that all of them together do in 5 % (Bonferroni)."""

OUTSIDE = 40
"""An interval of 95 % leaves out the median in one case of so many on each side."""

HOPE = 8
"""A gain is given up where it lies outside of an interval that leaves out the median in one case of so many: to miss
one costs less than to believe in one."""

EARLY = (3, 5, *LOOKS)
"""The numbers of rounds after which it is asked whether there is hope."""

FEWEST, LONGEST = 3, 30.0
"""So many rounds there are of what takes long, and no more once so many seconds have passed."""

OPENINGS, AT_ONCE = (7, 30), 2
"""So often, at least and at most, what is opened is opened anew; so many rounds are run at the least in between."""

SAMPLE = 2e-3
"""Seconds that one sample takes at least: what is faster is run several times for it."""


class Span(TypedDict):
    """A median and where it lies with 95 % confidence."""

    median: float
    low: float
    high: float


class TimingRow(TypedDict):
    """Seconds of one run, and the number of rounds."""

    latency: Span
    cpu: float
    rounds: int


@dataclass(frozen=True)
class Interval:
    """A median and where it lies with 95 % confidence."""

    median: float
    low: float
    high: float

    def to_json(self) -> Span:
        """Plain data."""
        return {"median": self.median, "low": self.low, "high": self.high}


def interval(samples: Sequence[float], outside: int = OUTSIDE) -> Interval:
    """The median and its 95 % interval from order statistics, which assume nothing of the distribution: the number of
    samples below the median is binomial (Conover, *Practical Nonparametric Statistics*, 3rd ed., §3.2).

    ``outside``: the median lies below the interval in one case of so many at the most, and above it in another one.
    """
    ordered = sorted(samples)
    n = len(ordered)
    rank, ways, below = 0, 1, 1  # of 2ⁿ, in which so many samples lie below the median, and at most so many
    while rank < n // 2 and outside * below <= 2**n:
        rank += 1
        ways = ways * (n - rank + 1) // rank
        below += ways
    lowest = max(rank - 1, 0)
    return Interval(statistics.median(ordered), ordered[lowest], ordered[n - 1 - lowest])


@dataclass
class Allowance:
    """Seconds on the wall that all measuring together may take.

    Attributes:
        left: What is left of them.
    """

    left: float

    def share(self, most: float, kept: float = 0.0) -> float:
        """So many seconds at most, if ``kept`` are to be left; 0 if there are none."""
        return max(0.0, min(most, self.left - kept))

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Seconds that pass within count."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.left -= time.perf_counter() - start


@dataclass(frozen=True)
class Timing:
    """Seconds for one run, a sample a round: on the wall, and of the processor over all threads."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def latency(self) -> Interval:
        """Seconds on the wall."""
        return interval(self.wall)

    @property
    def cpu_seconds(self) -> float:
        """The median of the processor's seconds."""
        return statistics.median(self.cpu)

    def seconds(self, *, of_processor: bool) -> float:
        """Of the processor, or on the wall, in the median."""
        return self.cpu_seconds if of_processor else self.latency.median

    def to_json(self) -> TimingRow:
        """Plain data, in seconds."""
        return {"latency": self.latency.to_json(), "cpu": self.cpu_seconds, "rounds": len(self.wall)}


def ratio(of: Timing, to: Timing, *, of_processor: bool = False, outside: int = OUTSIDE) -> Interval:
    """The time of ``of`` as a multiple of that of ``to``, round by round: both must come from one ``interleave``.

    Tasks that run in one thread may be compared by the processor's seconds, which leave out those of other processes.
    """
    pairs = zip(of.cpu, to.cpu, strict=True) if of_processor else zip(of.wall, to.wall, strict=True)
    return interval([a / b for a, b in pairs], outside)


def interleave(
    tasks: Mapping[_Name, Callable[[], object]],
    *,
    seconds: float = 1.0,
    least: int = LEAST,
    most: int = MOST,
    sample: float = SAMPLE,
    enough: Callable[[dict[_Name, Timing]], bool] | None = None,
    looks: Sequence[int] = LOOKS,
) -> dict[_Name, Timing]:
    """Run all tasks by turns for about ``seconds``, after each was run for one sample that does not count.  They end
    earlier where timings are ``enough``, which is asked at the ``looks``.

    Each round begins with another one, and every other cycle of rounds goes through them backwards, so that nobody
    always comes after the same neighbour, or more often after itself than others do.  There are at the least ``least``
    rounds and at the most ``most``; of what takes very long there are three.
    """
    wall: dict[_Name, list[float]] = {name: [] for name in tasks}
    cpu: dict[_Name, list[float]] = {name: [] for name in tasks}
    with _no_collection():
        repeats = {name: _repeats(task, sample) for name, task in tasks.items()}
        start = time.perf_counter()
        number = 0
        while _goes_on(number, least, most, time.perf_counter() - start, seconds):
            for name in _order(list(tasks), number):
                on_wall, of_cpu = _timed(tasks[name], repeats[name])
                wall[name].append(on_wall)
                cpu[name].append(of_cpu)
            number += 1
            if enough is not None and number in looks and enough(_timings(wall, cpu)):
                break
    return _timings(wall, cpu)


def _timings(wall: Mapping[_Name, Sequence[float]], cpu: Mapping[_Name, Sequence[float]]) -> dict[_Name, Timing]:
    return {name: Timing(tuple(wall[name]), tuple(cpu[name])) for name in wall}


def interleave_anew(
    openers: Mapping[_Name, Callable[[], Callable[[], object]]],
    *,
    seconds: float = 1.0,
    enough: Callable[[dict[_Name, Timing]], bool] = lambda _: False,
) -> dict[_Name, tuple[Timing, Timing]]:
    """Open all by turns and run by turns what was opened, again and again: the time to open each, and to run it.

    What is opened keeps the places in memory that it got, good ones or bad ones, as long as it is open.  So all runs of
    one opening are one sample, their median.  They take about ``seconds``, or as long as opening where that is more;
    less where the times to run are ``enough``, which is asked after each opening but the first few.
    """
    opening: dict[_Name, list[Timing]] = {name: [] for name in openers}
    running: dict[_Name, list[Timing]] = {name: [] for name in openers}
    ran, number = 0.0, 0
    while number < OPENINGS[0] or (number < OPENINGS[1] and ran < seconds and not enough(_all_joined(running))):
        start, tasks = time.perf_counter(), dict[_Name, Callable[[], object]]()  # those of before are closed
        for name in _order(list(openers), number):
            cpu, wall = time.process_time(), time.perf_counter()
            tasks[name] = openers[name]()
            opening[name].append(Timing((time.perf_counter() - wall,), (time.process_time() - cpu,)))
        opened = time.perf_counter()
        for name, timing in interleave(
            tasks, seconds=max(opened - start, seconds / OPENINGS[1]), least=AT_ONCE
        ).items():
            running[name].append(Timing((timing.latency.median,), (timing.cpu_seconds,)))
        ran, number = ran + time.perf_counter() - opened, number + 1
    opened_in, ran_in = _all_joined(opening), _all_joined(running)
    return {name: (opened_in[name], ran_in[name]) for name in openers}


def runs_anew(
    openers: Mapping[_Name, Callable[[], Callable[[], object]]],
    *,
    seconds: float = 1.0,
    enough: Callable[[dict[_Name, Timing]], bool] = lambda _: False,
) -> dict[_Name, Timing]:
    """Of ``interleave_anew`` the times to run."""
    return {name: ran for name, (_, ran) in interleave_anew(openers, seconds=seconds, enough=enough).items()}


def _all_joined(parts: Mapping[_Name, Sequence[Timing]]) -> dict[_Name, Timing]:
    return {
        name: Timing(tuple(w for t in some for w in t.wall), tuple(c for t in some for c in t.cpu))
        for name, some in parts.items()
    }


def _order(names: list[_Name], number: int) -> list[_Name]:
    """The order of a round."""
    cycle, first = divmod(number, len(names)) if names else (0, 0)
    turned = names[first:] + names[:first]
    return turned[::-1] if cycle % 2 else turned


def _goes_on(done: int, least: int, most: int, passed: float, seconds: float) -> bool:
    if done < least:
        return passed < LONGEST or done < FEWEST
    return done < most and passed < seconds


def _repeats(task: Callable[[], object], sample: float) -> int:
    """The number of runs of a task for one sample; finding it warms the task up."""
    _timed(task, 1)
    count, took = 1, _timed(task, 1)[0]
    while count * took < sample:
        count = min(2 * count, math.ceil(sample / max(took, 1e-9)))
        took = _timed(task, count)[0]
    return count


def _timed(task: Callable[[], object], count: int) -> tuple[float, float]:
    """Seconds for one of ``count`` runs, on the wall and of the processor."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(count):
        task()
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage is collected in between."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
