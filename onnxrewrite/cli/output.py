"""Writing the JSON report: all of it, or none; where a check fails, why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxrewrite.cli.console import say_text
from onnxrewrite.errors import CheckError, printable
from onnxrewrite.system.atomic import write_whole


def write_json(data: object, option: str | None, path: Path | None) -> None:
    """Write ``data`` to ``path``, or to stdout if ``option`` is ``-``; the same data give the same bytes."""
    if option is None:
        return
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if path is None:
        say_text(text)
        return
    write_whole(path, f"{printable(text, keep=chr(10))}\n", "--json")


@contextmanager
def refusal_told(model: str, option: str | None, path: Path | None) -> Iterator[None]:
    """If a check fails inside, and so nothing is written, write a report of that error in place of the result's."""
    try:
        yield
    except CheckError as error:
        write_json({"model": model, "output": None, "error": str(error)}, option, path)
        raise
