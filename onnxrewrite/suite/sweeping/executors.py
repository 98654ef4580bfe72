"""Execution of the jobs of a sweep: in processes of our own, or on any executor.  A process works on one job at a time,
so that a crash of ONNX Runtime costs one model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from onnxrewrite.suite.sweeping.job import Job, hosted, row_of, run
from onnxrewrite.suite.sweeping.journal import Row
from onnxrewrite.system.cluster import Cluster, in_cluster
from onnxrewrite.system.workers import in_workers

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that numerical libraries read, once, when they are loaded."""


def in_processes(
    jobs: Sequence[Job], count: int, limit: float | None, *, fresh: bool = False
) -> Iterator[tuple[Job, Row]]:
    """Do all jobs in ``count`` processes, each with its row, as they come; ``fresh``: a process for each."""
    for job, found in in_workers(run, jobs, count, limit=limit, fresh=fresh):
        yield job, row_of(job, found)


def on_executor(cluster: Cluster, jobs: Sequence[Job], notes: list[str]) -> Iterator[tuple[Job, Row]]:
    """Do all jobs on an executor, each with its row, as they come.

    Each runs in a process that the executor's worker starts for it, so a crash does not reach the executor.  What the
    executor itself fails at is repeated here, one after the other, each in a process of its own.
    """
    here = partial(in_processes, count=1, limit=jobs[0].limit, fresh=True)
    return in_cluster(hosted, jobs, cluster, here, notes)


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
