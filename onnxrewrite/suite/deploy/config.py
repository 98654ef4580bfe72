"""A pipeline as a TOML file: what is asked of the result at the top, a table for the settings of each stage."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from onnxrewrite.errors import UsageError
from onnxrewrite.rewrite.suggestions import nearest
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.deploy.stage import defaults, known, made
from onnxrewrite.suite.quality.functions import is_function
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.system import files

_GATE = tuple(f.name for f in dataclasses.fields(Gate))
_PIPELINE: Mapping[str, object] = {
    "target_speedup": float,
    "budget": float,
    "objective": str,
    "data": str,
    "metric": str,
    "samples": int,
    "batch": int,
    "dims": dict[str, int],
    "provider": str,
    "threads": int,
    "seconds": float,
    "memory": bool,
    "seed": int,
}
"""The settings at the top and their types, beside the gate's settings and ``stages``."""


def read(path: str | Path) -> Pipeline:
    """The pipeline of a file; paths in it are relative to its folder.

    Raises:
        UsageError: It cannot be read, or holds something that is no setting, in one line.
    """
    file = Path(path)
    try:
        given = tomllib.loads(files.read_text(file))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"--config {path}: is no TOML: {error}") from None
    return parse(given, f"--config {path}", file.parent)


def parse(given: Mapping[str, object], where: str = "config", folder: Path | None = None) -> Pipeline:
    """The pipeline of what a TOML file holds; see ``read``."""
    named = {key.replace("-", "_"): value for key, value in given.items()}
    stages = known()
    names = named.pop("stages", defaults())
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise UsageError(f'{where}: stages: write a list of names, as in ["rewrite", "quantize"]')
    tables = {key: value for key, value in named.items() if isinstance(value, dict) and key != "dims"}
    for key in named:
        if key not in {*_PIPELINE, *_GATE, *tables}:
            raise UsageError(f"{where}: there is no setting {key!r}{_near(key)}")
    for key in tables:
        if key not in stages:
            raise UsageError(f"{where}: no stage is called {key!r}{nearest(key, stages)}")
        if key not in names:
            raise UsageError(f"{where}: [{key}] is set, but stages leaves it out")
    settings = {n: _typed(n, named[n], kind, where) for n, kind in _PIPELINE.items() if n in named}
    for key in ("data", "metric"):
        if key in settings and folder is not None:
            settings[key] = _beside(settings[key], folder)
    return Pipeline(
        stages=[made(name, tables.get(name, {}), where) for name in names],
        gate=Gate(**{n: _typed(n, named[n], float, where) for n in _GATE if n in named}),
        **settings,
    )


def _typed(name: str, value: Any, kind: Any, where: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value, strict=kind is not float)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise UsageError(f"{where}: {name}: {message[:1].lower()}{message[1:]}, not {value!r}") from None


def _near(key: str) -> str:
    return nearest(key, [*_PIPELINE, *_GATE, "stages", *known()])


def _beside(spec: str, folder: Path) -> str:
    """A path in a configuration, from its folder; ``module:function`` as it is."""
    module, _, name = spec.rpartition(":") if is_function(spec) else (spec, "", "")
    if name and not module.endswith(".py"):
        return spec
    found = folder / module
    return f"{found}:{name}" if name else str(found)
