"""The record of a sweep, a line for each model: a sweep that was interrupted continues where it stopped.

Each shard writes a record of its own, so that shards never wait for each other, and all records of a folder are read:
folders of shards that had no folder in common merge by copying one over the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.errors import ModelError
from onnxrewrite.report.plain_reports import ModelRow
from onnxrewrite.suite.sweeping.retries import Reason, is_settled
from onnxrewrite.suite.sweeping.shards import Shard
from onnxrewrite.suite.sweeping.storage import (
    StorageError,
    below,
    is_url,
    list_names,
    read_bytes,
    remove,
    write_bytes,
)
from onnxrewrite.system import files
from onnxrewrite.system.atomic import write_whole

FILE = "sweep.jsonl"
"""The record, in the output folder; that of a shard is ``sweep.3-of-50.jsonl``."""

_FILES = re.compile(r"sweep(\.\d+-of-\d+)?(\.\d{6})?\.jsonl")
_SEGMENT = re.compile(r"\.\d{6}(?=\.jsonl)")

_PAUSE = 1.0
"""Seconds between two writes to a storage elsewhere."""

_LIMIT = 2**28
"""Bytes of a record; that of a hundred thousand models has less."""

Status: TypeAlias = Literal["waiting", "done", "failed", "unusable", "died", "bug"]
"""The outcome of a model: ``failed``: a check failed, nothing was written; ``unusable``: it cannot be read, or not be
used with these settings; ``died``: its process died, or was ended after the time limit; ``bug``: an error of ours."""


@dataclass(frozen=True)
class Row:
    """A model of a sweep, and its outcome.

    Attributes:
        model: Its path, as it was given.
        output: The path of its output, relative to the output folder.
        status: The outcome.
        error: The reason why there is no output, in one line.
        reason: The same as one of a few words.
        attempts: The number of attempts in the sweep that has this outcome.
        nodes: Their number, ``before`` and ``after``.
        size: Bytes of the file and of the weights outside of it, likewise.
        ratio: Time of the output to that of the model; None where nothing was measured.
        seconds: The time it took.
        cpu: Seconds of the processor that the work itself took, in its process.
        finished: Seconds since 1970.
        machine: The name of the machine that it was measured on, if it was.
        resumed: True if all this is of an earlier sweep.
        key: SHA-256 of what it depends on: model, settings, versions and the path of the output.
        source: SHA-256 of the model with its weights.
        files: SHA-256 of all that was written, by path relative to the output folder.
        origin: Tokens of the model's files by URL, if it is in a storage elsewhere.
        stored: The same of all that was written.
        notes: Further remarks.
    """

    model: str
    output: str
    status: Status = "waiting"
    error: str = ""
    reason: Reason = ""
    attempts: int = 1
    nodes: Mapping[str, int] | None = None
    size: Mapping[str, int] | None = None
    ratio: float | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    finished: float = 0.0
    machine: str = ""
    resumed: bool = False
    key: str = ""
    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> ModelRow:
        """Plain data."""
        plain: ModelRow = _ROW.dump_python(self, mode="json")
        return plain


_ROW = TypeAdapter(Row)


class Record:
    """Rows by output, in a file: a line each, the last of an output counts.

    Args:
        out: The output folder, or its URL.
        shard: The part of the models that is written to; all parts are read.

    Attributes:
        rows: The rows of all records of the folder, by output.
    """

    def __init__(self, out: str | os.PathLike[str], shard: Shard | None = None):
        self._folder: _Local | _Remote = _Remote(str(out)) if is_url(str(out)) else _Local(Path(out))
        self._name = FILE if shard is None else f"sweep.{shard}.jsonl"
        self._own: dict[str, Row] = {}
        self.rows: dict[str, Row] = {}
        for name in sorted(filter(_FILES.fullmatch, self._folder.names())):
            read = _read(self._folder.read(name))
            if _SEGMENT.sub("", name) == self._name:
                _merge(self._own, read)
            _merge(self.rows, read)

    def __getitem__(self, output: str) -> Row | None:
        """The row of an output in whatever record; None if there is none."""
        return self.rows.get(output)

    def begin(self, rows: Iterable[Row]) -> None:
        """Write what is known, and what shall be, so that an output is known for one even if nobody lives to tell.

        Raises:
            ModelError: It cannot be written.
        """
        for row in rows:
            known = self.rows.get(row.output, row)
            self._own[row.output] = known if known.status == "done" or is_settled(known.reason) else row
            self.rows[row.output] = self._own[row.output]
        self._folder.write(self._name, "".join(map(_line, self._own.values())))

    def remember(self, row: Row) -> None:
        """Add a row; an interrupt leaves all rows before it, but for those of the last second in a storage elsewhere.

        Raises:
            ModelError: It cannot be written.
        """
        self.rows[row.output] = replace(row, resumed=False)
        self._folder.append(self._name, _line(self.rows[row.output]))

    def close(self) -> None:
        """Write what is not written yet.

        Raises:
            ModelError: It cannot be written.
        """
        self._folder.close()


class _Local:
    """A folder of this machine."""

    def __init__(self, path: Path):
        self._path = path

    def names(self) -> list[str]:
        """Of its files; none where there is no such folder."""
        try:
            return os.listdir(self._path)
        except OSError:
            return []

    def read(self, name: str) -> str:
        """The text of a file; empty if it cannot be read."""
        try:
            return files.read_bytes(self._path / name, _LIMIT).decode("utf-8", "replace")
        except OSError:
            return ""

    def write(self, name: str, text: str) -> None:
        """Write a file, whole."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(f"-o {self._path}: cannot be made: {error.strerror or error}") from None
        write_whole(self._path / name, text, "-o")

    def append(self, name: str, line: str) -> None:
        """Add a line; it is on the disk when this returns."""
        path = self._path / name
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ModelError(f"-o {path}: cannot be written: {error.strerror or error}") from None

    def close(self) -> None:
        """All is written."""


