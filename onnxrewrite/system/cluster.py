"""Work on executors that may fail: those of clusters of dask.distributed, where that is installed, ``dask://HOST:PORT``
and ``dask://local``, or any of ``concurrent.futures``."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from onnxrewrite.errors import UsageError, one_line
from onnxrewrite.system.workers import interrupts_blocked

Task = TypeVar("Task")
Answer = TypeVar("Answer")

SCHEME = "dask://"
LOCAL = "dask://local"

_SECONDS = 10
"""To reach a scheduler."""

_WITHOUT_WORKERS = 60.0
"""Seconds after which a cluster that has no worker any more will have none."""

_PAUSE = 2.0
"""Seconds between two questions for workers, or for answers."""

_WINDOW = 64
"""Tasks that an executor has at a time."""

_SILENT = ("distributed", "asyncio", "tornado", "bokeh")
"""Loggers that tell of connections that end when the work ends, and of workers whose loss is told by us."""


@dataclass(frozen=True)
class Cluster:
    """An executor, and what is known of its workers.

    Attributes:
        executor: Runs jobs on the workers.
        lost: Says why there will be no answer any more; empty while there may be.
        machines: The names of the workers' machines.
    """

    executor: Executor
    lost: Callable[[], str] = lambda: ""
    machines: tuple[str, ...] = ()


def in_cluster(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    cluster: Cluster,
    instead: Callable[[Sequence[Task]], Iterator[tuple[Task, Answer]]],
    notes: list[str],
) -> Iterator[tuple[Task, Answer]]:
    """Do ``work`` on every task, on a cluster or any other executor; each task with its answer, as they come.

    What its executor fails at, for it broke, lost a worker or cannot send a task, is suspected of being the cause: it
    is done by ``instead``, after all others, and a note tells of it.

    Args:
        work: A function that can be pickled, such as one of a module; so can tasks and answers.
        tasks: The tasks: models, or parts of a search.
        cluster: Its executor has ``_WINDOW`` tasks at most at a time, so that little is undone by an interrupt.
        instead: Does the tasks that the executor fails at, here.
        notes: Gets the note.
    """
    waiting, futures = deque(tasks), dict[Future[Answer], Task]()
    suspects: list[Task] = []
    why = ""
    try:
        while (waiting or futures) and not (gone := cluster.lost()):
            while waiting and len(futures) < _WINDOW:
                task = waiting.popleft()
                try:
                    futures[cluster.executor.submit(work, task)] = task
                except Exception as error:  # a broken pool takes nothing any more
                    suspects.append(task)
                    why = why or type(error).__name__
            for future in wait(futures, _PAUSE, return_when=FIRST_COMPLETED).done if futures else ():
                task = futures.pop(future)
                try:
                    answer = future.result()
                except Exception as error:  # whatever somebody else's executor raises
                    suspects.append(task)
                    why = why or f"{type(error).__name__}: {one_line(error)}".rstrip(": ")
                    continue
                yield task, answer
        if waiting or futures:
            suspects += [*futures.values(), *waiting]
            why = why or gone
    finally:
        for future in futures:
            future.cancel()
    if suspects:
        notes.append(f"the executor failed ({why}): done here, one by one: {len(suspects)} of {len(tasks)} models")
        yield from instead(suspects)


def check_jobs(spec: str | None, jobs: int) -> None:
    """UsageError if so many jobs are asked for of a cluster that has its own workers."""
    if spec not in (None, LOCAL) and jobs > 1:
        raise UsageError(f"--jobs {jobs}: how many are done at a time is for the cluster {spec} to say")


@contextmanager
def connected(spec: str, jobs: int) -> Iterator[Cluster]:
    """A cluster that ``spec`` names, until this is left.

    Args:
        spec: ``dask://HOST:PORT``, a scheduler; models and output folder must have the same paths on its workers.
            ``dask://local``: a cluster of this machine that lasts as long as the work.
        jobs: Processes of a local cluster.

    Raises:
        UsageError: It is no such name, dask.distributed is not installed, or there is no such cluster.
    """
    if not spec.startswith(SCHEME) or spec == SCHEME:
        raise UsageError(f"--executor {spec}: write dask://HOST:PORT or dask://local")
    try:
        import distributed
    except ImportError:
        raise UsageError(f"--executor {spec}: needs dask.distributed: pip install onnxrewrite[dask]") from None
    with ExitStack() as stack:
        stack.enter_context(_silent())
        try:
            where = f"tcp://{spec.removeprefix(SCHEME)}"
            if spec == LOCAL:
                where = stack.enter_context(_local(distributed, jobs))
            client = stack.enter_context(distributed.Client(where, timeout=_SECONDS, set_as_default=False))
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"--executor {spec}: cannot be reached: {one_line(error)}") from None
        hosts = {address.rpartition("://")[2].rpartition(":")[0] for address in client.nthreads()}
        yield Cluster(client.get_executor(pure=False), _watch(client), tuple(sorted(hosts)))


def _watch(client: Any) -> Callable[[], str]:
    """A function that says why the cluster will not answer any more."""
    seen = asked = time.monotonic()

    def lost() -> str:
        nonlocal seen, asked
        if time.monotonic() - asked < _PAUSE:
            return ""
        asked = time.monotonic()
        with contextlib.suppress(Exception):  # a scheduler that does not answer has no workers
            if client.status == "running" and client.nthreads():
                seen = time.monotonic()
        return "no worker is left" if time.monotonic() - seen > _WITHOUT_WORKERS else ""

    return lost


@contextmanager
def _local(distributed: Any, jobs: int) -> Iterator[Any]:
    """A cluster of this machine, whose processes hear of no Ctrl-C: it is this one's to end them.

    Jobs are processes of their own, so what the workers themselves take says nothing of memory.
    """
    with interrupts_blocked():
        cluster = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",  # any port that is free: the usual one may be another cluster's
            silence_logs=logging.CRITICAL,
        )
    with cluster:
        yield cluster


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing of the cluster's own is said; what was lost is told in the notes."""
    loggers = [logging.getLogger(name) for name in _SILENT]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
