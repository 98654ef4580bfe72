"""The file of the database, in the user's cache folder: what was measured here, and what was imported.

A file that is damaged, locked, unwritable or of another layout costs at most a moment, never a result: what cannot be
remembered is measured again.  Rows are added and forgotten, never changed.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import platformdirs

from onnxrewrite.errors import ModelError, one_line
from onnxrewrite.measure.database.exchange import Signed
from onnxrewrite.measure.database.rows import Row, RowError, parsed
from onnxrewrite.system import files

_LAYOUT: Final = 4
"""Of the file, and of how what is in it was measured; another one is replaced."""

_TABLES: Final = (
    "CREATE TABLE measured (digest TEXT, source TEXT, asked TEXT NOT NULL, data BLOB NOT NULL, envelope TEXT NOT NULL, "
    "PRIMARY KEY (digest, source))",
    "CREATE INDEX asked ON measured (asked)",
    "CREATE TABLE quarantine (source TEXT PRIMARY KEY, why TEXT NOT NULL, date TEXT NOT NULL)",
    "CREATE TABLE machine (host TEXT PRIMARY KEY, fingerprint TEXT NOT NULL)",
    "CREATE TABLE decided (about TEXT PRIMARY KEY, told TEXT NOT NULL)",
)
_NAMES: Final = ("measured", "asked", "quarantine", "machine", "decided")

PATIENCE: Final = 0.3
"""Seconds that are waited for another process; a question may take twice as long."""

_PAUSE: Final = 60.0
"""Seconds for which a file that could not be used is left alone."""

_MOST: Final = 64
"""Rows that answer one question: more are not looked at."""

_PASSING: Final = frozenset(
    (
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOMEM,
    )
)  # fmt: skip
"""Errors that say nothing of what is in the file."""

_left_alone: dict[Path, float] = {}
"""Files that could not be used, and until when they are left alone."""

HERE: Final = ""
"""The source of what was measured here."""


@dataclass(frozen=True)
class Kept:
    """A row as it is kept: measured here, or from the source that signed it, with its envelope."""

    row: Row
    source: str = HERE
    envelope: str = ""


class Store:
    """Rows in one file that several processes may use at a time.

    Args:
        folder: The folder of the file; the user's cache folder by default.
        patience: Seconds that are waited for another process.

    Attributes:
        problem: The reason why the file could last not be used; empty if it could.
    """

    def __init__(self, folder: Path | None = None, patience: float = PATIENCE):
        self.path = (folder or Path(platformdirs.user_cache_dir("onnxrewrite"))) / "measured.sqlite"
        self.problem = ""
        self._patience = patience

    def answers(self, asked: str) -> list[Kept]:
        """The rows that answer a question, but those of sources in quarantine; those of this machine first."""
        found = self._ask(
            "SELECT data, source, envelope FROM measured WHERE asked = ? AND source NOT IN "
            f"(SELECT source FROM quarantine) ORDER BY source, rowid DESC LIMIT {_MOST}",
            asked,
        )
        return [each for each in _kept(found) if each.row.asked == asked]

    def rows(self) -> list[Kept]:
        """All rows."""
        return list(_kept(self._ask("SELECT data, source, envelope FROM measured ORDER BY digest, source")))

    def add(self, rows: Iterable[Kept]) -> int:
        """Add rows that are not there yet; their number."""
        made = [(r.row.digest, r.source, r.row.asked, r.row.written(), r.envelope) for r in rows]
        before = self._ask("SELECT count(*) FROM measured")
        self._ask("INSERT OR IGNORE INTO measured VALUES (?, ?, ?, ?, ?)", many=made)
        after = self._ask("SELECT count(*) FROM measured")
        return int(after[0][0]) - int(before[0][0]) if before and after else 0

    def forget(self, rows: Iterable[Kept]) -> None:
        """Forget rows."""
        self._ask("DELETE FROM measured WHERE digest = ? AND source = ?", many=[(r.row.digest, r.source) for r in rows])

    def quarantined(self) -> dict[str, str]:
        """Sources whose rows are not used, and why."""
        return {str(source): str(why) for source, why in self._ask("SELECT source, why FROM quarantine")}

    def quarantine(self, source: str, why: str) -> None:
        """Use no row of a source from now on."""
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        self._ask("INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?)", source, why, today)

    def release(self, source: str) -> None:
        """End the quarantine of a source."""
        self._ask("DELETE FROM quarantine WHERE source = ?", source)

    def fingerprint(self, host: str) -> str:
        """The fingerprint that was remembered of a machine; empty if nothing was."""
        found = self._ask("SELECT fingerprint FROM machine WHERE host = ?", host)
        return str(found[0][0]) if found else ""

    def remember_fingerprint(self, host: str, told: str) -> None:
        """Remember it."""
        self._ask("INSERT OR REPLACE INTO machine VALUES (?, ?)", host, told)

    def decision(self, about: str) -> str:
        """The decision on something that was remembered; empty if none was."""
        found = self._ask("SELECT told FROM decided WHERE about = ?", about)
        return str(found[0][0]) if found else ""

    def remember_decisions(self, told: Mapping[str, str]) -> None:
        """Remember decisions, each by what it is on."""
        self._ask("INSERT OR REPLACE INTO decided VALUES (?, ?)", many=list(told.items()))

    def forget_decisions(self) -> None:
        """Forget all that was decided."""
        self._ask("DELETE FROM decided")

    def require(self) -> None:
        """ModelError if the file could not be used: for who asks for the database itself."""
        if self.problem:
            raise ModelError(f"{self.path}: the database cannot be used: {self.problem}")

    def _ask(self, question: str, *values: str, many: Sequence[tuple[object, ...]] | None = None) -> list[Any]:
        """The answer; nothing where the file cannot be used."""
        if time.monotonic() < _left_alone.get(self.path, 0):
            self.problem = self.problem or "it could not be a moment ago"
            return []
        try:
            with self._connected() as file, file:
                if file.execute("PRAGMA user_version").fetchone() != (_LAYOUT,):
                    _lay_out(file)
                if many is not None:
                    file.executemany(question, many)
                    return []
                return file.execute(question, values).fetchall()
        except (sqlite3.Error, OSError, OverflowError) as error:
            self._give_up(error)
        return []

    def _connected(self) -> contextlib.closing[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(self.path) and not files.is_regular(self.path):
            raise FileExistsError(errno.EEXIST, "it is not a regular file")
        file = sqlite3.connect(self.path, timeout=self._patience)
        end = time.monotonic() + 2 * self._patience
        file.set_progress_handler(lambda: time.monotonic() > end, 10_000)  # a view may compute for ever
        return contextlib.closing(file)

    def _give_up(self, error: Exception) -> None:
        """Leave the file alone for a while; put it aside where what it holds is the cause, for it would be for ever."""
        self.problem = one_line(error)
        _left_alone[self.path] = time.monotonic() + _PAUSE
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF not in _PASSING:
            with contextlib.suppress(OSError):
                os.replace(self.path, self.path.with_suffix(".damaged"))


def imported(rows: Iterable[Signed]) -> list[Kept]:
    """Rows of files, as they are kept."""
    return [Kept(each.row, each.source, each.envelope) for each in rows]


def _lay_out(file: sqlite3.Connection) -> None:
    for name in _NAMES:
        found = file.execute("SELECT type FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        if found is not None and found[0] in ("table", "index"):
            file.execute(f"DROP {found[0]} IF EXISTS {name}")
    for statement in _TABLES:
        file.execute(statement)
    file.execute(f"PRAGMA user_version = {_LAYOUT}")


def _kept(found: Iterable[Any]) -> Iterable[Kept]:
    for data, source, envelope in found:
        if isinstance(data, bytes) and isinstance(source, str) and isinstance(envelope, str):
            with contextlib.suppress(RowError):
                yield Kept(parsed(data), source, envelope)
