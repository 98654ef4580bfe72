"""``onnxrewrite new``: a project that passes its own tests as it is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxrewrite.authoring.scaffold import new_project
from onnxrewrite.cli import main
from onnxrewrite.errors import UsageError


@pytest.mark.slow
def test_a_new_project_passes_its_own_tests(tmp_path: Path) -> None:
    folder = new_project("my-fusions", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_nothing_is_left_to_fill_in(tmp_path: Path) -> None:
    folder = new_project("my-fusions", tmp_path)
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert {str(p.relative_to(folder)) for p in files} == {
        "pyproject.toml",
        "README.md",
        "my_fusions/__init__.py",
        "my_fusions/rules.py",
        "tests/test_rules.py",
        ".github/workflows/test.yml",
    }
    assert not [p for p in files if "$name" in p.read_text() or "$package" in p.read_text()]


@pytest.mark.parametrize("name", ["My-Fusions", "1st", "a_b", "../up", "", "a--b", "numpy", "class"])
def test_names_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        new_project(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my-fusions", "--into", str(tmp_path)]) == 0
    (tmp_path / "my-fusions" / "README.md").write_text("mine")
    assert main(["new", "my-fusions", "--into", str(tmp_path)]) == 2
    assert (tmp_path / "my-fusions" / "README.md").read_text() == "mine"
    assert "is there already" in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        new_project("my-fusions", tmp_path / "nowhere")
