"""Files that somebody names: only regular ones are read, and where a file that is written ends up.

A name may come from a model, a certificate or a table that a stranger made.  A FIFO would block and a device never end,
so nothing but a regular file is opened.  All that goes wrong is an ``OSError`` whose ``strerror`` says what it is; who
asked knows what to call the file.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]

TEXT_LIMIT = 2**24
"""Bytes of a text that people write: a configuration, a table, a rule file."""

_CHUNK = 2**20


def open_regular(path: PathLike) -> io.BufferedReader:
    """A regular file, or a link to one, opened to be read.

    Raises:
        OSError: There is none, it is something else, or the name is none that a file can have.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        _must_be_regular(os.stat(path).st_mode)
        descriptor = os.open(path, flags)
    except ValueError:  # a null character, or what no file system can spell
        raise OSError(errno.EINVAL, "no file can have this name") from None
    try:
        _must_be_regular(os.fstat(descriptor).st_mode)  # it may have become another one in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _must_be_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def is_regular(path: PathLike) -> bool:
    """True if the path is a regular file, or a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_bytes(path: PathLike, limit: int = TEXT_LIMIT) -> bytes:
    """The contents of a regular file of at most ``limit`` bytes.

    Raises:
        OSError: It is larger; or as ``open_regular``.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        parts = [file.read(size + 1)] if size <= limit else []
        total = len(parts[0]) if parts else size
        while parts and parts[-1] and total <= limit:  # it may be longer than it says, as those of /proc are
            parts.append(file.read(_CHUNK))
            total += len(parts[-1])
    if total > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes")
    return parts[0] if total == len(parts[0]) else b"".join(parts)


def read_text(path: PathLike, limit: int = TEXT_LIMIT) -> str:
    """The same as text in UTF-8; UnicodeDecodeError where it is none."""
    return read_bytes(path, limit).decode("utf-8")


def destination(path: PathLike) -> Path:
    """The file that is written where ``path`` is asked for: a link stays, and what it points to is replaced or made.

    Raises:
        OSError: Links go round in circles, or the name is none that a file can have.
    """
    try:
        found = Path(path)
        target = Path(os.path.realpath(found)) if found.is_symlink() else found
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name") from None
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target
