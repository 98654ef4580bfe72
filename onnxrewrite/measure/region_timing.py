"""The clock as the scale of rewrites: both sides timed by turns, as ONNX Runtime would run them, and remembered."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from google.protobuf.message import DecodeError

from onnxrewrite.errors import ModelError
from onnxrewrite.measure import region_text
from onnxrewrite.measure.choice import MARGIN, Weighed
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.database.known import Database, Known
from onnxrewrite.measure.database.rows import Figures, Question
from onnxrewrite.measure.site_benchmark import SIDES, Subject
from onnxrewrite.measure.timing import (
    DOUBT,
    FEWEST,
    HOPE,
    LOOKS,
    OUTSIDE,
    Allowance,
    Interval,
    Timing,
    interleave,
    ratio,
)
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.runtime.native import CPU
from onnxrewrite.runtime.session import weight_bytes
from onnxrewrite.runtime.settings import DEFAULT, Runner, Setting
from onnxrewrite.system import temporary

_LONGEST = 0.4
"""Seconds for one rewrite, as long as it is not clear."""

_SAMPLE = 1e-3
"""Seconds that one sample of it takes: half of what is usual, for there are many, and nobody is told the time."""

_NEGLIGIBLE = 1e-3
"""A rewrite that gains or loses less than this part of the model's time need not be clear."""

_READ = 16_000_000
"""Bytes of weights up to which it is read what ONNX Runtime makes of a side: that holds them, too."""

_RATIO = "after/before"

BUDGET = 20.0
"""Seconds for all that is measured of a model, by default."""

WHOLE = 2.0
"""So many of them are kept for whole models."""


@dataclass
class RegionTiming:
    """Times rewrites.

    Args:
        setting: The session settings with which the model will be run.
        allowance: Seconds for all measurements; what is met later is taken for granted.
        known: Earlier measurements.
        whole: Tells the seconds that the whole model takes; 0 where that is not known.
    """

    setting: Setting = DEFAULT
    allowance: Allowance = field(default_factory=lambda: Allowance(BUDGET))
    known: Known = field(default_factory=Database)
    whole: Callable[[], float] = lambda: 0.0
    more: str = "measured slower"
    not_less: str = "measured not faster"
    _weighed: dict[str, Weighed] = field(default_factory=dict)
    """By the digest of what was asked."""

    def weigh(self, rule: Rule, found: Subject) -> Weighed | str:
        """The time of a rewrite, remembered or measured now, or the reason why it is not known.

        Raises:
            ModelError: One side does not open.
        """
        asked = self._question(rule, found)
        if asked.digest in self._weighed:
            return self._weighed[asked.digest]
        seen = self.known.recall(asked, functools.partial(self._timed, found, self._limits(rule)))
        if seen is None:
            return self.known.missing
        self._weighed[asked.digest] = Weighed(rule.name, seen.ratios[_RATIO], seen.seconds["before"], seen.remembered)
        return self._weighed[asked.digest]

    def _question(self, rule: Rule, found: Subject) -> Question:
        text, sizes = region_text.region(found), region_text.sizes(found)
        return Question("rewrite", text, sizes, self.setting, (_RATIO,), rows.digests(rule))

    def _limits(self, rule: Rule) -> list[float]:
        """The ratios on which the decision on a rewrite depends."""
        return [1 - MARGIN if rule.needs_speedup else 1 + MARGIN, *([1.0] if rule.assumes else [])]

    def _timed(self, subject: Subject, limits: Sequence[float]) -> Figures | None:
        """Time after to time before, timed until no limit lies within the interval; None where no time is left."""
        seconds = self.allowance.share(_LONGEST, kept=WHOLE)
        if not seconds:
            return None
        with self.allowance.spending():
            runners, are_one = _opened(subject, self.setting)
            if are_one:
                alone = interleave({"before": runners["before"]}, seconds=0.0, least=FEWEST, sample=_SAMPLE)["before"]
                timings = dict.fromkeys(SIDES, alone)
            else:
                is_clear = functools.partial(self._is_clear, limits=limits)
                timings = interleave(runners, seconds=seconds, sample=_SAMPLE, enough=is_clear)
        outside = OUTSIDE if len(timings["after"].wall) not in LOOKS else DOUBT
        return rows.figures(timings, (_RATIO,), of_processor=self.setting.is_serial, outside=outside)

    def _is_clear(self, timings: Mapping[str, Timing], limits: Sequence[float]) -> bool:
        """True if no limit lies within the interval, there is no hope to be faster where that is needed, or it is of no
        weight on which side of a limit the ratio lies."""
        serial = self.setting.is_serial
        found = ratio(timings["after"], timings["before"], of_processor=serial, outside=DOUBT)
        if not any(found.low < limit < found.high and not _is_near(found, limit) for limit in limits):
            return True
        hoped = ratio(timings["after"], timings["before"], of_processor=serial, outside=HOPE)
        if limits[0] < 1 and hoped.low > limits[0]:
            return True
        most = max(abs(1 - found.low), abs(1 - found.high)) * timings["before"].seconds(of_processor=serial)
        return most < _NEGLIGIBLE * self.whole()


def _opened(subject: Subject, setting: Setting) -> tuple[dict[str, Runner], bool]:
    """Both sides, ready to run, and whether ONNX Runtime makes the same of them: then one takes as long as the other,
    and a clock could only err."""
    if setting.provider == CPU and all(weight_bytes(getattr(subject, side)) <= _READ for side in SIDES):
        with temporary.folder() as folder, contextlib.suppress(ModelError, DecodeError, OSError):
            runners = subject.runners(setting, folder)
            made = {region_text.printed(onnx.load(folder / side)) for side in SIDES}
            return runners, len(made) == 1
    return subject.runners(setting), False  # also where what it makes cannot be written


def _is_near(found: Interval, limit: float) -> bool:
    """True if it does not matter on which side of a limit a ratio lies, as long as it is not that of being faster."""
    return limit != 1 and limit - MARGIN < found.low and found.high < limit + MARGIN
