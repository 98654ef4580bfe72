"""``sweep``: a whole zoo of models, several at a time, on record."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.report.plain_reports import SweepReport
from onnxrewrite.suite.sweeping.executors import few_threads, in_processes, on_executor, threads_for
from onnxrewrite.suite.sweeping.find import Found, LeftOut, find
from onnxrewrite.suite.sweeping.job import Job
from onnxrewrite.suite.sweeping.journal import Record, Row
from onnxrewrite.suite.sweeping.tasks import Apply, Work

Models: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_EXIT_CODES = (("bug", 3), ("failed", 1), ("died", 1), ("unusable", 2))
"""The first of these that is met counts: what a sweep is run to find out comes before what it was given."""


@dataclass
class Sweep:
    """The result of ``sweep``.

    Attributes:
        out: The output folder.
        rows: The models, in the order in which they were found.
        left_out: The files and folders that were left out, and the reasons.
        notes: Further remarks.
        seconds: The time of the whole sweep.
    """

    out: Path
    rows: list[Row]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if every model is done."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0: every model is done.  Otherwise the first of these that is met: 3: an error of ours; 1: a check failed, or
        a process died or was given up; 2: a model cannot be read, or not be used with these settings."""
        met = {row.status for row in self.rows}
        return next((code for status, code in _EXIT_CODES if status in met), 0)

    def to_json(self) -> SweepReport:
        """Plain data."""
        return {
            "out": str(self.out),
            "models": [row.to_json() for row in self.rows],
            "left_out": [{"path": str(each.path), "reason": each.reason} for each in self.left_out],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def sweep(
    models: Models,
    work: Work | None = None,
    out: str | os.PathLike[str] = "swept",
    *,
    executor: Executor | None = None,
    jobs: int = 1,
    limit: float | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Do the same with many models: each in a process of its own, several at a time, on record in the output folder.

    Work that an earlier sweep did with the same model, settings and versions is not repeated; failures are tried again.
    Processes are started anew, so a script has to call this below ``if __name__ == "__main__":``.

    Args:
        models: Folders, which are searched with all below, globs and files.
        work: The work to do: ``Apply`` or ``Optimize`` of ``onnxrewrite.suite.sweeping.tasks``, or a ``Work`` of your
            own; without it, ``Apply()``: with ``lower="fused"``, which measures nothing.
        out: The output folder, which mirrors the folders that were given.
        executor: The executor of the work: any of ``concurrent.futures``, whose workers see the same files under the
            same paths.  It is left open.  Without it, in ``jobs`` processes of our own.  Only its owner knows whether
            its workers disturb each other's measurements.
        jobs: Models at a time, where there is no executor.
        limit: Seconds for a model, after which it is given up.
        fresh: Forget what earlier sweeps have done.
        progress: Called with ("sweep", models done, models left).

    Raises:
        UsageError: There is no model, settings or folders cannot be used, or work that measures would be done for
            several models at a time.
        ModelError: The output folder cannot be written to.
    """
    start = time.perf_counter()
    chosen = work if work is not None else Apply()
    if executor is None:
        check_company(chosen, jobs)
    folder = Path(out)
    given = [models] if isinstance(models, (str, os.PathLike)) else list(models)
    found, left_out = find(given, folder, chosen.place)
    chosen.state()  # settings that cannot be used are told once
    threads = 1 if executor is not None else threads_for(jobs)
    tasks, record = _begun(found, chosen, folder, threads, limit, fresh)
    done = Sweep(folder, [], left_out)
    rows: dict[str, Row] = {}
    with few_threads(threads):
        answers = in_processes(tasks, jobs, limit) if executor is None else on_executor(tasks, executor, done.notes)
        for row in answers:
            record.remember(row)
            rows[row.output] = row
            if progress is not None:
                progress("sweep", len(rows), len(tasks) - len(rows))
    done.rows = [rows[job.row.output] for job in tasks]
    done.seconds = time.perf_counter() - start
    return done


def check_company(work: Work, jobs: int) -> None:
    """UsageError if work that measures would be done for several models at a time on one machine."""
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: write 1 or more")
    if jobs > 1 and work.measures:
        raise UsageError(
            f"--jobs {jobs}: this work measures, and models at a time would disturb each other: "
            "take --jobs 1, or with apply --lower fused"
        )


def _begun(
    found: Sequence[Found], work: Work, out: Path, threads: int, limit: float | None, fresh: bool
) -> tuple[list[Job], Record]:
    """The jobs, and the record, which knows of them all."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"-o {out}: cannot be made: {error.strerror or error}") from None
    record = Record(out)
    waiting = [Row(str(each.path), each.place.as_posix()) for each in found]
    record.begin(waiting)
    jobs = []
    for each, row in zip(found, waiting, strict=True):
        known = record[row.output] or row
        path = Path(os.path.abspath(each.path))
        jobs.append(Job(work, path, out.absolute(), replace(known, model=row.model), threads, limit, fresh))
    return jobs, record
