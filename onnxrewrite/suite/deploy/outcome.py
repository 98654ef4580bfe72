"""The outcome of a pipeline: every stage with its proposals, and the recommended result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from onnxrewrite.reference.tolerance import finite
from onnxrewrite.suite.deploy.acceptance import Trial
from onnxrewrite.suite.deploy.operator_times import Operators
from onnxrewrite.suite.quality.gate import Gate


@dataclass(frozen=True)
class Step:
    """One stage.

    Attributes:
        stage: Its name.
        trials: Its proposals, measured.
        kept: The one that was kept; None where it was taken back.
        reason: The reason for its state.
        skipped: True if it was not run at all.
        resumed: True if its trials come from an interrupted run.
        seconds: The time it took.
        notes: Remarks of the stage.
    """

    stage: str
    trials: Sequence[Trial] = ()
    kept: Trial | None = None
    reason: str = ""
    skipped: bool = False
    resumed: bool = False
    seconds: float = 0.0
    notes: Sequence[str] = ()

    def with_kept(self, trial: Trial) -> Step:
        """The same with another trial in place of the one that was kept."""
        return replace(self, trials=[trial if t is self.kept else t for t in self.trials], kept=trial)

    def beside(self, baseline: Trial) -> Step:
        """The same with the latencies of what was taken back as their ratios to this baseline have them."""
        trials = [t if t is self.kept else replace(t, metrics=t.metrics.beside(baseline.metrics)) for t in self.trials]
        return replace(self, trials=trials)

    @property
    def close(self) -> bool:
        """True if another run may decide otherwise: the time of a proposal is too close to the limit."""
        return any(trial.verdict.close for trial in self.trials)

    @property
    def state(self) -> str:
        """``kept``, ``taken back``, ``skipped``."""
        return "kept" if self.kept is not None else "skipped" if self.skipped else "taken back"

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "stage": self.stage,
            "state": self.state,
            "reason": self.reason,
            "close": self.close,
            "resumed": self.resumed,
            "seconds": self.seconds,
            "kept": None if self.kept is None else list(self.trials).index(self.kept),
            "trials": [trial_json(t) for t in self.trials],
        }


@dataclass
class Outcome:
    """The result of ``Pipeline.run``.

    Attributes:
        model: The original's path, or the name of its graph.
        baseline: The original, measured.
        data: The source of the data.
        samples: The number of samples.
        generated: True if they were made up.
        binding: The sizes at which models were timed.
        target: The speedup that was asked for.
        gate: The quality that was asked for.
        steps: The stages, in their order.
        files: The files that were written, by kind: ``model``, ``report``, ``run``, ``page``.
        program: Python that runs the result with its options.
        operators: Time by operator in the original and in the result.
        versions: Of what took part.
        shipped: What the result is compared with later: digests, closeness and figures, see ``suite.deploy.shipped``.
        seconds: The time of the whole run.
        notes: Further remarks.
    """

    model: str
    baseline: Trial
    data: str
    samples: int
    generated: bool
    binding: Mapping[str, int]
    target: float | None
    gate: Gate
    steps: list[Step] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    program: str = ""
    operators: Operators = field(default_factory=Operators)
    versions: dict[str, str] = field(default_factory=dict)
    shipped: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def final(self) -> Trial:
        """The result of the last stage that was kept, else the baseline."""
        return next((s.kept for s in reversed(self.steps) if s.kept is not None), self.baseline)

    @property
    def speedup(self) -> float:
        """The speedup over the original."""
        return 1 / self.final.metrics.ratio.median

    @property
    def target_met(self) -> bool:
        """True if the target speedup is reached; False without a target."""
        return self.target is not None and self.speedup >= self.target

    def to_json(self) -> dict[str, object]:
        """Plain data, ``report.json``: seconds, bytes, samples a second; None for what is not finite."""
        return {
            "model": self.model,
            "data": {"source": self.data, "samples": self.samples, "generated": self.generated},
            "binding": dict(self.binding),
            "gate": {name: v if v is None else finite(v) for name, v in asdict(self.gate).items()},
            "target": self.target if self.target is None else finite(self.target),
            "target_met": self.target_met if self.target is not None else None,
            "speedup": self.speedup,
            "baseline": trial_json(self.baseline),
            "steps": [step.to_json() for step in self.steps],
            "final": trial_json(self.final),
            "files": dict(self.files),
            "program": self.program,
            "operators": asdict(self.operators),
            "versions": dict(self.versions),
            "shipped": dict(self.shipped),
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        """The outcome as HTML, for notebooks."""
        from onnxrewrite.report.html.notebook import outcome_html

        return outcome_html(self.to_json())


def trial_json(trial: Trial) -> dict[str, object]:
    """Plain data."""
    return {**trial.artifact.to_json(), "metrics": trial.metrics.to_json(), "verdict": asdict(trial.verdict)}
