"""Session options of a model: those found to be fastest, as a value that is stored in the model's metadata.

A model travels, and so do its options: to machines with other processors and other builds of ONNX Runtime, and through
tools that know nothing of them.  So nothing that is stored is believed without a look, and what cannot be used is left
out with a word.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, get_args

import onnx

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.providers import ENTRIES, may_travel
from onnxrewrite.runtime.settings import Level
from onnxrewrite.system.plain import Json

SESSION_KEY = "onnxrewrite.session"
"""Metadata of a model: the options to open it with, a JSON object."""

Mode: TypeAlias = Literal["sequential", "parallel"]

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Deployment:
    """The options of a session, as far as they are said.

    Attributes:
        level: Of ONNX Runtime's own graph optimizations; None is all of them.
        threads: Within an operator; None is what this machine has, 0 is ONNX Runtime's choice.
        inter_threads: Between operators, where ``mode`` is parallel; None and 0 are ONNX Runtime's choice.
        mode: ``parallel`` runs operators that do not wait for each other side by side; None is sequential.
        providers: Execution providers in order of preference, each with its options; those that this machine lacks are
            passed over.
        spinning: True if threads that wait spin; None is ONNX Runtime's choice, which is to spin.
        arena: True if memory that was freed is kept for the next runs; None is ONNX Runtime's choice, which is to.
        memory_pattern: True if the places of values in memory are planned in the first run; None likewise.
        entries: Further entries of the session's configuration: ``session.dynamic_block_base``, ...
        dims: Sizes of named dimensions that are known to be always the same, which lets ONNX Runtime fold more.
    """

    level: Level | None = None
    threads: int | None = None
    inter_threads: int | None = None
    mode: Mode | None = None
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    spinning: bool | None = None
    arena: bool | None = None
    memory_pattern: bool | None = None
    entries: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in fields(self):
            problem = _PROBLEMS[each.name](getattr(self, each.name))
            if problem:
                raise UsageError(f"{each.name} of a deployment {problem}")

    def overruled_by(self, other: Deployment) -> Deployment:
        """These options, but for those that ``other`` says; entries and dimensions one by one."""
        said = {e.name: getattr(other, e.name) for e in fields(other) if getattr(other, e.name) not in (None, {})}
        for name in ("entries", "dims"):
            if name in said:
                said[name] = {**getattr(self, name), **said[name]}
        return replace(self, **said)

    def harmless(self, say: Say | None = None) -> Deployment:
        """These options without those that could read, write or load a file: nobody's model shall do that by itself.

        Entries are kept where they are known to be of speed and numbers only, options of providers where they are known
        and name no file; ``say`` is called with a line about each of the others.
        """
        say = say or _warn
        entries = {name: value for name, value in self.entries.items() if name in ENTRIES}
        providers = {
            name: {option: value for option, value in own.items() if may_travel(name, option)}
            for name, own in self.providers.items()
        }
        lost = [f"entry {name}" for name in self.entries if name not in entries]
        lost += [f"{n} option {o}" for n, own in self.providers.items() for o in own if o not in providers[n]]
        for each in lost:
            say(f"the stored session {each} is not taken from a model; say it with deployment=")
        return replace(self, entries=entries, providers=providers)

    def to_json(self) -> dict[str, Json]:
        """The options that are set, as plain data; the others are left out."""
        known = {e.name: getattr(self, e.name) for e in fields(self)}
        if known["providers"]:
            known["providers"] = [{"name": name, "options": dict(o)} for name, o in self.providers.items()]
        return {name: value for name, value in known.items() if value not in (None, {})}

    @staticmethod
    def from_json(data: object, say: Say | None = None) -> Deployment:
        """Options from plain data; unknown or damaged ones are left out, and ``say`` is called with a line about each.

        Without ``say`` it is a Python warning.
        """
        say = say or _warn
        if not isinstance(data, Mapping):
            say(f"the stored session options are {type(data).__name__}, not an object; they are ignored")
            return Deployment()
        known: dict[str, Any] = {}
        for name, value in data.items():
            read = _plain_providers(value) if name == "providers" else value
            problem = "is unknown" if name not in _PROBLEMS else _PROBLEMS[name](read)
            if problem:
                say(f"the stored session option {name} {problem}; it is ignored")
            else:
                known[name] = read
        return Deployment(**known)

    @staticmethod
    def parse(text: str, say: Say | None = None) -> Deployment:
        """Options from a JSON text, as ``from_json``."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            (say or _warn)("the stored session options are no JSON; they are ignored")
            return Deployment()
        return Deployment.from_json(data, say)

    def text(self) -> str:
        """The JSON text to store; the same options give the same text."""
        return json.dumps(self.to_json(), sort_keys=True)


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=4)


