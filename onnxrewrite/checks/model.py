"""The whole model: original against rewritten, end to end.

``Baseline`` runs the original once (at least two bindings of every symbolic size, at least three samples
each) and keeps its outputs, so that any number of candidates can be compared with it: the driver bisects.
The float64 reference is only computed when a candidate is not equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx

from onnxrewrite.checks.findings import ORIGINAL, ROUNDED, ModelCheck, OutputCheck, Run
from onnxrewrite.checks.interface import interface_problems
from onnxrewrite.errors import UsageError, reason
from onnxrewrite.inputs.sample import Sampler, Trial, is_finite, usable
from onnxrewrite.ir.random_operators import stochastic_ops
from onnxrewrite.reference.evaluation import Reference, build_reference
from onnxrewrite.reference.perturbation import perturbed_feeds, perturbed_model
from onnxrewrite.reference.rounding import Unrounded, is_rounded
from onnxrewrite.reference.tolerance import (
    EXACT,
    STEPS,
    TOLERANCES,
    Norms,
    Rounding,
    compare,
    equality,
    farthest,
    measure,
    near_enough,
)
from onnxrewrite.runtime.session import ModelLike, Session, is_short_of_memory, open_session, skeleton
from onnxrewrite.system.arrays import Array, Feeds, Floats, Held, Outputs

ENDS = "integers at the ends of their range"
"""The ``special`` of runs with such inputs."""

TRUST = 2.0**14
"""A reference is believed up to an original's error of this many units roundoff (at most 0.05); beyond it the
model is discontinuous or the reference wrong, and either way it is no measure."""


_PATIENCE = 3

_STEPPED_PERTURBATIONS = 8


class Baseline:
    """The original model, run once and remembered.

    ``dims``: sizes the user gave; ``inputs``: arrays the user gave; ``samples``: random inputs a binding.
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        dims: Mapping[str, int] | None = None,
        inputs: Feeds | None = None,
        seed: int = 0,
        samples: int = 3,
        threads: int = 0,
    ) -> None:
        self.model = model
        self.samples = max(1, samples)
        self.seed = seed
        self.threads = threads
        self.bare = skeleton(model)
        self.notes: list[str] = []
        self._references: dict[int, Outputs | None] = {}
        self._short = ""
        self.random = stochastic_ops(self.bare)
        self.sampler = Sampler(self.bare, given=inputs or {}, dims=_known_dims(self.bare, dims or {}), seed=seed)

    @cached_property
    def session(self) -> Session | str:
        """The original in ORT, or why it does not open."""
        return open_session(self.model, threads=self.threads)

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
        if not trials and any(map(is_short_of_memory, failed)):
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
        """Inputs and the original's outputs: every binding, every sample, overridable initializers too."""
        made: list[Run] = []
        for trial in self.trials:
            self._add(made, Run(trial.binding, 0, "", trial.feeds, trial.outputs))
            for sample in range(1, self.samples):
                feeds = self.sampler.feeds(trial.binding, sample, trial.care)
                self._run(made, Run(trial.binding, sample, "", feeds, {}))
            overrides = self.overrides()
            for turn, extremes in enumerate(self.sampler.extremes(trial.binding)):
                self._run(made, Run(trial.binding, turn, ENDS, {**trial.feeds, **extremes}, {}))
            if overrides:
                self._run(made, Run(trial.binding, 0, "overridden initializers", {**trial.feeds, **overrides}, {}))
        return made

    def _run(self, made: list[Run], run: Run) -> None:
        assert isinstance(self.session, Session)
        outputs = self.session.run(run.feeds)
        if isinstance(outputs, str) and run.special == ENDS:
            return  # a model need not take every number
        if isinstance(outputs, str):
            self.notes.append(f"the original fails at sample {run.sample} {run.binding}: {outputs}")
        else:
            self._add(made, replace(run, outputs=outputs))

    def _add(self, made: list[Run], run: Run) -> None:
        if run.special != ENDS and not all(is_finite(v) for v in run.outputs.values()):
            self.notes.append(f"the original is not finite at sample {run.sample} {run.binding}")
        made.append(run)

    def overrides(self) -> Outputs:
        """Other values for the float inputs that have a default: each element of it times 0.5 to 1.5."""
        if isinstance(self.session, str):
            return {}
        names = {d.name for d in self.session.handle.get_overridable_initializers()} - set(self.sampler.given)
        rng = np.random.default_rng([self.seed, 77])
        found: Outputs = {}
        for tensor in self.bare.graph.initializer:
            if tensor.name not in names or tensor.data_location == onnx.TensorProto.EXTERNAL:
                continue
            value = onnx.numpy_helper.to_array(tensor)
            if value.dtype in TOLERANCES:
                found[tensor.name] = (value * rng.uniform(0.5, 1.5, value.shape)).astype(value.dtype)
        return found

    @cached_property
    def reference(self) -> Reference:
        """The float64 reference, built when first needed."""
        return build_reference(self.model, threads=self.threads)

    @cached_property
    def unrounded(self) -> Unrounded:
        """The numbers that the original's quantizers round, made when first needed."""
        return Unrounded(self.model)

    def reference_of(self, index: int) -> Outputs | None:
        """Reference outputs of one run."""
        if index not in self._references:
            self._references[index] = self.reference.run(self.runs[index].feeds)
        return self._references[index]

    def trusted(self, name: str) -> bool:
        """True if the reference is a measure for an output in the runs for which it was computed: see ``TRUST``."""
        found = ((self.runs[i].outputs[name], r) for i, r in self._references.items())
        return all(r is not None and _believable(r.get(name), value) for value, r in found)

    def error(self, name: str) -> Norms:
        """The original's own error against the reference, the worst over the runs for which that was asked."""
        worst = Norms()
        for index, reference in self._references.items():
            if reference is not None and self.trusted(name):
                worst = worst | measure(reference[name], self.runs[index].outputs[name])
        return worst

    @cached_property
    def noise(self) -> dict[str, Norms]:
        """The distance that outputs move when inputs and weights move by a unit roundoff or two."""
        worst: dict[str, Norms] = {}
        for index, name, value in self._moved(_STEPPED_PERTURBATIONS if self.reference.stepped else 2):
            base = self.runs[index].outputs[name]
            worst[name] = worst.get(name, Norms()) | measure(np.asarray(base), value)
        return worst

    @cached_property
    def spread(self) -> dict[tuple[int, str], Floats]:
        """The same of each element, by run and output, for models with steps: these are few, and to be met."""
        spread: dict[tuple[int, str], Floats] = {}
        for index, name, value in self._moved(_STEPPED_PERTURBATIONS):
            base = np.asarray(self.runs[index].outputs[name])
            before = spread.get((index, name), np.zeros(base.shape))
            spread[index, name] = np.maximum(before, farthest(base.shape, [(base, value)]))
        return spread

    def _moved(self, perturbations: int) -> Iterator[tuple[int, str, Array]]:
        """The outputs at perturbed inputs and weights, by run and name."""
        for seed in range(1, perturbations + 1):
            proto = perturbed_model(self.model, seed)
            session = open_session(proto, threads=self.threads) if proto is not None else self.session
            for index, run in enumerate(self.runs if isinstance(session, Session) else ()):
                moved = session.run(perturbed_feeds(run.feeds, seed))  # type: ignore[union-attr]
                for name, value in moved.items() if not isinstance(moved, str) else ():
                    if np.asarray(value).shape == np.asarray(run.outputs[name]).shape and not isinstance(value, list):
                        yield index, name, np.asarray(value)

    def check(self, candidate: ModelLike, session: Session | str | None = None) -> ModelCheck:
        """Compare a candidate with the original.  ``session``: what came of opening it, where it was opened before."""
        start = time.perf_counter()
        result = ModelCheck(False, "not needed", "", samples=self.samples, notes=self.notes)
        try:
            self._check(candidate, session, result)
        except MemoryError as error:
            result.skipped = f"{reason(error)} to run both models and to compare them"
        result.ok = not result.failures
        result.seconds = time.perf_counter() - start
        return result

    def difference_at_other_sizes(self, name: str, candidate: Session) -> str | None:
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
                    return self._difference(old, candidate.run(feeds), f"at {name}={size}")
        return None

    def _difference(self, old: Outputs, new: Outputs | str, place: str) -> str | None:
        if isinstance(new, str):
            return f"{place} it fails: {new}"
        for output, value in old.items():
            found = compare(None, value, new[output], Rounding(self.noise.get(output, Norms())))
            if not found.accept:
                return f"output {output} {place}: {found.reason}"
        return None

    def _check(self, candidate: ModelLike, session: Session | str | None, result: ModelCheck) -> None:
        result.failures += interface_problems(self.bare, skeleton(candidate))
        if isinstance(self.session, str):
            result.skipped = f"the original does not run in ONNX Runtime: {self.session}"
            return
        session = open_session(candidate, threads=self.threads) if session is None else session
        if isinstance(session, str):
            result.failures.append(f"the rewritten model does not open: {session}")
        if result.failures or isinstance(session, str):
            return
        if not self.runs:
            nothing = "no inputs found at which the original runs; give some with --input or --dim"
            result.skipped = self.hindrance or nothing
        session.seconds = _patient(session.seconds)
        result.bindings = [t.binding for t in self.trials]
        result.runs = len(self.runs)
        if result.skipped:
            return
        outputs: list[Outputs] = []
        for run in self.runs:
            made = session.run(run.feeds)
            if isinstance(made, str) and is_short_of_memory(made):
                raise MemoryError
            if isinstance(made, str):
                result.failures.append(f"{run.describe()}: the rewritten model fails: {made}")
                return
            outputs.append(made)
        if self.random:
            result.skipped = f"random operators ({', '.join(self.random)}): structure and shapes only"
            result.failures += _shape_problems(self.runs, outputs)
            return
        self._compare(outputs, result)

    def _compare(self, outputs: Sequence[Outputs], result: ModelCheck) -> None:
        names = list(self.runs[0].outputs)
        equal = {n: equality((r.outputs[n], o[n]) for r, o in zip(self.runs, outputs, strict=True)) for n in names}
        moved = [n for n in names if not equal[n]]
        for name in names:
            same = OutputCheck(name, EXACT, "not needed", equality=equal[name])
            check = self._output(name, outputs) if name in moved else same
            result.outputs.append(check)
            if not check.comparison.accept:
                result.failures.append(f"output {name}, {check.run}: {check.comparison.reason}")
        if moved:
            rounded = {c.reference for c in result.outputs if c.name in moved} == {ROUNDED}
            result.tolerance = (
                "a right rounding of the same number"
                if rounded
                else "nearer to the original than any reference could object to"
            )
        if self._references:
            result.reference = self.reference.kind
            result.tolerance = self._tolerance(moved)
            if self.reference.reason:
                result.notes = [*result.notes, f"no float64 reference: {self.reference.reason}"]

    def _output(self, name: str, outputs: Sequence[Outputs]) -> OutputCheck:
        """The worst comparison of an output; the reference is asked for as few runs as will do, small ones first."""
        close, far = list[OutputCheck](), list[int]()
        for index in sorted(range(len(self.runs)), key=lambda i: self.runs[i].size):
            run = self.runs[index]
            if is_rounded(run.outputs[name]):
                return self._rounded(name, outputs)
            own = self.error(name) if far and not self.reference.stepped else None
            near = near_enough(run.outputs[name], outputs[index][name], own)
            if near is None:
                self.reference_of(index)
                far.append(index)
            else:
                close.append(OutputCheck(name, near, ORIGINAL, run.describe()))
        if not far:
            return max(close, key=lambda check: check.comparison.error_rewritten)
        far.sort()
        if self.reference.stepped and self.reference.trusted:
            return self._worst(name, outputs, far, Norms())
        check = self._worst(name, outputs, far, self.error(name))
        if check.comparison.accept or not np.isfinite(check.comparison.error_rewritten):
            return check
        return self._worst(name, outputs, far, self.error(name) | self.noise.get(name, Norms()))

    def _rounded(self, name: str, outputs: Sequence[Outputs]) -> OutputCheck:
        """The same of integers: the first comparison that fails, else the worst."""
        worst = OutputCheck(name, EXACT, ROUNDED)
        for run, made in zip(self.runs, outputs, strict=True):
            found = self.unrounded.compare(run.feeds, name, run.outputs[name], made[name])
            if not found.accept or found.error_rewritten > worst.comparison.error_rewritten:
                worst = OutputCheck(name, found, ROUNDED, run.describe())
            if not found.accept:
                break
        return worst

    def _worst(self, name: str, outputs: Sequence[Outputs], indices: Sequence[int], own: Norms) -> OutputCheck:
        """The first comparison with the reference that fails, else the one of the largest error."""
        trusted = self.trusted(name)
        kind = self.reference.kind if trusted else "float32"
        worst = OutputCheck(name, EXACT, kind, self.runs[indices[0]].describe())
        for index in indices:
            run, reference = self.runs[index], self.reference_of(index)
            known = reference[name] if trusted and reference is not None else None
            stepped = self.reference.stepped
            spread = self.spread.get((index, name)) if stepped and known is not None else None
            rounding = Rounding(own, self.reference.islands, stepped=stepped, spread=spread)
            one = compare(known, run.outputs[name], outputs[index][name], rounding)
            found = OutputCheck(name, one, kind, run.describe())
            if not one.accept:
                return found
            if one.error_rewritten >= worst.comparison.error_rewritten:
                worst = found
        return worst

    def _tolerance(self, names: Sequence[str]) -> str:
        dtypes = {
            np.asarray(self.runs[0].outputs[n]).dtype for n in names if not isinstance(self.runs[0].outputs[n], list)
        }
        lines = []
        for dtype in sorted(dtypes, key=str):
            row = TOLERANCES.get(dtype)
            if row is None:
                lines.append(f"{dtype}: equal")
            elif self.reference.stepped:
                lines.append(
                    f"{dtype}: of each element {row.k:g}x what a one-ulp perturbation makes of it, {STEPS:g}x where it "
                    f"makes whole steps, at least {row.floor * row.unit:.1e}"
                )
            elif self.reference.trusted:
                lines.append(
                    f"{dtype}: {row.k:g}x the original's error (rms {row.k_rms:g}x), "
                    f"at least {row.floor * row.unit:.1e}"
                )
            else:
                stated = row.stated * row.unit
                lines.append(
                    f"{dtype}: {stated:.1e} of the largest value, or {row.k:g}x the effect of a one-ulp perturbation"
                )
        return "; ".join(lines)


