"""The record of a sweep on disk, a line for each model: a sweep that was interrupted continues where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.errors import ModelError
from onnxrewrite.report.plain_reports import ModelRow
from onnxrewrite.system import files
from onnxrewrite.system.atomic import write_whole

FILE = "sweep.jsonl"
"""The record, in the output folder."""

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
        nodes: Their number, ``before`` and ``after``.
        size: Bytes of the file and of the weights outside of it, likewise.
        ratio: Time of the output to that of the model; None where nothing was measured.
        seconds: The time it took.
        resumed: True if all this is of an earlier sweep.
        key: SHA-256 of what it depends on: model, settings, versions and the path of the output.
        files: SHA-256 of all that was written, by path relative to the output folder.
        notes: Further remarks.
    """

    model: str
    output: str
    status: Status = "waiting"
    error: str = ""
    nodes: Mapping[str, int] | None = None
    size: Mapping[str, int] | None = None
    ratio: float | None = None
    seconds: float = 0.0
    resumed: bool = False
    key: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> ModelRow:
        """Plain data."""
        plain: ModelRow = _ROW.dump_python(self, mode="json")
        return plain


_ROW = TypeAdapter(Row)


class Record:
    """Rows by output, in a file: a line each, the last of an output counts.

    Args:
        out: The output folder.
    """

    def __init__(self, out: Path):
        self._path = out / FILE
        self._rows = _read(self._path)

    def __getitem__(self, output: str) -> Row | None:
        """The row of an output; None if there is none."""
        return self._rows.get(output)

    def begin(self, rows: Iterable[Row]) -> None:
        """Write what is known, and what shall be, so that an output is known for one even if nobody lives to tell.

        Raises:
            ModelError: It cannot be written.
        """
        for row in rows:
            known = self._rows.get(row.output)
            if known is None or known.status != "done":
                self._rows[row.output] = row
        write_whole(self._path, "".join(map(_line, self._rows.values())), "-o")

    def remember(self, row: Row) -> None:
        """Add a row; an interrupt leaves all rows before it.

        Raises:
            ModelError: It cannot be written.
        """
        self._rows[row.output] = replace(row, resumed=False)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(self._rows[row.output]))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ModelError(f"-o {self._path}: cannot be written: {error.strerror or error}") from None


def outputs(folder: Path) -> frozenset[Path]:
    """The outputs that sweeps wrote to a folder, or began to."""
    return frozenset(Path(os.path.realpath(folder / row.output)) for row in _read(folder / FILE).values())


def _line(row: Row) -> str:
    return f"{json.dumps(row.to_json(), sort_keys=True, ensure_ascii=False)}\n"


def _read(path: Path) -> dict[str, Row]:
    """The rows of a record; a damaged line, such as the last one of a process that was killed, is none."""
    found: dict[str, Row] = {}
    try:
        lines = files.read_bytes(path, _LIMIT).decode("utf-8", "replace").splitlines()
    except OSError:  # there is none
        return found
    for line in lines:
        try:
            row = _ROW.validate_json(line)
        except ValidationError:
            continue
        found[row.output] = row
    return found
