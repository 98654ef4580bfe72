"""A case: files that mean harm, what is run over them, and what must not happen.

Whatever a command is given, it must end in time, with a documented exit status and at most one line of complaint,
without a traceback or a raw control character, and leave everything as it was but for what it was asked to write.
"""

from __future__ import annotations

import hashlib
import io
import os
import resource
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from benchmarks.forks import forked

SECONDS = 60.0
"""A command that takes longer hangs; the models are tiny."""

CANARY = "HOSTILE_CANARY"
"""The environment variable that says to which file code writes its name when it is run."""

_CANARY = "canary"
"""The beginning of that file's name."""

DOCUMENTED = frozenset((0, 1, 2))
"""Exit status of a command that works; 3 is a bug of ours."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        name: The hostile part, in words.
        root: The folder that holds all of it, and what lies around it: nothing in it may change.
        folder: The folder in which the commands are run, below ``root``.
        commands: The arguments of each command.
        codes: The exit status that each may have.
        trusting: The commands that are told to trust the code.
        may_run: The parts of it that they may run, because these are unchanged.
        inline_limit: Bytes of weights above which a model has external data; None for what is usual.
        environment: Further variables.
        made: The folder, relative to ``root``, in which files may appear; None where none may.
        address_space: Bytes that a command may address; None for no limit.
        signal: The signal that is sent to the command, and after how many seconds; None for none.
    """

    name: str
    root: Path
    folder: Path
    commands: tuple[tuple[str, ...], ...]
    codes: frozenset[int] = DOCUMENTED
    trusting: tuple[tuple[str, ...], ...] = ()
    may_run: frozenset[str] = frozenset()
    inline_limit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    made: str | None = None
    address_space: int | None = None
    signal: tuple[int, float] | None = None


@dataclass(frozen=True)
class Ended:
    """The end of a command."""

    code: int
    out: str
    err: str
    late: float | None = None
    """Seconds that it went on after it was sent a signal."""


@dataclass(frozen=True)
class Harm:
    """Something that should not have happened."""

    case: str
    command: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        return f"{self.case}: {' '.join(self.command)!r}: {self.what}"


Task = tuple[Case, tuple[str, ...]]


def harms(cases: Iterable[Case], *, workers: int = 2) -> Iterator[Harm]:
    """Run all commands of the cases, each in a process of its own, and tell what should not have happened.

    The caller must not have started threads.
    """
    _warm_up()
    tasks = ((case, command) for case in cases for command in case.commands)
    for outcome in forked(tasks, _tried, workers=workers, limit=SECONDS):
        case, command = outcome.task
        for what in [outcome.failure] if outcome.failure else outcome.result:
            yield Harm(case.name, command, what)


def _warm_up() -> None:
    """Import, before any process is forked, what each would have to import; no session is opened."""
    import rich.progress  # noqa: F401

    from onnxrewrite import cli
    from onnxrewrite.certificate import writing
    from onnxrewrite.checks import model, structure
    from onnxrewrite.compiler import run
    from onnxrewrite.measure import ab_timing, choice  # noqa: F401
    from onnxrewrite.report import inspection, table
    from onnxrewrite.rewrite import registry
    from onnxrewrite.suite.bench import benchmark  # noqa: F401

    assert all((writing, cli, run, inspection, table, model, structure))
    registry.load()


def _tried(task: Task) -> list[str]:
    """The faults in the end of a command, and in the files that it leaves."""
    case, command = task
    _own_places(case.root)
    before = _seen(case.root)
    canary = case.root / f"{_CANARY}-{os.getpid()}"  # commands of one case run side by side
    ended = _ran(case, command, canary)
    found = [*_told_wrongly(ended, case, command), *_left_behind(case, ended)]
    if canary.exists():
        run = set(canary.read_text().split())
        canary.unlink()
        wrong = run - (case.may_run if command in case.trusting else frozenset())
        found += [f"{', '.join(sorted(wrong))} was run, which is not trusted"] if wrong else []
    after = _seen(case.root)
    if case.made is not None:
        after = {path: what for path, what in after.items() if path in before or not path.startswith(f"{case.made}/")}
    return [*found, *_changed(before, after)]


def _own_places(root: Path) -> None:
    """Have temporary files and what is remembered lie beside the case; the former for this process alone."""
    for name, variable in ((f"tmp-{os.getpid()}", "TMPDIR"), ("cache", "XDG_CACHE_HOME")):
        place = root.parent / f"{name}-{root.name}"
        place.mkdir(exist_ok=True)
        os.environ[variable] = str(place)
    tempfile.tempdir = None


