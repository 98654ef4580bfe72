"""Sources of rules: the built-in library, installed packages, loose files, and other rewriters.

But for the last, all are modules.  A module's rules are its ``RULES``, or, without that, every ``Rule`` among its
globals in the order of their definition, and those of every ``RuleSet`` among its globals.  They form a set that is
named after the file, hyphens for underscores.  A package that has no rules itself has those of the modules that it has
imported from below it, module by module by name.
The built-in library ``onnxrewrite_patterns`` is a plugin like any other, except that a plain checkout, in which nothing
is installed, finds it beside the package.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from onnxrewrite.errors import OnnxRewriteError, RuleError, UsageError, foreign
from onnxrewrite.ir.target import Target
from onnxrewrite.rewrite import source
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.rewrite.source import file_of
from onnxrewrite.rewrite.suggestions import nearest
from onnxrewrite.system import files

INTEROP = {"onnxscript": "onnxrewrite.interop.onnxscript"}
"""Prefix to the module whose ``load`` finds the rules of another rewriter: ``onnxscript:default``."""

GROUP = "onnxrewrite.rules"
"""The entry-point group of rule packages."""

LIBRARY = "onnxrewrite_patterns"
"""The package of the built-in rules."""


class Registry:
    """The rules that there are, and the sets that they come in.

    Attributes:
        rules: All rules.
        sets: The named sets, by name.
        broken: One line per plugin that could not be loaded; the others are not affected.
    """

    def __init__(self) -> None:
        self.rules = RuleSet("", ())
        self.sets: dict[str, RuleSet] = {}
        self.broken: list[str] = []

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def copy(self) -> Registry:
        """The same rules, to which others can be added."""
        other = Registry()
        other.rules, other.sets, other.broken = self.rules, dict(self.sets), list(self.broken)
        return other

    def add(self, given: Iterable[Rule | RuleSet]) -> None:
        """Add rules and sets; sets of one name become one.

        RuleError if two rules have one name, or the pattern of one has an operator that nobody knows, and then nothing
        is added.
        """
        added = list(given)
        for rule in RuleSet("", added):
            if rule not in self.rules:
                rule.refuse_impossible()
        self._take(added)

    def _take(self, added: list[Rule | RuleSet]) -> None:
        self.rules |= RuleSet("", added)
        for each in added:
            if isinstance(each, RuleSet) and each.name:
                known = self.sets.setdefault(each.name, each)
                self.sets[each.name] = RuleSet(each.name, (known, each), known.doc or each.doc)

    def named(self, name: str) -> RuleSet:
        """The rule called ``name``, by itself, or else the set called so, which may be spelled as its file is.

        UsageError, with the nearest names, if there is neither.
        """
        if name in self.rules:
            return RuleSet("", [self.rules[name]])
        for spelled in (name, name.replace("_", "-")):
            if spelled in self.sets:
                return self.sets[spelled]
        names = dict.fromkeys((*(rule.name for rule in self), *self.sets))
        raise UsageError(f"no rule or rule set is called {name!r}{nearest(name, names)}")

    def taken_by(self, target: Target) -> RuleSet:
        """The rules that a target takes."""
        return RuleSet("", (rule for rule in self if target.takes(rule.name)))

    def select(self, only: Iterable[str] = (), without: Iterable[str] = ()) -> RuleSet:
        """The rules to run, given by the names of rules or of sets.

        Besides the rules of ``only`` run those of the lower stage, which make legal what they raise, and, unless only
        canonicalizations were asked for, the canonicalizations, for patterns are written on canonical graphs.
        ``without`` takes out any of them.

        Raises:
            UsageError: There is no rule or set of a name.
            RuleError: A rule is to precede another one, which does not exist.
        """
        for rule in self:
            for name in rule.before:
                if name not in self.rules:
                    known = nearest(name, [r.name for r in self])
                    raise RuleError(f"rule {rule.name}: it is to go before {name!r}, which is no rule{known}")
        asked = [self.named(name) for name in only]
        wanted = RuleSet("", asked) if asked else self.rules
        helping = {Stage.LOWER} if all(r.stage == Stage.CANONICALIZE for r in wanted) else {*Stage} - {Stage.RAISE}
        chosen = RuleSet("", (r for r in self if r in wanted or r.stage in helping))
        return chosen - RuleSet("", [self.named(name) for name in without])


def load(extra: Iterable[str] = (), *, plugins: bool = True) -> Registry:
    """All rules: the library's, those of installed plugins, and ``extra`` files or packages.

    Raises:
        RuleError: A rule file or package given by name cannot be used, or two rules have one name.  A broken
            *installed* plugin is only noted in ``Registry.broken``.

    """
    registry = _builtin(_library()).copy()
    for point in _plugins() if plugins else ():
        try:
            with _told(f"plugin {point.name} ({point.value}) cannot be used"):
                found = sets_of(_load_point(point))
        except OnnxRewriteError as error:
            registry.broken.append(str(error))
        else:
            registry.add(found)
    for name in extra:
        registry.add(sets_called(name))
    return registry


@functools.cache
def _builtin(library: ModuleType) -> Registry:
    """The rules of the library, which is looked through once: it does not change while a process lives."""
    registry = Registry()
    registry._take([*sets_of(library)])  # tests look at its patterns, which takes ONNX Runtime
    return registry


def sets_called(name: str) -> list[RuleSet]:
    """The sets of a rule file, a package, or of another rewriter, the one that holds all of it first.

    Raises:
        RuleError: There is no such thing, or it cannot be used.
    """
    prefix, rest = divided(name)
    if not prefix:
        return sets_of(load_module(name))
    with _told(name):
        module = importlib.import_module(INTEROP[prefix])
    return [module.load(rest)]


def divided(name: str) -> tuple[str, str]:
    """The prefix of another rewriter, empty where there is none, and what comes after it."""
    prefix, colon, rest = name.partition(":")
    return (prefix, rest) if colon and prefix in INTEROP else ("", name)


def load_module(name: str) -> ModuleType:
    """A rule module by file or by import name; RuleError if there is none or it fails."""
    module = _load_file(Path(name)) if names_file(name) else _load_package(name)
    source.must_be_let_in(module)
    return module


def loaded(name: str) -> ModuleType | None:
    """The module that rules of this name came from, also where they are only a part of it; None if it is not loaded."""
    parts = divided(name)[1].split(".")
    if parts[-1] == "py":
        return _known(Path(divided(name)[1]))
    starts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((sys.modules[start] for start in starts if start in sys.modules), None)


def names_file(name: str) -> bool:
    """True if ``name`` means a rule file, not a package."""
    return Path(name).suffix == ".py" or files.is_regular(name)


def _load_package(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        is_folder = os.path.isdir(name)
        what = "is a folder; give a .py file or the name of a package" if is_folder else "no such rule file"
        raise RuleError(f"rules {name!r}: {what}")
    try:
        with _told(name):
            return importlib.import_module(name)
    except RuleError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{cause.name}."):
            raise RuleError(f"no rule file or package is called {name!r}") from None
        raise


def rules_of(module: ModuleType) -> RuleSet:
    """The rules of a module, as a set named after its file; RuleError if it has none."""
    return sets_of(module)[0]


def sets_of(module: ModuleType, beside: frozenset[str] = frozenset()) -> list[RuleSet]:
    """All sets of a module: its own, those that it defines, and those of the submodules that it has imported, in which
    only rules are that it offers itself.

    Args:
        module: The module.
        beside: The names of modules whose rules are not this one's, although it has imported them.
    """
    parts = _below(module)
    file = file_of(module)
    with _told(str(file or module.__name__)):
        given = _given(module, beside)
        offered = given or [sets[0] for sets in parts]
        own = RuleSet(_set_name(module, file), offered, inspect.cleandoc(module.__doc__ or ""))
        if not own:
            raise RuleError("defines no Rule")
    found = [own, *(each for each in given if isinstance(each, RuleSet))]
    kept = (RuleSet(s.name, (r for r in s if r in own), s.doc) for sets in parts for s in sets)
    return [*found, *(s for s in kept if s)]


def _below(module: ModuleType) -> list[list[RuleSet]]:
    """The sets of the submodules that a module has imported and that have rules, by the names of these."""
    start = f"{module.__name__}."
    parts = {v.__name__: v for v in vars(module).values() if isinstance(v, ModuleType) and v.__name__.startswith(start)}
    found = []
    for name in sorted(parts):
        with suppress(RuleError):  # it is a helper, and has no rules
            found.append(sets_of(parts[name], frozenset(parts) - {name}))
    return found


def _given(module: ModuleType, beside: frozenset[str]) -> list[Rule | RuleSet]:
    """The rules and rule sets that a module offers."""
    sets = [v for v in vars(module).values() if isinstance(v, RuleSet)]
    rules = getattr(module, "RULES", None)
    if rules is None:
        rules = [v for v in vars(module).values() if isinstance(v, Rule) and v.place.module not in beside]
    if not isinstance(rules, Iterable):
        raise RuleError(f"RULES must be a sequence of rules, not {rules!r}")
    return [*rules, *sets]


def _set_name(module: ModuleType, file: Path | None) -> str:
    """The name of a module's rule set; empty if the name of its file has neither letters nor digits."""
    path = file or Path(module.__name__.rpartition(".")[2])
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")


