"""A cost model as the scale of rewrites and of whole models, in place of the clock: nothing is run or remembered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import onnx

from onnxrewrite.errors import CostError, described, foreign
from onnxrewrite.measure import region_text
from onnxrewrite.measure.ab_timing import model_text, sizes_of
from onnxrewrite.measure.choice import Weighed
from onnxrewrite.measure.cost_models import Cost, Region, name_of
from onnxrewrite.measure.database.known import Frozen, Known
from onnxrewrite.measure.site_benchmark import Subject
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.runtime.settings import DEFAULT, Level, Setting
from onnxrewrite.system.arrays import Feeds

_LEAST = 1e-9
"""What costs nothing is taken to cost this part of what it is compared with: there is no multiple of nothing."""


@dataclass
class CostComparison:
    """Compares by a cost model; a difference of whatever size is one.  It is a ``Scale`` and a ``Comparison``.

    Args:
        original: The model as it was.
        binding: The sizes of its named dimensions.
        feeds: Its inputs, where they are known.
        cost: The cost model.
    """

    original: onnx.ModelProto | str
    binding: Mapping[str, int]
    feeds: Feeds
    cost: Cost
    setting: Setting = DEFAULT
    margin: float = 0.0
    close: float = 0.0
    known: Known = field(init=False)

    def __post_init__(self) -> None:
        self.known = Frozen({}, f"{name_of(self.cost)} does not know its cost")
        self.more = f"costs more by {name_of(self.cost)}"
        self.not_less = f"costs no less by {name_of(self.cost)}"

    @property
    def is_time_up(self) -> bool:
        """False: it takes no time that is told."""
        return False

    def weigh(self, rule: Rule, found: Subject) -> Weighed | str:
        """See ``Scale``: the cost before is told as a part of the whole model's, where that is known."""
        sizes = partial(region_text.sizes, found)
        before, after = (
            self._of(Region(side, found.binding, lambda: found.feeds, _told(side, sizes)))
            for side in (found.before, found.after)
        )
        if before is None or after is None:
            return self.known.missing
        least = max(before, _LEAST * after)
        return Weighed(rule.name, _ratio(before, after), least / (self._whole or 1.0), remembered=False, margin=0.0)

    def against(self, candidate: onnx.ModelProto | str) -> Interval | None:
        """See ``Comparison``."""
        before, after = self._whole, self._of_model(candidate)
        return None if before is None or after is None else _ratio(before, after)

    def race(self, candidates: Sequence[onnx.ModelProto | str]) -> list[Interval] | None:
        """See ``Comparison``."""
        found = [self.against(candidate) for candidate in candidates]
        known = [each for each in found if each is not None]
        return known if len(known) == len(found) else None

    def best_level(self, candidate: onnx.ModelProto | str) -> tuple[Level, Interval | None]:
        """See ``Comparison``; levels are no matter of a cost model."""
        return self.setting.level, None

    @cached_property
    def _whole(self) -> float | None:
        return self._of_model(self.original)

    def _of_model(self, model: onnx.ModelProto | str) -> float | None:
        return self._of(Region(model, self.binding, lambda: self.feeds, lambda: (model_text(model), self._sizes)))

    @property
    def _sizes(self) -> tuple[str, ...]:
        return sizes_of(self.binding)

    def _of(self, region: Region) -> float | None:
        """The cost of a region.

        Raises:
            CostError: The cost model raises an error, or gives something else than a number that is not negative.
        """
        name = name_of(self.cost)
        try:
            with foreign():
                found = self.cost.of(region)
        except Exception as error:
            raise CostError(f"the cost model {name} raised {described(error)}") from error
        if found is not None and not (isinstance(found, int | float) and math.isfinite(found) and found >= 0):
            raise CostError(f"the cost model {name} gave {found!r}; give a number that is not negative, or None")
        return found


def _told(side: onnx.ModelProto, sizes: partial[tuple[str, ...]]) -> partial[tuple[str, tuple[str, ...]]]:
    return partial(lambda: (region_text.printed(side), sizes()))


def _ratio(before: float, after: float) -> Interval:
    least = max(before, _LEAST * after)
    ratio = after / least if least else 1.0
    return Interval(ratio, ratio, ratio)
