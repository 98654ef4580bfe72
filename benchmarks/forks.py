"""Work in processes of its own, two at a time, each forked off for one task: what it patches or breaks stays there."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Generic, TypeVar

import psutil

Task = TypeVar("Task")

_CONTEXT = multiprocessing.get_context("fork")

_WAITING = 10
"""A task that does not use the processor may take so many times its limit on the clock."""


@dataclass(frozen=True)
class Outcome(Generic[Task]):
    """The outcome of a task: the ``result`` of its work, or the reason why there is none."""

    task: Task
    result: Any = None
    failure: str = ""


@dataclass(frozen=True)
class _Running(Generic[Task]):
    task: Task
    process: ForkProcess
    since: float

    def is_late(self, limit: float) -> bool:
        """True if it has used ``limit`` seconds of the processor, or hangs."""
        if time.monotonic() > self.since + _WAITING * limit:
            return True
        try:
            used = psutil.Process(self.process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return False
        return used.user + used.system > limit


def forked(
    tasks: Iterable[Task], work: Callable[[Task], Any], *, workers: int = 2, limit: float = 120
) -> Iterator[Outcome[Task]]:
    """Do ``work`` on every task, and yield what came of it as it comes.

    A task is given up after ``limit`` seconds of the processor, which others may be using, too.
    The caller must not have started threads (an ONNX Runtime session has some): they do not survive a fork.
    """
    waiting, running = iter(tasks), dict[Connection, _Running[Task]]()
    while True:
        for task in _some(waiting, workers - len(running)):
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_run, args=(work, task, sender))
            process.start()
            sender.close()
            running[receiver] = _Running(task, process, time.monotonic())
        if not running:
            return
        ready = wait(list(running), timeout=0.2)
        late = [c for c, r in running.items() if c not in ready and r.is_late(limit)]
        for connection in [c for c in running if c in ready or c in late]:
            yield _finished(running.pop(connection), connection, is_late=connection in late)


def _some(tasks: Iterator[Task], count: int) -> list[Task]:
    return [task for _, task in zip(range(count), tasks, strict=False)]


def _finished(running: _Running[Task], connection: Connection, *, is_late: bool) -> Outcome[Task]:
    if is_late:
        running.process.kill()
        outcome = Outcome(running.task, failure="it took too long")
    else:
        try:
            outcome = Outcome(running.task, *connection.recv())
        except EOFError:
            outcome = Outcome(running.task, failure="the process died")
    connection.close()
    running.process.join()
    return outcome


def _run(work: Callable[[Task], Any], task: Task, sender: Connection) -> None:
    try:
        sender.send((work(task), ""))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        sender.send((None, f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"))
