"""What peers do in tests.  Imports little, for each runs in a process of its own."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path


def copies(source: Path, result: Path) -> None:
    print("a peer that talks")
    os.write(2, b"and one that does so from C++\n")
    shutil.copy(source, result)


def raises(source: Path, result: Path) -> None:
    raise RuntimeError("not\nthis model")


def aborts(source: Path, result: Path) -> None:
    os.abort()


def exits(source: Path, result: Path) -> None:
    sys.exit("usage: peer")


def hangs(source: Path, result: Path) -> None:
    time.sleep(600)


def forgets(source: Path, result: Path) -> None:
    """It writes nothing."""


def writes_rubbish(source: Path, result: Path) -> None:
    result.write_text("hello", encoding="utf-8")


def writes_another(source: Path, result: Path) -> None:
    """Sqrt where there was Relu: as many bytes."""
    result.write_bytes(source.read_bytes().replace(b"\x04Relu", b"\x04Sqrt"))
