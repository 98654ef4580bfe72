"""Rewrites of the lower stage weighed: both sides on one scale, the clock or another cost.

By itself a rewrite is taken unless it costs more, one that promises nothing but speed, or takes something for granted
of the data, only if it costs less.  Which of those that compete for the same nodes are taken is decided for the whole
model: see ``kernel_program.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from onnxrewrite.checks.likeness import structure
from onnxrewrite.checks.rewrites import sides
from onnxrewrite.errors import NOT_RUN, reason
from onnxrewrite.measure.database.known import Known
from onnxrewrite.measure.site_benchmark import Subject, subject
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Key, Site
from onnxrewrite.runtime.settings import Setting

MARGIN = 0.03
"""A difference of less than this is none, where it is measured."""


@dataclass(frozen=True)
class Weighed:
    """The cost of one rewrite relative to what it replaces, and where the figure is from.

    Attributes:
        ratio: Cost after to cost before, at the median and with an interval.
        seconds: The cost before: seconds, or by a cost model the part of the whole model's cost.
        remembered: True if it was measured in an earlier run.
        places: The number of places where it was met.
        taken: The number of those where it was applied.
        margin: A difference of less than this is none.
    """

    rule: str
    ratio: Interval
    seconds: float
    remembered: bool
    places: int = 0
    taken: int = 0
    margin: float = MARGIN

    @property
    def is_slower(self) -> bool:
        """Slower beyond doubt and by more than the margin."""
        return self.ratio.low > 1 and self.ratio.median > 1 + self.margin

    @property
    def is_faster(self) -> bool:
        """Faster, likewise."""
        return self.ratio.high < 1 and self.ratio.median < 1 - self.margin


class Scale(Protocol):
    """Weighs rewrites, one side against the other.

    Attributes:
        setting: The session settings with which the model will be run.
        known: Earlier measurements, and the reason where there is none.
        more: The words for a rewrite that costs more.
        not_less: The words for one that does not cost less.
    """

    setting: Setting
    known: Known
    more: str
    not_less: str

    def weigh(self, rule: Rule, found: Subject) -> Weighed | str:
        """The cost of a rewrite, or the reason why it is not known.

        Raises:
            ModelError: One side does not open.
        """
        ...


@dataclass
class Chooser:
    """Weighs rewrites where they are, and says which of them pay.

    Args:
        rules: The rules by name.
        lower: Makes the model of a replacement runnable.
        dims: Sizes of the model's dimensions, at which it is measured.
        scale: Weighs both sides.
        seed: Of the inputs.

    Attributes:
        assumed: Rewrites that could not be weighed, and why.
    """

    rules: Mapping[str, Rule]
    lower: Callable[[ir.Model], None]
    dims: Mapping[str, int]
    scale: Scale
    seed: int = 0
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
            return self.scale.more if weighed.ratio.median > 1 else self.scale.not_less
        if asked.assumes and weighed.ratio.high >= 1:
            return f"{self.scale.not_less}, and that {asked.assumes[0]} would be taken for granted"
        return None

    def _known(self, site: Site, old: ir.Model, new: ir.Model) -> Weighed | str:
        name = structure(old, new)
        if name not in self._seen:
            try:
                with subject(old, new, site.opset_imports, self.dims, self.lower, self.seed) as found:
                    self._seen[name] = self.scale.weigh(self.rules[site.rule], found)
            except NOT_RUN as error:
                self._seen[name] = reason(error)
        return self._seen[name]
