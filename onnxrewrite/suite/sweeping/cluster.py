"""``dask://HOST:PORT`` and ``dask://local``: executors on clusters of dask.distributed, where that is installed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.session import one_line
from onnxrewrite.system.workers import interrupts_blocked

SCHEME = "dask://"
LOCAL = "dask://local"

_SECONDS = 10
"""To reach a scheduler."""

_WITHOUT_WORKERS = 60.0
"""Seconds after which a cluster that has no worker any more will have none."""

_PAUSE = 2.0
"""Seconds between two questions for workers."""

_SILENT = ("distributed", "asyncio", "tornado", "bokeh")
"""Loggers that tell of connections that end when a sweep ends, and of workers whose loss is told by us."""


@dataclass(frozen=True)
class Cluster:
    """An executor, and what is known of its workers.

    Attributes:
        executor: Runs jobs on the workers.
        lost: Says why there will be no answer any more; empty while there may be.
        machines: The names of the workers' machines.
    """

    executor: Executor
    lost: Callable[[], str]
    machines: tuple[str, ...]


@contextmanager
def connected(spec: str, jobs: int) -> Iterator[Cluster]:
    """A cluster that ``spec`` names, until this is left.

    Args:
        spec: ``dask://HOST:PORT``, a scheduler; models and output folder must have the same paths on its workers.
            ``dask://local``: a cluster of this machine that lasts as long as the sweep.
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
    """Nothing of the cluster's own is said; what was lost is told in the notes of the sweep."""
    loggers = [logging.getLogger(name) for name in _SILENT]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
