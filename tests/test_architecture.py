"""The shape of the code: who imports whom, how long modules are, what they must not contain."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "onnxrewrite"
PATTERNS = ROOT / "patterns" / "onnxrewrite_patterns"

ROOMS = (
    "errors",
    "system",
    "ir",
    "io",
    "runtime",
    "pattern",
    "rewrite",
    "interop",
    "inputs",
    "reference",
    "proof",
    "checks",
    "measure",
    "compiler",
    "certificate",
    "explanation",
    "ruletest",
    "authoring",
    "testing",
    "report",
    "api",
    "suite",
    "cli",
    "__main__",
)
"""A room imports from rooms before it, and from itself; whether at once, when it is called, or for its types."""

RANKS = {name: rank for rank, name in enumerate(ROOMS)}

pytestmark = pytest.mark.xdist_group("architecture")  # so that each module is parsed by one worker

MAX_LINES = 500

MODULES = sorted([*PACKAGE.rglob("*.py"), *PATTERNS.rglob("*.py")])


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> Sequence[tuple[int, str]]:
    """Line and full name of everything a module imports: inside functions and for types, too."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found += ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
    return found


FACES = {"__init__", "_moved", "costs", "rules", "deploy", "sessions"}
"""The public face and its name spaces, which no room imports."""


def room(full_name: str) -> str | None:
    """The room of the package that an import reaches, None for the public face and for other packages."""
    parts = full_name.split(".")
    return parts[1] if parts[0] == "onnxrewrite" and len(parts) > 1 and parts[1] in RANKS else None


def test_every_room_has_a_rank() -> None:
    """A room that nobody ranked would escape the test below."""
    found = {
        p.stem if p.is_file() else p.name
        for p in PACKAGE.iterdir()
        if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert found - FACES == set(RANKS)


def test_a_name_of_a_module_is_taken_once() -> None:
    """Whoever reads a name in a message or a stack knows where it is."""
    rooms = defaultdict[str, set[str]](set)
    for path in PACKAGE.rglob("*.py"):
        if path.stem != "__init__" and path.parent != PACKAGE:
            rooms[path.stem].add(path.relative_to(PACKAGE).parts[0])
    assert not {name: found for name, found in rooms.items() if len(found) > 1}


def test_imports_run_one_way() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in FACES:
            continue
        for line, name in imports(path):
            assert not name.startswith("."), f"{named(path)}:{line}: relative import"
            other = room(name)
            if other is None or other == own:
                continue
            if RANKS[other] > RANKS[own]:
                wrong.append(f"{named(path)}:{line}: {own} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_nobody_inside_uses_the_public_face() -> None:
    """It would make every room depend on every other."""
    wrong = [
        f"{named(path)}:{line}: {name}"
        for path in PACKAGE.rglob("*.py")
        for line, name in imports(path)
        if path != PACKAGE / "__init__.py" and name.split(".")[0] == "onnxrewrite" and room(name) is None
    ]
    assert not wrong, "\n".join(wrong)


def test_rules_import_their_face_only() -> None:
    wrong = [
        f"{named(path)}:{line}: {name}"
        for path in PATTERNS.rglob("*.py")
        for line, name in imports(path)
        if name.split(".")[0] == "onnxrewrite" and name != "onnxrewrite.rules.*"
    ]
    assert not wrong, "\n".join(wrong)


def test_former_names_of_the_face_are_found_with_a_warning() -> None:
    import onnxrewrite
    from onnxrewrite import _moved

    for name, space in _moved.SPACES.items():
        with pytest.warns(DeprecationWarning, match=rf"onnxrewrite\.{name} is onnxrewrite\.{space}\.{name} now"):
            found = onnxrewrite.__getattr__(name)
        assert found is getattr(getattr(onnxrewrite, space), name)
    with pytest.raises(AttributeError, match="'onnxrewrite' has no attribute 'Rulez'"):
        _ = onnxrewrite.Rulez


def test_the_package_does_not_import_its_rules() -> None:
    wrong = [named(p) for p in PACKAGE.rglob("*.py") for _, n in imports(p) if n.split(".")[0] == PATTERNS.name]
    assert not wrong


def test_the_public_face_is_whole() -> None:
    """What type checkers see is what there is."""
    import onnxrewrite

    seen = {
        alias.asname or alias.name
        for node in ast.walk(parsed(PACKAGE / "__init__.py"))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
    }
    assert seen == set(onnxrewrite.__all__)
    for name in onnxrewrite.__all__:
        assert getattr(onnxrewrite, name) is not None


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_module(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(parsed(path)), f"{named(path)} has no docstring"
    assert len(text.splitlines()) <= MAX_LINES, f"{named(path)} is too long"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_docstrings_say_what_things_are(path: Path) -> None:
    """They begin with a noun or a statement, not with What, Whether, Which, How, Why, Who, Where or When."""
    question = re.compile(r"(What|Whether|Which|How|Why|Who|Where|When)\b(?!\()")
    wrong = [
        f"{named(path)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and question.match(text)
    ]
    assert not wrong, "\n".join(wrong)


def tracked() -> list[Path]:
    """The text files of the repository; of a folder without git, the code."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return [*MODULES, *(ROOT / "tests").rglob("*.py"), ROOT / "pyproject.toml", ROOT / "README.md"]
    suffixes = {".py", ".md", ".toml", ".yml", ".yaml", ".cfg", ".txt", ".json"}
    return [ROOT / n for n in done.stdout.split("\0") if Path(n).suffix in suffixes and (ROOT / n).is_file()]


def test_no_paths_of_a_machine() -> None:
    """A checkout works wherever it lies."""
    machine = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt|opt|data)/\w|\b[A-Z]:\\\\?Users")
    wrong = [
        f"{named(path)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if machine.search(line) and path != Path(__file__).resolve()
    ]
    assert not wrong, "\n".join(wrong)
