"""Writing a file or a folder: all of it, or none."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
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


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file likewise: a process that has mapped the one before keeps that.

    Raises:
        OSError: It cannot be read or written.
    """
    with temporary.beside(target) as made:
        shutil.copyfile(source, made)
        os.replace(made, target)


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which is given the name ``target`` when that is done, and removed if something fails.

    Raises:
        OSError: It cannot be made, or ``target`` is there and is no empty folder.
    """
    with temporary.folder_beside(target) as made:
        yield made
        os.replace(made, target)