class _Remote:
    """A folder of a storage elsewhere, where nothing can be appended: lines go to further files, one a second."""

    def __init__(self, url: str):
        self._url = url
        self._lines: list[str] = []
        self._name, self._count, self._last = FILE, 0, 0.0

    def names(self) -> list[str]:
        """Of its files; none where there is no such folder."""
        return list_names(self._url)

    def read(self, name: str) -> str:
        """The text of a file; empty if it is gone: another part has put its lines into its record, which is read last.

        Raises:
            StorageError: The storage does not answer.
        """
        try:
            return read_bytes(below(self._url, name)).decode("utf-8", "replace")
        except StorageError:
            raise
        except ModelError:
            return ""

    def write(self, name: str, text: str) -> None:
        """Write a file; the further files, whose lines are in it, go."""
        further = [each for each in self.names() if each != name and _SEGMENT.sub("", each) == name]
        write_bytes(below(self._url, name), text.encode("utf-8", "replace"))
        remove([below(self._url, each) for each in further])

    def append(self, name: str, line: str) -> None:
        """Add a line, a second later at most where more lines come; while the storage does not answer, it waits."""
        self._name = name
        self._lines.append(line)
        if time.monotonic() - self._last >= _PAUSE:
            with contextlib.suppress(StorageError):
                self.close()

    def close(self) -> None:
        """Write the lines that wait."""
        if self._lines:
            self._count += 1
            segment = self._name.replace(".jsonl", f".{self._count:06}.jsonl")
            self._last = time.monotonic()
            write_bytes(below(self._url, segment), "".join(self._lines).encode("utf-8", "replace"))
            self._lines.clear()


def outputs(folder: Path) -> frozenset[Path]:
    """The outputs that sweeps wrote to a folder, or began to."""
    return frozenset(Path(os.path.realpath(folder / row.output)) for row in Record(folder).rows.values())


def _merge(rows: dict[str, Row], read: Mapping[str, Row]) -> None:
    """Of several rows of one output, the last that was finished counts."""
    for output, row in read.items():
        if output not in rows or (row.status != "waiting" and row.finished >= rows[output].finished):
            rows[output] = row


def _line(row: Row) -> str:
    return f"{json.dumps(row.to_json(), sort_keys=True, ensure_ascii=False)}\n"


def _read(text: str) -> dict[str, Row]:
    """The rows of a record; a damaged line, such as the last one of a process that was killed, is none."""
    found: dict[str, Row] = {}
    for line in text.split("\n"):  # a name may hold what other separators of lines are
        try:
            row = _ROW.validate_json(line)
        except ValidationError:
            continue
        found[row.output] = row
    return found
