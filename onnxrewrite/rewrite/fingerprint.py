"""Fingerprints: the digest of a rule's pattern, its settings, and the source of the modules that it is written in.

The modules are those of the functions that the rule calls, and what these import of their own package, of their own
folder, and of the rule library, at any distance.  The engine is no part of it.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.registry import LIBRARY
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.source import OWN_PACKAGES, beside, digest_of, file_of, label

_ENGINE = "onnxrewrite"

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<base>[.\w]+)[ \t]+import[ \t]*(?P<names>\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+(?P<plain>[^\n#]+))",
    re.MULTILINE,
)
"""An import statement; one that stands in a text adds a module too many, which does no harm."""


@dataclass(frozen=True)
class Fingerprint:
    """The digest of a rule, and the digest of each module that it is written in, by name."""

    sha256: str
    modules: dict[str, str]


_KNOWN: WeakKeyDictionary[Rule, Fingerprint] = WeakKeyDictionary()


def fingerprint(rule: Rule) -> Fingerprint:
    """The digest of all that a rule consists of, as it was when this was first asked for; it is the same wherever the
    files lie."""
    if rule not in _KNOWN:
        _KNOWN[rule] = _fingerprint(rule)
    return _KNOWN[rule]


def _fingerprint(rule: Rule) -> Fingerprint:
    spelling = _Spelling()
    spelled = [
        f"{f.name} = {spelling.of(getattr(rule, f.name))}" for f in fields(Rule) if f.init and f.name != "examples"
    ]
    spelling.note(rule.place.module)
    known = {label(m): _digest(m) for m in _closure(spelling.modules)}
    listed = [f"{name} {digest}" for name, digest in sorted(known.items())]
    return Fingerprint(hashlib.sha256("\n".join([*spelled, *listed]).encode()).hexdigest(), known)


def digest_of_object(value: object) -> str:
    """The digest of all that an object of the user's consists of: its attributes, and the source of the modules that
    its class is written in."""
    spelling = _Spelling()
    spelled = spelling.of(value)
    spelling.note(type(value).__module__)
    listed = sorted(f"{label(m)} {_digest(m)}" for m in _closure(spelling.modules))
    return hashlib.sha256("\n".join([spelled, *listed]).encode()).hexdigest()


def source_digests(names: Iterable[str]) -> dict[str, str]:
    """The digests, by name, of the modules that are executed when rules of these names are loaded.

    These are the rule files and packages, the modules of rules that they import, and the packages that contain them.
    """
    named = [m for name in names if (m := registry.loaded(name)) is not None and _is_theirs(m)]
    found = _closure(m for m in named if m.__name__.partition(".")[0] not in OWN_PACKAGES)
    packages = [_found(name) for m in found for name in _packages_of(m)]
    return {label(m): _digest(m) for m in (*found, *packages) if m is not None and _is_theirs(m)}


def _packages_of(module: ModuleType) -> Iterator[str]:
    parts = module.__name__.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


_digest = functools.cache(digest_of)
"""As it was when this was first asked for."""


class _Spelling:
    """Says in text what objects consist of, the same object by its number; collects the modules of functions."""

    def __init__(self) -> None:
        self.modules: dict[ModuleType, None] = {}
        self._met: dict[int, int] = {}

    def of(self, value: object) -> str:
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(map(self.of, value)))}}}"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.of(k)}: {self.of(v)}' for k, v in value.items())}}}"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self.of, value))})"
        if id(value) in self._met:
            return f"#{self._met[id(value)]}"
        self._met[id(value)] = len(self._met)
        if isinstance(value, type) or inspect.isroutine(value):
            return self._function(value)
        return self._object(value)

    def _function(self, value: object) -> str:
        """A function by its name, with what it is bound to, closes over and wraps."""
        name = str(getattr(value, "__qualname__", value))
        if not self.note(getattr(value, "__module__", None)):
            return name
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        bound = [getattr(value, each, None) for each in ("__self__", "__wrapped__", "__defaults__")]
        return name + self.of([v for v in (*bound, *cells) if v is not None])

    def _object(self, value: Any) -> str:
        """An object of the pattern language, or of the rule's own making, by its attributes, or by what it says itself
        that it consists of; any other by its type."""
        kind = type(value)
        if isinstance(value, functools.partial):
            return f"partial{self.of((value.func, value.args, value.keywords))}"
        if isinstance(value, np.ndarray | np.generic):
            return f"{value.dtype}{list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()}"
        if hasattr(kind, "__fingerprint__"):
            return kind.__qualname__ + self.of(value.__fingerprint__())
        is_known = self.note(kind.__module__) or kind.__module__.startswith(f"{_ENGINE}.")
        held = {k: v for k, v in vars(value).items() if not k.startswith("__")} if hasattr(value, "__dict__") else {}
        return kind.__qualname__ + (self.of(held) if is_known else "")

    def note(self, name: str | None) -> bool:
        """Note a module that can hold rules; True if it can."""
        module = sys.modules.get(name or "")
        if module is None or not _is_theirs(module):
            return False
        self.modules[module] = None
        return True


@functools.cache
def _is_theirs(module: ModuleType) -> bool:
    """True if a module can hold rules: it has a file, and is neither the engine's nor of the standard library."""
    top = module.__name__.partition(".")[0]
    return top != _ENGINE and top not in sys.stdlib_module_names and file_of(module) is not None


