"""Times of sessions in several processes, by turns."""

from __future__ import annotations

import time
from collections.abc import Mapping

from onnxrewrite.measure.timing import LEAST, SAMPLE, Timing
from onnxrewrite.suite.canary.ort_environments import Opened


def by_turns(opened: Mapping[int, Opened], seconds: float) -> dict[int, Timing]:
    """Runs of open sessions in several processes by turns."""
    counts = {}
    for n, session in opened.items():
        session.run(1)
        counts[n] = max(1, round(2 * SAMPLE / max(session.run(1)[0], 1e-6)))
    wall: dict[int, list[float]] = {n: [] for n in opened}
    cpu: dict[int, list[float]] = {n: [] for n in opened}
    end, rounds = time.monotonic() + seconds, 0
    while opened and (rounds < LEAST or time.monotonic() < end):
        for n in list(opened) if rounds % 2 else reversed(list(opened)):
            on_wall, of_cpu = opened[n].run(counts[n])
            wall[n].append(on_wall)
            cpu[n].append(of_cpu)
        rounds += 1
    return {n: Timing(tuple(wall[n]), tuple(cpu[n])) for n in opened}
