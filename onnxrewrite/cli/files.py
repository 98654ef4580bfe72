"""Writing the JSON report, and other text: all of it, or none."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from onnxrewrite.cli.console import say
from onnxrewrite.errors import ModelError


def write_json(data: Any, option: str | None, path: Path | None) -> None:
    """Write ``data`` to ``path``, or to stdout if ``option`` is ``-``; the same data give the same bytes."""
    if option is None:
        return
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if path is None:
        say(text)
        return
    write_text(path, f"{text}\n", "--json")


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file: under another name first, so that there is all of it or what was there before.

    Raises:
        ModelError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="replace")
        os.replace(temporary, path)
    except OSError as error:
        raise ModelError(f"{option} {path}: cannot be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
