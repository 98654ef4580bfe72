"""Verdicts as plain data, remembered between runs: the same rule, versions, seed and count need no second run."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import platformdirs
from pydantic import TypeAdapter

from onnxrewrite.ir import text
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz.verdict import Counterexample, Verdict
from onnxrewrite.system import files
from onnxrewrite.system.arrays import Array
from onnxrewrite.system.plain import Json
from onnxrewrite.system.versions import versions

_SHOWN = 64
"""Inputs of more elements are told by their shape."""


def to_json(verdict: Verdict) -> dict[str, Json]:
    """A verdict as plain data; the counterexample's graphs in text form, its inputs where they are small."""
    found = verdict.counterexample
    bare = Verdict(**{**vars(verdict), "counterexample": None})
    return {**asdict(bare), "counterexample": None if found is None else _counterexample(found)}


def _counterexample(found: Counterexample) -> dict[str, Json]:
    return {
        "reason": found.reason,
        "variations": list(found.variations),
        "target": found.target,
        "before": text.print_model(found.before),
        "after": text.print_model(found.after),
        "inputs": {name: _array(np.asarray(value)) for name, value in (found.feeds or {}).items()},
    }


def _array(array: Array) -> dict[str, Json]:
    shown = repr(array.tolist()) if array.size <= _SHOWN else None
    return {"dtype": str(array.dtype), "shape": list(array.shape), "elements": shown}


@dataclass(frozen=True)
class _Found:
    """A counterexample as it is remembered."""

    reason: str
    variations: list[str]
    target: str
    before: str
    after: str
    inputs: dict[str, dict[str, str | list[int] | None]]


@dataclass(frozen=True)
class _Remembered:
    """A verdict as it is remembered."""

    rule: str
    status: str
    reason: str
    instances: int
    exact: int
    refused: int
    refusals: dict[str, int]
    not_run: dict[str, int]
    classes: list[str]
    assumes: list[str]
    warnings: list[str]
    counterexample: _Found | None
    proof: str
    script: str
    seconds: float


_REMEMBERED = TypeAdapter(_Remembered)


class Memory:
    """Verdicts of earlier runs, a file for each in the user's cache folder."""

    def __init__(self, folder: Path | None = None):
        self._folder = folder or Path(platformdirs.user_cache_dir("onnxrewrite")) / "verdicts"

    def key(self, rule: Rule, seed: int, count: int, *, proves: bool = False) -> str:
        """A digest of what a verdict depends on: rule and parts, seed, count, whether a proof was asked for, this
        program, what it runs on."""
        told = [f.name for f in fields(Verdict)]  # what is remembered of another version may tell something else
        asked = {"seed": seed, "count": count, "proves": proves}
        parts = {"rule": fingerprint(rule).sha256, "told": told, **asked, **versions()}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def get(self, key: str) -> dict[str, Json] | None:
        """The remembered verdict; None if there is none, or it cannot be read."""
        try:
            found = json.loads(files.read_text(self._path(key)))
            return asdict(_REMEMBERED.validate_python(found))
        except (OSError, ValueError, RecursionError):  # a ValidationError, too
            return None

    def put(self, key: str, data: dict[str, Json]) -> None:
        """Remember it; a folder that cannot be written to forgets."""
        path = self._path(key)
        partial = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(data), encoding="utf-8")
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