def _patient(seconds: float | None) -> float | None:
    """The time limit of a candidate, from that of the original: the limit is not a verdict on its speed."""
    return None if seconds is None else _PATIENCE * seconds


def _believable(reference: Held, value: Held) -> bool:
    if isinstance(value, list) or isinstance(reference, list):
        return isinstance(value, list) and isinstance(reference, list) and len(value) == len(reference)
    if reference is None or value is None:
        return False
    row = TOLERANCES.get(np.asarray(value).dtype)
    if row is None or np.asarray(reference).shape != np.asarray(value).shape:
        return False
    return measure(reference, value).worst <= min(TRUST * row.unit, 0.05)


def _known_dims(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, int]:
    known = Sampler(model).symbols()
    for name in dims:
        if name not in known:
            raise UsageError(
                f"--dim {name}: no such dimension; the inputs have {', '.join(known) or 'fixed sizes only'}"
            )
    return dict(dims)


def _shape_problems(runs: Sequence[Run], outputs: Sequence[Outputs]) -> list[str]:
    problems = []
    for run, made in zip(runs, outputs, strict=True):
        for name, value in run.outputs.items():
            old, new = np.asarray(value), np.asarray(made[name])
            if old.dtype != new.dtype or old.shape != new.shape:
                problems.append(
                    f"output {name}, {run.describe()}: {new.dtype}{list(new.shape)}, was {old.dtype}{list(old.shape)}"
                )
    return problems[:5]


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
