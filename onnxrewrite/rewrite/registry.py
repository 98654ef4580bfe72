"""Where rules come from: the built-in library, installed packages, loose files.

All of them are modules.  A module's rules are its ``RULES``, or, without that, every ``Rule`` among its globals.
The built-in library ``onnxrewrite_patterns`` is a plugin like any other, except that a plain checkout, in which nothing
is installed, finds it beside the package.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from onnxrewrite.errors import OnnxRewriteError, RuleError, UsageError
from onnxrewrite.rewrite.rule import Rule, Stage

GROUP = "onnxrewrite.rules"
"""The entry-point group of rule packages."""

_LIBRARY = "onnxrewrite_patterns"


class Registry:
    """Rules by name.

    Attributes:
        broken: One line per plugin that could not be loaded; the others are not affected.
    """

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self.broken: list[str] = []

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __len__(self) -> int:
        return len(self._rules)

    def __getitem__(self, name: str) -> Rule:
        """The rule called ``name``; UsageError, with the nearest names, if there is none."""
        if name not in self._rules:
            import difflib

            near = difflib.get_close_matches(name, self._rules, n=3, cutoff=0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; see `onnxrewrite rules`"
            raise UsageError(f"no rule is called {name!r}{hint}")
        return self._rules[name]

    def add(self, rules: Iterable[Rule]) -> None:
        """Add rules; RuleError if another rule has the same name, citing both files."""
        for rule in rules:
            known = self._rules.setdefault(rule.name, rule)
            if known is not rule:
                raise RuleError(f"two rules are called {rule.name!r}: one in {known.source}, one in {rule.source}")

    def select(self, only: Iterable[str] = (), without: Iterable[str] = ()) -> list[Rule]:
        """The rules to run, given by name or by family.

        Besides the rules of ``only`` run those of the lower stage, which make legal what they raise, and, unless only
        canonicalizations were asked for, the canonicalizations, for patterns are written on canonical graphs.
        ``without`` takes out any of them.
        """
        wanted = {r for name in only for r in self.family(name)}
        unwanted = {r for name in without for r in self.family(name)}
        helping = {Stage.LOWER} if all(r.stage == Stage.CANONICALIZE for r in wanted) else {*Stage} - {Stage.RAISE}
        chosen = [r for r in self if not wanted or r in wanted or r.stage in helping]
        return [r for r in chosen if r not in unwanted]

    def family(self, name: str) -> list[Rule]:
        """The rule called ``name``, or the rules of the file called so, or those whose names begin with it."""
        if name in self._rules:
            return [self._rules[name]]
        stem = name.replace("-", "_")
        of_file = [r for r in self if Path(r.source).stem == stem]
        return of_file or [r for r in self if r.name.startswith(f"{name}-")] or [self[name]]


def load(extra: Iterable[str] = (), *, plugins: bool = True) -> Registry:
    """All rules: the library's, those of installed plugins, and ``extra`` files or packages.

    Raises:
        RuleError: A rule file or package given by name cannot be used.  A broken *installed* plugin is only noted in
            ``Registry.broken``.
    """
    registry = Registry()
    registry.add(rules_of(_library()))
    for point in _plugins() if plugins else ():
        try:
            registry.add(rules_of(_load_point(point)))
        except Exception as error:  # a plugin can fail in any way
            registry.broken.append(f"plugin {point.name} ({point.value}) cannot be used: {_one_line(error)}")
    for name in extra:
        registry.add(rules_of(load_module(name)))
    return registry


def load_module(name: str) -> ModuleType:
    """A rule module by file or by import name; RuleError if there is none or it fails."""
    path = Path(name)
    if path.suffix == ".py" or path.is_file():
        return _load_file(path)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise RuleError(f"no rule file or package is called {name!r}") from None
        raise RuleError(f"{name}: {_one_line(error)}") from error
    except Exception as error:
        raise RuleError(f"{name}: {_one_line(error)}") from error


def rules_of(module: ModuleType) -> list[Rule]:
    """The rules of a module; RuleError if it has none."""
    found = getattr(module, "RULES", None)
    if found is None:
        found = [v for v in vars(module).values() if isinstance(v, Rule)]
    rules = list(dict.fromkeys(found))
    wrong = next((r for r in rules if not isinstance(r, Rule)), None)
    if wrong is not None:
        raise RuleError(f"{module.__name__}: RULES holds {wrong!r}, which is no Rule")
    if not rules:
        raise RuleError(f"{module.__name__} defines no Rule")
    return rules


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise RuleError(f"no such rule file: {path}")
    if path.suffix != ".py":
        raise RuleError(f"{path}: is no rule file; its name must end in .py")
    full = path.resolve()
    known = next((m for m in list(sys.modules.values()) if _file_of(m) == full), None)
    if known is not None:
        return known
    name = f"onnxrewrite_rules_{hashlib.sha256(str(full).encode()).hexdigest()[:12]}"
    return _execute(name, full)


def _execute(name: str, path: Path, search: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except OnnxRewriteError:
        del sys.modules[name]
        raise
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise RuleError(f"{path}: {_one_line(error)}") from error
    return module


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _library() -> ModuleType:
    """The built-in rules: as installed, or beside the package in a checkout."""
    if importlib.util.find_spec(_LIBRARY) is not None:
        return importlib.import_module(_LIBRARY)
    folder = Path(__file__).resolve().parents[2] / "patterns" / _LIBRARY
    if not folder.is_dir():
        raise RuleError("the built-in rule library onnxrewrite_patterns is missing: reinstall onnxrewrite")
    return _execute(_LIBRARY, folder / "__init__.py", [str(folder)])


def _plugins() -> list[EntryPoint]:
    """Installed rule packages, each once, the library itself left out."""
    points = {p.value: p for p in entry_points(group=GROUP) if p.value != _LIBRARY}
    return [points[value] for value in sorted(points)]


def _load_point(point: EntryPoint) -> ModuleType:
    loaded = point.load()
    if isinstance(loaded, ModuleType):
        return loaded
    rules = loaded() if callable(loaded) and not isinstance(loaded, Rule) else loaded
    module = ModuleType(point.value)
    vars(module)["RULES"] = [rules] if isinstance(rules, Rule) else rules
    return module


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
