"""The fastest assignment of precisions that is good enough: search over which nodes are quantized.

1. All nodes quantized; if that passes the gate, the search goes on with step 3.
2. Nodes are given back in the order of the ranking: the fewest that pass, by bisection.  Quality need not grow with
   every node, so this is a place where it passes, not surely the only one.
3. Refinement, while time remains: nodes that were given back are quantized again, the least sensitive first, where
   the gate still passes.  Then all quantized nodes of each operator are tried in float, and after them each quantized
   node, the most sensitive first, and left there where the model gets faster beyond doubt: some are slower quantized,
   on some machines all of an operator.

Which nodes pass depends on data, seed and library versions only: with one thread, steps 1 and 2 and the first half of 3
come out the same each time, if the time is enough.  What is decided by timing need not, and what the time budget cuts
off is not the same on a slower machine.  A budget beyond that time ends the ranking and the bisection, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

from onnxrewrite import io
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.measure.ab_timing import MARGIN
from onnxrewrite.measure.model_times import model_times
from onnxrewrite.measure.timing import Interval, interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.precision.candidates import Candidates, candidates
from onnxrewrite.suite.precision.node_sensitivity import Method, Sensitivity, sensitivity
from onnxrewrite.suite.quality.gate import Gate, Judging, Quality
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, excluding
from onnxrewrite.suite.quantization.quantized import Quantized
from onnxrewrite.suite.quantization.quantizer import quantize

TIMING = 0.6
"""Seconds to time one candidate by turns with the best one."""


@dataclass(frozen=True)
class Step:
    """One candidate that was tried.

    Attributes:
        what: In a few words.
        floats: The number of nodes in float.
        refused: The reason why it is not good enough; empty if it is.
        snr: Decibels of its worst output.
        drop: The loss of quality.
        latency: Its time to that of the best one before; None where it was not timed.
        taken: True if it became the best one.
    """

    what: str
    floats: int
    refused: str
    snr: float
    drop: float
    latency: float | None
    taken: bool


@dataclass(frozen=True)
class Found:
    """The result of ``search_precision``.

    Attributes:
        floats: Nodes that stay in float, by their names in the prepared model.
        quantized: The others; none where the float model is the fastest.
        settings: The settings that make the model: those given, and ``floats`` excluded.
        quality: Of the result.
        to_float: Its time to that of the float model, by turns.
        to_low: Its time to that of the model with all nodes quantized.
        steps: The candidates that were tried, in order.
        complete: True if the time was enough for all steps.
        sensitivity: The ranking.
    """

    floats: tuple[str, ...]
    quantized: tuple[str, ...]
    settings: QuantizeSettings
    quality: Quality
    to_float: Interval
    to_low: Interval
    steps: tuple[Step, ...] = field(repr=False)
    complete: bool
    sensitivity: Sensitivity | None = field(repr=False, compare=False)

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "floats": list(self.floats),
            "quantized": list(self.quantized),
            "settings": self.settings.to_json(),
            "quality": self.quality.to_json(),
            "to_float": self.to_float.to_json(),
            "to_low": self.to_low.to_json(),
            "steps": [{**vars(step)} for step in self.steps],
            "complete": self.complete,
        }


def search_precision(
    source: io.Source,
    settings: QuantizeSettings = QuantizeSettings(),  # noqa: B008
    *,
    gate: Gate = Gate(),  # noqa: B008
    method: Method = "alone",
    seconds: float = 120.0,
    threads: int = 1,
    left: Callable[[], float] = lambda: math.inf,
    progress: Progress | None = None,
    **judging: Unpack[Judging],
) -> Found:
    """Find the fastest assignment that passes a gate; see the module for how.

    Args:
        source: The model; it is not changed.
        settings: The low precision; what it excludes stays in float always.
        gate: The required quality.
        method: Of the ranking, see ``sensitivity``.
        seconds: For all of it, but for the ranking and the bisection, which are not cut short.
        threads: Within an operator, where it is timed.
        left: Seconds until a budget is spent, which cuts short ranking and bisection, too: what passes by then counts.
        progress: Called with (phase, done, to do).
        judging: ``data``, ``dims``, ``metric`` and ``seed``; see ``Judging``.

    Raises:
        UsageError: Bad arguments, or nothing to quantize.
        CheckError: No node can be quantized within the gate, or the budget was spent before anything passed it.
        ModelError: The model cannot be read, run or quantized.
    """
    if seconds < 0:
        raise UsageError(f"seconds must not be negative, it is {seconds:g}")
    end = time.monotonic() + seconds
    variants = candidates(source, settings, progress=progress, **judging)
    return _Search(variants, gate, Setting(threads=threads), end, left, progress).run(method)


class _Spent(Exception):
    """The budget is spent in the middle of a ranking."""


class _Search:
    """One call of ``search_precision``."""

    def __init__(
        self,
        variants: Candidates,
        gate: Gate,
        setting: Setting,
        end: float,
        left: Callable[[], float],
        progress: Progress | None,
    ):
        self.variants = variants
        self.gate = gate
        self.setting = setting
        self.end = end
        self.left = left
        self.progress = progress or (lambda phase, done, left: None)
        self.steps: list[Step] = []
        self.best: frozenset[str] = frozenset()
        self.complete = True

    def run(self, method: Method) -> Found:
        ranked = None
        if not self._try("all quantized", frozenset()):
            ranked = self._ranked(method)
            self._bisect(ranked)
            self._quantize_again(ranked)
        self._try_in_float(ranked)
        quality = self.variants.quality(self.best)
        to_float, to_low = self._timed()
        return Found(
            floats=tuple(n for n in self.variants.nodes if n in self.best),
            quantized=tuple(n for n in self.variants.nodes if n not in self.best),
            settings=excluding(self.variants.settings, [n for n in self.variants.nodes if n in self.best]),
            quality=quality,
            to_float=to_float,
            to_low=to_low,
            steps=tuple(self.steps),
            complete=self.complete,
            sensitivity=ranked,
        )

    def _ranked(self, method: Method) -> Sensitivity:
        """The ranking; CheckError if the budget is spent before it is complete."""

        def progress(phase: str, done: int, remain: int) -> None:
            self.progress(phase, done, remain)
            if remain and self.left() <= 0:
                raise _Spent

        try:
            return sensitivity(self.variants, method=method, progress=progress)
        except _Spent:
            raise CheckError("the budget was spent while nodes were ranked: no choice of them was tried") from None

    def _bisect(self, ranked: Sensitivity) -> None:
        """The fewest of the most sensitive nodes in float with which it passes."""
        names = ranked.names
        low, high = 0, len(names)  # it does not pass with the first ``low``, and does with the first ``high``
        while high - low > 1:
            if self.left() <= 0:
                self.complete = False
                if high == len(names):
                    raise CheckError(f"the budget was spent before a model passed; {low} nodes in float were too few")
                break
            middle = (low + high) // 2
            passes = self._try(f"the {middle} most sensitive in float", frozenset(names[:middle]))
            low, high = (low, middle) if passes else (middle, high)
        if high == len(names):
            raise CheckError(
                "no node can be quantized within the gate: even the least sensitive one, "
                f"{names[-1]}, alone is too much; allow more, or take another mode"
            )
        self.best = frozenset(names[:high])

    def _quantize_again(self, ranked: Sensitivity) -> None:
        """The least sensitive first; one at a time."""
        for name in reversed([n for n in ranked.names if n in self.best]):
            if self._is_over():
                return
            self._try(f"{name} quantized again", self.best - {name})

    def _try_in_float(self, ranked: Sensitivity | None) -> None:
        """Put nodes back in float where that is faster: first all of an operator, then single ones."""
        for operator in dict.fromkeys(self.variants.nodes.values()):
            if self._is_over():
                return
            own = {n for n, each in self.variants.nodes.items() if each == operator} - self.best
            if own:
                self._try(f"every {operator} in float", self.best | own, faster=True)
        names = ranked.names if ranked is not None else list(self.variants.nodes)
        for name in [n for n in names if n not in self.best]:
            if self._is_over():
                return
            self._try(f"{name} in float", self.best | {name}, faster=True)

    def _is_over(self) -> bool:
        over = time.monotonic() > self.end or self.left() <= 0
        self.complete = self.complete and not over
        return over

    def _try(self, what: str, floats: frozenset[str], *, faster: bool = False) -> bool:
        """Judge a candidate, and take it if it passes; with ``faster``, if it is that, too."""
        self.progress("search", len(self.steps), 0)
        quality = self.variants.quality(floats)
        refused = self.gate.refuses(quality)
        seen = self._against_best(floats) if faster and not refused else None
        taken = not refused and (seen is None or (seen.high < 1 and seen.median < 1 - MARGIN))
        self.steps.append(
            Step(
                what,
                len(floats),
                refused,
                quality.worst.snr,
                quality.drop,
                seen.median if seen is not None else None,
                taken,
            )
        )
        if taken:
            self.best = floats
        return taken

    def _against_best(self, floats: frozenset[str]) -> Interval:
        feeds = self.variants.data.timed.inputs
        tasks = {
            name: open_runner(self.variants.model(each), feeds, self.setting)
            for name, each in (("this", floats), ("best", self.best))
        }
        timings = interleave(tasks, seconds=TIMING)
        return ratio(timings["this"], timings["best"], of_processor=self.setting.is_serial)

    def _timed(self) -> tuple[Interval, Interval]:
        """The result to the float model, and to all quantized."""
        feeds = self.variants.data.timed.inputs
        sides = {"this": self.best, "float": frozenset(self.variants.nodes), "low": frozenset[str]()}
        openers = {n: partial(open_runner, self.variants.model(s), feeds, self.setting) for n, s in sides.items()}
        times = model_times(openers, [self.setting], seconds=3 * TIMING)
        return times["this"].ratio(times["float"]), times["this"].ratio(times["low"])


def assigned(source: io.Source, found: Found, **options: Any) -> Quantized:
    """The model that was found, made as ``quantize`` makes it, rewritten before and after, and judged once more;
    ``options`` are those of ``quantize``.

    Raises:
        UsageError: The float model is the fastest: there is nothing to quantize.
    """
    if not found.quantized:
        raise UsageError("nothing to quantize: the float model is faster on this machine, and better")
    return quantize(source, found.settings, **options)
