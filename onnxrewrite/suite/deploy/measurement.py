"""Measures artifacts: against the baseline and against the one before, by turns, and on the user's data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.workload import Workload, batch_dims
from onnxrewrite.measure.peak_memory import Use, used
from onnxrewrite.measure.timing import Interval, interleave, interval, ratio
from onnxrewrite.runtime.settings import Runner, Setting, open_runner
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics, size_of
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.system.arrays import Feeds

_Key: TypeAlias = tuple[Path, Setting]

CREATIONS = 5
"""The number of times that each session is created, to time that."""


@dataclass
class Meter:
    """Measures artifacts.

    Args:
        baseline: The artifact that all others are compared with.
        judge: Judges their results.
        workload: The inputs that are timed.
        seconds: To time an artifact beside the baseline and the one before.
        memory: Measure the peak of memory, which takes a process.
    """

    baseline: Artifact
    judge: Judge
    workload: Workload
    seconds: float = 2.0
    memory: bool = True
    _runners: dict[_Key, Runner] = field(default_factory=dict, repr=False)

    def measure(self, made: Artifact, before: Artifact | None = None) -> Metrics:
        """All of it, of an artifact that was made of another one.

        Raises:
            ModelError: It does not open or run.
            UsageError: The user's metric fails.
        """
        artifacts = {_key(a): a for a in (self.baseline, before or self.baseline, made)}  # one that is both runs once
        timings = interleave({key: self._runner(a) for key, a in artifacts.items()}, seconds=self.seconds)
        found = timings[_key(made)]
        latency = found.latency
        return Metrics(
            latency=latency,
            ratio=ratio(found, timings[_key(self.baseline)]),
            step=ratio(found, timings[_key(before)]) if before is not None else None,
            throughput=self.batch / latency.median,
            creation=self._creation(made),
            size=size_of(made.path),
            memory=self._peak(made) if self.memory else None,
            quality=self.judge.quality(made.path, made.setting),
        )

    @cached_property
    def batch(self) -> int:
        """Samples in one run."""
        named = (self.workload.binding.get(name) for name in batch_dims(self.baseline.path))
        return max((size for size in named if size), default=1)

    @property
    def feeds(self) -> Feeds:
        """The inputs that are timed."""
        return self.workload.feeds

    def forget(self, keep: Artifact) -> None:
        """Close the sessions of all artifacts but the baseline and one other."""
        kept = {_key(self.baseline), _key(keep)}
        self._runners = {key: runner for key, runner in self._runners.items() if key in kept}

    def _runner(self, artifact: Artifact) -> Runner:
        key = _key(artifact)
        if key not in self._runners:
            self._runners[key] = open_runner(artifact.path, self.feeds, artifact.setting)
        return self._runners[key]

    def _creation(self, artifact: Artifact) -> Interval:
        return interval([open_runner(artifact.path, {}, artifact.setting).creation for _ in range(CREATIONS)])

    def _peak(self, artifact: Artifact) -> int | None:
        (found,) = (u for _, u in used([Use("model", Path(artifact.path), self.feeds, artifact.setting)]))
        if found.failure:
            raise ModelError(f"{artifact.path.name} does not run in a process of its own: {found.failure}")
        return found.peak


def _key(artifact: Artifact) -> _Key:
    """The file and the setting that the session of an artifact depends on."""
    return artifact.path, artifact.setting
