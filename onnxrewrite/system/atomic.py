"""Writing a report: all of it, or none."""

from __future__ import annotations

import os
from pathlib import Path

from onnxrewrite.errors import ModelError
from onnxrewrite.system import files, temporary


def write_whole(path: Path, text: str, option: str) -> None:
    """Write a text file under a temporary name, and give it its own when it is complete; a link stays one.

    Raises:
        ModelError: It cannot be written; the message begins with ``option``.
    """
    try:
        target = files.destination(path)
        with temporary.beside(target) as file:
            file.write_text(text, encoding="utf-8", errors="replace", newline="\n")
            os.replace(file, target)
    except OSError as error:
        raise ModelError(f"{option} {path}: cannot be written: {error.strerror or error}") from None
