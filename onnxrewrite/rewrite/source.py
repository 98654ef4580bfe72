"""The source of rules: read once, hashed, and executed from the very bytes that were hashed.

Where rules are named by somebody else than the user, as by a certificate, a ``Gate`` stands before them: what lies in
their folders and their packages is executed only if its digest is one of those that are expected.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from onnxrewrite.errors import OnnxRewriteError, RuleError
from onnxrewrite.system import files

OWN_PACKAGES = frozenset(("onnxrewrite", "onnxrewrite_patterns", "onnxscript"))
"""Packages that are installed with this program, and no more dangerous than this program."""

LOOSE = "onnxrewrite_rules_"
"""The prefix of the name of a module that was loaded from a loose file."""

_EXECUTED: dict[str, str] = {}
"""Digest of what was executed, by the name of the module."""

_ENGINE = f"{Path(__file__).resolve().parents[1]}{os.sep}"  # rules may be installed in a folder of a longer name


def is_engine(file: str) -> bool:
    """True if the code of a file is this program's, or generated, and not somebody's rules."""
    return file.startswith((_ENGINE, "<"))


Refusal = Callable[[str, Path, bool], OnnxRewriteError]
"""Given what a module is called, its file, and whether a digest of it was expected: the error to raise."""


class Loader(SourceFileLoader):
    """Executes a source file as it is now; no compiled file is read or written."""

    def __init__(self, name: str, path: str, gate: Gate | None = None):
        super().__init__(name, path)
        self._gate = gate

    def get_code(self, fullname: str) -> CodeType:
        """The code of the bytes that were hashed, and let in."""
        try:
            content = files.read_bytes(self.path)
        except OSError as error:
            raise RuleError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        digest = hashlib.sha256(content).hexdigest()
        if self._gate is not None:
            self._gate.let_in(label_of(fullname, Path(self.path), is_loose=False), Path(self.path), digest)
        code: CodeType = self.source_to_code(content, self.path)
        _EXECUTED[fullname] = digest
        return code


def label(module: ModuleType) -> str:
    """The name of a module; of one that was loaded from a loose file, the name of the file."""
    return label_of(module.__name__, file_of(module), is_loose=module.__spec__ is None)


def label_of(name: str, file: Path | None, *, is_loose: bool) -> str:
    """The same of a module that is not there yet."""
    return file.name if (is_loose or name.startswith(LOOSE)) and file is not None else name


def file_of(module: ModuleType) -> Path | None:
    """The file of a module, None for one that has none."""
    file = getattr(module, "__file__", None)
    return _resolved(file) if isinstance(file, str) else None


@functools.cache
def _resolved(file: str) -> Path:
    return Path(file).resolve()


def digest_of(module: ModuleType) -> str:
    """The digest of what was executed, or of the file as it is where that is not known; empty without a file."""
    file = file_of(module)
    known = _EXECUTED.get(module.__name__) if isinstance(module.__loader__, Loader) else None
    if known is not None or file is None or not files.is_regular(file):
        return known or ""
    with files.open_regular(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def beside(file: Path, folder: Path) -> bool:
    """True if a file is in or below a folder, and is neither installed nor part of Python or of this program."""
    return file.is_relative_to(folder) and not _is_installed(file)


def _is_installed(file: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts) or any(map(file.is_relative_to, _own()))


@functools.cache
def _own() -> tuple[Path, ...]:
    """The folders of Python and of this program."""
    root = Path(__file__).resolve().parents[1]
    named = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return (root, root.parent / "patterns", *(Path(path).resolve() for path in named))


class Gate(MetaPathFinder):
    """Lets modules be executed whose digests are expected, and no others of those that it guards.

    Args:
        expected: Digests by what a module is called.
        folders: Those of the rule files; what lies below them is guarded.
        packages: Names of modules; their packages are guarded with all below them.
        refusal: Makes the error for a module that is not let in.
        lets_unknown: True if a module of which no digest is expected is let in: the user has named it.

    Attributes:
        refused: The first error, for somebody may have caught it.
    """

    def __init__(
        self,
        expected: Mapping[str, str],
        folders: Iterable[Path],
        packages: Iterable[str],
        refusal: Refusal,
        *,
        lets_unknown: bool,
    ):
        self._expected = expected
        self._folders = {folder.resolve() for folder in folders}
        self._packages = {name.partition(".")[0] for name in packages} - OWN_PACKAGES
        self._refusal = refusal
        self._lets_unknown = lets_unknown
        self.refused: OnnxRewriteError | None = None

    def raise_refusal(self) -> None:
        """Raise the error for a module that was not let in, whoever caught it."""
        if self.refused is not None:
            raise self.refused

    def let_in(self, name: str, file: Path, digest: str) -> None:
        """Raise the refusal where a module must not be executed."""
        is_known = name in self._expected
        if digest not in self._expected.values() and (is_known or not self._lets_unknown):
            self.refused = self.refused or self._refusal(name, file, is_known)
            self.raise_refusal()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a guarded module, which is let in first, here or by its loader; None for others."""
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is None or spec.origin is None or not self._guards(fullname, spec.origin):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(fullname, spec.origin, self)
        else:  # what is compiled cannot be executed from bytes that were hashed
            self.let_in(fullname, Path(spec.origin), "")
        return spec

    def _guards(self, name: str, origin: str) -> bool:
        if name.partition(".")[0] in self._packages:
            return True
        return any(beside(Path(origin).resolve(), folder) for folder in self._folders)


_GATES: list[Gate] = []


@contextmanager
def guarded(gate: Gate) -> Iterator[None]:
    """While this lasts, what the gate guards is imported through it; its refusal is raised, whoever caught it."""
    sys.meta_path.insert(0, gate)
    _GATES.append(gate)
    try:
        yield
    finally:
        _GATES.remove(gate)
        sys.meta_path.remove(gate)
        gate.raise_refusal()


def load_loose(name: str, path: Path) -> ModuleType:
    """A module of a loose file, executed and known under ``name``."""
    loader = Loader(name, str(path), _GATES[-1] if _GATES else None)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    return execute(spec)


def execute(spec: ModuleSpec) -> ModuleType:
    """The module of a spec, which is known by its name if nothing goes wrong."""
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def must_be_let_in(module: ModuleType) -> None:
    """A module that was there already when somebody else named it is not made use of either unless it is expected."""
    file = file_of(module)
    if _GATES and file is not None and module.__name__.partition(".")[0] not in OWN_PACKAGES:
        _GATES[-1].let_in(label(module), file, digest_of(module))