def _load_file(path: Path) -> ModuleType:
    if not files.is_regular(path):
        raise RuleError(f"no such rule file: {path}")
    if path.suffix != ".py":
        raise RuleError(f"{path}: is no rule file; its name must end in .py")
    known, full = _known(path), path.resolve()
    if known is not None:
        return known
    with _told(str(full)):
        return source.load_loose(f"{source.LOOSE}{hashlib.sha256(str(full).encode()).hexdigest()[:12]}", full)


def _known(path: Path) -> ModuleType | None:
    """The module that was loaded from a file."""
    full = path.resolve()
    return next((m for m in list(sys.modules.values()) if file_of(m) == full), None)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Whatever goes wrong in somebody else's module is a RuleError of one line that begins with ``what``."""
    try:
        with foreign():
            yield
    except OnnxRewriteError as error:
        raise RuleError(f"{what}: {error}") from error
    except Exception as error:
        raise RuleError(f"{what}: {_one_line(error)}") from error


def _library() -> ModuleType:
    """The built-in rules: in a checkout those beside the package, else those that are installed."""
    folder = Path(__file__).resolve().parents[2] / "patterns" / LIBRARY
    if LIBRARY not in sys.modules and folder.is_dir():
        spec = importlib.util.spec_from_file_location(
            LIBRARY, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        with _told(LIBRARY):
            return source.execute(spec)
    try:
        return importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        if error.name != LIBRARY:
            raise
        raise RuleError(f"the built-in rule library {LIBRARY} is missing: reinstall onnxrewrite") from None


def _plugins() -> list[EntryPoint]:
    """Installed rule packages, each once, the library itself left out."""
    points = {p.value: p for p in _points(entry_points, _installed()) if p.value != LIBRARY}
    return [points[value] for value in sorted(points)]


@functools.lru_cache(maxsize=1)
def _points(look: Callable[..., Iterable[EntryPoint]], installed: tuple[object, ...]) -> tuple[EntryPoint, ...]:
    """The entry points that ``look`` finds, kept while ``installed`` is the same: it reads a file of every package."""
    return tuple(look(group=GROUP))


def _installed() -> tuple[object, ...]:
    """A key that differs after a package has come or gone: the import finders, the search path, its folders' mtimes."""
    found: list[object] = [*sys.meta_path]
    for entry in sys.path:
        try:
            found.append((entry, os.stat(entry or ".").st_mtime_ns))
        except (OSError, ValueError):  # an archive that is not there, or no path at all
            found.append(entry)
    return tuple(found)


def _load_point(point: EntryPoint) -> ModuleType:
    loaded = point.load()
    if isinstance(loaded, ModuleType):
        return loaded
    rules = loaded() if callable(loaded) and not isinstance(loaded, Rule) else loaded
    module = ModuleType(point.module)
    vars(module)["RULES"] = [rules] if isinstance(rules, Rule) else rules
    return module


def _one_line(error: BaseException) -> str:
    """The error, and where in somebody else's module it arose; a SyntaxError says that itself."""
    text = " ".join(str(error).split())
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    theirs = [f for f in traceback.extract_tb(error.__traceback__) if not source.is_engine(f.filename)]
    if isinstance(error, SyntaxError) or not theirs:
        return text
    return f"{text} ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})"
