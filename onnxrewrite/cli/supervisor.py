"""The command's process and its supervisor: what is heard, and said, whatever native code does.

The work is done in a child process.  Its parent has nothing to do but wait, and so it always hears a signal: the child
is asked to stop, and is killed if it does not.  A crash of native code, or the system's for lack of memory, ends the
child alone; the parent says what happened in one line.  This module knows nothing of what the work is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

from onnxrewrite.cli import phase
from onnxrewrite.cli.console import complain
from onnxrewrite.errors import StoppedError, printable
from onnxrewrite.system import temporary

CRASHED: Final = 2
"""The exit status where native code died of what it was given."""

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that stop a command."""

_OFF = "ONNXREWRITE_SUPERVISOR"
"""This variable is 0 where the work is to be done in the first process, as a debugger wants it."""

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl(2)."""


class Stopped(StoppedError):
    """The signal that asked us to stop."""

    def __init__(self, number: int):
        super().__init__("interrupted" if number == signal.SIGINT else "terminated")
        self.status = 128 + number


def listen() -> list[Stopped]:
    """Let the first signal unwind the stack, so that temporary files are removed; those after it are not heard.

    Returns:
        What was raised, once something is: on its way up it can become any other exception, as in a module of native
        code that is just being imported.
    """
    heard: list[Stopped] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, _unheard)
        heard.append(Stopped(number))
        raise heard[0]

    with contextlib.suppress(ValueError):  # not the main thread
        for each in SIGNALS:
            signal.signal(each, stop)
    return heard


def _unheard(number: int, frame: FrameType | None) -> None:
    """Hear a signal no more; Python complains of one that waits already where ``SIG_IGN`` takes its handler's place."""


def supervised(work: Callable[[], int]) -> int:
    """The exit status of ``work``, done in a child process where there can be one."""
    if not hasattr(os, "fork") or os.environ.get(_OFF) == "0" or threading.active_count() > 1:
        return work()
    parent = os.getpid()
    phase.share()
    temporary.share()
    with _signals_blocked():
        child = os.fork()
        if child:
            supervisor = _Supervisor(child)
    if not child:
        _end_with(parent)
        _silence_native_code()
        _leave(work())
    return supervisor.wait()


class _Supervisor:
    """Waits for one child.  To be made while signals are blocked."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.heard = 0
        for number in SIGNALS:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGALRM, self._kill)

    def wait(self) -> int:
        """The exit status, once the child has ended."""
        _, status = os.waitpid(self.child, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code
        _clean_up()
        if self.heard:
            complain(f"{Stopped(self.heard)}; nothing was left half done")
            return 128 + self.heard
        if -code == signal.SIGKILL:
            complain("killed, most likely for lack of memory; --memory-limit makes it stop before")
        else:
            at = f", in the phase '{printable(phase.last())}'" if phase.last() else ""
            name = signal.Signals(-code).name
            complain(f"native code died of {name} on what it was given{at}; --debug shows its last words")
        return CRASHED

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Hand the first signal on; the child has heard it already where it came from a terminal."""
        if self.heard:
            return
        self.heard = number
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, number)
        signal.setitimer(signal.ITIMER_REAL, phase.patience())

    def _kill(self, number: int, frame: FrameType | None) -> None:
        """End the child, and whom it has started."""
        import psutil

        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.child).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """Let this process end with its parent, however that ends; where the system has no such thing, it goes on."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _silence_native_code() -> None:
    """Let libraries write to nowhere what they write past the interpreter, last words too; ``--debug`` shows it."""
    if "--debug" in sys.argv or sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        own = os.dup(sys.stderr.fileno())
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
        sys.stderr = os.fdopen(own, "w", buffering=1, encoding=sys.stderr.encoding, errors="replace")


def _leave(code: int) -> NoReturn:
    """End this process; at once where it was asked to, or where native code was abandoned and is still at work."""
    for number in SIGNALS:  # what there was to do is done
        signal.signal(number, _unheard)
    limited = sys.modules.get("onnxrewrite.runtime.limited")
    if code > 128 or (limited is not None and limited.is_busy()):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _clean_up() -> None:
    """Clean up what the child could not: its temporary files, and the terminal's cursor, hidden by a progress bar."""
    temporary.sweep()
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")
