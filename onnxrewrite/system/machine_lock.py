"""A lock that one process of a machine holds at a time, whoever started it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def machine_lock(name: str) -> Iterator[None]:
    """Hold the lock ``name`` of this machine; wait for it.  The system gives it back however the process ends.

    Where the system has no such locks, or the file of another user cannot be opened, nobody waits.
    """
    if fcntl is None:
        yield
        return
    path = Path(tempfile.gettempdir(), f"onnxrewrite-{name}.lock")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = _opened(path)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError:  # another user's: to read is enough for a lock
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
