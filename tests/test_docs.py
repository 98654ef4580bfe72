"""The walks through the documentation are true: what they show was printed by the commands that they show.

A page that begins with ``<!-- walk -->`` is run in an empty folder and an environment of its own, top to bottom: a block
``python title="FILE"`` is written to that file, each line of a ``console`` block that begins with ``$`` is run, and
what it prints is compared, times and rounding errors aside.  On any other page, the same holds of a ``console`` block
behind ``<!-- transcript -->``, run beside the golden models.  ``pytest --update-golden`` renews it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WALKS = sorted(p for p in (ROOT / "docs").glob("*.md") if p.read_text(encoding="utf-8").startswith("<!-- walk -->"))

_BLOCK = re.compile(
    r'^```(?:python title="(?P<file>[^"]+)"|(?P<shell>console))\n(?P<text>.*?)^```', re.DOTALL | re.MULTILINE
)
_TRANSCRIPT = re.compile(r"^(<!-- transcript -->\n)```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
TRANSCRIPTS = [p for p in sorted((ROOT / "docs").glob("*.md")) if _TRANSCRIPT.search(p.read_text(encoding="utf-8"))]

_PROGRESS = re.compile(r"^onnxrewrite: .* \(\d+ s\)$")
_MEASURE = re.compile(r"\d+\.\d+(e[-+]\d\d)?|\d+e[-+]\d\d|\b\d+(?= (s|ms|µs|B|kB)\b)")


def told(text: str) -> str:
    """Without numbers that another machine measures differently, and without the padding of tables around them."""
    return re.sub(r"[ ─━]+", " ", _MEASURE.sub("#", text))


class Walk:
    """A folder, and an environment in which onnxrewrite is installed; further packages come without the network."""

    def __init__(self, folder: Path):
        self.folder = folder / "walk"
        self.folder.mkdir()
        environment = folder / "environment"
        venv.create(environment, with_pip=False, symlinks=True)
        own = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
        paths = [sysconfig.get_path("purelib"), str(ROOT), str(ROOT / "patterns")]
        (own / "outer.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
        python = environment / "bin" / "python"
        self._script(environment / "bin" / "onnxrewrite", f'exec {python} -m onnxrewrite "$@"')
        self._script(environment / "bin" / "pytest", f'exec {python} -m pytest -p no:cacheprovider "$@"')
        self._script(environment / "bin" / "pip", f'exec {sys.executable} -m pip --python {python} "$@"')
        self.variables = {
            **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS")},
            "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "PYTHONIOENCODING": "utf-8",
            "ONNXREWRITE_LOWER": "fused",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    @staticmethod
    def _script(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, command: str) -> str:
        """What a command prints, but for how far it has come, which only a slow machine is told; it may fail."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.variables, capture_output=True, text=True, encoding="utf-8"
        )
        lines = (line.rstrip() for line in (done.stdout + done.stderr).splitlines())
        return "".join(f"{line}\n" for line in lines if not _PROGRESS.match(line))

    def again(self, block: re.Match[str]) -> str:
        """A block as it comes out now."""
        if block["file"] is not None:
            self.write(block["file"], block["text"])
            return block[0]
        return self.shown(block["text"])

    def shown(self, text: str) -> str:
        """The commands of a ``console`` block, each with what it prints now."""
        commands = [line for line in text.splitlines() if line.startswith("$ ")]
        shown = "".join(f"{command}\n{self.run(command.removeprefix('$ '))}" for command in commands)
        return f"```console\n{shown}```"


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_walk(page: Path, tmp_path: Path, update_golden: bool) -> None:
    walk, text = Walk(tmp_path), page.read_text(encoding="utf-8")
    made = _BLOCK.sub(walk.again, text)
    if update_golden:
        page.write_text(made, encoding="utf-8")
        return
    assert told(made) == told(text)


@pytest.mark.slow
@pytest.mark.parametrize("page", TRANSCRIPTS, ids=lambda page: page.stem)
def test_transcripts(page: Path, tmp_path: Path, update_golden: bool) -> None:
    walk, text = Walk(tmp_path), page.read_text(encoding="utf-8")
    (walk.folder / "golden_models").symlink_to(ROOT / "golden_models", target_is_directory=True)
    made = _TRANSCRIPT.sub(lambda found: f"{found[1]}{walk.shown(found[2])}", text)
    if update_golden:
        page.write_text(made, encoding="utf-8")
        return
    assert told(made) == told(text)


def test_there_is_a_walk() -> None:
    assert WALKS
