"""The memory that this process may take: more where it reads a larger model, and never all that there is.

Without a limit, a file of 200 bytes can take what the machine has.  Files that are mapped for reading do not count.
The system's limit is used, RLIMIT_DATA; there is none on Windows, and macOS does not enforce it.
"""

from __future__ import annotations

import contextlib
from typing import Final

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

FLOOR: Final = 4 * 2**30
"""Bytes that a process may take for whatever it reads."""

FACTOR: Final = 32
"""It may take so many more for each byte of a model or of data: checks hold two models, in double too, and all runs."""


class _Following:
    """The limit as it follows what is read; of a process that nobody else uses."""

    most = 0
    """Bytes that the limit never passes; 0 where it does not follow anything."""
    read = 0
    """Bytes that were read so far."""


def limit(size: int) -> bool:
    """Let this process take ``size`` bytes, 0 for any number; False where the system knows no such limit."""
    _Following.most = 0
    return _set(size)


def limit_by_size(most: int) -> None:
    """Let this process take what suits the size of what it reads, but no more than ``most`` bytes."""
    _Following.most = most
    expect(0)


def expect(size: int) -> None:
    """Tell that a model or data of ``size`` bytes are read; the limit follows if ``limit_by_size`` asked for that."""
    if _Following.most:
        _Following.read += size
        _set(min(FLOOR + FACTOR * _Following.read, _Following.most))


def current() -> int | None:
    """The limit that is in force, in bytes; None for none."""
    if resource is None:
        return None
    limits = (resource.getrlimit(each)[0] for each in (resource.RLIMIT_DATA, resource.RLIMIT_AS))
    return min((each for each in limits if each >= 0), default=None)


def _set(size: int) -> bool:
    if resource is None:
        return False
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = size or most
    with contextlib.suppress(ValueError, OSError):  # the process takes more already
        resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, most) if most >= 0 else wanted, most))
    return True
