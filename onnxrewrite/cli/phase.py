"""The phase that the work is in, in memory that the supervisor sees after the child has died."""

from __future__ import annotations

import mmap
from typing import Final

_SIZE = 64

PATIENCE: Final = 1.0
"""Seconds that the work has to stop by itself."""

_LONGER: Final = {"sweep": 10.0}
"""The same in phases that have something to tell when they are stopped."""

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


def patience() -> float:
    """Seconds that the work has to stop by itself in the phase that it is in."""
    return _LONGER.get(last(), PATIENCE)
