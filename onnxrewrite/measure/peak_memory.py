"""Peak memory of a model: opened and run in a process of its own, which may also die of it."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxrewrite.errors import ModelError
from onnxrewrite.runtime.session import one_line
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.system.arrays import Feeds
from onnxrewrite.system.workers import Died, in_workers

_RUNS = 3
"""ONNX Runtime plans its memory in the first run, and keeps to the plan in the next."""

_AT_A_TIME = 2
"""Processes: to start one takes longer than to run most models, and memory is the same in company."""


@dataclass(frozen=True)
class Used:
    """The outcome of using a model.

    Attributes:
        peak: Bytes that the process had at its peak, beyond what it had before the model was opened; None where the
            system does not tell, or where it did not run.
        failure: In one line, why it did not open or run.
    """

    peak: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class Use:
    """A model that is used so: what it is called, where it lies, inputs, a setting."""

    name: str
    path: Path
    feeds: Feeds = field(repr=False)
    setting: Setting


def used(uses: Sequence[Use], *, limit: float | None = None) -> Iterator[tuple[Use, Used]]:
    """Open each model in a process of its own and run it a few times, for no longer than ``limit`` seconds; each with
    what it came to, as they come."""
    for use, found in in_workers(_measured, uses, _AT_A_TIME, limit=limit, fresh=True):
        yield use, Used(failure=f"its process {found.how}") if isinstance(found, Died) else found


def _measured(use: Use) -> Used:
    before = _peak(reset=True)
    try:
        runner = open_runner(use.path, use.feeds, use.setting)
        for _ in range(_RUNS):
            runner()
    except ModelError as error:
        return Used(failure=str(error))
    except Exception as error:  # ORT raises a dozen classes, one a status code
        return Used(failure=one_line(error))
    after = _peak()
    return Used(after - before if after is not None and before is not None else None)


def _peak(*, reset: bool = False) -> int | None:
    """Bytes of memory that this process has had at its peak; ``reset`` begins anew where the system can.

    On Linux the high-water mark of the address space, for ``ru_maxrss`` there begins with what the parent had when it
    started the process: getrusage(2) and proc_pid_status(5).
    """
    status = Path("/proc/self/status")
    if status.exists():
        if reset:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(encoding="ascii", errors="replace"), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    try:
        import resource
    except ImportError:  # there is none on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
