"""The record of a run on disk: a run that was interrupted continues where it stopped.

A trial is identified by what it depends on: the model it was made of, the stage and its settings, the data, and the
versions of everything that took part.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.suite.deploy.acceptance import Trial
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics, digest, saved_files
from onnxrewrite.system import files
from onnxrewrite.system.atomic import write_whole
from onnxrewrite.system.digests import sha256_of

_TRIALS = TypeAdapter(list[Trial])
_METRICS = TypeAdapter(Metrics)


def key(*parts: object) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def state_of(artifact: Artifact) -> list[object]:
    """All that the work on an artifact depends on."""
    plain = digest(artifact.source) if artifact.source is not None else ""
    return [
        digest(artifact.path),
        plain,
        asdict(artifact.setting),
        str(artifact.opened_as or ""),
    ]


@dataclass(frozen=True)
class Remembered:
    """The outcome of a stage.

    Attributes:
        trials: Its proposals, measured.
        reason: The reason why there are none.
        notes: Remarks of the stage.
    """

    trials: Sequence[Trial] = ()
    reason: str = ""
    notes: Sequence[str] = ()


class Record:
    """Trials by key, in a file.

    Args:
        path: The file; it is made when there is something to remember.
    """

    def __init__(self, path: Path):
        self._path = path
        self._known: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):  # a damaged record is no record
            read = json.loads(files.read_text(path))
            self._known = read if isinstance(read, dict) else {}

    def stage(self, name: str) -> Remembered | None:
        """The outcome of a stage; None where it is not known, or a file of its trials is not what it was."""
        known = self._known.get(name)
        try:
            if known is None or not _unchanged(known["files"], known["saved"]):
                return None
            return Remembered(_TRIALS.validate_python(known["trials"]), known["reason"], known["notes"])
        except (ValidationError, KeyError, TypeError):
            return None

    def remember(self, name: str, found: Remembered) -> None:
        """The outcome of a stage, or of a part of it."""
        paths = {p for t in found.trials for p in (t.artifact.path, t.artifact.plain)}
        now = {str(path): digest(path) for path in sorted(paths)}
        opened = {t.artifact.opened_as for t in found.trials if t.artifact.opened_as is not None}
        saved = {str(path): sha256_of([path])[0] for each in sorted(opened) for path in saved_files(each)}
        trials = _TRIALS.dump_python(list(found.trials), mode="json")
        plain = {"trials": trials, "files": now, "saved": saved, "reason": found.reason, "notes": list(found.notes)}
        self._put(name, plain)

    def metrics(self, name: str) -> Metrics | None:
        """Those of the baseline."""
        try:
            return _METRICS.validate_python(self._known[name])
        except (KeyError, ValidationError):
            return None

    def remember_metrics(self, name: str, found: Metrics) -> None:
        """Those of the baseline."""
        self._put(name, _METRICS.dump_python(found, mode="json"))

    def _put(self, name: str, value: Mapping[str, object]) -> None:
        self._known[name] = value
        write_whole(self._path, json.dumps(self._known), str(self._path))


def _unchanged(models: Mapping[str, str], saved: Mapping[str, str]) -> bool:
    return (
        all(files.is_regular(path) for path in (*models, *saved))
        and all(digest(Path(path)) == known for path, known in models.items())
        and all(sha256_of([path])[0] == known for path, known in saved.items())
    )
