"""The whole model: original against rewritten, end to end.

``Baseline`` runs the original once (at least two bindings of every symbolic size, at least three samples
each) and keeps its outputs, so that any number of candidates can be compared with it: the driver bisects.
The float64 reference is only computed when a candidate is not equal.

A model that is too large for that is run and compared in segments, see ``segments``; so is one that is not equal, to
tell where.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx

from onnxrewrite.checks.findings import Fault, ModelCheck
from onnxrewrite.checks.interface import interface_problems
from onnxrewrite.checks.parts import Part, compare, in_segments, whole
from onnxrewrite.checks.segments import SegmentRunner
from onnxrewrite.errors import ModelError, UsageError, reason
from onnxrewrite.inputs.sample import Sampler, Trial, is_finite, usable
from onnxrewrite.io.preserved import OVERRIDABLE_SINCE
from onnxrewrite.ir.random_operators import stochastic_ops
from onnxrewrite.reference.evaluation import quantized_ops
from onnxrewrite.reference.judgement import WHOLE, Judge
from onnxrewrite.reference.runs import Run
from onnxrewrite.reference.tolerance import TOLERANCES
from onnxrewrite.runtime.limited import patient
from onnxrewrite.runtime.native import CPU
from onnxrewrite.runtime.references import array_of, referred
from onnxrewrite.runtime.session import (
    ModelLike,
    Session,
    as_proto,
    is_short_of_memory,
    open_session,
    skeleton,
    weight_bytes,
)
from onnxrewrite.system.arrays import Feeds, Outputs

ENDS = "integers at the ends of their range"
"""The ``label`` of runs with such inputs, and their class of values: how far a cosine of 2⁶³ is off says nothing of
results at other inputs."""

LARGE = 2**30
"""Bytes of weights beyond which a model is run and compared in segments."""


class Baseline:
    """The original model, run once and remembered.

    ``dims``: sizes the user gave; ``inputs``: arrays the user gave; ``samples``: random inputs a binding; ``progress``:
    told of segments that are compared, and of those that wait.

    Attributes:
        provider: The execution provider that both run on.
        on_device: The same on a further one, on which a candidate that is equal here is compared, too.
    """

    provider = CPU
    on_device: Baseline | None = None

    def __init__(
        self,
        model: ModelLike,
        *,
        dims: Mapping[str, int] | None = None,
        inputs: Feeds | None = None,
        seed: int = 0,
        samples: int = 3,
        threads: int = 0,
        progress: Callable[[int, int], None] = lambda done, waiting: None,
    ) -> None:
        self.model = model
        self.progress = progress
        self.samples = max(1, samples)
        self.seed = seed
        self.threads = threads
        self.bare = skeleton(model)
        self.notes: list[str] = []
        self._short = ""
        self._judge: Judge | None = None
        self.random = stochastic_ops(self.bare)
        # Of what rounds to a grid, segments would differ by whole steps, where the whole does not.
        is_plain = isinstance(model, onnx.ModelProto) and not quantized_ops(self.bare)
        self.in_segments = is_plain and weight_bytes(model) > LARGE
        self.sampler = Sampler(self.bare, given=inputs or {}, dims=_known_dims(self.bare, dims or {}), seed=seed)

    def too_on(self, provider: str) -> Baseline:
        """This one, which compares on another execution provider, too; what is compared in segments is not."""
        if self.in_segments:
            self.notes.append(f"not compared on {provider}: the model is compared in segments")
        else:
            self.on_device = Baseline(
                self.model,
                dims=self.sampler.dims,
                inputs=self.sampler.given,
                seed=self.seed,
                samples=self.samples,
                threads=self.threads,
            )
            self.on_device.provider = provider
        return self

    @cached_property
    def session(self) -> Session | SegmentRunner | str:
        """The original in ORT, or why it does not open."""
        if self.in_segments:
            assert isinstance(self.model, onnx.ModelProto)
            return SegmentRunner(self.model, threads=self.threads)
        return open_session(self.model, threads=self.threads, provider=self.provider)

    @cached_property
    def trials(self) -> list[Trial]:
        """Bindings at which the original runs."""
        if isinstance(self.session, str):
            return []
        try:
            trials, failed = usable(self.sampler, self.session)
        except UsageError as error:
            self.notes.append(str(error))
            return []
        except MemoryError as error:
            self._short = f"the original cannot be run: {reason(error)}"
            return []
        if not trials and failed and all(map(is_short_of_memory, failed)):
            self._short = f"the original cannot be run: {reason(MemoryError())}"
        if not trials or (len(trials) < 2 and self.sampler.symbols()):
            self.notes += [f"did not run at {line}" for line in failed[:3]]
        return trials

    @property
    def hindrance(self) -> str:
        """That the original takes too long or too much memory to be run; empty where it does not."""
        if isinstance(self.session, str) or self.trials:
            return ""
        return f"the original cannot be run: {self.session.overrun}" if self.session.overrun else self._short

    @cached_property
    def runs(self) -> list[Run]:
        """Inputs and the original's outputs: every binding, every sample, overridable initializers too.

        In segments it is run when it is compared, and has outputs at the first sample only.
        """
        made: list[Run] = []
        for trial in self.trials:
            self._add(made, Run(trial.binding, "sample 0", trial.feeds, trial.outputs))
            for sample in range(1, self.samples):
                feeds = self.sampler.feeds(trial.binding, sample, trial.care)
                self._run(made, Run(trial.binding, f"sample {sample}", feeds, {}))
            overrides = self.overrides()
            for extremes in self.sampler.extremes(trial.binding):
                self._run(made, Run(trial.binding, ENDS, {**trial.feeds, **extremes}, {}, ENDS))
            if overrides:
                self._run(made, Run(trial.binding, "overridden initializers", {**trial.feeds, **overrides}, {}))
        return made

    def _run(self, made: list[Run], run: Run) -> None:
        assert not isinstance(self.session, str)
        outputs = {} if self.in_segments else self.session.run(run.feeds)
        if isinstance(outputs, str) and run.label == ENDS:
            return  # a model need not take every number
        if isinstance(outputs, str):
            self.notes.append(f"the original fails, {run.describe()}: {outputs}")
        else:
            self._add(made, replace(run, outputs=outputs))

    def _add(self, made: list[Run], run: Run) -> None:
        self._note(run)
        made.append(run)

    def _note(self, run: Run) -> None:
        if run.label != ENDS and not all(is_finite(v) for v in run.outputs.values()):
            self.notes.append(f"the original is not finite, {run.describe()}")

    def overrides(self) -> Outputs:
        """Other values for the float inputs that have a default: each element of it times 0.5 to 1.5."""
        if isinstance(self.session, str):
            return {}
        is_open = self.bare.ir_version >= OVERRIDABLE_SINCE
        names = {each.name for each in self.bare.graph.input if is_open} - set(self.sampler.given)
        rng = np.random.default_rng([self.seed, 77])
        found: Outputs = {}
        for tensor in self.bare.graph.initializer:
            is_elsewhere = tensor.data_location == onnx.TensorProto.EXTERNAL and referred(tensor) is None
            if tensor.name not in names or is_elsewhere:
                continue
            value = array_of(tensor)
            if value.dtype in TOLERANCES:
                found[tensor.name] = (value * rng.uniform(0.5, 1.5, value.shape)).astype(value.dtype)
        return found

    def check(self, candidate: ModelLike, session: Session | str | None = None) -> ModelCheck:
        """Compare a candidate with the original.  ``session``: what came of opening it, where it was opened before."""
        start = time.perf_counter()
        result = ModelCheck(False, "not needed", "", samples=self.samples)
        try:
            self._check(candidate, session, result)
            if self.on_device is not None and not result.failures:
                self._check_on(self.on_device, candidate, result)
        except MemoryError as error:
            result.skipped = f"{reason(error)} to run both models and to compare them"
        except ModelError as error:
            result.skipped = reason(error)
        result.notes = [*self.notes, *result.notes]
        result.ok = not result.failures
        result.seconds = time.perf_counter() - start
        return result

    def difference_at_other_sizes(self, name: str, candidate: ModelLike, session: Session) -> str | None:
        """The difference of a candidate where the dimension ``name`` is not the sum that it is called, and the original
        runs; None if there is none, or no such size is found."""
        if isinstance(self.session, str) or name in self.sampler.bound or self.random:
            return None
        for trial in self.trials[:1]:
            for size in (trial.binding.get(name, 0) + 1, trial.binding.get(name, 0) - 1):
                binding = {**trial.binding, name: size}
                feeds = self.sampler.feeds(binding, 0, trial.care) if size >= 0 else {}
                old = self.session.run(feeds)
                if not isinstance(old, str):
                    result = ModelCheck(False, "not needed", "")
                    self._compare([Run(binding, "other sizes", feeds, old)], candidate, session, result)
                    return next(iter(result.failures), None)
        return None

    def fault(self, candidate: ModelLike) -> Fault | None:
        """The first segment of an unequal candidate that differs; None where it cannot be told."""
        are_messages = isinstance(self.model, onnx.ModelProto) and isinstance(candidate, onnx.ModelProto)
        if not are_messages or not self.runs or quantized_ops(self.bare):
            return None
        with contextlib.suppress(ModelError):
            for part in self._segments(self.runs, candidate):
                if part.failure or any(not each.comparison.accept for each in part.judge.judge(part.runs, part.made)):
                    return self._fault_in(part)
        return None

    def _fault_in(self, part: Part) -> Fault:
        made = (place for place, node in enumerate(self.bare.graph.node) if not part.values.isdisjoint(node.output))
        return Fault(part.values, max(made, default=0), part.model, part.runs)

    def _check(self, candidate: ModelLike, session: Session | str | None, result: ModelCheck) -> None:
        result.failures += interface_problems(self.bare, skeleton(candidate))
        if isinstance(self.session, str):
            result.skipped = f"the original does not run in ONNX Runtime: {self.session}"
            return
        if session is None:
            session = open_session(candidate, threads=self.threads, provider=self.provider)
        if isinstance(session, str):
            result.failures.append(f"the rewritten model does not open: {session}")
        if result.failures or isinstance(session, str):
            return
        if not self.runs:
            nothing = "no inputs found at which the original runs; give some with --input or --dim"
            result.skipped = self.hindrance or nothing
        session.seconds = patient(session.seconds)
        result.bindings = [t.binding for t in self.trials]
        result.runs = len(self.runs)
        if not result.skipped:
            self._compare(self.runs, candidate, session, result)

    @staticmethod
    def _check_on(device: Baseline, candidate: ModelLike, result: ModelCheck) -> None:
        found = device.check(candidate)
        result.failures += (f"on {device.provider}: {line}" for line in found.failures)
        if found.skipped:
            result.notes.append(f"not compared on {device.provider}: {found.skipped}")

    def _compare(self, runs: Sequence[Run], candidate: ModelLike, session: Session, result: ModelCheck) -> None:
        """Part by part, until one differs."""
        random = set[str]()
        for part in self._segments(runs, candidate) if self.in_segments else self._whole(runs, session):
            result.segments += self.in_segments
            result.runs = len(part.runs)
            random.update(stochastic_ops(part.model))
            compare(part, result)
            if result.failures:
                result.fault = self._fault_in(part) if self.in_segments else None
                return
        if random:
            result.skipped = f"random operators ({', '.join(sorted(random))}): structure and shapes only"

    def _whole(self, runs: Sequence[Run], session: Session) -> Iterator[Part]:
        assert isinstance(self.session, Session)
        if self._judge is None:
            self._judge = Judge(self.model, self.session, replace(WHOLE, threads=self.threads))
        yield whole(self.bare, self._judge, runs, session)

    def _segments(self, runs: Sequence[Run], candidate: ModelLike) -> Iterator[Part]:
        assert isinstance(self.model, onnx.ModelProto)
        for part in in_segments(self.model, as_proto(candidate), runs, threads=self.threads):
            self.progress(part.done, part.waiting)
            lost = (f"the original fails, {run.describe()}: {why}" for run, why in part.dropped if run.label != ENDS)
            self.notes += lost
            for run in part.runs:
                self._note(run)
            yield part


def _known_dims(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, int]:
    known = Sampler(model).symbols()
    for name in dims:
        if name not in known:
            raise UsageError(
                f"--dim {name}: no such dimension; the inputs have {', '.join(known) or 'fixed sizes only'}"
            )
    return dict(dims)


def compare_models(
    a: ModelLike,
    b: ModelLike,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Feeds | None = None,
    seed: int = 0,
    samples: int = 3,
) -> ModelCheck:
    """Compare original ``a`` with rewritten ``b``; see ``Baseline``."""
    return Baseline(a, dims=dims, inputs=inputs, seed=seed, samples=samples).check(b)
