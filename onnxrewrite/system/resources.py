"""Cores and memory that this process really has: of the machine, less what affinity and control groups take away.

A container on a machine of 64 cores may be allowed two of them, or the time of one and a half; a library that starts a
thread for each core of the machine then runs slower than with two.  Control groups are read as the kernel documents
them: ``cpu.max`` and ``memory.max`` (cgroup-v2), ``cpu.cfs_quota_us`` and ``memory.limit_in_bytes`` (cgroup-v1).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from onnxrewrite.system.plain import Json

_UNLIMITED = 2**60
"""Bytes: version 1 of control groups writes a number near 2⁶³ where there is no limit."""

_UNITS = {"K": 2**10, "M": 2**20}
_KINDS = {"Data": "d", "Instruction": "i"}


@dataclass(frozen=True)
class Cores:
    """Of the machine, and of those what this process may use.

    Attributes:
        logical: Hardware threads of the machine.
        physical: Its cores.
        allowed: Hardware threads that the affinity of this process allows.
        allowed_physical: Cores on which these lie.
        quota: The number of cores that a control group allows to be busy on average; None without a limit.
    """

    logical: int
    physical: int
    allowed: int
    allowed_physical: int
    quota: float | None = None

    @property
    def threads(self) -> int:
        """The number of useful intra-op threads: one per core, and no more than the quota keeps busy."""
        return max(1, min(self.allowed_physical, int(self.quota) if self.quota is not None else self.allowed_physical))

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {**asdict(self), "threads": self.threads}


@dataclass(frozen=True)
class Memory:
    """In bytes.

    Attributes:
        total: Of the machine.
        available: Without swapping, now.
        limit: The bytes that a control group allows; None without a limit.
    """

    total: int
    available: int
    limit: int | None = None

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return asdict(self)


def cores(root: Path = Path("/")) -> Cores:
    """The cores, as they are now; ``root`` is that of the file system that describes them."""
    logical = psutil.cpu_count() or os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed = _affinity()
    count = len(allowed) if allowed else logical
    own = _cores_of(allowed, root) if allowed else None
    return Cores(logical, physical, count, own or max(1, min(physical, count)), quota(root))


def caches(root: Path = Path("/")) -> dict[str, int]:
    """The caches of a core, ``L1d`` or ``L2``, and their bytes; none where the system does not tell."""
    found = {}
    for folder in sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index*")):
        level, kind, told = (_text(folder / name) or "" for name in ("level", "type", "size"))
        if told[:-1].isdecimal() and told[-1] in _UNITS:
            found[f"L{level}{_KINDS.get(kind, '')}"] = int(told[:-1]) * _UNITS[told[-1]]
    return found


def memory(root: Path = Path("/")) -> Memory:
    """The memory, as it is now."""
    found = psutil.virtual_memory()
    limit = memory_limit(root)
    limit = limit if limit is not None and limit < found.total else None
    available = found.available if limit is None else min(found.available, limit)
    return Memory(found.total, available, limit)


def _affinity() -> Collection[int]:
    """The hardware threads that this process may run on; nothing where the system has no such notion."""
    with contextlib.suppress(AttributeError, psutil.Error, OSError):
        return psutil.Process().cpu_affinity() or ()
    return ()


def _cores_of(allowed: Collection[int], root: Path) -> int | None:
    """On how many cores these hardware threads lie; None where the system does not tell."""
    siblings = set()
    for number in allowed:
        path = root / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        text = _text(path)
        if text is None:
            return None
        siblings.add(text)
    return len(siblings)


def quota(root: Path = Path("/")) -> float | None:
    """The number of cores that may be busy on average, by the tightest control group around this process; or None."""
    found = []
    for folder in _groups(root, "cpu"):
        limit, _, period = (_text(folder / "cpu.max") or "").partition(" ")
        found.append(_ratio(limit, period))
        found.append(_ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")))
    return min((each for each in found if each is not None), default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that this process and those beside it in its control group may use."""
    found = []
    for folder in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name)
            if text is not None and text.isdecimal() and int(text) < _UNLIMITED:
                found.append(int(text))
    return min(found, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups that this process is in, from its own up to the outermost.

    In a container the path may be that of the machine outside, of which only the end, or nothing, can be seen.
    """
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller] if controllers else []
        mount = next((m for m in mounts if m.is_dir()), root / "sys/fs/cgroup")
        folder = mount / name.strip("/")
        yield from (each for each in (folder, *folder.parents) if each == mount or mount in each.parents)


def _ratio(limit: str | None, period: str | None) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        if float(limit or "") > 0 and float(period or "") > 0:
            return float(limit or "") / float(period or "")
    return None


def _text(path: Path) -> str | None:
    """The contents of a small file; None if it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return None
