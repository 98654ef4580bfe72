"""Comparison of two models' runs side by side, against the original in float64 where their outputs differ.

Opening models takes most of the time: the float64 reference is only made when outputs differ by more than is allowed
whatever the reference, and what the original makes of its own rounding is only measured when a comparison fails.

A rewrite that is nearer to the truth than the original is right: where the original overflows, and float64 does not,
the reference says what the rewrite must come to.

Whole models and the parts at a site are judged alike; ``Depth`` says what is measured for which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from onnxrewrite.inputs.classes import EXACT_INPUTS, MAYBE_OVERFLOWS, NOT_FINITE, UNIFORM, class_of
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.protos import all_nodes
from onnxrewrite.reference.evaluation import Reference, build_reference
from onnxrewrite.reference.perturbation import perturbed_feeds, perturbed_model
from onnxrewrite.reference.rounding import Unrounded, is_rounded
from onnxrewrite.reference.runs import Run
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
from onnxrewrite.runtime.session import ModelLike, Session, as_proto, passing_session
from onnxrewrite.system.arrays import Array, DType, Feeds, Floats, Held, Mask, Outputs

ORIGINAL = "original"
"""The reference of an output that is so near the original that no other reference could object."""

ROUNDED = "the number that was rounded"
"""The same for integers that a quantizer made."""

BESIDE_OVERFLOW = 1e-2
"""The relative tolerance beside an overflow, without a better reference: a float64 result there can come from a
denormal, which has hardly a digit: the logarithm of one is off by log 2 in 745."""

FEW = 16
"""Results of fewer elements have no scale of their own: they may all be where a function is next to nothing."""

JUMPS = frozenset(operators(marks="jumps"))
"""Operators whose result jumps: at a number that is exact, it is on one side of the step or on the other."""

_STEPPED_PERTURBATIONS = 8
"""Steps are few, and to be met."""


@dataclass(frozen=True)
class Depth:
    """The effort that a judgement takes.

    Attributes:
        perturbations: The number of times that a model is moved to see how far its results follow.
        in_double: True if the float64 reference and its inner results are moved, too; else the original alone.
        trust: The original's error against the reference, in units roundoff (at most 0.05), up to which the reference
            is believed.  Beyond it a model is discontinuous or the reference wrong, and either way it is no measure.
            None: always.
        in_range: True if no intermediate result is assumed to overflow: where the reference itself does, nothing is
            required of the rewrite.
        threads: Of sessions; 0 is ONNX Runtime's choice.
    """

    perturbations: int = 8
    in_double: bool = True
    trust: float | None = None
    in_range: bool = False
    threads: int = 1


PART = Depth()
WHOLE = Depth(perturbations=2, in_double=False, trust=2.0**14, threads=0)


class Finding(NamedTuple):
    """The worst comparison of an output over runs of one class of values, the first that fails if one does."""

    name: str
    comparison: Comparison
    reference: str
    run: Run


Pairs: TypeAlias = Sequence[tuple[Run, Outputs]]
"""Runs of the original, and what the rewritten model makes of the same inputs."""


class Judge:
    """Compares the runs of a model with those of what replaces it; what is known of the original is kept.

    Args:
        original: The model.
        session: The same, open.
        depth: The effort.
    """

    def __init__(self, original: ModelLike, session: Session, depth: Depth = PART) -> None:
        self.original, self.session, self.depth = original, session, depth
        self.unrounded = Unrounded(original)
        self.notes: list[str] = []
        self._references: dict[Run, Outputs | None] = {}
        self._noise: dict[tuple[Run, ...], dict[str, Norms]] = {}
        self._spreads: dict[tuple[Run, ...], dict[tuple[Run, str], Floats]] = {}

    @cached_property
    def reference(self) -> Reference:
        """The float64 reference, built when first needed."""
        return build_reference(self.original, threads=self.depth.threads)

    @property
    def used_reference(self) -> bool:
        """True if a comparison needed the reference."""
        return "reference" in vars(self)

    def close(self) -> None:
        """Free the reference."""
        if self.used_reference and self.reference.session is not None:
            self.reference.session.close()

    def judge(self, runs: Sequence[Run], made: Sequence[Outputs]) -> Iterator[Finding]:
        """All outputs that are not equal in all runs; those of one class of values together."""
        for values in dict.fromkeys(r.values for r in runs):
            pairs = [(r, m) for r, m in zip(runs, made, strict=True) if r.values == values]
            for name in pairs[0][0].outputs:
                if not all(identical(run.outputs[name], new.get(name)) for run, new in pairs):
                    yield self._compare(pairs, name)

    def difference(self, new: Session | str, feeds: Feeds) -> str | None:
        """In which way a replacement, open, differs at certain inputs; None where it does not, or where the original
        does not run."""
        wanted = self.session.run(feeds)
        if isinstance(wanted, str):
            return None
        if isinstance(new, str):
            return f"the replacement does not open: {new}"
        made = new.run({n: v for n, v in feeds.items() if n in new.inputs})
        if isinstance(made, str):
            return f"the replacement fails where the original runs: {made}"
        run = Run({}, "these inputs", feeds, wanted, class_of(feeds))
        findings = self.judge([run], [dict(zip(wanted, made.values(), strict=False))])  # one that lacks is told
        return next((f"output {f.name}: {f.comparison.reason}" for f in findings if not f.comparison.accept), None)

    def _compare(self, pairs: Pairs, name: str) -> Finding:
        """The first comparison that fails, else the worst; small runs ask for the reference first."""
        if is_rounded(pairs[0][0].outputs[name]):
            return self._rounded(pairs, name)
        close, far, own = list[Finding](), list[int](), Norms()
        for index in sorted(range(len(pairs)), key=lambda i: pairs[i][0].size):
            run, new = pairs[index]
            near = near_enough(run.outputs[name], new.get(name), own)
            if near is None:
                far.append(index)
                own = own | self._error(run, name)
            else:
                close.append(Finding(name, near, ORIGINAL, run))
        if not far:
            return max(close, key=_severity)
        far.sort()
        known = self._believed([pairs[i][0] for i in far], name)
        own = own if any(k is not None for k in known) else Norms()
        kind = self.reference.kind if any(k is not None for k in known) else "float32"
        found = [*close]
        for index, reference in zip(far, known, strict=True):
            run, new = pairs[index]
            one = self._one(pairs, run, new.get(name), reference, name, own)
            if not one.accept and _has_few(run.outputs[name]):
                together = self._together(pairs, name, own)
                one = together if together is not None and together.accept else one
            found.append(Finding(name, one, kind, run))
            if not one.accept:
                return found[-1]
        return max(found, key=_severity)

    def _error(self, run: Run, name: str) -> Norms:
        """The original's own error, where that is a measure."""
        known, old = self._known(run, name), run.outputs[name]
        if known is None or self.reference.stepped or not _has_scale(known, old):
            return Norms()
        error = measure(known, old)
        return error if self._is_believable(error, old) else Norms()

    def _known(self, run: Run, name: str) -> Held:
        """The reference of an output of a run, where it has one of the same shape."""
        old = run.outputs[name]
        if old is None or (not isinstance(old, list) and np.asarray(old).dtype not in TOLERANCES):
            return None
        return _alike((self._in_double(run) or {}).get(name), old)

    def _in_double(self, run: Run) -> Outputs | None:
        if run not in self._references:
            self._references[run] = self.reference.run(run.feeds)
        return self._references[run]

    def _believed(self, runs: Sequence[Run], name: str) -> list[Held]:
        """The references of runs; none where one of them is not believed."""
        known = [self._known(run, name) for run in runs]
        if self.depth.trust is None:
            return known
        pairs = [(k, run.outputs[name]) for k, run in zip(known, runs, strict=True)]
        believed = all(k is not None and self._is_believable(measure(k, old), old) for k, old in pairs)
        return known if believed else [None] * len(known)

    def _is_believable(self, error: Norms, old: Held) -> bool:
        if self.depth.trust is None or isinstance(old, list):
            return True
        return error.worst <= min(self.depth.trust * TOLERANCES[np.asarray(old).dtype].unit, 0.05)

    def _together(self, pairs: Pairs, name: str, own: Norms) -> Comparison | None:
        """The comparison of all runs as one; None where they cannot be one.

        An error is measured against the largest element of a result, and of a single element that is any number: the
        digits of σ(-700) are nobody's concern beside those of σ(0).
        """
        known = self._believed([run for run, _ in pairs], name)
        made = [(k, run.outputs[name], new.get(name)) for k, (run, new) in zip(known, pairs, strict=True)]
        if any(_alike(part, old) is None for reference, old, new in made for part in (reference, new)):
            return None
        joined = [np.concatenate([np.ravel(np.asarray(parts[place])) for parts in made]) for place in range(3)]
        return self._against(joined[0], pairs[0][0], joined[1], joined[2], own)

    def _one(self, pairs: Pairs, run: Run, new: Held, reference: Held, name: str, own: Norms) -> Comparison:
        """One comparison; where it fails, again with what the original makes of its own rounding, and then without the
        elements in which it overflows."""
        old = run.outputs[name]
        runs = [each for each, _ in pairs]
        steps = self._spread(runs).get((run, name)) if reference is not None and self._is_stepped else None
        found = self._against(reference, run, old, new, own, steps)
        overflows = not found.accept and self._may_overflow(run, old, new)
        if found.accept or not (np.isfinite(found.error_rewritten) or overflows):
            return found
        if steps is not None and not overflows:
            return found
        own = own | self.noise(runs).get(name, Norms())
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
        islands, averaged = self.used_reference and self.reference.islands, run.values not in UNIFORM
        return compare(reference, original, rewritten, Rounding(own, islands, averaged, self._is_stepped, spread))

    @property
    def _is_stepped(self) -> bool:
        """True if the model rounds to fewer digits than it computes with, see ``tolerance``."""
        return self.used_reference and self.reference.stepped

    def _rounded(self, pairs: Pairs, name: str) -> Finding:
        """The same of integers, which a quantizer may have made: exactly equal, or right roundings of one number."""
        worst = Finding(name, EXACT, ROUNDED, pairs[0][0])
        for run, new in pairs:
            one = self.unrounded.compare(run.feeds, name, run.outputs[name], new.get(name))
            if not one.accept:
                return Finding(name, one, ROUNDED, run)
            worst = max(worst, Finding(name, one, ROUNDED, run), key=_severity)
        return worst

    # -- how far the original is off by itself -----------------------------------------------------------------

    def noise(self, runs: Sequence[Run]) -> dict[str, Norms]:
        """The distance that outputs of runs of one class move when inputs and weights, or inner results, move by one
        unit roundoff or two, and the original's own error there: where two scores of a softmax nearly tie, either may
        win.  At inputs that are exact, a step does not come from rounding."""
        if runs[0].values in EXACT_INPUTS and self._jumps:
            return {}
        key = tuple(runs)
        if key not in self._noise:
            worst = self._noise[key] = dict[str, Norms]()
            for run, name, still, moved in (*self._moves(runs), *self._shakes(runs)):
                dtype = getattr(run.outputs[name], "dtype", None)
                distance = measure(still, moved, dtype if dtype in TOLERANCES else None)
                worst[name] = worst.get(name, Norms()) | distance
        return self._noise[key]

    def _spread(self, runs: Sequence[Run]) -> dict[tuple[Run, str], Floats]:
        """The distance that each element of the runs' outputs moves when inputs do."""
        key = tuple(runs)
        if key not in self._spreads:
            spread = self._spreads[key] = dict[tuple[Run, str], Floats]()
            for run, name, still, moved in self._moves(runs):
                if not isinstance(run.outputs[name], list):
                    moves = farthest(np.asarray(run.outputs[name]).shape, [(still, moved)])
                    spread[run, name] = np.maximum(spread.get((run, name), 0.0), moves)
        return self._spreads[key]

    def _moves(self, runs: Sequence[Run]) -> Iterator[tuple[Run, str, Held, Held]]:
        """Results, and what becomes of them when inputs move: of the original, weights too, where there is no reference
        or the model has steps; then of the reference, and of the original against it."""
        stepped, in_double = self.reference.stepped, self.depth.in_double and self.reference.trusted
        for seed in range(_STEPPED_PERTURBATIONS if stepped else self.depth.perturbations):
            feeds = [perturbed_feeds(run.feeds, seed, 0.5) for run in runs]
            if stepped or not in_double:
                model = perturbed_model(self.original, seed)
                with (
                    passing_session(model, threads=self.depth.threads)
                    if model
                    else nullcontext(self.session) as session
                ):
                    for run, fed in zip(runs, feeds, strict=True):
                        yield from _moved(run, run.outputs, session, fed)
            for run, fed in zip(runs, feeds, strict=True) if in_double else ():
                still, moved = self._in_double(run), self.reference.run(fed)
                if still is not None and moved is not None:
                    yield from ((run, n, v, moved[n]) for n, v in still.items() if _alike(v, moved[n]) is not None)
                    yield from _moved(run, moved, self.session, fed)

    def _shakes(self, runs: Sequence[Run]) -> Iterator[tuple[Run, str, Held, Held]]:
        """The reference, or an original in float64, and what becomes of it when inner results are rounded."""
        for seed in range(self.depth.perturbations if self.depth.in_double else 0):
            for run in runs:
                still = (self._in_double(run) if self.reference.trusted else None) or run.outputs
                outputs = self._shaken.run(run.feeds, seed) or {}
                for name, value in still.items():
                    if name in outputs and getattr(value, "dtype", None) == np.float64:
                        yield run, name, value, outputs[name]

    @cached_property
    def _shaken(self) -> Shaken:
        """The reference with the roundings of the original's own dtypes."""
        return Shaken(as_proto(self.original))

    @cached_property
    def _jumps(self) -> bool:
        """True if the result of some operator in the original jumps."""
        return any(n.op_type in JUMPS for n in all_nodes(as_proto(self.original)))

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
        it.  Where the reference overflows as well, any finite number will do at inputs far from zero.  An infinity in
        the place of NaN is as lost: of a difference of two products, a kernel that rounds once makes one.  A rule that
        assumes that nothing leaves the range of its dtype may do anything where the original is not finite: there
        something has, whether the reference is or not.
        """
        wide, made = old.astype(np.float64), new.astype(np.float64)
        lost = ~np.isfinite(wide)
        if old.dtype == np.float64 or reference is None:  # no reference is better
            return self._beside_unknown(run, wide, made, lost, old.dtype)
        truth = np.asarray(reference, np.float64)
        with np.errstate(over="ignore"):
            rounded = truth.astype(old.dtype).astype(np.float64)
        known = lost & np.isfinite(truth)
        out = lost if self.depth.in_range else self._lost_by_all(run, known, lost, wide, rounded, made)
        if out is None:
            return None
        if not np.isfinite(made[~out]).all():
            return None
        kept = [np.where(out, 0, a) for a in (truth, np.where(known, rounded, old), new)]
        return self._against(kept[0], run, kept[1].astype(old.dtype), kept[2].astype(old.dtype), own)

    @staticmethod
    def _lost_by_all(run: Run, known: Mask, lost: Mask, wide: Floats, rounded: Floats, made: Floats) -> Mask | None:
        """The elements that the reference loses, too, that are beyond the dtype, or where the rewrite loses what the
        original does; None if it makes something else of them."""
        unknown = lost & ~known
        alike = known & np.isnan(wide) & ~np.isfinite(made)
        beyond = known & ~np.isfinite(rounded) & ~alike
        right = _same(wide, made) | (np.isfinite(made) & (run.values in MAYBE_OVERFLOWS))
        return unknown | alike | beyond if right[unknown].all() and _same(rounded, made)[beyond].all() else None

    def _beside_unknown(self, run: Run, old: Floats, new: Floats, lost: Mask, dtype: DType) -> Comparison | None:
        """The same without a reference that knows better."""
        right = (_same(old, new) | np.isfinite(new)).all() and run.values in MAYBE_OVERFLOWS
        if not self.depth.in_range and not right:
            return None
        near = np.allclose(old[~lost], new[~lost], rtol=BESIDE_OVERFLOW)
        return EXACT if near else None


def _has_few(value: Held) -> bool:
    """True for a tensor of so few elements that they have no scale of their own."""
    return isinstance(value, np.ndarray) and value.size < FEW


def _severity(finding: Finding) -> float:
    return finding.comparison.error_rewritten


def _alike(value: Held, other: Held) -> Held:
    """A value of another one's shape, or a sequence of as many; None where it is neither."""
    if value is None or isinstance(value, list) != isinstance(other, list):
        return None
    if isinstance(value, list) and isinstance(other, list):
        return value if len(value) == len(other) else None
    return value if np.asarray(value).shape == np.asarray(other).shape else None


def _has_scale(reference: Held, original: Held) -> bool:
    """True if a reference is above the least normal number, so that an error relative to it is meaningful."""
    if isinstance(original, list):
        return True
    known = np.asarray(reference)
    largest = float(np.max(np.abs(known), initial=0.0, where=np.isfinite(known)))
    return largest > TOLERANCES[np.asarray(original).dtype].least


def _same(old: Floats, new: Floats) -> Mask:
    """The elements that are equal, NaN to NaN: of those not finite, infinities of the same sign."""
    return np.asarray((old == new) | (np.isnan(old) & np.isnan(new)))


def _moved(run: Run, still: Outputs, session: Session | str, feeds: Feeds) -> Iterator[tuple[Run, str, Held, Held]]:
    """Values, and what a session gives for them; nothing where it does not run."""
    outputs = session.run(feeds) if isinstance(session, Session) else session
    for name, value in outputs.items() if not isinstance(outputs, str) else ():
        if not isinstance(value, list) and _alike(value, still.get(name)) is not None:
            yield run, name, np.asarray(still[name]), np.asarray(value)
