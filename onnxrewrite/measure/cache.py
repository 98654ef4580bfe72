"""Cache of measurements in the user's cache folder: figures of this machine, filled on first use.

A file that is damaged, locked, unwritable or of another layout costs at most a moment, never a result: what cannot be
remembered is measured again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import platformdirs
from pydantic import Field, TypeAdapter, ValidationError

from onnxrewrite.ir.target import ort_version
from onnxrewrite.measure.timing import Interval
from onnxrewrite.runtime.features import brand
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.system import files

FORMAT = 3
"""Of what is remembered; another one is forgotten."""

_LAYOUT: Final = 1
"""Of the file; another one is replaced."""

_PATIENCE: Final = 0.3
"""Seconds that are waited for another process, and that a question may take."""

_PAUSE: Final = 60.0
"""Seconds for which a file that could not be used is left alone."""

_PASSING = frozenset(
    (
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOMEM,
    )
)  # fmt: skip
"""Errors that say nothing of what is in the file."""

_left_alone: dict[Path, float] = {}
"""Files that could not be used, and until when they are left alone."""

_INTERVALS = TypeAdapter(dict[str, dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]])


class Cache:
    """Plain data by key, in one file that several processes may use at a time.

    Args:
        folder: The folder of the file; the user's cache folder by default.
    """

    def __init__(self, folder: Path | None = None):
        self.path = (folder or Path(platformdirs.user_cache_dir("onnxrewrite"))) / "measured.sqlite"

    def get(self, key: str) -> Any:
        """The data that is remembered under a key, or None."""
        row = self._ask("SELECT data FROM measured WHERE key = ?", key)
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return json.loads(row[0]) if row is not None else None
        return None

    def put(self, key: str, data: Mapping[str, object]) -> None:
        """Remember something under a key."""
        self._ask("INSERT OR REPLACE INTO measured VALUES (?, ?)", key, json.dumps(data, sort_keys=True))

    def intervals(self, key: str, names: Collection[str]) -> dict[str, Interval] | None:
        """The intervals that ``remember`` stored under a key, all of ``names``; None if anything else stands there."""
        try:
            found = _INTERVALS.validate_python(self.get(key), strict=True)
            return {name: Interval(**found[name]) for name in names}
        except (ValidationError, KeyError, TypeError):
            return None

    def remember(self, key: str, found: Mapping[str, Interval]) -> None:
        """Remember intervals by name under a key."""
        self.put(key, {name: each.to_json() for name, each in found.items()})

    def _ask(self, question: str, *values: str) -> Any:
        """The first row of an answer; None where there is none, or the file cannot be used."""
        if time.monotonic() < _left_alone.get(self.path, 0):
            return None
        try:
            with self._connected() as file, file:
                if file.execute("PRAGMA user_version").fetchone() != (_LAYOUT,):
                    file.execute("DROP TABLE IF EXISTS measured")
                    file.execute("CREATE TABLE measured (key TEXT PRIMARY KEY, data TEXT NOT NULL)")
                    file.execute(f"PRAGMA user_version = {_LAYOUT}")
                return file.execute(question, values).fetchone()
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
        return None

    def _connected(self) -> contextlib.closing[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(self.path) and not files.is_regular(self.path):
            raise FileExistsError(errno.EEXIST, "it is not a regular file")
        file = sqlite3.connect(self.path, timeout=_PATIENCE)
        end = time.monotonic() + 2 * _PATIENCE
        file.set_progress_handler(lambda: time.monotonic() > end, 10_000)  # a view may compute for ever
        return contextlib.closing(file)

    def _give_up(self, error: Exception) -> None:
        """Leave the file alone for a while; put it aside where what it holds is the cause, for it would be for ever."""
        _left_alone[self.path] = time.monotonic() + _PAUSE
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF not in _PASSING:
            with contextlib.suppress(OSError):
                os.replace(self.path, self.path.with_suffix(".damaged"))


def key(what: object, setting: Setting) -> str:
    """The cache key of a figure: a digest of what was measured, how it was run, and on what."""
    parts = {"format": FORMAT, "what": what, "setting": vars(setting), "ort": ort_version(), "processor": brand()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
