"""Writing the JSON report: all of it, or none."""

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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(f"{text}\n", encoding="utf-8", errors="replace")
        os.replace(temporary, path)
    except OSError as error:
        raise ModelError(f"--json {path}: cannot be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
