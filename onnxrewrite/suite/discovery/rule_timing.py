"""The gain of a rule where it applies: both sides of a site by turns, at several sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.checks.rewrites import sides
from onnxrewrite.errors import NOT_RUN
from onnxrewrite.inputs.sample import Sampler
from onnxrewrite.ir.target import Target
from onnxrewrite.measure.choice import MARGIN
from onnxrewrite.measure.site_benchmark import subject
from onnxrewrite.measure.timing import Interval, interleave, ratio
from onnxrewrite.rewrite.driver import make_runnable
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.trace import Site
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.runtime.session import as_proto
from onnxrewrite.runtime.settings import DEFAULT

SIZES = (1, 16, 64)
"""Beside the sizes that are typical, all named sizes of a site are made these."""

SECONDS = 0.4
"""The time for one site at one choice of sizes."""


@dataclass(frozen=True)
class SiteTime:
    """The time of a site after a rule, relative to that before.

    Attributes:
        value: The value that was replaced.
        sizes: The named sizes.
        ratio: Time after to time before: seconds of the processor, on one thread.
        seconds: The time before.
    """

    value: str
    sizes: Mapping[str, int]
    ratio: Interval
    seconds: float

    @property
    def is_faster(self) -> bool:
        """Faster beyond doubt, and by more than what counts as a difference."""
        return self.ratio.high < 1 and self.ratio.median < 1 - MARGIN


def times(
    rule: Rule, model: ir.Model, library: Sequence[Rule], target: Target, *, seed: int = 0, seconds: float = SECONDS
) -> list[SiteTime]:
    """The times of the first site of a rule in a model, at typical sizes and others; of those at which it runs.

    Args:
        rule: The rule.
        model: The model, as the rules of the stage find it; it is not changed.
        library: Rules of the lower stage, without which a raised operator may not run.
        target: The target.
        seed: Of the inputs.
        seconds: For each choice of sizes.
    """
    found: list[_Cut] = []

    def note(site: Site) -> str:
        """Cut the first site out, as long as its replacement is there."""
        both = sides(site) if site.rule == rule.name and not found else "only the first one"
        if not isinstance(both, str):
            found.append(_Cut(site.value, *both, dict(site.opset_imports)))
        return "only asked"

    Trial.of(rule, library, target.name).drive(model, note)
    taken = (_time(each, dims, library, target, seed, seconds) for each in found for dims in _sizes(each.before))
    kept = [t for t in taken if t is not None]
    return list({tuple(sorted(t.sizes.items())): t for t in kept}.values())


class _Cut(NamedTuple):
    """Both sides of a site."""

    value: str
    before: ir.Model
    after: ir.Model
    imports: dict[str, int]


def _sizes(part: ir.Model) -> Iterator[dict[str, int]]:
    yield {}
    names = [name for name in Sampler(as_proto(part)).symbols() if name.isidentifier()]
    if names:
        yield from (dict.fromkeys(names, size) for size in SIZES)


def _time(
    cut: _Cut, dims: Mapping[str, int], library: Sequence[Rule], target: Target, seed: int, seconds: float
) -> SiteTime | None:
    def lower(part: ir.Model) -> None:
        make_runnable(part, library, target)

    try:
        with subject(io.load(cut.before), io.load(cut.after), cut.imports, dims, lower, seed) as both:
            taken = interleave(both.runners(DEFAULT), seconds=seconds)
            sizes = dict(both.binding)
    except NOT_RUN:
        return None
    of_processor = DEFAULT.is_serial
    change = ratio(taken["after"], taken["before"], of_processor=of_processor)
    return SiteTime(cut.value, sizes, change, taken["before"].seconds(of_processor=of_processor))
