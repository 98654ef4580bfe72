"""The way on from a model that is refused: the nodes that are furthest off, and the fewest to leave in float."""

from __future__ import annotations

from onnxrewrite.errors import CheckError
from onnxrewrite.suite.precision.candidates import Candidates
from onnxrewrite.suite.precision.node_sensitivity import Method, sensitivity
from onnxrewrite.suite.quality.gate import Gate, Quality
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, excluding
from onnxrewrite.suite.quantization.workbench import Work

WORST = 3
"""So many nodes are named."""

MANY = 60
"""From so many nodes on they are ranked in one run, not one by one."""


def variants(work: Work, settings: QuantizeSettings) -> Candidates:
    """The quantized variants of the model of a work, on its data."""
    ready, chosen = work.chosen(settings)
    return Candidates(ready, settings, work.calibration_data, work.judged_data, chosen, work.metric)


def worst_nodes(work: Work, settings: QuantizeSettings) -> str:
    """The nodes whose own results are furthest off, in one line; empty if they cannot be compared."""
    ranked = [each for each in sensitivity(variants(work, settings), method="local") if each.snr < float("inf")]
    return ", ".join(f"{each.operator} {each.name} ({each.snr:.1f} dB)" for each in ranked[:WORST])


def settings_until(work: Work, settings: QuantizeSettings, gate: Gate) -> QuantizeSettings:
    """The settings with the fewest of the most sensitive nodes excluded with which the model passes a gate.

    Found by bisection.  Quality need not grow with every node, so that fewer may suffice.

    Raises:
        CheckError: It does not pass whatever is excluded; the nearest result is told.
        UsageError, ModelError: As of ``Work.make``.
    """
    nearest: tuple[float, int] | None = None

    def quality(floats: list[str]) -> Quality:
        nonlocal nearest
        found = work.quality(work.make(excluding(settings, floats)))
        nearest = min(nearest or (found.drop, len(floats)), (found.drop, len(floats)))
        return found

    if not gate.refuses(quality([])):
        return settings
    made = variants(work, settings)
    method: Method = "alone" if len(made.nodes) < MANY else "local"
    names = sensitivity(made, method=method, progress=work.progress).names
    low, high = 0, len(names)  # it fails with the first ``low`` in float; with all it would not be quantized
    while high - low > 1:
        middle = (low + high) // 2
        if work.chosen(excluding(settings, names[:middle]))[1] and gate.refuses(quality(names[:middle])):
            low = middle
        else:
            high = middle
    if not work.chosen(excluding(settings, names[:high]))[1]:
        drop, count = nearest or (float("nan"), 0)
        raise CheckError(
            "no choice of nodes in float is good enough, and nothing was written; "
            f"the nearest comes to {1 - drop:.6g}, with {count} of {len(names)} nodes in float"
        )
    return excluding(settings, names[:high])
