"""Writing a report: all of it, or none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from onnxrewrite.errors import ModelError


def write_whole(path: Path, text: str, option: str) -> None:
    """Write a text file under a temporary name, and give it its own when it is complete.

    Raises:
        ModelError: It cannot be written; the message begins with ``option``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        raise ModelError(f"{option} {path}: cannot be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
