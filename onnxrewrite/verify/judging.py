"""Whether two runs side by side give equal outputs, against the original in float64 where they differ.

Opening models is most of the time: the float64 reference is only made when outputs differ by more than anyone would
allow, and what the original makes of its own rounding is only measured when a comparison fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx

from onnxrewrite.verify.classes import MAYBE_OVERFLOWS, UNIFORM
from onnxrewrite.verify.dims import Binding
from onnxrewrite.verify.numeric import EXACT, TOLERANCES, Comparison, Norms, compare, identical, measure, near_enough
from onnxrewrite.verify.perturb import perturbed_feeds, perturbed_weights
from onnxrewrite.verify.reference import Reference, build_reference
from onnxrewrite.verify.rounding import Unrounded, is_rounded
from onnxrewrite.verify.sample import is_finite
from onnxrewrite.verify.session import Outputs, Session, open_session

PERTURBATIONS = 8
"""How often inputs are moved to see how far results follow."""

BESIDE_OVERFLOW = 1e-2
"""What a float64 original computes beside an overflow can come from a denormal, which has hardly a digit: the logarithm
of one is off by log 2 in 745."""


@dataclass
class Run:
    """Both models' outputs at the same inputs."""

    values: str
    binding: Binding
    feeds: Mapping[str, Any]
    original: Outputs
    rewritten: Outputs

    def describe(self) -> str:
        """The class of values and the sizes."""
        sizes = " ".join(f"{k}={v}" for k, v in self.binding.items())
        return f"{self.values} inputs{' at ' + sizes if sizes else ''}"


class Judgement(NamedTuple):
    """The worst comparison, the first that fails if one does, and at which output of which run."""

    found: Comparison
    place: str = ""
    run: Run | None = None


class Judge:
    """Compares the runs of a model with those of what replaces it."""

    def __init__(self, original: onnx.ModelProto, session: Session) -> None:
        self.original, self.session = original, session
        self.reference: Reference | None = None
        self.unrounded = Unrounded(original)
        self.notes: list[str] = []

    def judge(self, runs: Sequence[Run]) -> Judgement:
        """All outputs of all runs, those of one class of values together."""
        worst = Judgement(EXACT)
        for values in dict.fromkeys(r.values for r in runs):
            group = [r for r in runs if r.values == values]
            for name in group[0].original:
                if all(identical(r.original[name], r.rewritten.get(name)) for r in group):
                    continue
                found, run = self._compare(group, name)
                judgement = Judgement(found, f"output {name}, {run.describe()}", run)
                if not found.accept and self._only_overflow(run, name):
                    self.notes.append(f"{judgement.place}: the original overflows, the replacement does not")
                    continue
                if not found.accept:
                    return judgement
                if found.error_rewritten >= worst.found.error_rewritten:
                    worst = judgement
        return worst

    def _compare(self, group: Sequence[Run], name: str) -> tuple[Comparison, Run]:
        """The first comparison that fails, else the worst.

        A reference is only made where the two differ by more than any would allow, conditioning only measured when one
        fails.
        """
        own, far, references, close = Norms(), list[Run](), list[Any](), list[tuple[Comparison, Run]]()
        if is_rounded(group[0].original[name]):
            return self._rounded(group, name)
        for run in group:
            near = near_enough(run.original[name], run.rewritten.get(name), own)
            if near is not None:
                close.append((near, run))
                continue
            reference = self._reference(run.feeds, name, run.original[name])
            own = own | measure(reference, run.original[name]) if reference is not None else own
            far.append(run)
            references.append(reference)
        found = self._first(far, references, name, own) if far else close[0]
        if not found[0].accept and np.isfinite(found[0].error_rewritten):
            found = self._first(far, references, name, own | self._conditioning(far, references, name))
        if not found[0].accept:
            return found
        return max((found, *close), key=lambda pair: pair[0].error_rewritten)

    def _rounded(self, group: Sequence[Run], name: str) -> tuple[Comparison, Run]:
        """The same of integers, which a quantizer may have made: exactly equal, or right roundings of one number."""
        worst: tuple[Comparison, Run] = EXACT, group[0]
        for run in group:
            found = self.unrounded.compare(run.feeds, name, run.original[name], run.rewritten.get(name))
            if not found.accept:
                return found, run
            worst = max(worst, (found, run), key=lambda pair: pair[0].error_rewritten)
        return worst

    def _first(self, group: Sequence[Run], references: Sequence[Any], name: str, own: Norms) -> tuple[Comparison, Run]:
        islands = self.reference is not None and self.reference.islands
        results = [
            (
                compare(
                    reference,
                    r.original[name],
                    r.rewritten.get(name),
                    noise=own,
                    stated=islands,
                    averaged=r.values not in UNIFORM,
                ),
                r,
            )
            for r, reference in zip(group, references, strict=True)
        ]
        failed = [pair for pair in results if not pair[0].accept]
        return failed[0] if failed else max(results, key=lambda pair: pair[0].error_rewritten)

    def _reference(self, feeds: Mapping[str, Any], name: str, original: Any) -> Any:
        if not hasattr(original, "dtype") or original.dtype not in TOLERANCES:
            return None
        if self.reference is None:
            self.reference = build_reference(self.original, threads=1)
        outputs = self.reference.run(feeds)
        value = outputs.get(name) if outputs is not None else None
        return value if value is not None and np.shape(value) == np.shape(original) else None

    def _conditioning(self, group: Sequence[Run], references: Sequence[Any], name: str) -> Norms:
        """How far results move when inputs (without a reference: weights too) move by one unit roundoff, and how wrong
        the original itself is there: where two scores of a softmax nearly tie, either may win."""
        worst = Norms()
        for run, reference in zip(group, references, strict=True):
            for seed in range(PERTURBATIONS):
                feeds = perturbed_feeds(run.feeds, seed, 0.5)
                if reference is None:
                    model = perturbed_weights(self.original, seed)
                    session = open_session(model, threads=1) if model else self.session
                    worst = worst | _distance(run.original[name], session, feeds, name)
                    continue
                moved = self._reference(feeds, name, run.original[name])
                if moved is not None:
                    worst = worst | measure(reference, moved) | _distance(moved, self.session, feeds, name)
        return worst

    def _only_overflow(self, run: Run, name: str) -> bool:
        """Inputs far from zero, finite replacement, and the original overflowed: better, not different."""
        if run.values not in MAYBE_OVERFLOWS or isinstance(run.original[name], list):
            return False
        old, new = np.asarray(run.original[name]), np.asarray(run.rewritten.get(name))
        if old.shape != new.shape or old.dtype not in TOLERANCES or old.dtype != new.dtype:
            return False
        lost = ~np.isfinite(old.astype(np.float64))
        if not lost.any() or not is_finite(new):
            return False
        if old.dtype == np.float64:  # no reference is better
            return bool(np.allclose(old[~lost], new[~lost], rtol=BESIDE_OVERFLOW))
        reference = self._reference(run.feeds, name, old)
        kept = [None if a is None else np.where(lost, 0, a).astype(a.dtype) for a in (reference, old, new)]
        return compare(*kept).accept


def _distance(value: Any, session: Session | str, feeds: Mapping[str, Any], name: str) -> Norms:
    """How far what a session gives is from a value; zero where it does not run."""
    outputs = session.run(feeds) if isinstance(session, Session) else session
    if isinstance(outputs, str) or isinstance(outputs[name], list):
        return Norms()
    return measure(np.asarray(value), np.asarray(outputs[name]))
