"""A project of its own for rules: what ``onnxrewrite new`` writes."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
from importlib import resources
from pathlib import Path
from string import Template

from onnxrewrite.errors import UsageError
from onnxrewrite.system.atomic import whole_folder
from onnxrewrite.system.versions import VERSION

_FILES = {
    "pyproject.toml": "pyproject.toml.in",
    "README.md": "README.md.in",
    "{package}/__init__.py": "package.py.in",
    "{package}/rules.py": "rules.py.in",
    "tests/test_rules.py": "test_rules.py.in",
    ".github/workflows/test.yml": "ci.yml.in",
}
"""File of the project to its template, below ``project``."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new_project(name: str, into: Path = Path()) -> Path:
    """Write a project with one rule, its tests and its continuous integration; all of it, or nothing.

    Args:
        name: Of the project, lower case with hyphens; its package has underscores instead.
        into: The folder in which a folder called ``name`` is made.

    Returns:
        The new folder.

    Raises:
        UsageError: The name cannot be used, or the folder is there already or cannot be made.
    """
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(package):
        raise UsageError(f"'{name}' cannot be the name of a project: lower case letters and digits, with hyphens")
    if importlib.util.find_spec(package) is not None:
        raise UsageError(f"there is a module called {package} already; choose another name than '{name}'")
    folder = into / name
    if os.path.lexists(folder):
        raise UsageError(f"{folder} is there already; choose another name, or --into another folder")
    words = {"name": name, "package": package, "rule": f"{name}-log-softmax", "version": VERSION}
    try:
        _write(folder, words)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return folder


def _write(folder: Path, words: dict[str, str]) -> None:
    """Fill the folder."""
    templates = resources.files("onnxrewrite.authoring") / "project"
    with whole_folder(folder) as made:
        for place, template in _FILES.items():
            path = made / place.format(**words)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template((templates / template).read_text("utf-8")).substitute(words), encoding="utf-8")
