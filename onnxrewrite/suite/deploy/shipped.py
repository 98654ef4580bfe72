"""The record that a deployed model is compared with later: digests, a few inputs with the original's outputs, and
figures in units of a yardstick, which another moment of the same machine has, too."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from onnxrewrite.errors import ModelError, one_line
from onnxrewrite.measure.database.machine_class import host
from onnxrewrite.measure.peak_memory import Use, used
from onnxrewrite.measure.timing import Interval, interleave_anew, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import Array, Feeds, Outputs
from onnxrewrite.system.plain import Json

REFERENCE = "reference.npz"
"""The file of inputs and outputs, beside the model."""

_SAMPLES, _BYTES = 8, 2**26
"""At most so many samples, of so many bytes together, are kept."""

_KINDS = "biufc"
"""Kinds of dtypes that the file can hold."""

Pair = tuple[Feeds, Outputs]


@dataclass(frozen=True)
class Figures:
    """The figures of a model that runs alone.

    Attributes:
        latency: Time of one run to that of the yardstick.
        creation: Time to open it, likewise.
        memory: Bytes at the peak of a process that opens and runs it; None where that was not measured.
        processor: The name of the processor.
        cores: The number of useful threads.
    """

    latency: Interval
    creation: Interval
    memory: int | None
    processor: str
    cores: int

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        plain: dict[str, Json] = asdict(self)
        return plain


def figures(path: Path, setting: Setting, feeds: Feeds, *, seconds: float, memory: bool) -> Figures:
    """The figures of a model, measured now.

    Args:
        path: The file that a session opens.
        setting: Its setting.
        feeds: Its inputs.
        seconds: To run the model and the yardstick by turns.
        memory: True if memory is measured, which takes a process.

    Raises:
        ModelError: It does not open or run.
    """
    openers: dict[str, Callable[[], Callable[[], object]]] = {
        "model": lambda: open_runner(path, feeds, setting),
        "yardstick": lambda: yardstick,
    }
    found = interleave_anew(openers, seconds=seconds)
    (opening, running), (_, unit) = found["model"], found["yardstick"]
    serial = setting.is_serial
    peak = None
    if memory:
        (told,) = (u for _, u in used([Use("model", path, feeds, setting)]))
        if told.failure:
            raise ModelError(f"{path.name} does not run in a process of its own: {told.failure}")
        peak = told.peak
    here = host()
    return Figures(
        ratio(running, unit, of_processor=serial),
        ratio(opening, unit, of_processor=serial),
        peak,
        here.processor,
        here.facts.cores,
    )


_X = np.linspace(-1, 1, 2**16, dtype=np.float32)
_A = np.linspace(0, 1, 48 * 48, dtype=np.float32).reshape(48, 48)


def yardstick() -> Array:
    """Work of numpy in one thread, of about a millisecond: a product that fits a core, and a pass over memory."""
    made = _A
    for _ in range(24):
        made = (_A @ made) * np.float32(1 / 24)
    for _ in range(16):
        np.multiply(_X, _X) + _X
    return made


def kept(pairs: Iterator[Pair]) -> list[Pair]:
    """The first pairs, as many as the file holds; none of the first if it holds what the file cannot."""
    found: list[Pair] = []
    left = _BYTES
    for inputs, outputs in pairs:
        values = [*inputs.values(), *outputs.values()]
        arrays = [np.asarray(v) for v in values if not isinstance(v, list)]
        if len(arrays) < len(values) or any(a.dtype.kind not in _KINDS for a in arrays):
            break
        left -= sum(a.nbytes for a in arrays)
        if left < 0 or len(found) == _SAMPLES:
            break
        found.append((inputs, outputs))
    return found


def save_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    """Write pairs to a file, whole; the same pairs give the same bytes.

    Raises:
        OSError: It cannot be written.
    """
    arrays: dict[str, Array] = {}
    names: list[list[list[str]]] = []
    for inputs, outputs in pairs:
        names.append([list(inputs), list(outputs)])
        for value in (*inputs.values(), *outputs.values()):
            arrays[f"a{len(arrays)}"] = np.asarray(value)
    arrays["names"] = np.array(json.dumps(names))
    with temporary.beside(path) as made:
        with made.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        made.replace(path)


def load_pairs(path: Path) -> list[Pair]:
    """The pairs of a file.

    Raises:
        ModelError: It is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Mapping[str, Array] = {name: file[name] for name in file.files}
        names, at = json.loads(str(arrays["names"])), 0
        found: list[Pair] = []
        for inputs, outputs in names:
            values = [arrays[f"a{at + n}"] for n in range(len(inputs) + len(outputs))]
            at += len(values)
            given, made = values[: len(inputs)], values[len(inputs) :]
            found.append((dict(zip(inputs, given, strict=True)), dict(zip(outputs, made, strict=True))))
        return found
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{path}: is damaged: {one_line(error)}") from None
