"""Comparison of two runs side by side, against the original in float64 where their outputs differ.

Opening models takes most of the time: the float64 reference is only made when outputs differ by more than is allowed
whatever the reference, and what the original makes of its own rounding is only measured when a comparison fails.

A rewrite that is nearer to the truth than the original is right: where the original overflows, and float64 does not,
the reference says what the rewrite must come to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import onnx

from onnxrewrite.inputs.bindings import Binding
from onnxrewrite.inputs.classes import EXACT_INPUTS, MAYBE_OVERFLOWS, NOT_FINITE, UNIFORM
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.protos import all_nodes
from onnxrewrite.reference.evaluation import Reference, build_reference
from onnxrewrite.reference.perturbation import perturbed_feeds, perturbed_model
from onnxrewrite.reference.rounding import Unrounded, is_rounded
from onnxrewrite.reference.stochastic import Shaken
from onnxrewrite.reference.tolerance import (
    EXACT,
    TOLERANCES,
    Comparison,
    Norms,
    Rounding,
    compare,
    farthest,
    identical,
    measure,
    near_enough,
)
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Array, DType, Feeds, Floats, Held, Mask, Outputs, is_tensor

PERTURBATIONS = 8
"""The number of times that inputs, and inner results, are moved to see how far results follow."""

BESIDE_OVERFLOW = 1e-2
"""The relative tolerance beside an overflow, without a better reference: a float64 result there can come from a
denormal, which has hardly a digit: the logarithm of one is off by log 2 in 745."""

FEW = 8
"""Results of fewer elements have no scale of their own."""

JUMPS = frozenset(operators(marks="jumps"))
"""Operators whose result jumps: at a number that is exact, it is on one side of the step or on the other."""


@dataclass
class Run:
    """Both models' outputs at the same inputs."""

    values: str
    binding: Binding
    feeds: Feeds
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
    """Compares the runs of a model with those of what replaces it.

    Args:
        original: The model.
        session: The same, open.
        in_range: True if no intermediate result is assumed to overflow: where the reference itself does, nothing is
            required of the rewrite.
    """

    def __init__(self, original: onnx.ModelProto, session: Session, *, in_range: bool = False) -> None:
        self.original, self.session = original, session
        self.in_range = in_range
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
        if is_rounded(group[0].original[name]):
            return self._rounded(group, name)
        own, far, references, close = Norms(), list[Run](), list[Held](), list[tuple[Comparison, Run]]()
        for run in group:
            near = near_enough(run.original[name], run.rewritten.get(name), own)
            if near is not None:
                close.append((near, run))
                continue
            reference = self._reference(run.feeds, name, run.original[name])
            if reference is not None and not self._is_stepped and _has_scale(reference, run.original[name]):
                own = own | measure(reference, run.original[name])
            far.append(run)
            references.append(reference)
        results = list(close)
        for run, reference in zip(far, references, strict=True):
            found = self._one(run, reference, name, own)
            if not found.accept and np.asarray(run.original[name]).size < FEW:
                together = self._together(group, name, own)
                found = together if together is not None and together.accept else found
            if not found.accept:
                return found, run
            results.append((found, run))
        return max(results, key=lambda pair: pair[0].error_rewritten)

    def _together(self, group: Sequence[Run], name: str, own: Norms) -> Comparison | None:
        """The comparison of all runs as one; None where they cannot be one.

        An error is measured against the largest element of a result, and of a single element that is any number: the
        digits of σ(-700) are nobody's concern beside those of σ(0).
        """
        made = [
            (self._reference(r.feeds, name, r.original[name]), r.original[name], r.rewritten.get(name)) for r in group
        ]
        if any(
            part is None or np.asarray(part).shape != np.asarray(old).shape
            for _, old, new in made
            for part in (old, new)
        ):
            return None
        if any(reference is None for reference, _, _ in made):
            return None
        joined = [np.concatenate([np.ravel(np.asarray(parts[place])) for parts in made]) for place in range(3)]
        return self._against(joined[0], group[0], joined[1], joined[2], own)

    def _one(self, run: Run, reference: Held, name: str, own: Norms) -> Comparison:
        """One comparison; where it fails, again with what the original makes of its own rounding, and then without the
        elements in which it overflows."""
        old, new = run.original[name], run.rewritten.get(name)
        steps = self._spread(run, reference, name) if self._is_stepped and reference is not None else None
        found = self._against(reference, run, old, new, own, steps)
        overflows = not found.accept and self._may_overflow(run, old, new)
        if found.accept or not (np.isfinite(found.error_rewritten) or overflows):
            return found
        if steps is not None and not overflows:
            return found
        own = own | self._conditioning(run, reference, name)
        if not overflows:
            return self._against(reference, run, old, new, own)
        beside = self._beside_overflow(run, reference, np.asarray(old), np.asarray(new), own)
        if beside is None or not beside.accept:
            return found
        self.notes.append(f"output {name}, {run.describe()}: the original overflows, the replacement does not")
        return beside

    def _against(
        self, reference: Held, run: Run, original: Held, rewritten: Held, own: Norms, spread: Floats | None = None
    ) -> Comparison:
        stated = self.reference is not None and self.reference.islands
        rounding = Rounding(own, stated, run.values not in UNIFORM, self._is_stepped, spread)
        return compare(reference, original, rewritten, rounding)

    @property
    def _is_stepped(self) -> bool:
        """True if the model rounds to fewer digits than it computes with, see ``tolerance``."""
        return self.reference is not None and self.reference.stepped

    def _rounded(self, group: Sequence[Run], name: str) -> tuple[Comparison, Run]:
        """The same of integers, which a quantizer may have made: exactly equal, or right roundings of one number."""
        worst: tuple[Comparison, Run] = EXACT, group[0]
        for run in group:
            found = self.unrounded.compare(run.feeds, name, run.original[name], run.rewritten.get(name))
            if not found.accept:
                return found, run
            worst = max(worst, (found, run), key=lambda pair: pair[0].error_rewritten)
        return worst

    def _reference(self, feeds: Feeds, name: str, original: Held) -> Held:
        if not is_tensor(original) or original.dtype not in TOLERANCES:
            return None
        if self.reference is None:
            self.reference = build_reference(self.original, threads=1)
        outputs = self.reference.run(feeds)
        value = outputs.get(name) if outputs is not None else None
        return value if value is not None and np.asarray(value).shape == np.asarray(original).shape else None

    # -- how far the original is off by itself -----------------------------------------------------------------

    def _conditioning(self, run: Run, reference: Held, name: str) -> Norms:
        """The distance that the result moves when inputs (without a reference: weights too) move by one unit roundoff,
        or inner results by theirs, and the original's own error there: where two scores of a softmax nearly tie, either
        may win.  At inputs that are exact, a step does not come from rounding."""
        if run.values in EXACT_INPUTS and self._jumps:
            return Norms()
        worst, dtype = Norms(), getattr(run.original[name], "dtype", None)
        for still, moved in (*self._moves(run, reference, name), *self._shakes(run, reference, name)):
            worst = worst | measure(still, moved, dtype if dtype in TOLERANCES else None)
        return worst

    def _spread(self, run: Run, reference: Held, name: str) -> Floats | None:
        """The distance that each element moves when inputs do; None if the output is not an array."""
        if isinstance(run.original[name], list):
            return None
        return farthest(np.asarray(run.original[name]).shape, self._moves(run, reference, name))

    def _moves(self, run: Run, reference: Held, name: str) -> Iterator[tuple[Held, Held]]:
        """Pairs of a result and what it becomes when inputs move: of the original where there is no reference or the
        model has steps, then of the reference, and of the original against it."""
        for seed in range(PERTURBATIONS):
            feeds = perturbed_feeds(run.feeds, seed, 0.5)
            if reference is None or self._is_stepped:
                model = perturbed_model(self.original, seed)
                session = open_session(model, threads=1) if model else self.session
                yield from _run(run.original[name], session, feeds, name)
            if reference is None:
                continue
            moved = self._reference(feeds, name, run.original[name])
            if moved is not None:
                yield reference, moved
                yield from _run(moved, self.session, feeds, name)

    def _shakes(self, run: Run, reference: Held, name: str) -> Iterator[tuple[Held, Held]]:
        """Pairs of the reference, or an original in float64, and what it becomes when inner results are rounded."""
        still = reference if reference is not None else run.original[name]
        for seed in range(PERTURBATIONS if getattr(still, "dtype", None) == np.float64 else 0):
            outputs = self._shaken.run(run.feeds, seed)
            if outputs is not None and name in outputs:
                yield still, outputs[name]

    @cached_property
    def _shaken(self) -> Shaken:
        """The reference with the roundings of the original's own dtypes."""
        return Shaken(self.original)

    @cached_property
    def _jumps(self) -> bool:
        """True if the result of some operator in the original jumps."""
        return any(n.op_type in JUMPS for n in all_nodes(self.original))

    # -- overflow ----------------------------------------------------------------------------------------------

    @staticmethod
    def _may_overflow(run: Run, old: Held, new: Held) -> bool:
        """True if the original may have overflowed: an element of it is not finite, at inputs that are."""
        if run.values == NOT_FINITE or isinstance(old, list) or np.asarray(old).shape != np.asarray(new).shape:
            return False
        old, new = np.asarray(old), np.asarray(new)
        return old.dtype in TOLERANCES and old.dtype == new.dtype and not np.isfinite(old.astype(np.float64)).all()

    def _beside_overflow(self, run: Run, reference: Held, old: Array, new: Array, own: Norms) -> Comparison | None:
        """The comparison where the original overflows; None where that is not what is the matter.

        Where the reference knows better, the rewrite has to come to it, or to infinity where the dtype does not reach
        it.  Where the reference overflows as well, any finite number will do at inputs far from zero, and anything
        where the rule assumes that nothing overflows.
        """
        wide, made = old.astype(np.float64), new.astype(np.float64)
        lost = ~np.isfinite(wide)
        if old.dtype == np.float64 or reference is None:  # no reference is better
            return self._beside_unknown(run, wide, made, lost, old.dtype)
        truth = np.asarray(reference, np.float64)
        with np.errstate(over="ignore"):
            rounded = truth.astype(old.dtype)
        known = lost & np.isfinite(truth)
        unknown = lost & ~known
        if not (self.in_range or (run.values in MAYBE_OVERFLOWS and np.isfinite(made[unknown]).all())):
            same = _same_pattern(wide[unknown], made[unknown])
            if not same:
                return None
        beyond = known & ~np.isfinite(rounded.astype(np.float64))
        if not _same_pattern(rounded.astype(np.float64)[beyond], made[beyond]):
            return None
        out = unknown | beyond
        if not np.isfinite(made[~out]).all():
            return None
        kept = [np.where(out, 0, a) for a in (truth, np.where(known, rounded, old), new)]
        return self._against(kept[0], run, kept[1].astype(old.dtype), kept[2].astype(old.dtype), own)

    def _beside_unknown(self, run: Run, old: Floats, new: Floats, lost: Mask, dtype: DType) -> Comparison | None:
        """The same without a reference that knows better."""
        if not self.in_range and (run.values not in MAYBE_OVERFLOWS or not np.isfinite(new).all()):
            return None
        near = np.allclose(old[~lost], new[~lost], rtol=BESIDE_OVERFLOW)
        return EXACT if near else None


def _has_scale(reference: Held, original: Held) -> bool:
    """True if a reference is above the least normal number, so that an error relative to it is meaningful."""
    known = np.asarray(reference)
    largest = float(np.max(np.abs(known), initial=0.0, where=np.isfinite(known)))
    return largest > TOLERANCES[np.asarray(original).dtype].least


def _same_pattern(old: Floats, new: Floats) -> bool:
    """True if all elements are equal, NaN to NaN: of those not finite, infinities of the same sign."""
    return bool(np.all((old == new) | (np.isnan(old) & np.isnan(new))))


def _run(value: Held, session: Session | str, feeds: Feeds, name: str) -> Iterator[tuple[Held, Held]]:
    """A value, and what a session gives for it; nothing where it does not run."""
    outputs = session.run(feeds) if isinstance(session, Session) else session
    if not isinstance(outputs, str) and not isinstance(outputs[name], list):
        yield np.asarray(value), np.asarray(outputs[name])