def _plain_providers(value: object) -> Any:
    """Providers as a mapping, of the list of names or of objects that is stored."""
    if not isinstance(value, list):
        return value
    found: dict[object, object] = {}
    for each in value:
        is_object = isinstance(each, Mapping)
        name, options = (each.get("name"), each.get("options", {})) if is_object else (each, {})
        if not isinstance(name, str):
            return value
        found[name] = options
    return found


def _one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    def problem(value: object) -> str:
        return "" if value is None or value in names else f"must be one of {', '.join(names)}, not {_shown(value)}"

    return problem


def _count(value: object) -> str:
    fine = value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST)
    return "" if fine else f"must be a number from 0 to {_MOST}, not {_shown(value)}"


def _switch(value: object) -> str:
    return "" if value is None or isinstance(value, bool) else f"must be true or false, not {_shown(value)}"


def _texts(value: object) -> str:
    fine = isinstance(value, Mapping) and all(isinstance(e, str) for pair in value.items() for e in pair)
    return "" if fine else f"must map names to texts, not be {_shown(value)}"


def _sizes(value: object) -> str:
    fine = isinstance(value, Mapping) and all(
        isinstance(k, str) and isinstance(v, int) and not isinstance(v, bool) and 0 < v < 2**63
        for k, v in value.items()
    )
    return "" if fine else f"must map names to positive numbers, not be {_shown(value)}"


def _choices(value: object) -> str:
    fine = isinstance(value, Mapping) and all(isinstance(k, str) and not _texts(v) for k, v in value.items())
    return "" if fine else f"must map names of providers to their options, not be {_shown(value)}"


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


_MOST = 4096
"""Threads: more are a mistake."""

_PROBLEMS: Mapping[str, Callable[[object], str]] = {
    "level": _one_of(get_args(Level)),
    "threads": _count,
    "inter_threads": _count,
    "mode": _one_of(get_args(Mode)),
    "providers": _choices,
    "spinning": _switch,
    "arena": _switch,
    "memory_pattern": _switch,
    "entries": _texts,
    "dims": _sizes,
}
"""For each option, why a value of it cannot be used; empty where it can."""


def stored_options(model: onnx.ModelProto, say: Say | None = None) -> Deployment:
    """The options that are stored in a model; none where there are none."""
    text = next((p.value for p in model.metadata_props if p.key == SESSION_KEY), None)
    return Deployment.parse(text, say) if text is not None else Deployment()


def options_for(level: str, before: str | None = None) -> str:
    """The text to store with a model that is fastest at a level; ``before``: the text stored already.

    Raises:
        UsageError: ONNX Runtime has no such level.
    """
    known = Deployment.parse(before, lambda _: None) if before is not None else Deployment()
    return replace(known, level=level).text()  # type: ignore[arg-type]


def read_options(path: str | os.PathLike[str]) -> Deployment:
    """The options that are stored in a model file.

    Raises:
        ModelError: The file cannot be read, or holds no model.
    """
    return stored_options(io.read_proto(os.path.abspath(path), os.fspath(path)))


def write_options(path: str | os.PathLike[str], options: Deployment) -> None:
    """Store options in a model file, in place of those that were there; all else in it, and external data, stay.

    The file is replaced when the new one is complete.  Options that say nothing remove what was stored.

    Raises:
        ModelError: The file cannot be read or written, or holds no model.
    """
    proto = io.read_proto(os.path.abspath(path), os.fspath(path))
    kept = [p for p in proto.metadata_props if p.key != SESSION_KEY]
    data = options.to_json()
    if data:
        kept.append(onnx.StringStringEntryProto(key=SESSION_KEY, value=options.text()))
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    io.replace_proto(proto, path)


__all__ = ["SESSION_KEY", "Deployment", "Mode", "options_for", "read_options", "stored_options", "write_options"]
