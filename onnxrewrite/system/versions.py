"""Versions of this program and of what it runs on."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path
from typing import Final

VERSION: Final = "0.2.0"
"""Of this program."""


def versions() -> dict[str, str]:
    """The versions of this program, of what it runs on, and the digest of its own source."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {
        "onnxrewrite": VERSION,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "onnxrewrite source": _own_source(),
    }
    for package in ("onnx", "onnxruntime", "onnx-ir", "onnxscript", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def _own_source() -> str:
    """The version stays the same while one works on the engine; its source does not."""
    root = Path(__file__).resolve().parents[1]
    state = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        state.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return state.hexdigest()[:16]
