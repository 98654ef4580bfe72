"""Rewrites of the lower stage weighed: both sides timed side by side, as ONNX Runtime would run them.

By itself a rewrite is taken unless it is measured to be slower, one that promises nothing but speed, or takes something
for granted of the data, only if it is measured to be faster.  Which of those that compete for the same nodes are taken
is decided for the whole model: see ``kernel_program.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.checks.likeness import structure
from onnxrewrite.checks.rewrites import sides
from onnxrewrite.errors import NOT_RUN, reason
from onnxrewrite.measure import region_text
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.database.known import Database, Known
from onnxrewrite.measure.database.rows import Figures, Question
from onnxrewrite.measure.site_benchmark import Subject, subject
from onnxrewrite.measure.timing import DOUBT, LOOKS, Allowance, Interval, Timing, interleave, ratio
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Key, Site
from onnxrewrite.runtime.settings import DEFAULT, Setting

MARGIN = 0.03
"""A difference of less than this is none."""

_LONGEST = 0.4
"""Seconds for one rewrite, as long as it is not clear."""

_NEGLIGIBLE = 1e-3
"""A rewrite that gains or loses less than this part of the model's time need not be clear."""

_RATIO = "after/before"

BUDGET = 20.0
"""Seconds for all that is measured of a model, by default."""

WHOLE = 2.0
"""So many of them are kept for whole models."""


@dataclass(frozen=True)
class Weighed:
    """The time of one rewrite relative to what it replaces, and where the figure is from.

    Attributes:
        ratio: Time after to time before, at the median and with an interval.
        seconds: The time before.
        remembered: True if it was measured in an earlier run.
        places: The number of places where it was met.
        taken: The number of those where it was applied.
    """

    rule: str
    ratio: Interval
    seconds: float
    remembered: bool
    places: int = 0
    taken: int = 0

    @property
    def is_slower(self) -> bool:
        """Slower beyond doubt and by more than the margin."""
        return self.ratio.low > 1 and self.ratio.median > 1 + MARGIN

    @property
    def is_faster(self) -> bool:
        """Faster, likewise."""
        return self.ratio.high < 1 and self.ratio.median < 1 - MARGIN


@dataclass
class Chooser:
    """Weighs rewrites.

    Args:
        rules: The rules by name.
        lower: Makes the model of a replacement runnable.
        dims: Sizes of the model's dimensions, at which it is measured.
        setting: The session settings with which the model will be run.
        seed: Of the inputs.
        allowance: Seconds for all measurements; what is met later is taken for granted.
        known: Earlier measurements.
        whole: Tells the seconds that the whole model takes; 0 where that is not known.

    Attributes:
        weighed: The measured rewrites, by the digest of what was asked.
        assumed: Rewrites that could not be measured, and why.
    """

    rules: Mapping[str, Rule]
    lower: Callable[[ir.Model], None]
    dims: Mapping[str, int]
    setting: Setting = DEFAULT
    seed: int = 0
    allowance: Allowance = field(default_factory=lambda: Allowance(BUDGET))
    known: Known = field(default_factory=Database)
    whole: Callable[[], float] = lambda: 0.0
    weighed: dict[str, Weighed] = field(default_factory=dict)
    assumed: dict[Key, str] = field(default_factory=dict)
    _seen: dict[str, Weighed | str] = field(default_factory=dict)

    def site(self, site: Site) -> Weighed | str:
        """A rewrite weighed where it is, or why it cannot be; equal sites are not made ready to run again."""
        found = sides(site)
        weighed = found if isinstance(found, str) else self._known(site, *found)
        if isinstance(weighed, str):
            self.assumed[site.key] = weighed
        return weighed

    def loss(self, rule: str, weighed: Weighed | str) -> str | None:
        """None if a rewrite pays by itself, else why not."""
        asked = self.rules[rule]
        if isinstance(weighed, str):
            return f"not measured: {weighed}" if asked.needs_speedup else None
        if weighed.is_slower or (asked.needs_speedup and not weighed.is_faster):
            return f"measured {'slower' if weighed.ratio.median > 1 else 'not faster'}"
        if asked.assumes and weighed.ratio.high >= 1:
            return f"measured not faster, and that {asked.assumes[0]} would be taken for granted"
        return None

    def _known(self, site: Site, old: ir.Model, new: ir.Model) -> Weighed | str:
        name = structure(old, new)
        if name not in self._seen:
            try:
                with subject(old, new, site.opset_imports, self.dims, self.lower, self.seed) as found:
                    self._seen[name] = self.weigh(site.rule, found)
            except NOT_RUN as error:
                self._seen[name] = reason(error)
        return self._seen[name]

    def weigh(self, rule: str, found: Subject) -> Weighed | str:
        """The time of a rewrite, remembered or measured now, or the reason why it is not known.

        Raises:
            ModelError: One side does not open.
        """
        asked = self._question(rule, found)
        if asked.digest in self.weighed:
            return self.weighed[asked.digest]
        seen = self.known.recall(asked, functools.partial(self._timed, found, self._limits(rule)))
        if seen is None:
            return self.known.missing
        self.weighed[asked.digest] = Weighed(rule, seen.ratios[_RATIO], seen.seconds["before"], seen.remembered)
        return self.weighed[asked.digest]

    def _question(self, rule: str, found: Subject) -> Question:
        text, sizes = region_text.region(found), region_text.sizes(found)
        return Question("rewrite", text, sizes, self.setting, (_RATIO,), rows.digests(self.rules[rule]))

    def _limits(self, rule: str) -> list[float]:
        """The ratios on which the decision on a rewrite depends."""
        found = self.rules[rule]
        return [1 + MARGIN, *([1 - MARGIN] if found.needs_speedup else []), *([1.0] if found.assumes else [])]

    def _timed(self, subject: Subject, limits: Sequence[float]) -> Figures | None:
        """Time after to time before, timed until no limit lies within the interval; None where no time is left."""
        seconds = self.allowance.share(_LONGEST, kept=WHOLE)
        if not seconds:
            return None

        def is_clear(timings: Mapping[str, Timing]) -> bool:
            found = ratio(timings["after"], timings["before"], of_processor=self.setting.is_serial, outside=DOUBT)
            is_open = any(found.low < limit < found.high and not _is_near(found, limit) for limit in limits)
            most = max(abs(1 - found.low), abs(1 - found.high)) * timings["before"].seconds(
                of_processor=self.setting.is_serial
            )
            return not is_open or most < _NEGLIGIBLE * self.whole()

        with self.allowance.spending():
            timings = interleave(subject.runners(self.setting), seconds=seconds, enough=is_clear)
        outside = 40 if len(timings["after"].wall) not in LOOKS else DOUBT
        return rows.figures(timings, (_RATIO,), of_processor=self.setting.is_serial, outside=outside)


def _is_near(found: Interval, limit: float) -> bool:
    """True if it does not matter on which side of a limit a ratio lies, as long as it is not that of being faster."""
    return limit != 1 and limit - MARGIN < found.low and found.high < limit + MARGIN
