"""A whole model against the original, both as ONNX Runtime runs them by default; and who slows it down."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import onnx

from onnxrewrite.errors import NOT_RUN, ModelError
from onnxrewrite.inputs.workload import Workload
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.database.known import Database, Known
from onnxrewrite.measure.database.rows import Figures, Kind, Question
from onnxrewrite.measure.timing import (
    AT_ONCE,
    DOUBT,
    EARLY,
    FEWEST,
    HOPE,
    LEAST,
    LOOKS,
    OPENINGS,
    OUTSIDE,
    Allowance,
    Interval,
    Timing,
    interleave,
    ratio,
    runs_anew,
)
from onnxrewrite.runtime import references
from onnxrewrite.runtime.session import is_short_of_memory, skeleton, weight_bytes
from onnxrewrite.runtime.settings import DEFAULT, Level, Runner, Setting, open_runner
from onnxrewrite.system import resources

MARGIN = 0.02
"""A model that takes so much longer, and beyond doubt, is slower."""

OTHER_LEVELS: tuple[Level, ...] = ("extended", "basic")
"""Levels of ONNX Runtime's own optimization at which a model may be faster than with all of it."""

SECONDS = 1.5
"""To time a candidate and the original by turns, at the most."""

_ANEW = 4 * SECONDS
"""To run what is opened anew, at the most."""

CLOSE = 0.02
"""Half of this is a difference between two candidates that does not matter."""

_RATIO = "after/before"

PRECISION = 0.1
"""The width of the interval of a ratio, relative to it, from which it is no longer timed; half of the gain, if more."""

_PAIR = 2
"""The original and one candidate."""

_WARM = 2
"""So often a model is run before the rounds."""

_MEMORY = 0.75
"""The share of the free memory that both models may take."""

_NARROW = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


class Unopened(ModelError):
    """A candidate does not open as ONNX Runtime optimizes it, and the original does."""


class Comparison(Protocol):
    """Compares candidates with the original, whole models all of them.

    Attributes:
        margin: A model that costs so much more, and beyond doubt, costs more.
        close: Half of this is a difference between two candidates that does not matter.
    """

    margin: float
    close: float

    @property
    def is_time_up(self) -> bool:
        """True if nothing more is to be measured."""
        ...

    def against(self, candidate: onnx.ModelProto | str) -> Interval | None:
        """Cost of the candidate to that of the original; None where it is not known."""
        ...

    def race(self, candidates: Sequence[onnx.ModelProto | str]) -> list[Interval] | None:
        """Cost of each candidate to that of the original; None where one is not known."""
        ...

    def best_level(self, candidate: onnx.ModelProto | str) -> tuple[Level, Interval | None]:
        """The level of ONNX Runtime's optimization at which the candidate is fastest, and its time to that at all."""
        ...


