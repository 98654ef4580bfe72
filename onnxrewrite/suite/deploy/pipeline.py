"""``Pipeline``: stages one after the other, each measured and gated; what does not pay is taken back."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxrewrite import io
from onnxrewrite.errors import CheckError, ModelError, UsageError, foreign
from onnxrewrite.inputs.workload import workload
from onnxrewrite.ir.target import provider as provider_named
from onnxrewrite.runtime.session import one_line
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.deploy.acceptance import AS_IT_WAS, Objective, Trial, settled, weigh
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics
from onnxrewrite.suite.deploy.checkpoint import Record, Remembered, key, state_of
from onnxrewrite.suite.deploy.emit import MODEL, emit
from onnxrewrite.suite.deploy.measurement import Meter
from onnxrewrite.suite.deploy.outcome import Outcome, Step
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Progress, Stage, defaults, known
from onnxrewrite.suite.quality.data import Given, batched, load_data
from onnxrewrite.suite.quality.functions import function
from onnxrewrite.suite.quality.gate import Gate, Judge, Metric
from onnxrewrite.system.versions import versions

QUICK = 0.3
"""Seconds to time a proposal at a first look."""

WORK = ".work"
"""The folder of intermediate models and of what is known, below the output folder."""


@dataclass(frozen=True)
class Pipeline:
    """Stages, and what is asked of their result.

    Attributes:
        stages: In their order; without any, all default ones, with the settings that they have by themselves.
        gate: The required quality.
        target_speedup: So many times as fast as the original; once it is met, lossy stages are left out.
        budget: Seconds; once they have passed no stage is begun, no further proposal is measured, and a search for a
            precision ends.
        objective: The objective of the stages.
        data: The data for calibration and judging, see ``suite.quality.data.load_data``.  Where a stage is lossy, every
            fourth of 8 samples or more is kept from the stages, and all is judged on these.
        metric: The user's own measure of quality, a function or ``module:function``; larger is better.
        samples: So many samples are used at most.
        batch: Rows of a file of data that make one sample: the batch that is timed.
        dims: Sizes of named dimensions of generated data, and of what is timed.
        provider: The execution provider: ``cpu``, ``cuda``.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        seconds: To time each proposal.
        memory: True if memory is measured.
        seed: Of generated data, and of whatever a stage makes up.
    """

    stages: Sequence[Stage] = ()
    gate: Gate = field(default_factory=Gate)
    target_speedup: float | None = None
    budget: float | None = None
    objective: Objective = "latency"
    data: Given = None
    metric: Metric | str | None = None
    samples: int | None = None
    batch: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    provider: str = "cpu"
    threads: int = 0
    seconds: float = 2.0
    memory: bool = True
    seed: int = 0

    def quick(self) -> Pipeline:
        """The same pipeline for a first look: proposals are timed for ``QUICK`` seconds, memory is not measured, and
        stages leave out what seldom wins.

        Raises:
            UsageError: No stage is left.
        """
        stages = [each for stage in self.stages or _defaults() if (each := stage.quick()) is not None]
        if not stages:
            raise UsageError("a first look takes none of the stages asked for; leave --quick out, or name others")
        return replace(self, stages=stages, seconds=min(self.seconds, QUICK), memory=False)

    def run(
        self,
        model: io.Source,
        out: str | os.PathLike[str],
        *,
        keep: bool = False,
        fresh: bool = False,
        progress: Progress | None = None,
    ) -> Outcome:
        """Run all stages and write ``model.onnx``, ``report.json``, ``report.html`` and ``run.py`` into a folder.

        Args:
            model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
            out: The folder; it is made.
            keep: Keep intermediate models, below ``.work``.
            fresh: Forget what an interrupted run has found.
            progress: Called with what is done at the moment, how much of it is done, and how much is left.

        Raises:
            UsageError: Settings, data or metric cannot be used.
            ModelError: The model cannot be read or run, or nothing can be written.
            CheckError: A required stage was taken back, or the result does not pass the gate; nothing is written.
        """
        run = _Run(self, model, Path(out), fresh, progress or (lambda phase, done, left: None))
        try:
            outcome = run.execute()
        except CheckError:  # there is nothing to go on with; other failures leave what was found for the next run
            run.tidy(keep)
            raise
        run.tidy(keep)
        return outcome


class _Run:
    """One run of a pipeline."""

    def __init__(self, plan: Pipeline, model: io.Source, out: Path, fresh: bool, progress: Progress):
        self.plan = plan
        self.out = out
        self.progress = progress
        self.start = time.perf_counter()
        self.stages = list(plan.stages) or _defaults()
        if isinstance(model, (str, os.PathLike)) and Path(model).resolve() == (out / MODEL).resolve():
            raise UsageError(f"{out}: the model itself lies there; give another folder")
        self.work = _folder(out / WORK)
        self.name, path = self._original(model)
        self.baseline = Artifact(path, Setting(provider_named(plan.provider), plan.threads), "as it was")
        if fresh:
            (self.work / "known.json").unlink(missing_ok=True)
        self.record = Record(self.work / "known.json")
        given = load_data(plan.data, path, most=plan.samples, batch=plan.batch, dims=plan.dims, seed=plan.seed)
        lossy = any(stage.lossy for stage in self.stages)
        calibration, self.data = given.parted() if lossy else (given, given)
        dims = batched(path, plan.dims, plan.batch)
        metric = function(plan.metric, "--metric") if isinstance(plan.metric, str) else plan.metric
        inputs = {} if self.data.generated else self.data.timed.inputs
        load = workload(path, dims=dims, inputs=inputs, seed=plan.seed)
        self.meter = Meter(self.baseline, Judge(path, self.data, metric), load, plan.seconds, plan.memory)
        self.context = Context(
            folder=self.work,
            meter=self.meter,
            gate=plan.gate,
            data=calibration,
            dims=dims,
            threads=plan.threads,
            seed=plan.seed,
            left=self._left,
            progress=progress,
        )
        gate_and_more = (vars(plan.gate), _identity(metric), plan.objective, plan.seconds, plan.memory, plan.seed)
        self.premises = key(versions(), given.digest, dict(load.binding), gate_and_more, state_of(self.baseline))

    def execute(self) -> Outcome:
        """Run, and write."""
        baseline = self._baseline()
        outcome = Outcome(
            model=self.name,
            baseline=Trial(self.baseline, baseline, AS_IT_WAS),
            data=self.data.source,
            samples=len(self.data),
            generated=self.data.generated,
            binding=dict(self.meter.workload.binding),
            target=self.plan.target_speedup,
            gate=self.plan.gate,
        )
        for number, stage in enumerate(self.stages):
            self.progress(stage.name, number, len(self.stages) - number)
            step = self._step(stage, outcome)
            outcome.steps.append(step)
            outcome.notes += step.notes
            if stage.required and step.kept is None:
                raise CheckError(
                    f"stage {stage.name} is required and was taken back: {step.reason}; nothing was written"
                )
        gc.collect()  # graphs and sessions refer to themselves in circles, and hold all weights of a model each
        self._compare(outcome)
        outcome.seconds = time.perf_counter() - self.start
        emit(outcome, self.out, self.meter.judge)
        return outcome

    def _compare(self, outcome: Outcome) -> None:
        """Time the original and all that was kept by turns, so that what is told of them belongs together."""
        kept = [(number, step.kept) for number, step in enumerate(outcome.steps) if step.kept is not None]
        self.progress("compare", len(self.stages), 0)
        trials = [outcome.baseline, *(trial for _, trial in kept)]
        found = self.meter.compared([(trial.artifact, trial.metrics) for trial in trials])
        outcome.baseline = replace(outcome.baseline, metrics=found[0])
        for (number, trial), metrics in zip(kept, found[1:], strict=True):
            outcome.steps[number] = outcome.steps[number].with_kept(replace(trial, metrics=metrics))
        outcome.steps = [step.beside(outcome.baseline) for step in outcome.steps]

    def tidy(self, keep: bool) -> None:
        """Remove intermediate models, unless they are to be kept."""
        if not keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def _baseline(self) -> Metrics:
        found = self.record.metrics(self.premises)
        if found is None:
            self.progress("baseline", 0, len(self.stages))
            found = self.meter.measure(self.baseline)
            self.record.remember_metrics(self.premises, found)
        return found

    def _step(self, stage: Stage, outcome: Outcome) -> Step:
        """One stage: its proposals, and the best of them if one may be kept."""
        before = outcome.final
        reason = self._reason_to_skip(stage, outcome)
        if reason:
            return Step(stage.name, skipped=True, reason=reason)
        start = time.perf_counter()
        name = key(self.premises, stage.name, stage.to_json(), state_of(before.artifact))
        remembered = self.record.stage(name)
        found = remembered or self._run(stage, before, name)
        trials, kept = settled(found.trials, self.plan.objective)
        reason = found.reason
        if trials:
            shown = kept or min(trials, key=lambda t: t.metrics.latency.median)
            reason = shown.verdict.reason
        seconds = time.perf_counter() - start
        return Step(stage.name, trials, kept, reason, False, remembered is not None, seconds, found.notes)

    def _run(self, stage: Stage, before: Trial, name: str) -> Remembered:
        """All proposals of a stage, measured; or why there are none.  Each is remembered as soon as it is measured."""
        begun = self.record.stage(f"{name} begun") or Remembered()
        known = {t.artifact.session: t for t in begun.trials}
        by_path = {t.artifact.path: t.artifact for t in known.values()}
        trials, reason, notes = list[Trial](), "", list(begun.notes)

        def note(line: str) -> None:
            notes.extend([line] if line not in notes else [])

        context = replace(self.context, note=note, made=by_path.get)
        try:
            with foreign():
                for made in _in_time(stage.run(before.artifact, context), self._left):
                    trial = known.get(made.session) or self._measured(stage, made, before, context)
                    trials.append(trial)
                    self.record.remember(f"{name} begun", Remembered(trials, "", notes))
        except (NothingToDo, ModelError, CheckError) as error:
            reason = str(error)
        except UsageError:
            raise
        except Exception as error:  # whatever somebody else's stage raises
            reason = f"it failed: {type(error).__name__}: {one_line(error)}"
        found = Remembered(trials, reason, notes)
        self.record.remember(name, found)
        return found

    def _measured(self, stage: Stage, made: Artifact, before: Trial, context: Context) -> Trial:
        gc.collect()  # graphs and sessions refer to themselves in circles, and hold all weights of a model each
        metrics = stage.metrics(made, before.artifact, context)
        return Trial(made, metrics, weigh(metrics, before.metrics, self.plan.gate, self.plan.objective))

    def _reason_to_skip(self, stage: Stage, outcome: Outcome) -> str:
        if self._left() <= 0:
            return f"the budget of {self.plan.budget:g} s is spent"
        if stage.lossy and not stage.required and outcome.target_met:
            return f"the target of {outcome.target:g} times is met without it"
        return ""

    def _left(self) -> float:
        spent = time.perf_counter() - self.start
        return float("inf") if self.plan.budget is None else self.plan.budget - spent

    def _original(self, model: io.Source) -> tuple[str, Path]:
        """The name of the model, and a file of it in the form that ONNX Runtime reads."""
        loaded = io.load(model)
        if isinstance(model, (str, os.PathLike)) and not io.repairs(loaded):
            return os.fspath(model), Path(model).absolute()
        path = self.work / "original.onnx"
        io.save(loaded, path)
        return os.fspath(model) if isinstance(model, (str, os.PathLike)) else loaded.graph.name or "model", path


def _defaults() -> list[Stage]:
    return [known()[name]() for name in defaults()]


def _in_time(proposals: Iterable[Artifact], left: Callable[[], float]) -> Iterator[Artifact]:
    """The proposals of a stage until the budget is spent; the first of them in any case."""
    for made in proposals:
        yield made
        if left() <= 0:
            return


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{path}: cannot be made: {error.strerror or error}") from None
    return path


def _identity(metric: Metric | None) -> str:
    """The identity of a metric: its source, where Python knows it, else its name."""
    if metric is None:
        return ""
    try:
        return inspect.getsource(metric)
    except (OSError, TypeError):
        return getattr(metric, "__qualname__", repr(type(metric)))
