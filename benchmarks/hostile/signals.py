"""Signals at any moment: over in two seconds, with nothing left half done."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hostile.bombs import bombs
from benchmarks.hostile.case import Case
from benchmarks.hostile.models import COMMANDS, GOLDEN

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_LATEST = 8.0
"""Seconds after which the last signals are sent; most commands are done by then, or at something long."""


def signalled(folder: Path, seed: int = 0, count: int = 100) -> Iterator[Case]:
    """Commands that are sent a signal: half of them at a golden model, half at one that never ends.

    Args:
        folder: An empty folder.
        seed: Of what is drawn; the same seed makes the same cases.
        count: The number of commands.
    """
    dice = random.Random(seed)
    golden = sorted(GOLDEN.glob("*/model.onnx"))
    endless = [(name, data) for name, data in bombs() if "Loop" in name or "MatMul" in name or name.startswith("Conv")]
    for number in range(count):
        root = folder / f"s{number:04d}"
        (root / "folder" / "made").mkdir(parents=True)
        model = root / "folder" / "model.onnx"
        if number % 2:
            source = dice.choice(golden)
            name = source.parent.name
            shutil.copy(source, model)
        else:
            name, data = dice.choice(endless)
            model.write_bytes(data)
        which, after = dice.choice(NUMBERS), dice.uniform(0.05, _LATEST)
        yield Case(
            name=f"{name}, {which.name} after {after:.2f} s",
            root=root,
            folder=root / "folder",
            commands=(dice.choice(COMMANDS),),
            made="folder/made",
            signal=(int(which), after),
        )
