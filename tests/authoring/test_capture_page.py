"""The page about capturing is true: its commands print what it shows, and write what it shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import ROOT

PAGE = ROOT / "docs" / "capture.md"

COMMANDS = {
    "mine": "onnxrewrite mine golden_models/unet_block/model.onnx",
    "capture": "onnxrewrite capture golden_models/unet_block/model.onnx --from /conv_in/Conv_output_0"
    " --to /resnet_1/norm1/Add_output_0 --name my-group-norm",
}


def run(command: str, folder: Path) -> str:
    paths = os.pathsep.join(str(ROOT / path) for path in (".", "patterns"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip("\n")


def renewed(page: str, name: str, content: str) -> str:
    pattern = rf"(<!-- {name}: .*?-->\n).*?(<!-- end -->)"
    assert re.search(pattern, page, re.DOTALL)
    return re.sub(pattern, lambda m: m[1] + content + m[2], page, flags=re.DOTALL)


@pytest.mark.slow
def test_the_page_shows_what_the_commands_do(tmp_path: Path, update_golden: bool) -> None:
    shutil.copytree(ROOT / "golden_models" / "unet_block", tmp_path / "golden_models" / "unet_block")
    page = PAGE.read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        page = renewed(page, name, f"```text\n$ {command}\n{run(command, tmp_path)}\n```\n")
    rule = (tmp_path / "my_group_norm.py").read_text(encoding="utf-8").strip()
    page = renewed(page, "rule", f"```py\n{rule}\n```\n")
    if update_golden:
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "renew it with pytest --update-golden"
