"""Hostile models: damaged ones, and bombs, each given to one of all the commands.

A damaged model has bits flipped, pieces of other files put in, or fields that say something else.  A bomb is valid, and
asks for more than there is.  Both are given a limited address space, and must be done with in a minute.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.hostile.bombs import bombs
from benchmarks.hostile.case import Case
from benchmarks.hostile.damage import damaged

GOLDEN = Path(__file__).resolve().parents[2] / "golden_models"

DAMAGED = 900
"""Damaged models without ``--count``."""

ADDRESS_SPACE = 2 * 10**9
"""Bytes that each command may address; the models are small."""

_OUT = ("-o", "made/out.onnx")
APPLY = (
    ("apply", "model.onnx", *_OUT),
    ("apply", "model.onnx", *_OUT, "--lower", "fused"),
    ("apply", "model.onnx", *_OUT, "--lower", "fused", "--check", "off"),
    ("apply", "model.onnx", *_OUT, "--check", "fast", "--report", "made/out.html", "--json", "made/out.json"),
)
OTHERS = (
    ("check", "model.onnx", "model.onnx"),
    ("inspect", "model.onnx"),
    ("explain", "model.onnx", "layer-norm"),
    ("mine", "model.onnx"),
    ("bench", "model.onnx", "--seconds", "0.2", "--level", "all"),
    ("profile", "model.onnx"),
    ("half", "model.onnx", *_OUT),
    ("quantize", "model.onnx", *_OUT),
    ("sensitivity", "model.onnx"),
    ("optimize", "model.onnx", "-o", "made/deployed", "--budget", "5", "--seconds", "0.2"),
    ("sweep", "model.onnx", "-o", "made/swept", "--check", "fast"),
)
COMMANDS = (*APPLY, *OTHERS)


def models(folder: Path, seed: int = 0, count: int | None = None) -> Iterator[Case]:
    """Models, each in a folder of its own below ``folder``, and a command to run over each.

    Args:
        folder: An empty folder.
        seed: Of what is drawn; the same seed makes the same cases.
        count: The number of models, half of either kind; None for all bombs and ``DAMAGED`` others.
    """
    dice = random.Random(seed)
    exploding, broken = list(bombs()), list(_damaged(dice, DAMAGED))
    if count is not None:
        exploding, broken = (dice.sample(each, min(len(each), count // 2)) for each in (exploding, broken))
    commands = itertools.chain.from_iterable(itertools.repeat(_shuffled(dice)))
    for number, (name, data) in enumerate([*exploding, *broken]):
        root = folder / f"m{number:04d}"
        (root / "folder" / "made").mkdir(parents=True)
        (root / "folder" / "model.onnx").write_bytes(data)
        yield Case(
            name=name,
            root=root,
            folder=root / "folder",
            commands=(next(commands),),
            made="folder/made",
            address_space=ADDRESS_SPACE,
        )


def _shuffled(dice: random.Random) -> Sequence[tuple[str, ...]]:
    """Each form of apply twice as often as each other command, in an order in which sizes do not meet the same ones."""
    found = [*APPLY, *APPLY, *OTHERS]
    dice.shuffle(found)
    return found


def _damaged(dice: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    sources = [path.read_bytes() for path in sorted(GOLDEN.glob("*/model.onnx"))]
    small = [data for data in sources if len(data) < 300_000]
    assert small, "the golden models are not there"
    for number in range(count):
        yield f"damaged {number}", damaged(dice, small)