def _closure(modules: Iterable[ModuleType]) -> list[ModuleType]:
    """The modules, and what they import of what is theirs."""
    found: dict[str, ModuleType] = {}
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            pending += _imports(module)
    return list(found.values())


@functools.cache
def _imports(module: ModuleType) -> tuple[ModuleType, ...]:
    file = file_of(module)
    text = file.read_text(encoding="utf-8", errors="replace") if file is not None and file.suffix == ".py" else ""
    names = dict.fromkeys(name for match in _IMPORT.finditer(text) for name in _named(module, match))
    return tuple(m for name in names if (m := _found(name)) is not None and _is_theirs(m) and _belongs(m, module))


def _found(name: str) -> ModuleType | None:
    """The module of a name; one that is not loaded yet, for it is imported when it is needed, without running it."""
    if name in sys.modules or name.partition(".")[0] in (_ENGINE, *sys.stdlib_module_names):
        return sys.modules.get(name)
    parent = name.rpartition(".")[0]
    package = _found(parent) if parent else None
    path = getattr(package, "__path__", None)
    if (parent and path is None) or name.rpartition(".")[2] in vars(package or object):
        return None
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    spec = next(filter(None, (finder.find_spec(name, path) for finder in finders)), None)
    is_source = spec is not None and isinstance(spec.loader, SourceFileLoader)
    return importlib.util.module_from_spec(spec) if spec is not None and is_source else None


def _named(module: ModuleType, match: re.Match[str]) -> Iterator[str]:
    """The modules that an import statement may mean."""
    if match["plain"] is not None:
        yield from (part.split()[0] for part in match["plain"].split(",") if part.strip())
        return
    base, names = match["base"], re.findall(r"\w+", match["names"])
    if base.startswith("."):
        package = module.__package__ or ""
        try:
            base = importlib.util.resolve_name(base, package)
        except ImportError:
            return
    parts = [f"{base}.{name}" for name in names]
    yield from [part for part in parts if _found(part) is not None] or [base]


def _belongs(module: ModuleType, importer: ModuleType) -> bool:
    """True if a module is of its importer's package or folder, or of the rule library."""
    top = module.__name__.partition(".")[0]
    if top in (importer.__name__.partition(".")[0], LIBRARY):
        return True
    file, other = file_of(module), file_of(importer)
    return file is not None and other is not None and beside(file, other.parent)
