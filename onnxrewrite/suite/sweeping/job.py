"""One model of a sweep, in whatever process it is done.  Nothing is raised here: it becomes the row of the model."""

from __future__ import annotations

import contextlib
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path

from onnxrewrite.errors import CheckError, ModelError, OnnxRewriteError, is_out_of_memory
from onnxrewrite.runtime.session import at_most_threads, one_line
from onnxrewrite.suite.deploy.artifact import digest
from onnxrewrite.suite.deploy.checkpoint import key
from onnxrewrite.suite.sweeping import storage
from onnxrewrite.suite.sweeping.journal import Row, Status
from onnxrewrite.suite.sweeping.retries import Reason, is_settled
from onnxrewrite.suite.sweeping.tasks import Work
from onnxrewrite.system import files, temporary
from onnxrewrite.system.digests import sha256_of
from onnxrewrite.system.machine_lock import machine_lock
from onnxrewrite.system.versions import versions
from onnxrewrite.system.workers import Died, in_kept_worker, may_have_children


@dataclass(frozen=True)
class Job:
    """A model, and what is to be done.

    Attributes:
        work: The work to do.
        model: Its absolute path, or its URL.
        out: The output folder, likewise.
        row: The known row: one that waits, or the result of an earlier sweep.
        threads: ONNX Runtime's at most, in a check; 0: as many as it likes.
        limit: Seconds, for one that is done on an executor.
        fresh: Forget what an interrupted run has found.
        owner: A name for the sweep, for processes that are kept for its next model.
        attempt: The number of this attempt, from 1.
    """

    work: Work
    model: str
    out: str
    row: Row
    threads: int = 0
    limit: float | None = None
    fresh: bool = False
    owner: str = ""
    attempt: int = 1


def run(job: Job) -> Row:
    """Do it, in this process, unless an earlier sweep has."""
    may_have_children()
    start = time.perf_counter()
    row = Row(job.row.model, job.row.output, attempts=job.attempt)
    try:
        with at_most_threads(job.threads):
            state = [job.work.state(), versions(), job.row.output]
            own = key(job.row.source, *state) if job.row.origin else ""
            if own and _is_known(job, own) and storage.unchanged(dict(job.row.origin)):
                return replace(job.row, model=row.model, resumed=True)
            with storage.staged(job.model, job.out) as place:
                source, problem = _digest(place.model)
                row = replace(row, source=source, key=key(source, *state) if source else "", origin=place.tokens)
                if row.key and _is_known(job, row.key):
                    return replace(job.row, model=row.model, origin=row.origin, resumed=True)
                if problem is not None:
                    raise problem
                row = _done(job, row, place)
    except CheckError as error:
        row = _failed(row, "failed", "check", one_line(error))
    except storage.StorageError as error:
        row = _failed(row, "unusable", "storage", one_line(error))
    except OnnxRewriteError as error:
        row = _failed(row, "unusable", _reason(error), one_line(error).removeprefix(f"{job.model}: "))
    except Exception as error:  # whatever it is, it costs no other model
        if is_out_of_memory(error):
            row = _failed(row, "died", "memory", "memory does not suffice")
        else:
            row = _failed(row, "bug", "bug", f"{type(error).__name__}: {one_line(error)}")
    return replace(row, seconds=time.perf_counter() - start, finished=time.time())


def hosted(job: Job) -> Row:
    """Do it in a process apart, which is kept for the next model and ended when a model's time is over.

    Work that measures is done for one model of a machine at a time, whoever else measures there.
    """
    may_have_children()
    with machine_lock("measuring") if job.work.measures else contextlib.nullcontext():
        return row_of(job, in_kept_worker(run, job, job.owner, limit=job.limit))


def row_of(job: Job, found: Row | Died) -> Row:
    """The row of a process; if it died, a row that says so, and its unfinished files are removed."""
    if isinstance(found, Row):
        return found
    if not storage.is_url(job.out):
        temporary.sweep_files(Path(job.out, job.row.output).parent)
    killed, late = "SIGKILL" in found.how, found.how.startswith("took")
    reason: Reason = "memory" if killed else "time" if late else "crash"
    row = Row(job.row.model, job.row.output, attempts=job.attempt, finished=time.time())
    return _failed(row, "died", reason, f"its process {found.how}")


def _failed(row: Row, status: Status, reason: Reason, error: str) -> Row:
    return replace(row, status=status, reason=reason, error=error)


def _reason(error: OnnxRewriteError) -> Reason:
    """``file`` where the system is the cause, for a disk that is full today need not be so tomorrow."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return "model" if cause is None else "file"


def _digest(model: Path) -> tuple[str, ModelError | None]:
    """That of the model with its weights; of a file that is no model, of its bytes, and what is wrong with it."""
    try:
        return digest(model), None
    except ModelError as error:
        return _sha256(model), error


def _is_known(job: Job, own: str) -> bool:
    """True if an earlier sweep did the same, and its files are unchanged."""
    row = job.row
    if job.fresh or row.key != own or not (row.status == "done" or is_settled(row.reason)):
        return False
    if storage.is_url(job.out):
        return set(row.stored) == {storage.below(job.out, name) for name in row.files} and storage.unchanged(
            dict(row.stored)
        )
    return all(_sha256(Path(job.out, name)) == known for name, known in row.files.items())


def _done(job: Job, row: Row, place: storage.Staging) -> Row:
    """Do the work, and the row that tells of it."""
    target = place.out / job.row.output
    _make_folder(target.parent)
    start = time.process_time()
    made = job.work.run(place.model, target, fresh=job.fresh)
    spent = time.process_time() - start
    digests = {path.relative_to(place.out).as_posix(): _sha256(path) for path in made.files}
    return replace(
        row,
        status="done",
        nodes=made.nodes,
        size=made.size,
        ratio=made.ratio,
        notes=made.notes,
        cpu=spent,
        machine=platform.node() if job.work.measures else "",
        files=dict(sorted(digests.items())),
        stored=place.store(made.files),
    )


def _sha256(path: Path) -> str:
    """Empty where there is no such file."""
    return sha256_of([path])[0] if files.is_regular(path) else ""


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder}: cannot be made: {error.strerror or error}") from None
