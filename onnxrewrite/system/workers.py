"""Work in processes that may die of it: what one was at is lost, and nothing else.

Processes are started anew, not forked: a fork inherits the threads of ONNX Runtime, without what they do.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Died:
    """Stands for a missing answer; ``how`` says why the process gave none: ``died of SIGABRT``."""

    how: str


@dataclass(frozen=True)
class _Raised:
    error: Exception


def in_workers(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    count: int,
    *,
    limit: float | None = None,
    fresh: bool = False,
    tries: int = 1,
) -> Iterator[tuple[Task, Answer | Died]]:
    """Do ``work`` on every task, in ``count`` processes; each task with its answer, as they come.

    A process that dies is replaced.  What ``work`` raises is raised here.  All processes are gone when this is left, by
    an interrupt, too.

    Args:
        work: A function that can be pickled, such as one of a module; so can tasks and answers.
        tasks: The tasks.
        count: The maximum number of processes.
        limit: Seconds after which a task is given up, and its process with it; None for never.
        fresh: True to give each task a process to itself.
        tries: A task of which a process died goes first among those that wait, until so many have died of it.
    """
    deaths: Counter[int] = Counter()
    waiting, busy = deque(tasks), dict[Connection, tuple[_Worker[Task, Answer], Task]]()
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # else the first process starts it, and lets interrupts through again
    try:
        for _ in range(min(count, len(tasks))):
            _give(_Worker(work), waiting, busy)
        while busy:
            ready = wait(list(busy), None if limit is None else _left([w for w, _ in busy.values()], limit))
            late = [] if limit is None else [c for c, (w, _) in busy.items() if c not in ready and w.left(limit) <= 0]
            for connection in [*ready, *late]:
                worker, task = busy[connection]  # type: ignore[index]
                answer = Died(f"took longer than {limit:g} s") if connection in late else worker.answer()
                del busy[worker.connection]
                spent = fresh or isinstance(answer, Died)
                deaths[id(task)] += isinstance(answer, Died)
                is_over = not isinstance(answer, Died) or deaths[id(task)] >= tries
                if not is_over:
                    waiting.appendleft(task)
                if spent or not waiting:
                    worker.stop()
                if waiting:
                    _give(_Worker(work) if spent else worker, waiting, busy)
                if is_over:
                    yield task, answer
    finally:
        for worker, _ in busy.values():
            worker.stop()


_KEPT_FOR = 200
"""Tasks of a process that is kept: what native code does not give back is bounded by it."""

_PATIENCE = 60.0
"""Seconds that a kept process waits for another task before it ends by itself."""

_idle = defaultdict[str, "list[_Worker[Any, Any]]"](list)
_lock = threading.Lock()


def in_kept_worker(
    work: Callable[[Task], Answer], task: Task, owner: str, *, limit: float | None = None
) -> Answer | Died:
    """Do ``work`` on one task, in a process that is kept for the next one: to import all anew takes longer than most
    tasks do.  Calls from several threads have a process each.  What ``work`` raises is raised here.

    Args:
        work: A function that can be pickled, the same for all tasks of an owner.
        task: The task.
        owner: A name for what the task is part of; kept processes of other owners are ended.
        limit: Seconds after which the task is given up, and its process with it; None for never.
    """
    worker: _Worker[Task, Answer] = _kept(owner) or _Worker(work, idle=_PATIENCE)
    answer = _asked(worker, task, limit)
    if worker.tasks and isinstance(answer, Died) and answer.how == _ENDED:  # it had just lost its patience
        worker.stop()
        worker = _Worker(work, idle=_PATIENCE)
        answer = _asked(worker, task, limit)
    worker.tasks += 1
    if isinstance(answer, Died) or worker.tasks >= _KEPT_FOR:
        worker.stop()
    else:
        with _lock:
            _idle[owner].append(worker)
    return answer


def may_have_children() -> None:
    """A daemonic process, as workers are, may start none, lest they outlive it; ours end when their owner does."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.current_process().daemon = False


def _asked(worker: _Worker[Task, Answer], task: Task, limit: float | None) -> Answer | Died:
    """The answer of one process to one task."""
    try:
        worker.send(task)
        in_time = wait([worker.connection], limit)
        return worker.answer() if in_time else Died(f"took longer than {limit:g} s")
    except BrokenPipeError:
        return Died(_ENDED)
    except BaseException:
        worker.stop()
        raise


def _kept(owner: str) -> _Worker[Any, Any] | None:
    """A process that waits for a task of this owner; those of others are ended, and what has died while it waited."""
    with _lock:
        others = [worker for name in list(_idle) if name != owner for worker in _idle.pop(name)]
        own = _idle[owner].pop() if _idle[owner] else None
    if own is not None and not own.is_alive():
        others.append(own)
        own = None
    for worker in others:
        worker.stop()
    return own


def _give(
    worker: _Worker[Task, Answer], waiting: deque[Task], busy: dict[Connection, tuple[_Worker[Task, Answer], Task]]
) -> None:
    """Let a worker do what waits first."""
    busy[worker.connection] = worker, waiting[0]
    worker.send(waiting.popleft())


def _left(workers: Iterable[_Worker[Task, Answer]], limit: float) -> float:
    """Seconds until the first of them is late."""
    return max(0.0, min(worker.left(limit) for worker in workers))


class _Worker(Generic[Task, Answer]):
    """A process, and the end of a pipe to it."""

    def __init__(self, work: Callable[[Task], Answer], idle: float | None = None):
        self.connection, other = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(work, other, idle), daemon=True)
        with interrupts_blocked():
            self._process.start()
        other.close()
        self.tasks = 0

    def is_alive(self) -> bool:
        """True while its process is there."""
        return self._process.is_alive()

    def send(self, task: Task) -> None:
        """Let it do something; its time begins to run."""
        self._since = time.monotonic()
        self.connection.send(task)

    def left(self, limit: float) -> float:
        """Seconds of ``limit`` that it has left for what it is at."""
        return self._since + limit - time.monotonic()

    def answer(self) -> Answer | Died:
        """Wait for the answer of the process and return it.  Raises what the work raised."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return Died(_how(self._process.exitcode or 0))
        if isinstance(answer, _Raised):
            raise answer.error
        return answer  # type: ignore[no-any-return]

    def stop(self) -> None:
        """End the process, whatever it is at."""
        self._process.kill()
        self._process.join()
        self.connection.close()


_ENDED = "ended with status 0"
"""The way in which a process ends that is not needed any more."""


def _how(exitcode: int) -> str:
    return f"died of {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Ctrl-C waits; processes and threads that are started meanwhile never hear of it, for their owner ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # there is none on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(work: Callable[[Any], object], connection: Connection, idle: float | None) -> None:
    """The main loop of a worker process: answer tasks until the owner is gone, or until there is none for so long."""
    threading.Thread(target=_end_with_owner, daemon=True).start()
    while True:
        try:
            if not connection.poll(idle):
                return
            task = connection.recv()
        except EOFError:
            return
        try:
            answer = work(task)
        except Exception as error:
            answer = _Raised(_sendable(error))
        connection.send(answer)


def _end_with_owner() -> None:
    """End this process when its owner was killed: nobody would hear the answer, and somebody may do it again."""
    owner = multiprocessing.parent_process()
    if owner is not None:
        owner.join()
        os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same and can be sent; with its traceback as a note, which is not sent."""
    from onnxrewrite.errors import described

    note = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # it can fail in any way
        error = RuntimeError(described(error))
    error.add_note(note)
    return error
