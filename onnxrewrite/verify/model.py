"""The whole model: original against rewritten, end to end.

``Baseline`` runs the original once (at least two bindings of every symbolic size, at least three samples
each) and keeps its outputs, so that any number of candidates can be compared with it: the driver bisects.
The float64 reference is only computed when a candidate is not bitwise equal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnxrewrite.errors import UsageError
from onnxrewrite.verify.checked import ORIGINAL, ROUNDED, ModelCheck, OutputCheck, Run
from onnxrewrite.verify.interface import interface_problems
from onnxrewrite.verify.numeric import EXACT, TOLERANCES, Norms, compare, identical, measure, near_enough
from onnxrewrite.verify.perturb import perturbed_feeds, perturbed_weights
from onnxrewrite.verify.reference import Reference, build_reference, stochastic_ops
from onnxrewrite.verify.rounding import Unrounded, is_rounded
from onnxrewrite.verify.sample import Sampler, Trial, is_finite, usable
from onnxrewrite.verify.session import ModelLike, Outputs, Session, open_session, skeleton

TRUST = 2.0**14
"""A reference is believed up to an original's error of this many units roundoff (at most 0.05); beyond it the
model is discontinuous or the reference wrong, and either way it is no measure."""


class Baseline:
    """The original model, run once and remembered.

    ``dims``: sizes the user gave; ``inputs``: arrays the user gave; ``samples``: random inputs a binding.
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        dims: Mapping[str, int] | None = None,
        inputs: Mapping[str, Any] | None = None,
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
        if not trials or (len(trials) < 2 and self.sampler.symbols()):
            self.notes += [f"did not run at {line}" for line in failed[:3]]
        return trials

    @cached_property
    def runs(self) -> list[Run]:
        """Inputs and the original's outputs: every binding, every sample, overridable initializers too."""
        made: list[Run] = []
        for trial in self.trials:
            self._add(made, Run(trial.binding, 0, False, trial.feeds, trial.outputs))
            for sample in range(1, self.samples):
                feeds = self.sampler.feeds(trial.binding, sample, trial.care)
                self._run(made, Run(trial.binding, sample, False, feeds, {}))
            overrides = self.overrides()
            if overrides:
                self._run(made, Run(trial.binding, 0, True, {**trial.feeds, **overrides}, {}))
        return made

    def _run(self, made: list[Run], run: Run) -> None:
        assert isinstance(self.session, Session)
        outputs = self.session.run(run.feeds)
        if isinstance(outputs, str):
            self.notes.append(f"the original fails at sample {run.sample} {run.binding}: {outputs}")
        else:
            self._add(made, replace(run, outputs=outputs))

    def _add(self, made: list[Run], run: Run) -> None:
        if not all(is_finite(v) for v in run.outputs.values()):
            self.notes.append(f"the original is not finite at sample {run.sample} {run.binding}")
        made.append(run)

    def overrides(self) -> dict[str, Any]:
        """Other values for the float inputs that have a default: each element of it times 0.5 to 1.5."""
        if isinstance(self.session, str):
            return {}
        names = {d.name for d in self.session.handle.get_overridable_initializers()} - set(self.sampler.given)
        rng = np.random.default_rng([self.seed, 77])
        found = {}
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
        """What the original's quantizers round, made when first needed."""
        return Unrounded(self.model)

    def reference_of(self, index: int) -> Outputs | None:
        """Reference outputs of one run."""
        if index not in self._references:
            self._references[index] = self.reference.run(self.runs[index].feeds)
        return self._references[index]

    def trusted(self, name: str) -> bool:
        """Whether the reference is a measure for an output, as far as it was asked: see ``TRUST``."""
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
        """How far outputs move when inputs and weights move by a unit roundoff or two."""
        worst: dict[str, Norms] = {}
        for session, runs in self._perturbed():
            for index, run in runs:
                moved = session.run(run.feeds)
                still = self.runs[index]
                for name, value in moved.items() if not isinstance(moved, str) else ():
                    base = still.outputs[name]
                    if np.shape(value) == np.shape(base) and not isinstance(value, list):
                        worst[name] = worst.get(name, Norms()) | measure(np.asarray(base), np.asarray(value))
        return worst

    def _perturbed(self) -> list[tuple[Session, list[tuple[int, Run]]]]:
        made = []
        for seed in (1, 2):
            proto = perturbed_weights(self.model, seed)
            session = open_session(proto, threads=self.threads) if proto is not None else self.session
            if isinstance(session, Session):
                runs = [
                    (i, Run(r.binding, r.sample, r.overridden, perturbed_feeds(r.feeds, seed), r.outputs))
                    for i, r in enumerate(self.runs)
                ]
                made.append((session, runs))
        return made

    def check(self, candidate: ModelLike, session: Session | str | None = None) -> ModelCheck:
        """Compare a candidate with the original.  ``session``: what came of opening it, where it was opened before."""
        start = time.perf_counter()
        result = ModelCheck(False, "not needed", "", samples=self.samples, notes=self.notes)
        self._check(candidate, session, result)
        result.ok = not result.failures
        result.seconds = time.perf_counter() - start
        return result

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
            result.skipped = "no inputs found at which the original runs; give some with --input or --dim"
        result.bindings = [t.binding for t in self.trials]
        result.runs = len(self.runs)
        if result.skipped:
            return
        outputs: list[Outputs] = []
        for run in self.runs:
            made = session.run(run.feeds)
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
        moved = [
            n for n in names if not all(identical(r.outputs[n], o[n]) for r, o in zip(self.runs, outputs, strict=True))
        ]
        result.identical = not moved
        for name in names:
            check = self._output(name, outputs) if name in moved else OutputCheck(name, EXACT, "not needed")
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
            near = near_enough(run.outputs[name], outputs[index][name], self.error(name) if far else None)
            if near is None:
                self.reference_of(index)
                far.append(index)
            else:
                close.append(OutputCheck(name, near, ORIGINAL, run.describe()))
        if not far:
            return max(close, key=lambda check: check.comparison.error_rewritten)
        far.sort()
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
            one = compare(known, run.outputs[name], outputs[index][name], noise=own, stated=self.reference.islands)
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


def _believable(reference: Any, value: Any) -> bool:
    if isinstance(value, list) or isinstance(reference, list):
        return isinstance(value, list) and isinstance(reference, list) and len(value) == len(reference)
    if reference is None or value is None:
        return False
    row = TOLERANCES.get(np.asarray(value).dtype)
    if row is None or np.shape(reference) != np.shape(value):
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
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    samples: int = 3,
) -> ModelCheck:
    """Compare original ``a`` with rewritten ``b``; see ``Baseline``."""
    return Baseline(a, dims=dims, inputs=inputs, seed=seed, samples=samples).check(b)