def _left_behind(case: Case, ended: Ended) -> Iterator[str]:
    """Temporary files, and what is written and is not whole."""
    for place in (case.root, Path(os.environ["TMPDIR"])):
        for path in place.rglob("*"):
            if path.name.endswith(".onnxrewrite-tmp") or path.name.startswith("onnxrewrite-"):
                yield f"{path.name} is left behind"
    for path in (case.root / case.made).rglob("*.onnx") if case.made is not None else ():
        try:
            is_whole = onnx.load(path, load_external_data=False).HasField("graph")
        except Exception:  # protobuf raises different types
            is_whole = False
        if not is_whole:
            yield f"{path.name} is not a whole model"
        if ended.code != 0 and path.name == "out.onnx":
            yield f"{path.name} was written with exit status {ended.code}"


def _ran(case: Case, command: Sequence[str], canary: Path) -> Ended:
    """Run a command line in this process, which must have no other use."""
    from onnxrewrite.cli import main
    from onnxrewrite.io import external

    os.chdir(case.folder)
    os.environ.update({**case.environment, CANARY: str(canary)})
    sys.path[:0] = case.environment.get("PYTHONPATH", "").split(os.pathsep)[:1]
    sys.dont_write_bytecode = True
    if case.inline_limit is not None:
        external.INLINE_LIMIT = case.inline_limit  # type: ignore[misc]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = os.fork()
        if not process:  # what is the first process of a command, and so has a supervisor
            for file, number in ((out, 1), (err, 2)):
                os.dup2(file.fileno(), number)
            sys.stdin = open(os.devnull)  # noqa: SIM115
            sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "w", closefd=False), "utf-8") for n in (1, 2))
            if case.address_space is not None:
                resource.setrlimit(resource.RLIMIT_AS, (case.address_space, case.address_space))
            sys.argv = ["onnxrewrite", *command]
            sys.exit(main())
        late = _signalled(process, *case.signal) if case.signal is not None else None
        _, status = os.waitpid(process, 0) if late is None else (0, late[1])
        code, (told, complaint) = os.waitstatus_to_exitcode(status), (_content(f.fileno()) for f in (out, err))
        return Ended(code, told, complaint, late[0] if late is not None else None)


def _signalled(process: int, number: int, after: float) -> tuple[float | None, int]:
    """Send a signal, if the process is still there then: how long it goes on, and its status."""
    end = time.monotonic() + after
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return None, status
        time.sleep(0.01)
    os.kill(process, number)
    start = time.monotonic()
    _, status = os.waitpid(process, 0)
    return time.monotonic() - start, status


def _content(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 2**24).decode("utf-8", "surrogateescape")


PROMPT = 2.0
"""Seconds in which a command has to end that was sent a signal."""


def _told_wrongly(ended: Ended, case: Case, command: Sequence[str]) -> Iterator[str]:
    signals = {128 + case.signal[0]} if case.signal is not None else set()
    if ended.late is not None and ended.late > PROMPT:
        yield f"it went on for {ended.late:.1f} s after signal {case.signal}"
    if ended.code not in case.codes | signals:
        yield f"exit status {ended.code}: {ended.err.strip()[:300]}"
    if "Traceback" in ended.err:
        yield "a traceback"
    err = "".join(line for line in ended.err.splitlines(keepends=True) if "versions have changed" not in line)
    in_a_table = command[0] == "sweep" and ended.out and not err  # of many models
    if ended.code != 0 and not in_a_table and (err.count("\n") != 1 or not err.startswith("onnxrewrite: ")):
        yield f"{err.count(chr(10))} lines of complaint: {err[:300]!r}"
    raw = {c for c in ended.out + ended.err if not c.isprintable() and c != "\n"}
    if raw:
        yield f"raw control characters: {sorted(raw)!r}"


def _seen(root: Path) -> dict[str, tuple[int, str]]:
    """The entries below a folder: kind and mode of each, and the target of a link or the digest of a file."""
    found = {}
    for where, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f != "__pycache__"]
        for name in (*folders, *(n for n in names if not n.startswith(_CANARY))):
            path = Path(where, name)
            mode = path.lstat().st_mode
            held = os.readlink(path) if stat.S_ISLNK(mode) else _digest(path) if stat.S_ISREG(mode) else ""
            found[str(path.relative_to(root))] = (mode, held)
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _changed(before: Mapping[str, tuple[int, str]], after: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    for path in sorted({*before, *after}):
        if path not in after or path not in before:
            yield f"{path} was {'made' if path in after else 'removed'}"
        elif before[path] != after[path]:
            yield f"{path} was changed"
