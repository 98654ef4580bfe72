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
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
        """Add rules; RuleError if another rule has the same name, citing both files, and then none is added."""
        added = dict(self._rules)
        for rule in rules:
            known = added.setdefault(rule.name, rule)
            if known is not rule:
                raise RuleError(f"two rules are called {rule.name!r}: one in {known.source}, one in {rule.source}")
        self._rules = added

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
        RuleError: A rule file or package given by name cannot be used, or two rules have one name.  A broken
            *installed* plugin is only noted in ``Registry.broken``.

    """
    registry = Registry()
    registry.add(rules_of(_library()))
    for point in _plugins() if plugins else ():
        try:
            with _told(f"plugin {point.name} ({point.value}) cannot be used"):
                found = rules_of(_load_point(point))
        except OnnxRewriteError as error:
            registry.broken.append(str(error))
        else:
            registry.add(found)
    for name in extra:
        registry.add(rules_of(load_module(name)))
    return registry


def load_module(name: str) -> ModuleType:
    """A rule module by file or by import name; RuleError if there is none or it fails."""
    path = Path(name)
    if path.suffix == ".py" or path.is_file():
        return _load_file(path)
    if not all(part.isidentifier() for part in name.split(".")):
        what = "is a folder; give a .py file or the name of a package" if path.is_dir() else "no such rule file"
        raise RuleError(f"rules {name!r}: {what}")
    try:
        with _told(name):
            return importlib.import_module(name)
    except RuleError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{cause.name}."):
            raise RuleError(f"no rule file or package is called {name!r}") from None
        raise


def rules_of(module: ModuleType) -> list[Rule]:
    """The rules of a module; RuleError if it has none."""
    found = getattr(module, "RULES", None)
    name = str(_file_of(module) or module.__name__)
    if found is None:
        found = [v for v in vars(module).values() if isinstance(v, Rule)]
    if not isinstance(found, Iterable):
        raise RuleError(f"{name}: RULES must be a sequence of rules, not {found!r}")
    rules = list(found)
    wrong = next((r for r in rules if not isinstance(r, Rule)), None)
    if wrong is not None:
        raise RuleError(f"{name}: RULES holds {wrong!r}, which is no Rule")
    if not rules:
        raise RuleError(f"{name}: defines no Rule")
    return list(dict.fromkeys(rules))


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
        with _told(str(path)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Whatever goes wrong in somebody else's module is a RuleError of one line that begins with ``what``."""
    try:
        yield
    except OnnxRewriteError as error:
        raise RuleError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and type(error) is not SystemExit:
            raise  # not the module's, but somebody's who wants us to stop
        raise RuleError(f"{what}: {_one_line(error)}") from error


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _library() -> ModuleType:
    """The built-in rules: in a checkout those beside the package, else those that are installed."""
    folder = Path(__file__).resolve().parents[2] / "patterns" / _LIBRARY
    if _LIBRARY not in sys.modules and folder.is_dir():
        return _execute(_LIBRARY, folder / "__init__.py", [str(folder)])
    try:
        return importlib.import_module(_LIBRARY)
    except ModuleNotFoundError as error:
        if error.name != _LIBRARY:
            raise
        raise RuleError(f"the built-in rule library {_LIBRARY} is missing: reinstall onnxrewrite") from None


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
    """The error, and where in somebody else's module it arose; a SyntaxError says that itself."""
    text = " ".join(str(error).split())
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    ours = str(Path(__file__).resolve().parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith((ours, "<"))]
    if isinstance(error, SyntaxError) or not theirs:
        return text
    return f"{text} ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})"
