"""The text that any machine has: the language reference within ``pydoc``, and the docstrings of the standard library."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

HELD_OUT = 20
"""One of so many documents is held out."""

_LEAST = 40
"""A docstring of fewer characters says nothing."""

_FOREIGN = ("site-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "__pycache__", "dist-packages")


def documents() -> dict[str, str]:
    """Names to texts, in the order of the names; equal texts once."""
    found = {f"topic {name}": text for name, text in topics.items()} | dict(_docstrings())
    once = {text.strip(): name for name, text in sorted(found.items(), reverse=True)}
    return {name: text for text, name in sorted(once.items(), key=lambda each: each[1])}


def is_held_out(name: str) -> bool:
    """True if a document is not trained on; it hangs on its name alone."""
    return hashlib.sha256(name.encode()).digest()[0] % HELD_OUT == 0


def _docstrings() -> Iterator[tuple[str, str]]:
    folder = Path(sysconfig.get_path("stdlib"))
    for file in sorted(folder.rglob("*.py")):
        place = file.relative_to(folder)
        if not set(place.parts).intersection(_FOREIGN):
            yield from ((f"{place.as_posix()} {name}", text) for name, text in _of_file(file))


def _of_file(file: Path) -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if len(text) >= _LEAST:
                yield f"{getattr(node, 'name', '')} {node.body[0].lineno}", text
