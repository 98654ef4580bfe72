"""What was measured before, in the user's cache folder: figures of this machine, filled on first use.

A damaged or unwritable file costs time, never a result: what cannot be remembered is measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from onnxrewrite.hardware.features import brand
from onnxrewrite.ir.target import ort_version
from onnxrewrite.measure.sessions import Setting

FORMAT = 2
"""Of what is remembered; another one is forgotten."""


class Cache:
    """Plain data by key, in one file that several processes may use at a time.

    Args:
        folder: Where the file lies; the user's cache folder without it.
    """

    def __init__(self, folder: Path | None = None):
        self.path = (folder or Path(platformdirs.user_cache_dir("onnxrewrite"))) / "measured.sqlite"

    def get(self, key: str) -> dict[str, Any] | None:
        """What is remembered under a key."""
        with contextlib.suppress(sqlite3.Error, OSError, ValueError), self._open() as file:
            row = file.execute("SELECT data FROM measured WHERE key = ?", (key,)).fetchone()
            found: dict[str, Any] | None = json.loads(row[0]) if row is not None else None
            return found
        return None

    def put(self, key: str, data: Mapping[str, Any]) -> None:
        """Remember something under a key."""
        with contextlib.suppress(sqlite3.Error, OSError), self._open() as file:
            file.execute("INSERT OR REPLACE INTO measured VALUES (?, ?)", (key, json.dumps(data, sort_keys=True)))

    @contextlib.contextmanager
    def _open(self) -> Any:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as file, file:
            file.execute("CREATE TABLE IF NOT EXISTS measured (key TEXT PRIMARY KEY, data TEXT NOT NULL)")
            yield file


def key(what: Any, setting: Setting) -> str:
    """What a figure depends on: what was measured, how it was run, and on what."""
    parts = {"format": FORMAT, "what": what, "setting": vars(setting), "ort": ort_version(), "processor": brand()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
