"""Measures artifacts: against the baseline and against the one before, by turns, and on the user's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.workload import Workload, batch_dims
from onnxrewrite.measure.model_times import ModelTimes, model_times
from onnxrewrite.measure.peak_memory import Use, used
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics, size_of
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.system.arrays import Feeds

_Key: TypeAlias = tuple[Path, Setting]


@dataclass(frozen=True)
class Times:
    """Times by artifact, whatever is said of it beside the file and the setting of its session."""

    found: Mapping[_Key, ModelTimes]

    def __getitem__(self, artifact: Artifact) -> ModelTimes:
        return self.found[artifact.session]


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

    def measure(self, made: Artifact, before: Artifact | None = None) -> Metrics:
        """All of it, of an artifact that was made of another one.

        Raises:
            ModelError: It does not open or run.
            UsageError: The user's metric fails.
        """
        times = self.times([self.baseline, before or self.baseline, made])
        found = times[made]
        return Metrics(
            latency=found.latency,
            ratio=found.ratio(times[self.baseline]),
            step=found.ratio(times[before]) if before is not None else None,
            throughput=self.batch / found.latency.median,
            creation=found.creation,
            size=size_of(made.path),
            memory=self._peak(made) if self.memory else None,
            quality=self.judge.quality(*made.session),
        )

    def compared(self, measured: Sequence[tuple[Artifact, Metrics]]) -> list[Metrics]:
        """The same metrics, with times of one comparison: of the baseline, and of what was kept one after another."""
        artifacts = [artifact for artifact, _ in measured]
        times = self.times([self.baseline, *artifacts])
        found = []
        for before, (artifact, metrics) in zip([None, *artifacts], measured, strict=False):
            own = times[artifact]
            found.append(
                replace(
                    metrics,
                    latency=own.latency,
                    ratio=own.ratio(times[self.baseline]),
                    step=None if before is None else own.ratio(times[before]),
                    throughput=self.batch / own.latency.median,
                    creation=own.creation,
                )
            )
        return found

    def times(self, artifacts: Iterable[Artifact]) -> Times:
        """The times of artifacts that run by turns; one that is there twice runs once."""
        by_key = dict.fromkeys(artifact.session for artifact in artifacts)
        openers = {key: partial(open_runner, key[0], self.feeds, key[1]) for key in by_key}
        return Times(model_times(openers, [setting for _, setting in by_key], seconds=self.seconds))

    @cached_property
    def batch(self) -> int:
        """Samples in one run."""
        named = (self.workload.binding.get(name) for name in batch_dims(self.baseline.path))
        return max((size for size in named if size), default=1)

    @property
    def feeds(self) -> Feeds:
        """The inputs that are timed."""
        return self.workload.feeds

    def _peak(self, artifact: Artifact) -> int | None:
        (found,) = (u for _, u in used([Use("model", artifact.session[0], self.feeds, artifact.session[1])]))
        if found.failure:
            raise ModelError(f"{artifact.path.name} does not run in a process of its own: {found.failure}")
        return found.peak
