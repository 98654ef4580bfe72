"""Execution of the jobs of a sweep: in processes of our own, or on any executor.  A process works on one job at a time,
so that a crash of ONNX Runtime costs one model."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager

from onnxrewrite.runtime.session import one_line
from onnxrewrite.suite.sweeping.job import Job, hosted, row_of, run
from onnxrewrite.suite.sweeping.journal import Row
from onnxrewrite.system.workers import in_workers

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that numerical libraries read, once, when they are loaded."""

_WINDOW = 64
"""Jobs that an executor has at a time."""

_PATIENCE = 2.0
"""Seconds between two looks at whether an executor is still there."""


def in_processes(jobs: Sequence[Job], count: int, limit: float | None, *, fresh: bool = False) -> Iterator[Row]:
    """Do all jobs in ``count`` processes, their rows as they come; ``fresh``: a process for each."""
    for job, found in in_workers(run, jobs, count, limit=limit, fresh=fresh):
        yield row_of(job, found)


def on_executor(
    jobs: Sequence[Job],
    executor: Executor,
    notes: list[str],
    *,
    lost: Callable[[], str] = lambda: "",
) -> Iterator[Row]:
    """Do all jobs on an executor, their rows as they come.

    Each runs in a process that the executor's worker starts for it, so a crash does not reach the executor.  What the
    executor itself fails at, for it broke, lost a worker or cannot send a job, is suspected of being the cause: it is
    repeated here, one after the other, each in a process of its own, and a note tells of it.

    Args:
        jobs: The jobs.
        executor: The executor; it has ``_WINDOW`` jobs at most at a time, so that little is undone by an interrupt.
        notes: Gets the note.
        lost: Says why the executor will not answer any more; empty while it may.
    """
    waiting, futures = deque(jobs), dict[Future[Row], Job]()
    suspects: list[Job] = []
    why = ""
    try:
        while (waiting or futures) and not (gone := lost()):
            while waiting and len(futures) < _WINDOW:
                job = waiting.popleft()
                try:
                    futures[executor.submit(hosted, job)] = job
                except Exception as error:  # a broken pool takes nothing any more
                    suspects.append(job)
                    why = why or type(error).__name__
            for future in wait(futures, _PATIENCE, return_when=FIRST_COMPLETED).done if futures else ():
                job = futures.pop(future)
                try:
                    row = future.result()
                except Exception as error:  # whatever somebody else's executor raises: a job raises nothing
                    suspects.append(job)
                    why = why or f"{type(error).__name__}: {one_line(error)}".rstrip(": ")
                    continue
                yield row
        if waiting or futures:
            suspects += [*futures.values(), *waiting]
            why = why or gone
    finally:
        for future in futures:
            future.cancel()
    if suspects:
        notes.append(f"the executor failed ({why}): done here, one by one: {len(suspects)} of {len(jobs)} models")
        yield from in_processes(suspects, 1, jobs[0].limit, fresh=True)


@contextmanager
def few_threads(count: int) -> Iterator[None]:
    """Processes that are started within give numerical libraries so many threads at most; 0: as many as they like.

    What the user has set stays as it is.
    """
    mine = [] if count == 0 else [name for name in _POOLS if name not in os.environ]
    os.environ.update(dict.fromkeys(mine, str(count)))
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]


def threads_for(jobs: int) -> int:
    """Threads for each of so many jobs at a time, so that together they have the processors; 0: no limit for one."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available // jobs) if jobs > 1 else 0