@dataclass
class ABTiming:
    """Times candidates against the original.

    Args:
        original: The model as it was.
        workload: The sizes and inputs on which both are run.
        setting: The session settings of both.
        known: Earlier measurements.
        allowance: Seconds for all measurements; what would take longer is not measured.

    Attributes:
        measured: The number of candidates that were timed, not remembered.
        margin, close: See ``Comparison``.
    """

    original: onnx.ModelProto | str
    workload: Workload
    setting: Setting = DEFAULT
    known: Known = field(default_factory=Database)
    allowance: Allowance = field(default_factory=lambda: Allowance(math.inf))
    measured: int = 0
    margin: float = MARGIN
    close: float = CLOSE
    _runner: Runner | None = None

    def against(self, candidate: onnx.ModelProto | str) -> Interval | None:
        """Time of the candidate to that of the original, with or without time left for it; None where it is not known
        and may not be measured."""
        found = self.race([candidate])
        return found[0] if found is not None else None

    def race(self, candidates: Sequence[onnx.ModelProto | str]) -> list[Interval] | None:
        """Time of each candidate, of which no two are equal, to that of the original, all of them run by turns; None
        where one is not known and may not be measured.

        Raises:
            ModelError: They do not fit into the memory, or the original does not run.
            Unopened: A candidate does not open.
        """
        timed = dict[int, Figures]()

        def measured(number: int) -> Figures | None:
            if number not in timed:  # or asked for again
                timed.update(enumerate(self._raced(candidates)))
            return timed.pop(number, None)

        found = []
        for number, candidate in enumerate(candidates):
            asked = self._question("model", candidate, (_RATIO,))
            seen = self.known.recall(asked, functools.partial(measured, number))
            if seen is None:
                return None
            self.measured += not seen.remembered
            found.append(seen.ratios[_RATIO])
        return found

    def _raced(self, candidates: Sequence[onnx.ModelProto | str]) -> list[Figures]:
        """The figures of each candidate; none where there is no time for them."""
        least = self._rounds(1 + len(candidates))
        if not least:
            return []
        openers: dict[str, Callable[[], Runner]] = {
            str(i): functools.partial(self._runner_of, c) for i, c in enumerate(candidates)
        }
        tasks = {"": self._opened()}  # first: it says whether they fit into the memory
        tasks |= {name: opened() for name, opened in openers.items()}
        seconds = self.allowance.share(SECONDS * len(candidates))
        with self.allowance.spending():
            timings = interleave(tasks, seconds=seconds, least=least, enough=self._is_precise)
        if all(is_slower(self._seen(timings, name, "", OUTSIDE)) for name in openers):
            openers[""] = functools.partial(open_runner, self.original, self.workload.feeds, self.setting)
            timings = self._anew(openers, tasks, timings, self._is_settled) or timings
        pairs = ({"before": timings[""], "after": timings[str(i)]} for i in range(len(candidates)))
        return [rows.figures(pair, (_RATIO,), of_processor=self.setting.is_serial) for pair in pairs]

    def _anew(
        self,
        openers: Mapping[str, Callable[[], Runner]],
        tasks: dict[str, Runner],
        timings: Mapping[str, Timing],
        enough: Callable[[Mapping[str, Timing]], bool],
    ) -> dict[str, Timing] | None:
        """Timings of what is opened again and again instead of ``tasks``, which are closed; None where there is no time
        for that, or it fails.  A session that got bad places in memory is slower than another one of the same model, by
        a third."""
        opening, run = sum(t.creation for t in tasks.values()), sum(t.latency.median for t in timings.values())
        half = self.allowance.left / 2  # the rest is for those who ask further
        if OPENINGS[0] * (2 * opening + (_WARM + AT_ONCE) * run) > half:
            return None
        self._runner = None
        tasks.clear()
        with self.allowance.spending(), contextlib.suppress(*NOT_RUN):
            return runs_anew(openers, seconds=min(_ANEW, half), enough=enough)
        return None

    @property
    def is_time_up(self) -> bool:
        """True if the allowance is spent."""
        return self.allowance.left <= 0

    @cached_property
    def seconds(self) -> float:
        """Of the original, about; 0 where it does not run."""
        with contextlib.suppress(*NOT_RUN):
            timing = interleave({"": self._opened()}, seconds=0.0, least=FEWEST)[""]
            return timing.seconds(of_processor=self.setting.is_serial)
        return 0.0

    def _rounds(self, count: int) -> int:
        """The number of rounds that there is time for, of so many models, at the least; 0 if there is none.  A pair is
        always run a few times: that nothing gets slower is the greater promise."""
        rounds = (rounds for rounds in (LEAST, FEWEST) if (rounds + _WARM) * count * self.seconds < self.allowance.left)
        return next(rounds, FEWEST if count == _PAIR else 0)

    def _opened(self) -> Runner:
        if self._runner is None:
            needed, free = opened_bytes(self.original), resources.memory().available
            if needed > free * _MEMORY:
                raise ModelError(
                    f"side by side with the original it would take {needed / 1e9:.1f} GB of memory, "
                    f"{free / 1e9:.1f} GB of which are free"
                )
            self._runner = open_runner(self.original, self.workload.feeds, self.setting)
        return self._runner

    def _runner_of(self, candidate: onnx.ModelProto | str) -> Runner:
        try:
            return open_runner(candidate, self.workload.feeds, self.setting)
        except ModelError as error:
            raise error if is_short_of_memory(str(error)) else Unopened(str(error)) from error

    def best_level(self, candidate: onnx.ModelProto | str) -> tuple[Level, Interval | None]:
        """The level of ONNX Runtime's optimization at which the candidate is fastest, and its time to that at the level
        of the setting: this one unless another one is faster by the margin, beyond doubt."""
        names = {n: f"{n}/{self.setting.level}" for n in OTHER_LEVELS}
        asked = self._question("levels", candidate, tuple(names.values()))
        measure = functools.partial(self._timed_at_levels, candidate, asked.ratios)
        found = self.known.recall(asked, measure)
        if found is None:
            return self.setting.level, None
        level = min(OTHER_LEVELS, key=lambda n: found.ratios[names[n]].median)
        seen = found.ratios[names[level]]
        return (level, seen) if _is_faster(seen) else (self.setting.level, None)

    def _timed_at_levels(self, candidate: onnx.ModelProto | str, names: Sequence[str]) -> Figures | None:
        if not self._rounds(1 + len(OTHER_LEVELS)):
            return None
        self._runner = None
        settings = [replace(self.setting, level=name) for name in (self.setting.level, *OTHER_LEVELS)]
        feeds, level = self.workload.feeds, self.setting.level
        openers: dict[str, Callable[[], Runner]] = {
            s.level: functools.partial(open_runner, candidate, feeds, s) for s in settings
        }
        tasks = {name: opened() for name, opened in openers.items()}
        seconds = self.allowance.share(SECONDS)
        with self.allowance.spending():
            timings = interleave(tasks, seconds=seconds, enough=self._is_level_clear, looks=EARLY)
        if any(_is_faster(self._seen(timings, n, level, OUTSIDE)) for n in OTHER_LEVELS):
            anew = self._anew(openers, tasks, timings, self._is_level_clear)
            if anew is None:
                return None
            timings = anew
        return rows.figures(timings, names, of_processor=self.setting.is_serial)

    def _is_precise(self, timings: Mapping[str, Timing]) -> bool:
        """True if no candidate is likely to be faster than the fastest one by more than matters, and it is clear
        whether that is slower than the original, and by how much to a tenth, or to half of it."""
        first, *others = sorted(timings.keys() - {""}, key=lambda name: timings[name].cpu_seconds)
        seen = self._seen(timings, first, "")
        far = max(PRECISION * seen.median, abs(1 - seen.median) / 2)
        is_known = not seen.low < 1 + MARGIN < seen.high and seen.high - seen.low < far
        return is_known and all(self._seen(timings, o, first, HOPE).low > 1 - CLOSE / 2 for o in others)

    def _is_settled(self, timings: Mapping[str, Timing]) -> bool:
        """True if the fastest candidate is slower than the original beyond doubt, or not by more than the margin."""
        found = min((self._seen(timings, n, "") for n in timings.keys() - {""}), key=lambda seen: seen.median)
        return is_slower(found) or found.median <= 1 + MARGIN

    def _seen(self, timings: Mapping[str, Timing], of: str, to: str, outside: int = DOUBT) -> Interval:
        return ratio(timings[of], timings[to], of_processor=self.setting.is_serial, outside=outside)

    def _is_level_clear(self, timings: Mapping[str, Timing]) -> bool:
        """True if no other level is likely to be faster than the own one by the margin, or one certainly is."""
        own, is_long = self.setting.level, len(next(iter(timings.values())).wall) >= LOOKS[0]
        if all(self._seen(timings, n, own, HOPE).low > 1 - MARGIN for n in OTHER_LEVELS):
            return True
        return is_long and any(self._seen(timings, n, own).high < 1 - MARGIN for n in OTHER_LEVELS)

    def _question(self, kind: Kind, candidate: onnx.ModelProto | str, ratios: tuple[str, ...]) -> Question:
        """Whole models are told by their digests: their text may be long, and is nobody else's business."""
        region = "".join(f"{n} {model_text(m)}" for n, m in (("before", self.original), ("after", candidate)))
        return Question(kind, region, sizes_of(self.workload.binding), self.setting, ratios)


def model_text(model: onnx.ModelProto | str) -> str:
    """The text by which a whole model is told: a line with its digest."""
    return f"sha256:{_digest(model)}\n"


def sizes_of(binding: Mapping[str, int]) -> tuple[str, ...]:
    """The sizes at which a whole model is compared: ``batch=1``."""
    return tuple(f"{name}={size}" for name, size in sorted(binding.items()))


def opened_bytes(model: onnx.ModelProto | str) -> int:
    """The bytes that a model and its rewritten form take when ONNX Runtime has optimized both.

    They map the same weights; but what is stored in fewer bits than it is computed with, both hold in 32.
    """
    weights = skeleton(model).graph.initializer
    narrow: int = sum(math.prod(t.dims) for t in weights if t.data_type in _NARROW)
    return weight_bytes(model) + 2 * 4 * narrow


def is_slower(seen: Interval, most: float = 1 + MARGIN) -> bool:
    """Beyond doubt, and by more than the margin, or than ``most``."""
    return seen.low > 1 and seen.median > most


def _is_faster(seen: Interval) -> bool:
    """Beyond doubt, and by more than the margin."""
    return seen.high < 1 and seen.median < 1 - MARGIN


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
