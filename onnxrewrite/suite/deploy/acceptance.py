"""Acceptance of a proposal: it is kept if it passes the gate and brings an improvement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from onnxrewrite.measure.ab_timing import MARGIN, is_slower
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics
from onnxrewrite.suite.quality.gate import Gate

Objective: TypeAlias = Literal["latency", "size"]
"""The objective of a stage: ``latency``: faster, or no slower and smaller, quicker to open or less in memory;
``size``: the same, and smaller even if slower."""

SMALLER = 0.95
"""Of the bytes: what counts as smaller."""

OPENS = 0.8
"""Of the time to create a session: what counts as opening faster."""

LESS = 0.8
"""Of the peak of memory: what counts as taking less."""


@dataclass(frozen=True)
class Verdict:
    """The decision on a proposal.

    Attributes:
        kept: True if it may be kept.
        reason: The reason for the decision.
        close: True if the interval of the time holds both answers: another run may decide otherwise.
    """

    kept: bool
    reason: str
    close: bool = False


AS_IT_WAS = Verdict(True, "the original")


@dataclass(frozen=True)
class Trial:
    """A proposal, what was measured of it, and what was decided."""

    artifact: Artifact
    metrics: Metrics
    verdict: Verdict


def weigh(made: Metrics, before: Metrics, gate: Gate, objective: Objective = "latency") -> Verdict:
    """The verdict on a proposal, compared with the artifact that it was made of."""
    assert made.step is not None
    refusal = gate.refuses(made.quality)
    if refusal:
        return Verdict(False, refusal)
    step = made.step
    smaller = made.size <= SMALLER * before.size
    if smaller and objective == "size":
        return Verdict(True, f"{made.size / before.size:.2f} of the size")
    if is_slower(step):
        return Verdict(False, f"it takes {step.median:.2f} times as long", close=step.low < 1 + MARGIN)
    if step.high < 1 and step.median < 1 - MARGIN:
        return Verdict(True, f"{step.median:.2f} of the time", close=step.high > 1 - MARGIN)
    close = step.low < 1 - MARGIN
    if smaller:
        return Verdict(True, f"{made.size / before.size:.2f} of the size, no slower", close=step.high > 1 + MARGIN)
    if made.creation.high <= OPENS * before.creation.low:
        return Verdict(
            True, f"opens in {made.creation.median / before.creation.median:.2f} of the time, no slower", close
        )
    if made.memory is not None and before.memory and made.memory <= LESS * before.memory:
        return Verdict(True, f"{made.memory / before.memory:.2f} of the memory, no slower", close)
    return Verdict(
        False, f"brings nothing: {step.median:.2f} of the time, {made.size / before.size:.2f} of the size", close
    )


def settled(trials: Sequence[Trial], objective: Objective = "latency") -> tuple[list[Trial], Trial | None]:
    """The trials with at most one of them kept, and that one: the best of those that may be."""
    chosen = best(trials, objective)
    return [t if t is chosen or not t.verdict.kept else _beaten(t, chosen) for t in trials], chosen


def _beaten(trial: Trial, by: Trial | None) -> Trial:
    assert by is not None
    return replace(trial, verdict=replace(trial.verdict, kept=False, reason=f"{by.artifact.how} is better"))


def best(trials: Sequence[Trial], objective: Objective = "latency") -> Trial | None:
    """The best of those that may be kept: of the fastest, or smallest, the closest one, and of files that open faster
    the fastest of these; None where none may."""
    by: dict[Objective, Callable[[Trial], float]] = {
        "latency": lambda t: t.metrics.step.median if t.metrics.step is not None else 1.0,
        "size": lambda t: t.metrics.size,
    }
    kept = [t for t in trials if t.verdict.kept]
    least = min(map(by[objective], kept), default=0.0)
    near = [t for t in kept if by[objective](t) <= least * (1 + MARGIN)]
    return min(near, key=lambda t: (t.metrics.quality.drop, _opening(t)), default=None)


def _opening(trial: Trial) -> float:
    """Seconds to open a file that is there to open fast; 0 for others, of which the first counts."""
    return trial.metrics.creation.median if trial.artifact.opened_as is not None else 0.0
