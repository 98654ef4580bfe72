"""Temporary files and folders: removed when they are no longer needed, also those of a process that was killed.

Each is locked as long as its process lives; the system gives the lock back, however the process ends.  What bears such
a name and is not locked is left over, and the next one that comes by removes it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, which does not remove what is open either
    fcntl = None  # type: ignore[assignment]

_PREFIX = "onnxrewrite-"
_SUFFIX = ".onnxrewrite-tmp"
_FILE = re.compile(rf"\..*\.\d+-\d+{re.escape(_SUFFIX)}")
_LOCK = "lock"
"""The file in a temporary folder that is locked in its place."""

_NOTED = 1 << 16
"""Bytes for the names of folders."""

_shared: mmap.mmap | None = None


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new folder; it is gone afterwards."""
    sweep_folders()
    with contextlib.ExitStack() as stack:
        yield _locked_folder(stack)


def _locked_folder(stack: contextlib.ExitStack) -> Path:
    """A new folder that is locked; a sweep may remove one between its making and its lock."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            stack.enter_context(_locked(made / _LOCK, os.O_CREAT | os.O_RDWR))
            return made


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A new, empty file beside ``target``, to be renamed; what is left there at the end is removed.

    Raises:
        OSError: It cannot be made.
    """
    sweep_files(target.parent)
    _note(target.parent)
    made = _free_name(target)
    with contextlib.ExitStack() as stack:
        stack.callback(made.unlink, missing_ok=True)
        stack.enter_context(_locked(made, os.O_CREAT | os.O_RDWR))
        yield made


@contextlib.contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """A new, empty folder beside ``target``, to be renamed; what is left there at the end is removed.

    Raises:
        OSError: It cannot be made.
    """
    with beside(target) as lock, contextlib.ExitStack() as stack:
        made = _contents(lock)
        made.mkdir()
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        yield made


@contextlib.contextmanager
def second_name(target: Path) -> Iterator[Path]:
    """Another name of a file, which is removed at the end; on a file system without links, its only one meanwhile.

    Raises:
        OSError: It cannot be had.
    """
    _note(target.parent)
    name = _free_name(target)
    try:
        os.link(target, name)
    except OSError:
        os.replace(target, name)
    with contextlib.ExitStack() as stack:
        stack.callback(name.unlink, missing_ok=True)
        stack.enter_context(_locked(name, os.O_RDONLY))
        yield name


def share() -> None:
    """Let this process know where the processes that it forks from now on have temporary files, also once they died."""
    global _shared
    _shared = mmap.mmap(-1, _NOTED)


def _note(where: Path) -> None:
    """There are temporary files in this folder; one that does not fit in is left to the next one that comes by."""
    if _shared is not None:
        noted = b"\0".join(dict.fromkeys([*_folders(_shared), os.fsencode(where.absolute())]))
        if len(noted) <= _NOTED:
            _shared[: len(noted)] = noted


def _folders(shared: mmap.mmap | None) -> list[bytes]:
    return [name for name in shared[:].split(b"\0") if name] if shared is not None else []


def sweep() -> None:
    """Remove what processes that are gone have left: temporary folders, and files wherever forked processes had any."""
    sweep_folders()
    for name in _folders(_shared):
        sweep_files(Path(os.fsdecode(name)))


def sweep_folders() -> None:
    """Remove the temporary folders of processes that are gone."""
    for found in _named(Path(tempfile.gettempdir()), re.compile(rf"{_PREFIX}\w+")):
        with _left(found / _LOCK) as is_left:
            if is_left:
                shutil.rmtree(found, ignore_errors=True)


def sweep_files(where: Path) -> None:
    """Remove the temporary files and folders there of processes that are gone."""
    for found in _named(where, _FILE):
        with _left(found) as is_left, contextlib.suppress(OSError):
            if is_left:
                shutil.rmtree(_contents(found), ignore_errors=True)
                found.unlink()


def _contents(lock: Path) -> Path:
    """The folder that a temporary file stands for."""
    return lock.with_name(f"{lock.name}.d")


def _named(where: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return [Path(entry) for entry in os.scandir(where) if pattern.fullmatch(entry.name)]
    except OSError:
        return []


def _free_name(target: Path) -> Path:
    names = (target.with_name(f".{target.name}.{os.getpid()}-{n}{_SUFFIX}") for n in itertools.count())
    return next(name for name in names if not name.exists())


@contextlib.contextmanager
def _locked(path: Path, flags: int) -> Iterator[None]:
    """Hold the lock of a file, which is made if ``flags`` say so; one that a sweep has just removed is made again."""
    while True:
        descriptor = os.open(path, flags, 0o666)
        if fcntl is None:
            os.close(descriptor)
            yield
            return
        with contextlib.suppress(OSError):  # a file system without locks, on which nothing is ever swept
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            break
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _left(path: Path) -> Iterator[bool]:
    """Yield True if the file is this user's own and its lock was free; the lock is then held inside the block."""
    if fcntl is None:
        yield False
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        yield _is_ours(descriptor) and _takes_lock(descriptor)
    finally:
        os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _takes_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
