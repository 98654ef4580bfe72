"""``sweep``: a whole zoo of models, several at a time, on record."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import UsageError
from onnxrewrite.report.html.sweep_page import sweep_page
from onnxrewrite.report.plain_reports import SweepReport
from onnxrewrite.suite.sweeping.executors import few_threads, in_processes, on_executor, threads_for
from onnxrewrite.suite.sweeping.find import Found, LeftOut, find
from onnxrewrite.suite.sweeping.job import Job
from onnxrewrite.suite.sweeping.journal import Record, Row
from onnxrewrite.suite.sweeping.retries import Retries, alone, pause
from onnxrewrite.suite.sweeping.shards import Shard
from onnxrewrite.suite.sweeping.storage import StorageError, below, is_url, write_bytes
from onnxrewrite.suite.sweeping.tasks import Apply, Work
from onnxrewrite.system.atomic import write_whole
from onnxrewrite.system.cluster import Cluster

Models: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

PAGE = "sweep.html"
"""The page of all models, in the output folder."""

_PAUSE = 60.0
"""Seconds at least between two pages of an unfinished sweep."""

_EXIT_CODES = (("bug", 3), ("failed", 1), ("died", 1), ("waiting", 1), ("unusable", 2))
"""The first of these that is met counts: what a sweep is run to find out comes before what it was given."""


@dataclass
class Sweep:
    """The result of ``sweep``.

    Attributes:
        out: The output folder, or its URL.
        by_output: The models by the paths of their outputs, in the order in which they were found; those that were not
            done when the sweep was interrupted wait.
        left_out: The files and folders that were left out, and the reasons.
        notes: Further remarks.
        seconds: The time of the whole sweep.
        others: Models on record in the output folder that are none of this sweep: of other shards, or of earlier ones.
    """

    out: str
    by_output: dict[str, Row] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    others: list[Row] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """The models, in the order in which they were found."""
        return list(self.by_output.values())

    @property
    def ok(self) -> bool:
        """True if every model is done."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0: every model is done.  Otherwise the first of these that is met: 3: an error of ours; 1: a check failed, a
        process died or was given up, or a model waits; 2: a model or the settings for it cannot be used."""
        met = {row.status for row in self.rows}
        return next((code for status, code in _EXIT_CODES if status in met), 0)

    def to_json(self) -> SweepReport:
        """Plain data."""
        return {
            "out": self.out,
            "models": [row.to_json() for row in self.rows],
            "others": [row.to_json() for row in self.others],
            "left_out": [{"path": str(each.path), "reason": each.reason} for each in self.left_out],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """The way in which a sweep is done; nothing of it changes what is written for a model.

    Attributes:
        cluster: Whose workers see the same files under the same paths.  Its executor is left open.  Without it, in
            ``jobs`` processes of our own.
        jobs: Models at a time, where there is no cluster.
        limit: Seconds for a model, after which it is given up.
        fresh: Forget what earlier sweeps have done.
        shard: The part of the models that is done; None for all.
        retries: Further attempts by the reason of a failure.
    """

    cluster: Cluster | None = None
    jobs: int = 1
    limit: float | None = None
    fresh: bool = False
    shard: Shard | None = None
    retries: Retries = field(default_factory=Retries)


def sweep(
    models: Models,
    work: Work | None = None,
    out: str | os.PathLike[str] = "swept",
    *,
    executor: Executor | None = None,
    jobs: int = 1,
    limit: float | None = None,
    fresh: bool = False,
    shard: str | None = None,
    retry: Sequence[str] = (),
    progress: Progress | None = None,
) -> Sweep:
    """Do the same with many models: each in a process of its own, several at a time, on record in the output folder.

    Work that an earlier sweep did with the same model, settings and versions is not repeated, be it done or refused;
    what died is tried again.  Processes are started anew, so a script has to call this below
    ``if __name__ == "__main__":``.

    Args:
        models: Folders, which are searched with all below, globs and files; or URLs of these, as fsspec has them.
        work: The work to do: ``Apply`` or ``Optimize`` of ``onnxrewrite.suite.sweeping.tasks``, or a ``Work`` of your
            own; without it, ``Apply()``: with ``lower="fused"``, which measures nothing.
        out: The output folder, or its URL, which mirrors the folders that were given.
        executor: The executor of the work: any of ``concurrent.futures``, whose workers see the same files under the
            same paths.  It is left open.  Without it, in ``jobs`` processes of our own.  Work that measures is done for
            one model of a machine at a time.
        jobs: Models at a time, where there is no executor.
        limit: Seconds for a model, after which it is given up.
        fresh: Forget what earlier sweeps have done.
        shard: ``"3/50"``: the third of fifty parts only.
        retry: ``"REASON=N"``: further attempts for models that failed for a reason, see
            ``onnxrewrite.suite.sweeping.retries``.
        progress: Called with ("sweep", models done, models left).

    Raises:
        UsageError: There is no model, settings or folders cannot be used, or work that measures would be done for
            several models at a time.
        ModelError: The output folder cannot be written to.
    """
    conduct = Conduct(
        cluster=Cluster(executor) if executor is not None else None,
        jobs=jobs,
        limit=limit,
        fresh=fresh,
        shard=Shard.parse(shard) if shard is not None else None,
        retries=Retries.parse(retry),
    )
    done = Sweep(os.fspath(out))
    conducted(models, work if work is not None else Apply(), conduct, done, progress)
    return done


def conducted(models: Models, work: Work, conduct: Conduct, done: Sweep, progress: Progress | None = None) -> None:
    """The same, into ``done``, which holds what there is when this is interrupted.

    Raises:
        UsageError: As ``sweep``.
        ModelError: Likewise.
    """
    start = time.perf_counter()
    if conduct.cluster is None:
        check_company(work, conduct.jobs)
    given = [models] if isinstance(models, (str, os.PathLike)) else list(models)
    found, done.left_out = find(given, done.out, work.place)
    work.state()  # settings that cannot be used are told once
    threads = 1 if conduct.cluster is not None else threads_for(conduct.jobs)
    record = begun(found, conduct.shard, done)
    tasks = [_job(each, work, conduct, record, done, threads) for each in found if _is_own(each, conduct.shard)]
    page = Page(done)
    try:
        with few_threads(threads):
            for count, row in enumerate(_attempts(tasks, conduct, done.notes), 1):
                record.remember(row)
                done.by_output[row.output] = row
                if progress is not None:
                    progress("sweep", count, len(tasks) - count)
                page.renew()
    finally:  # an interrupt, too, leaves a page
        done.seconds = time.perf_counter() - start
        record.close()
        if conduct.shard is not None:
            done.others = other_rows(Record(done.out), done)
        page.write()


def looked_up(found: Sequence[Found], shard: Shard | None, done: Sweep) -> None:
    """Put the rows on record into ``done``, and write the page; nothing is done, and nothing is compared.

    Raises:
        ModelError: The page cannot be written.
    """
    begun(found, shard, done, writes=False)
    for output, row in done.by_output.items():
        done.by_output[output] = replace(row, resumed=False)
    Page(done).write()


def begun(found: Sequence[Found], shard: Shard | None, done: Sweep, *, writes: bool = True) -> Record:
    """The record of the output folder, which knows of all models that are to be done, and the known rows in ``done``.

    Raises:
        ModelError: The output folder cannot be written to.
    """
    record = Record(done.out, shard)
    waiting = [Row(each.name, each.place.as_posix()) for each in found if _is_own(each, shard)]
    if writes:
        record.begin(waiting)
    for row in waiting:  # who is interrupted before all are looked at is told what is on record
        known = record[row.output]
        is_known = known is not None and known.status != "waiting"
        done.by_output[row.output] = replace(known, model=row.model, resumed=True) if known and is_known else row
    done.others = other_rows(record, done)
    return record


def other_rows(record: Record, done: Sweep) -> list[Row]:
    """The rows on record that are none of this sweep."""
    return [row for output, row in record.rows.items() if output not in done.by_output]


class Page:
    """The page ``sweep.html`` in the output folder.

    Args:
        done: The sweep that it tells of.
    """

    def __init__(self, done: Sweep):
        self._done = done
        self._last = time.monotonic()
        self._pause = _PAUSE

    def renew(self) -> None:
        """Write it if that is long ago: who kills a sweep finds one that is nearly new.  A storage that does not answer
        costs no model: it is written again later."""
        if time.monotonic() - self._last > self._pause:
            self._last = time.monotonic()
            with contextlib.suppress(StorageError):
                self.write()

    def write(self) -> None:
        """Write it.

        Raises:
            ModelError: It cannot be written.
        """
        start = time.monotonic()
        text = sweep_page(self._done.to_json())
        if is_url(self._done.out):
            write_bytes(below(self._done.out, PAGE), text.encode("utf-8", "replace"))
        else:
            write_whole(Path(self._done.out, PAGE), text, "-o")
        self._last = time.monotonic()
        self._pause = max(_PAUSE, 100 * (self._last - start))


def _is_own(each: Found, shard: Shard | None) -> bool:
    return shard is None or shard.has(each.place)


def _job(each: Found, work: Work, conduct: Conduct, record: Record, done: Sweep, threads: int) -> Job:
    row = done.by_output[each.place.as_posix()]
    known = record[row.output] or row
    return Job(
        work,
        each.url or os.path.abspath(each.path),
        done.out if is_url(done.out) else os.path.abspath(done.out),
        replace(known, model=row.model),
        threads,
        conduct.limit,
        conduct.fresh,
        owner=f"{platform.node()} {os.getpid()} {id(done)}",
    )


def _attempts(tasks: Sequence[Job], conduct: Conduct, notes: list[str]) -> Iterator[Row]:
    """The last row of each job; those that are worth another attempt come again when all others are done."""
    by_output = {job.row.output: job for job in tasks}
    jobs: Sequence[Job] = tasks
    is_alone = False
    while jobs:
        again: list[Row] = []
        for row in _answers(jobs, conduct, notes, is_alone=is_alone):
            if conduct.retries.wants(row.reason, row.attempts) and not row.resumed:
                again.append(row)
            else:
                yield row
        jobs = [replace(by_output[row.output], attempt=row.attempts + 1) for row in again]
        is_alone = any(alone(row.reason) for row in again)
        time.sleep(max((pause(row.reason, row.attempts) for row in again), default=0.0))


def _answers(jobs: Sequence[Job], conduct: Conduct, notes: list[str], *, is_alone: bool) -> Iterator[Row]:
    """One attempt at each; one after the other where nothing else is to run meanwhile."""
    if conduct.cluster is None:
        yield from (row for _, row in in_processes(jobs, 1 if is_alone else conduct.jobs, conduct.limit))
        return
    for part in [[job] for job in jobs] if is_alone else [jobs]:
        yield from (row for _, row in on_executor(conduct.cluster, part, notes))


def check_company(work: Work, jobs: int) -> None:
    """UsageError if work that measures would be done for several models at a time on one machine."""
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: write 1 or more")
    if jobs > 1 and work.measures:
        raise UsageError(
            f"--jobs {jobs}: this work measures, and models at a time would disturb each other: "
            "take --jobs 1, or with apply --lower fused"
        )
