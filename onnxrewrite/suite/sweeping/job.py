"""One model of a sweep, in whatever process it is done.  Nothing is raised here: it becomes the row of the model."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, replace
from pathlib import Path

from onnxrewrite.errors import CheckError, ModelError, OnnxRewriteError
from onnxrewrite.runtime.session import at_most_threads, one_line
from onnxrewrite.suite.deploy.artifact import digest
from onnxrewrite.suite.deploy.checkpoint import key
from onnxrewrite.suite.sweeping.journal import Row
from onnxrewrite.suite.sweeping.tasks import Made, Work
from onnxrewrite.system import files, temporary
from onnxrewrite.system.digests import sha256_of
from onnxrewrite.system.versions import versions
from onnxrewrite.system.workers import Died, in_workers


@dataclass(frozen=True)
class Job:
    """A model, and what is to be done.

    Attributes:
        work: The work to do.
        model: Its absolute path.
        out: The output folder, absolute.
        row: The known row: one that waits, or the result of an earlier sweep.
        threads: ONNX Runtime's at most, in a check; 0: as many as it likes.
        limit: Seconds, for one that is done on an executor.
        fresh: Forget what an interrupted run has found.
    """

    work: Work
    model: Path
    out: Path
    row: Row
    threads: int = 0
    limit: float | None = None
    fresh: bool = False

    @property
    def target(self) -> Path:
        """The path of the output."""
        return self.out / self.row.output


def run(job: Job) -> Row:
    """Do it, in this process, unless an earlier sweep has."""
    _may_have_children()
    start = time.perf_counter()
    row = Row(job.row.model, job.row.output)
    try:
        with at_most_threads(job.threads):
            own = key(digest(job.model), job.work.state(), versions(), job.row.output)
            if _is_known(job, own):
                return replace(job.row, model=row.model, resumed=True)
            _make_folder(job.target.parent)
            row = _told(row, job.work.run(job.model, job.target, fresh=job.fresh), job.out, own)
    except CheckError as error:
        row = replace(row, status="failed", error=one_line(error))
    except OnnxRewriteError as error:
        row = replace(row, status="unusable", error=one_line(error).removeprefix(f"{job.model}: "))
    except Exception as error:  # whatever it is, it costs no other model
        row = replace(row, status="bug", error=f"{type(error).__name__}: {one_line(error)}")
    return replace(row, seconds=time.perf_counter() - start)


def hosted(job: Job) -> Row:
    """Do it in a process that this one starts for it, and ends when its time is over."""
    _may_have_children()
    ((_, found),) = in_workers(run, [job], 1, limit=job.limit, fresh=True)
    return row_of(job, found)


def row_of(job: Job, found: Row | Died) -> Row:
    """The row of a process; if it died, a row that says so, and its unfinished files are removed."""
    if isinstance(found, Row):
        return found
    temporary.sweep_files(job.target.parent)
    return Row(job.row.model, job.row.output, "died", f"its process {found.how}")


def _is_known(job: Job, own: str) -> bool:
    """True if an earlier sweep did the same, and its files are unchanged."""
    if job.fresh or job.row.status != "done" or job.row.key != own:
        return False
    return all(_sha256(job.out / name) == known for name, known in job.row.files.items())


def _told(row: Row, made: Made, out: Path, own: str) -> Row:
    digests = {path.relative_to(out).as_posix(): _sha256(path) for path in made.files}
    return replace(
        row,
        status="done",
        nodes=made.nodes,
        size=made.size,
        ratio=made.ratio,
        notes=made.notes,
        key=own,
        files=dict(sorted(digests.items())),
    )


def _sha256(path: Path) -> str:
    """Empty where there is no such file."""
    return sha256_of([path])[0] if files.is_regular(path) else ""


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder}: cannot be made: {error.strerror or error}") from None


def _may_have_children() -> None:
    """A daemonic process, as workers are, may start none, lest they outlive it; ours end when their owner does."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.current_process().daemon = False
