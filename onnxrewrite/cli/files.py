"""Writing the JSON report: all of it, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnxrewrite.cli.console import say
from onnxrewrite.report.files import write_whole


def write_json(data: Any, option: str | None, path: Path | None) -> None:
    """Write ``data`` to ``path``, or to stdout if ``option`` is ``-``; the same data give the same bytes."""
    if option is None:
        return
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if path is None:
        say(text)
        return
    write_whole(path, f"{text}\n", "--json")
