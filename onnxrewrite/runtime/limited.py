"""Calls into native code, limited in time and open to signals.

ONNX Runtime neither looks at the clock nor lets the interpreter hear Ctrl-C while it runs.  So such a call is made on a
thread of its own, its *lane*, while the caller waits: a lock can be waited for with a time limit, and a signal
interrupts the wait.  A call that is late is asked to stop.  One kernel that takes for ever does not listen; its lane is
then abandoned, and ends with the process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

Answer = TypeVar("Answer")

SECONDS: Final = 10.0
"""The limit of one run of a model without weights, where nothing else is asked for."""

BYTES_A_SECOND: Final = 10_000_000
"""A model with weights may take longer: a second more for so many bytes of them."""

_PATIENCE = 3
"""A candidate may take so many times the limit of the original."""

_GRACE = 1.0
"""Seconds that a call has to stop after it was asked to."""

VARIABLE: Final = "ONNXREWRITE_RUN_LIMIT"
"""The environment variable with the limit of a process, so that processes that it starts have it, too."""

_ASKED: ContextVar[float | None] = ContextVar("run limit", default=None)


class Overrun(Exception):
    """A call took longer than it may.

    Attributes:
        seconds: The limit.
    """

    def __init__(self, seconds: float):
        super().__init__(f"it takes longer than {seconds:g} s; --run-limit sets this limit")
        self.seconds = seconds


@contextmanager
def run_limit(seconds: float | None) -> Iterator[None]:
    """Within, each run of a model may take so long; 0: for ever, None: as the process has it."""
    before = _ASKED.set(seconds)
    try:
        yield
    finally:
        _ASKED.reset(before)


def set_run_limit(seconds: float) -> None:
    """The same for the whole process and those that it starts."""
    os.environ[VARIABLE] = repr(seconds)


def seconds_for(weight_bytes: int) -> float | None:
    """The time limit of one run of a model, in seconds, by the bytes of its weights; None for no limit."""
    asked = _ASKED.get()
    if asked is None and VARIABLE in os.environ:
        with contextlib.suppress(ValueError):  # the command line has refused it
            asked = float(os.environ[VARIABLE])
    if asked is None:
        return SECONDS + weight_bytes // BYTES_A_SECOND
    return asked or None


def patient(seconds: float | None) -> float | None:
    """The time limit of a candidate, from that of the original: the limit is not a verdict on its speed."""
    return None if seconds is None else _PATIENCE * seconds


def limited(
    call: Callable[[], Answer],
    seconds: float | None,
    stop: Callable[[], None],
    done: Callable[[], int] = lambda: 0,
) -> Answer:
    """The answer of ``call``, which runs on another thread.

    Args:
        call: The function to call; it releases the interpreter's lock while it works.
        seconds: The limit; None for none.
        stop: Asks the call to end early; it is called from this thread.
        done: The number of parts of the call that are done, where it has several, each of which has that limit.

    Raises:
        Overrun: The limit is over; the call has ended, or its thread was abandoned.
        Exception: Any that ``call`` raises, or a signal handler meanwhile.
    """
    lane = getattr(_LANES, "lane", None)
    if lane is None:
        lane = _LANES.lane = _Lane()
    task = _Task(call)
    lane.tasks.put(task)
    try:
        in_time, before = task.done.acquire(timeout=-1 if seconds is None else seconds), 0
        while not in_time and (now := done()) > before:
            in_time, before = task.done.acquire(timeout=seconds or -1), now
    except BaseException:  # of a signal handler: whoever waits is to go on at once
        _LANES.lane = None
        stop()
        _ABANDONED.append(task)
        raise
    if not in_time:
        stop()
        if not task.done.acquire(timeout=_GRACE):
            _LANES.lane = None
            _ABANDONED.append(task)
        assert seconds is not None
        raise Overrun(seconds)
    if task.error is not None:
        raise task.error
    return task.answer  # type: ignore[no-any-return]


def is_busy() -> bool:
    """True if a call that was abandoned is still running: the process must then exit without waiting for it."""
    return any(task.done.locked() for task in _ABANDONED)


class _Task:
    """One call, and what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.done = threading.Lock()
        self.done.acquire()
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call."""
        try:
            self.answer = self.call()
        except BaseException as error:
            self.error = error
        finally:
            self.done.release()


class _Lane:
    """A thread that makes one call after another for the thread that it belongs to."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        try:
            threading.Thread(target=_serve, args=[self.tasks], name="onnxrewrite-lane", daemon=True).start()
        except RuntimeError as error:
            raise MemoryError("cannot allocate memory for a thread") from error

    def __del__(self) -> None:
        self.tasks.put(None)


def _serve(tasks: queue.SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # and what it holds, while the next one is waited for


_LANES = threading.local()
_ABANDONED: list[_Task] = []
