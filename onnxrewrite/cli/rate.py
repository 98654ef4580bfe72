"""The rate at which pieces of work are done, and the time that the others will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_LOOKED_AT = 50
"""Pieces: those before say little, such as what an earlier run had done."""


class Rate:
    """The rate of the last pieces.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen = deque([(clock(), 0)], maxlen=_LOOKED_AT)

    def note(self, done: int) -> None:
        """So many are done now."""
        if done < self._seen[-1][1]:  # another phase
            self._seen.clear()
        if not self._seen or done > self._seen[-1][1]:
            self._seen.append((self._clock(), done))

    def text(self, unit: str, waiting: int) -> str:
        """``3.2 models a second, 4 min left``; empty while nothing is done."""
        (start, first), (_, last) = self._seen[0], self._seen[-1]
        passed = self._clock() - start
        if last == first or passed <= 0:
            return ""
        rate = (last - first) / passed
        told = f"{rate:.1f} {unit}s a second" if rate >= 1 else f"{1 / rate:.1f} s a {unit}"
        return f"{told}, {_left(waiting / rate)} left"


def _left(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
