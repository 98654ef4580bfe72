"""Selection of the nodes that stay in float: by threshold, by number, by size, by time, first and last.

The results are names for ``QuantizeSettings.exclude``, in the order in which they are given back.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.timing import interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.precision.node_sensitivity import Sensitivity


def exclusion(
    found: Sensitivity,
    *,
    top: int = 0,
    min_snr: float | None = None,
    max_drop: float | None = None,
    size: int | None = None,
    first: int = 0,
    last: int = 0,
) -> tuple[str, ...]:
    """The nodes that any of these asks to keep in float.

    Args:
        found: The ranking.
        top: So many, the most sensitive ones.
        min_snr: All that alone come below so many decibels.
        max_drop: All that alone drop more.
        size: The most sensitive ones whose weights together grow by no more than so many bytes; one that would not
            fit any more is passed over.
        first: The first ones of the graph, of those that can be quantized.
        last: The last ones.

    Raises:
        UsageError: A number is negative.
    """
    for option, number in (("top", top), ("first", first), ("last", last), ("size", size or 0)):
        if number < 0:
            raise UsageError(f"{option} must not be negative, it is {number}")
    chosen: dict[str, None] = dict.fromkeys(found.names[:top])
    chosen |= {each.name: None for each in found if min_snr is not None and each.snr < min_snr}
    chosen |= {each.name: None for each in found if max_drop is not None and each.drop > max_drop}
    chosen |= dict.fromkeys(_within(found, size) if size is not None else ())
    order = list(found.order)
    chosen |= dict.fromkeys([*order[:first], *(order[-last:] if last else ())])
    return tuple(chosen)


def _within(found: Sensitivity, size: int) -> list[str]:
    taken, names = 0, []
    for each in found:
        if taken + each.bytes <= size:
            taken += each.bytes
            names.append(each.name)
    return names


def within_latency(
    found: Sensitivity,
    slower: float,
    *,
    setting: Setting = Setting(threads=1),  # noqa: B008
    seconds: float = 1.0,
) -> tuple[str, ...]:
    """As many of the most sensitive nodes as may be, so that the model takes no more than ``1 + slower`` times as long
    as with all nodes quantized.

    Found by bisection, for giving back more takes longer; every step is timed by turns with the model with all nodes
    quantized, for ``seconds``.  Timing differs from run to run, and so may the result by a node or two.

    Raises:
        UsageError: ``slower`` is negative.
        ModelError: The model does not run.
    """
    if slower < 0:
        raise UsageError(f"the time given back must not be negative, it is {slower:g}")
    low, high = 0, len(found) + 1  # fast enough with the first ``low`` in float, not with the first ``high``
    while high - low > 1:
        middle = (low + high) // 2
        fast = latency_ratio(found, found.names[:middle], (), setting=setting, seconds=seconds) <= 1 + slower
        low, high = (middle, high) if fast else (low, middle)
    return tuple(found.names[:low])


def latency_ratio(
    found: Sensitivity, floats: Sequence[str], to: Sequence[str], *, setting: Setting, seconds: float
) -> float:
    """Time with some nodes in float to that with others, by turns; the median of the rounds."""
    feeds = found.variants.data.timed.inputs
    tasks = {
        "this": open_runner(found.variants.model(floats), feeds, setting),
        "other": open_runner(found.variants.model(to), feeds, setting),
    }
    timings = interleave(tasks, seconds=seconds)
    return ratio(timings["this"], timings["other"], of_processor=setting.is_serial).median
