"""The phase that the work is in, in memory that the supervisor sees after the child has died."""

from __future__ import annotations

import mmap

_SIZE = 64

_shared: mmap.mmap | None = None


def share() -> None:
    """Share what is noted from now on with processes that are forked."""
    global _shared
    _shared = mmap.mmap(-1, _SIZE)


def note(phase: str) -> None:
    """The work is in this phase now."""
    if _shared is not None:
        _shared[:] = phase.encode("utf-8", "replace")[:_SIZE].ljust(_SIZE, b"\0")


def last() -> str:
    """The last phase that was noted; empty where none was."""
    return _shared[:].rstrip(b"\0").decode("utf-8", "replace") if _shared is not None else ""
