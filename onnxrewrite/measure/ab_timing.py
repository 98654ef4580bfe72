"""A whole model against the original, both as ONNX Runtime runs them by default; and who slows it down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from onnxrewrite.inputs.workload import Workload
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.database.known import Database, Known
from onnxrewrite.measure.database.rows import Figures, Kind, Question
from onnxrewrite.measure.timing import DOUBT, Interval, Timing, interleave, ratio
from onnxrewrite.runtime import references
from onnxrewrite.runtime.settings import DEFAULT, Level, Runner, Setting, open_runner

MARGIN = 0.02
"""A model that takes so much longer, and beyond doubt, is slower."""

OTHER_LEVELS: tuple[Level, ...] = ("extended", "basic")
"""Levels of ONNX Runtime's own optimization at which a model may be faster than with all of it."""

SECONDS = 1.5
"""To time all variants by turns, at the most."""

_RATIO = "after/before"

PRECISION = 0.1
"""The width of the interval of a ratio, relative to it, from which it is no longer timed."""


@dataclass
class ABTiming:
    """Times candidates against the original.

    Args:
        original: The model as it was.
        workload: The sizes and inputs on which both are run.
        setting: The session settings of both.
        known: Earlier measurements.

    Attributes:
        measured: The number of candidates that were timed, not remembered.
    """

    original: onnx.ModelProto | str
    workload: Workload
    setting: Setting = DEFAULT
    known: Known = field(default_factory=Database)
    measured: int = 0
    _runner: Runner | None = None

    def against(self, candidate: onnx.ModelProto | str) -> Interval | None:
        """Time of the candidate to that of the original; None where it is not known and may not be measured."""
        found = self.known.recall(self._question("model", candidate, (_RATIO,)), lambda: self._timed(candidate))
        self.measured += found is not None and not found.remembered
        return found.ratios[_RATIO] if found is not None else None

    def _timed(self, candidate: onnx.ModelProto | str) -> Figures:
        if self._runner is None:
            self._runner = open_runner(self.original, self.workload.feeds, self.setting)
        tasks = {"before": self._runner, "after": open_runner(candidate, self.workload.feeds, self.setting)}
        timings = interleave(tasks, seconds=SECONDS, enough=self._is_precise)
        return rows.figures(timings, (_RATIO,), of_processor=self.setting.is_serial)

    def best_level(self, candidate: onnx.ModelProto | str) -> tuple[Level, Interval | None]:
        """The level of ONNX Runtime's optimization at which the candidate is fastest, and its time to that at the level
        of the setting: this one unless another one is faster by the margin, beyond doubt."""
        names = {n: f"{n}/{self.setting.level}" for n in OTHER_LEVELS}
        asked = self._question("levels", candidate, tuple(names.values()))
        found = self.known.recall(asked, lambda: self._timed_at_levels(candidate, asked.ratios))
        if found is None:
            return self.setting.level, None
        level = min(OTHER_LEVELS, key=lambda n: found.ratios[names[n]].median)
        seen = found.ratios[names[level]]
        return (level, seen) if seen.high < 1 and seen.median < 1 - MARGIN else (self.setting.level, None)

    def _timed_at_levels(self, candidate: onnx.ModelProto | str, names: Sequence[str]) -> Figures:
        self._runner = None
        settings = [replace(self.setting, level=level) for level in (self.setting.level, *OTHER_LEVELS)]
        tasks: dict[str, Runner] = {s.level: open_runner(candidate, self.workload.feeds, s) for s in settings}
        timings = interleave(tasks, seconds=SECONDS, enough=self._is_no_faster)
        return rows.figures(timings, names, of_processor=self.setting.is_serial)

    def _is_precise(self, timings: Mapping[str, Timing]) -> bool:
        """True if it is clear whether the candidate is slower, and by how much to a tenth."""
        seen = ratio(timings["after"], timings["before"], of_processor=self.setting.is_serial, outside=DOUBT)
        return not seen.low < 1 + MARGIN < seen.high and seen.high - seen.low < PRECISION * seen.median

    def _is_no_faster(self, timings: Mapping[str, Timing]) -> bool:
        """True if no other level is faster than the own one by the margin."""
        own, serial = timings[self.setting.level], self.setting.is_serial
        return all(ratio(timings[n], own, of_processor=serial, outside=DOUBT).low > 1 - MARGIN for n in OTHER_LEVELS)

    def _question(self, kind: Kind, candidate: onnx.ModelProto | str, ratios: tuple[str, ...]) -> Question:
        """Whole models are told by their digests: their text may be long, and is nobody else's business."""
        region = "".join(f"{n} sha256:{_digest(m)}\n" for n, m in (("before", self.original), ("after", candidate)))
        sizes = tuple(f"{name}={size}" for name, size in sorted(self.workload.binding.items()))
        return Question(kind, region, sizes, self.setting, ratios)


def is_slower(seen: Interval, most: float = 1 + MARGIN) -> bool:
    """Beyond doubt, and by more than the margin, or than ``most``."""
    return seen.low > 1 and seen.median > most


def slowest(groups: Sequence[str], is_slow: Callable[[Sequence[str]], bool]) -> str | None:
    """The one of ``groups`` that makes a model slow: it is slow without those before it, and not without it, too; None
    where it is not slow, or is without all of them.

    Args:
        groups: The names of what can be left out.
        is_slow: True if the model is slow without the given ones.
    """
    if not groups or is_slow(groups) or not is_slow(()):
        return None
    low, high = 0, len(groups)  # slow without the first ``low``, not without the first ``high``
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_slow(groups[:middle]) else (low, middle)
    return groups[high - 1]


def _digest(model: onnx.ModelProto | str) -> str:
    if isinstance(model, str):
        with open(model, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return references.digest(model)
