"""The way on from a model that is refused: the nodes that are furthest off, and the fewest to give another form.

Products are first given weights in blocks, where the mode has them beside others, which is closer and hardly slower;
where that is not enough, nodes stay in float.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onnxrewrite.errors import CheckError
from onnxrewrite.suite.precision.candidates import Candidates
from onnxrewrite.suite.precision.node_sensitivity import sensitivity
from onnxrewrite.suite.precision.teacher_forcing import node_errors
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.made_model import Made
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, excluding
from onnxrewrite.suite.quantization.weight_format import closer_form
from onnxrewrite.suite.quantization.workbench import Work

WORST = 3
"""So many nodes are named."""

MANY = 60
"""From so many nodes on they are ranked in one run, not one by one."""


def variants(work: Work, settings: QuantizeSettings) -> Candidates:
    """The quantized variants of the model of a work, on its data."""
    ready, chosen = work.chosen(settings)
    plan = replace(settings, smooth=False)  # the prepared model is smooth already
    return Candidates(ready, plan, work.calibration_data, work.judged_data, chosen, work.metric)


def _by_own_error(made: Candidates) -> list[str]:
    """The nodes in the order of the errors of their own results, the furthest off first."""
    gc.collect()  # graphs and sessions refer to themselves in circles, and hold all weights of a model each
    found = node_errors(made)
    return sorted(made.nodes, key=lambda name: found[name].snr if name in found else float("inf"))


def worst_nodes(work: Work, settings: QuantizeSettings) -> str:
    """The nodes whose own results are furthest off, in one line; empty if they cannot be compared."""
    ranked = [each for each in sensitivity(variants(work, settings), method="local") if each.snr < float("inf")]
    return ", ".join(f"{each.operator} {each.name} ({each.snr:.1f} dB)" for each in ranked[:WORST])


def settings_until(
    work: Work,
    settings: QuantizeSettings,
    gate: Gate,
    *,
    fused: bool = True,
    many: int = MANY,
    left: Callable[[], float] = lambda: math.inf,
) -> QuantizeSettings:
    """The settings with the fewest of the most sensitive nodes given another form with which the model passes a gate.

    Found by doubling and bisection.  Quality need not grow with every node, so that fewer may suffice.

    Args:
        work: The model and the data.
        settings: What it is quantized by.
        gate: The required quality.
        fused: Judge with operators fused, as the model is written; else as the quantizer leaves it, in a fraction of
            the time.
        many: From so many nodes on they are ranked in one run, not one by one.
        left: Seconds until a budget is spent; the fewest that are known to pass by then count.

    Raises:
        CheckError: It does not pass whatever is done, or not before the budget is spent; the nearest result is told.
        UsageError, ModelError: As of ``Work.make``.
    """
    search = _Search(work, gate, work.make if fused else work.unfused, left)
    if search.passes(settings):
        return settings
    made = variants(work, settings)
    ranked = sensitivity(made, progress=work.progress).names if len(made.nodes) < many else _by_own_error(made)
    if settings.mode == "dynamic":
        products = {node.name or "": node for node in made.float_model.graph}
        fitting = [name for name in ranked if closer_form(products[name]) is not None]
        found = search.fewest(fitting, lambda names: replace(settings, in_blocks=(*settings.in_blocks, *names)))
        if found is not None:
            return found
    found = search.fewest(ranked, lambda names: excluding(settings, names))
    if search.is_over and found is None:
        raise CheckError(
            "the budget was spent before a choice of nodes in float was good enough; "
            f"the nearest comes to {1 - search.drop:.6g}, with {search.count} of {len(ranked)} nodes in float"
        )
    if found is None or not work.chosen(found)[1]:
        raise CheckError(
            "no choice of nodes in float is good enough, and nothing was written; "
            f"the nearest comes to {1 - search.drop:.6g}, with {search.count} of {len(ranked)} nodes in float"
        )
    return found


@dataclass
class _Search:
    """The search for the fewest nodes; ``drop`` and ``count`` are those of the nearest result."""

    work: Work
    gate: Gate
    make: Callable[[QuantizeSettings], Made]
    left: Callable[[], float]
    drop: float = float("inf")
    count: int = 0

    @property
    def is_over(self) -> bool:
        """True if the budget is spent."""
        return self.left() <= 0

    def passes(self, settings: QuantizeSettings) -> bool:
        """True if a model by these settings is good enough; where nothing is quantized it is."""
        if not self.work.chosen(settings)[1]:
            return True
        quality = self.work.quality(self.make(settings))
        given = len(settings.exclude) + len(settings.in_blocks)
        self.drop, self.count = min((self.drop, self.count), (quality.drop, given))
        return not self.gate.refuses(quality)

    def fewest(
        self, names: Sequence[str], settings_of: Callable[[Sequence[str]], QuantizeSettings]
    ) -> QuantizeSettings | None:
        """The settings of the fewest names, from the first one on, with which it passes; None where it never does, or
        not before the budget is spent."""
        low, high = 0, 1  # it fails with the first ``low``
        while not self.passes(settings_of(names[:high])):
            if high >= len(names) or self.is_over:
                return None
            low, high = high, min(2 * high, len(names))
        while high - low > 1 and not self.is_over:
            middle = (low + high) // 2
            low, high = (low, middle) if self.passes(settings_of(names[:middle])) else (middle, high)
        return settings_of(names[:high])
