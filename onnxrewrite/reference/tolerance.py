"""Error against the reference, and tolerances with a reason.

One question: given the float64 *reference* r, the *original* output o and the *rewritten* output w of one
value, did the rewrite keep the numbers?  The answer is relative to what the original itself achieves:

    E(w)  ≤  max( k · max(E(o), η),  floor · u )

- ``E`` is a normwise relative error (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed.,
  §1.2 and §6), in two norms at once.  The max norm, max|a−r| / max|r|, catches one wrong element; the
  2-norm, ‖a−r‖₂ / ‖r‖₂, is much steadier (roundings average out, a wrong constant does not), so it gets a
  smaller k.  Componentwise error |aᵢ−rᵢ|/|rᵢ| is not used: any re-association may lose all digits of a sum
  that cancels (Higham §4.2), and so may the original.
- ``u`` is the unit roundoff: 2⁻²⁴, 2⁻¹¹, 2⁻⁸, 2⁻⁵³ (round to nearest, Higham table 2.1).  Below λ, the smallest normal
  number of the dtype, numbers are spaced evenly, and a rounding costs u·λ whatever it rounds (gradual underflow, Higham
  eq. 2.8): the scale of an error is never below λ.
- ``k``.  A sum of n products has error bound γₙ = n·u/(1−n·u) in any order (Higham eq. 3.7), and about √n·u
  when roundings behave as random (§2.8).  The same formula evaluated in another order therefore has an
  error of the same size up to a modest factor.  k was set by measuring ORT 1.31's optimizer against no
  optimizer: E(w)/E(o) ≤ 1.5 in both norms on whole models; on graphs of ORT's optimizer tests (of which 34
  change at all) ≤ 3.1 and ≤ 2.8, and up to 5.4 in the 2-norm on sites with offset or tiny inputs (fused
  attention).  Left out of that count: GELU with 1.41421 for √2, which ORT fuses; it is a wrong constant.
  Models like these therefore pass by construction; they are no independent evidence for k.
- ``floor``.  When the original happens to be exact (a scaling by ½, an Identity), a replacement by a
  handful of operators still rounds a handful of times: each rounding costs at most u of the element it
  makes.
- ``η`` is the *conditioning* of the site: how far the exact result moves when the inputs move by one unit
  roundoff.  No algorithm can be asked to do better than that (mixed forward–backward stability, Higham
  §1.5): LayerNormalization of a constant row with eps 1e-12 is noise in either spelling.  Relative
  perturbations leave small-variance rows alone, so an eps of 1e-5 in place of 1e-12 is still caught there.

Without a reference (``reference=None``) r is the original, E(o) is η measured on the original itself by
random perturbation of its inputs and weights (after Vignes' CESTAC method, *Math. Comput. Simul.* 35,
1993), and ``stated · u`` replaces the floor: the two errors cannot be told apart then, so the tolerance is
merely stated.

A model with *steps*, which rounds to fewer digits than it computes with (a Cast to float16 in float32, quantizers),
amplifies a last digit to a whole step, at the few numbers that lie next to the middle of two.  Errors in a norm say
nothing there: one such number in a tensor would excuse an error of that size in all of them.  So each element is judged
by how far this very element moves when its inputs move by a unit roundoff, sᵢ (the *spread*, over several
perturbations, the original's own error among them), or by what three quarters of them stay below, q:

    |wᵢ − rᵢ|  ≤  A(max(sᵢ, q)),    A(s) = max( floor · u, min( k · s, max( 3 · s, k · stated · u ) ) )

relative to the scale: k-fold as long as it is rounding, three-fold where whole steps move, for what a rewrite makes of
them comes from the same distribution as what the perturbations make.  The 2-norm is judged by A of the 2-norm of s.
Without a reference, as in a quantized model, where one step moves all that is computed after it, both norms are judged
by A of what the perturbations make of them.

Elements far above all others (additive masks: −10⁴, −10⁹, −3.4·10³⁸) are measured against themselves and do
not enter the scale; otherwise they would hide every error.  NaN and ±Inf must be in the same places as in
the original; zeros compare equal whatever their sign.  Integers, booleans and strings are exactly equal: an
ArgMax or TopK whose winner changes is a difference.  This module runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnxrewrite.inputs.classes import SENTINEL_MIN
from onnxrewrite.system.arrays import Array, DType, Floats, Held, Mask, is_tensor
from onnxrewrite.system.plain import Json


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of a rewrite's error against the original's, by dtype.  ``*_rms``: in the 2-norm; ``least``: λ."""

    unit: float
    k: float
    k_rms: float
    floor: float
    floor_rms: float
    stated: float
    stated_rms: float
    least: float


TOLERANCES: dict[DType, Tolerance] = {
    np.dtype(np.float64): Tolerance(2.0**-53, 10, 8, 8, 2, 256, 64, 2.0**-1022),
    np.dtype(np.float32): Tolerance(2.0**-24, 10, 8, 8, 2, 256, 64, 2.0**-126),
    np.dtype(np.float16): Tolerance(2.0**-11, 8, 4, 4, 2, 16, 4, 2.0**-14),
    np.dtype(ml_dtypes.bfloat16): Tolerance(2.0**-8, 8, 4, 4, 2, 16, 4, 2.0**-126),
}
"""The one table; floors and stated tolerances in units of ``unit``."""

STEPS = 3.0
"""The factor where whole steps move: what a rewrite moves is one more sample of what the perturbations move."""

STEADY = 64
"""Elements from which the 2-norm is steadier than the max norm; below, both have the latter's bound."""

SENTINEL_GAP = 1e3


@dataclass(frozen=True)
class Norms:
    """A relative error in the max norm and in the 2-norm, and where the first is reached (flat index)."""

    worst: float = 0.0
    rms: float = 0.0
    index: int = -1

    def __or__(self, other: Norms) -> Norms:
        """The larger of both, in each norm."""
        index = self.index if self.worst >= other.worst else other.index
        return Norms(max(self.worst, other.worst), max(self.rms, other.rms), index)


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare``.  Errors and bound are relative; ``where`` is the worst element's index."""

    accept: bool
    error_original: float
    error_rewritten: float
    bound: float
    where: tuple[int, ...] | None
    reason: str
    error_original_rms: float = 0.0
    error_rewritten_rms: float = 0.0
    bound_rms: float = 0.0

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Rounding:
    """Knowledge of the roundings in two runs, beside their numbers.

    Attributes:
        noise: η, see the module's docstring.
        stated: True if the reference has float32 islands, whose rounding it shares with the original, so that the
            stated floor is taken.
        averaged: True if roundings differ from element to element; where all rows are equal they do not average out,
            and the stated floor of the 2-norm says nothing.
        stepped: True if the model has steps.
        spread: The distance that each element of such a model moves, which takes the place of ``noise`` where there is
            a reference.
    """

    noise: Norms = Norms()
    stated: bool = False
    averaged: bool = True
    stepped: bool = False
    spread: Floats | None = None


_USUAL = Rounding()

EXACT = Comparison(True, 0.0, 0.0, 0.0, None, "equal")


BITWISE, IN_VALUE = "bitwise equal", "equal but for the signs of zeros or NaN"
"""The kinds of equality of two outputs for which ``identical`` is true."""


def finite(number: float) -> float | None:
    """The number, None for one that is not finite: JSON has no such."""
    return float(number) if math.isfinite(number) else None


def refuse(reason: str, where: tuple[int, ...] | None = None) -> Comparison:
    """A comparison that failed before any error could be measured."""
    return Comparison(False, 0.0, float("inf"), 0.0, where, reason)


def is_float(dtype: DType) -> bool:
    """True if values of this dtype carry rounding errors, for which the table has a row."""
    return dtype in TOLERANCES


def identical(a: Held, b: Held) -> bool:
    """Same shape, dtype and values; NaN equals NaN, −0 equals 0.  Lists (sequences) element by element."""
    if isinstance(a, list) or isinstance(b, list):
        if not (isinstance(a, list) and isinstance(b, list) and len(a) == len(b)):
            return False
        return all(identical(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(_equal_elements(a, b).all())


def _equal_elements(a: Array, b: Array) -> Mask:
    """True for each element in which two arrays of one shape and dtype agree; NaN equals NaN, in 8-bit formats too."""
    equal = np.asarray(a == b, np.bool_)
    has_nan = a.dtype.kind in "fc" or a.dtype.name.startswith(("float", "bfloat"))
    return equal | (np.isnan(a) & np.isnan(b)) if has_nan else equal


def equality(pairs: Iterable[tuple[Held, Held]]) -> str:
    """The equality of all pairs of values: ``BITWISE``, ``IN_VALUE``, or empty if they are not equal."""
    pairs = list(pairs)
    if not all(identical(a, b) for a, b in pairs):
        return ""
    return BITWISE if all(_has_same_bits(a, b) for a, b in pairs) else IN_VALUE


def _has_same_bits(a: Held, b: Held) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return all(map(_has_same_bits, a, b))
    if not is_tensor(a) or a.dtype.hasobject:
        return True  # values are all that there is
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def compare(reference: Held, original: Held, rewritten: Held, rounding: Rounding = _USUAL) -> Comparison:
    """Judge one output.  ``reference``: float64 array, or None when there is no trustworthy one."""
    if isinstance(original, list) or isinstance(rewritten, list):
        return _compare_lists(reference, original, rewritten, rounding)
    if original is None or rewritten is None:
        return EXACT if original is rewritten else refuse("one side has no value")
    original, rewritten = np.asarray(original), np.asarray(rewritten)
    if original.shape != rewritten.shape:
        return refuse(f"shape {list(rewritten.shape)}, was {list(original.shape)}")
    if original.dtype != rewritten.dtype:
        return refuse(f"dtype {rewritten.dtype}, was {original.dtype}")
    if identical(original, rewritten):
        return EXACT
    row = TOLERANCES.get(original.dtype)
    if row is None:
        return _exact_only(original, rewritten)
    patterns = _patterns(original, rewritten)
    if patterns is not None:
        return patterns
    wide = original.astype(np.float64), rewritten.astype(np.float64)
    if rounding.spread is not None and reference is not None:
        return _judge_steps(np.asarray(reference, np.float64), *wide, row, rounding.spread, rounding.stated)
    return _judge(reference, *wide, row, replace(rounding, stated=rounding.stated or reference is None))


def near_enough(original: Held, rewritten: Held, own: Norms | None = None) -> Comparison | None:
    """Accept what ``compare`` would accept whatever the reference; None where only the reference can tell.

    ``own``: a lower bound on η or on the original's largest error, where one is known.

    With d the distance of the two, E(w) ≤ E(o) + d·(1 + E(o)).  For E(o) = 0 that leaves d ≤ floor·u; for an error that
    is just as large as to be allowed, E(w) ≤ k·E(o), it leaves d ≤ (1 - 1/k)·floor·u.  With an ``own`` of e, what is
    allowed is k·max(e, E(o)), and the first grows by less than the second: d ≤ (k - 1)·e/(1 + e).  Both in both norms,
    less a little for rounding here.
    """
    if not is_tensor(original) or not is_float(original.dtype):
        return None
    rewritten = np.asarray(rewritten)
    if original.shape != rewritten.shape or original.dtype != rewritten.dtype or _patterns(original, rewritten):
        return None
    row, own = TOLERANCES[original.dtype], own or Norms()
    distance = _norms(original.astype(np.float64), rewritten.astype(np.float64), row.least)
    bound = _slack(row.k, row.floor * row.unit, own.worst)
    bound_rms = _slack(row.k_rms, row.floor_rms * row.unit, own.rms) if original.size >= STEADY else bound
    if distance.worst > bound or distance.rms > bound_rms:
        return None
    where = tuple(int(i) for i in np.unravel_index(distance.index, original.shape)) if distance.index >= 0 else None
    return Comparison(True, own.worst, distance.worst, bound, where, "near enough", own.rms, distance.rms, bound_rms)


def _slack(k: float, floor: float, own: float) -> float:
    """The distance from the original that is allowed whatever the reference."""
    return 0.99 * max((1 - 1 / k) * floor, (k - 1) * own / (1 + own))


def measure(reference: Held, value: Held, dtype: npt.DTypeLike | None = None) -> Norms:
    """Relative error of ``value`` against ``reference`` in both norms, over elements finite in both.

    ``dtype``: whose λ counts (default: the value's).
    """
    if isinstance(value, list) and isinstance(reference, list):
        parts = [measure(r, v, dtype) for r, v in zip(reference, value, strict=True)]
        return _join(parts)
    value = np.asarray(value)
    if not is_float(value.dtype):
        same = identical(value, np.asarray(reference).astype(value.dtype, copy=False))
        return Norms() if same else Norms(float("inf"), float("inf"))
    least = TOLERANCES[np.dtype(dtype) if dtype is not None else value.dtype].least
    return _norms(np.asarray(reference, np.float64), value.astype(np.float64), least)


def farthest(shape: tuple[int, ...], moves: Iterable[tuple[Held, Held]]) -> Floats:
    """The largest move of each element over all pairs of its values before and after; one that is not finite is 0."""
    spread = np.zeros(shape)
    for still, moved in moves:
        if np.asarray(still).shape == shape == np.asarray(moved).shape:
            with np.errstate(all="ignore"):
                distance = np.abs(np.asarray(moved, np.float64) - np.asarray(still, np.float64))
            spread = np.maximum(spread, np.where(np.isfinite(distance), distance, 0.0))
    return spread


def _join(parts: Sequence[Norms]) -> Norms:
    total = Norms()
    for part in parts:
        total = total | part
    return total


class _Relative(NamedTuple):
    """Errors and magnitudes of elements relative to the scale, and which of them are neither sentinels nor infinite."""

    error: Floats
    size: Floats
    ordinary: Mask

    def norms(self) -> Norms:
        error, size = self.error, self.size
        if not self.ordinary.all():
            error, size = error[self.ordinary], size[self.ordinary]
        total = max(_length(size), 1.0)  # below one only where the scale is λ
        rms = _length(error) / total
        index = int(np.argmax(self.error))
        return Norms(float(self.error.flat[index]), rms, index)


def _length(numbers: Floats) -> float:
    """The Euclidean norm, whose squares may be out of range: an error relative to λ, where all else is zero, is."""
    with np.errstate(over="ignore"):
        length = float(np.sqrt(np.sum(numbers * numbers)))
    if np.isfinite(length):
        return length
    largest = float(np.max(numbers))
    return largest * float(np.sqrt(np.sum((numbers / largest) ** 2))) if np.isfinite(largest) else largest


def _relative(reference: Floats, value: Floats, least: float, error: Floats | None = None) -> _Relative | None:
    """``error`` is that of ``value`` where nothing else is given; None where nothing can be measured."""
    usable = np.isfinite(reference) & np.isfinite(value)
    if reference.shape != value.shape or not usable.any():
        return None
    with np.errstate(all="ignore"):
        error, magnitude = np.abs(value - reference) if error is None else error, np.abs(reference)
        if not usable.all():
            error, magnitude = np.where(usable, error, 0.0), np.where(usable, magnitude, 0.0)
        scale = max(_scale(magnitude), least)
        return _Relative(error / np.maximum(magnitude, scale), magnitude / scale, usable & (magnitude <= scale))


def _norms(reference: Floats, value: Floats, least: float) -> Norms:
    found = _relative(reference, value, least)
    return found.norms() if found is not None else Norms()


def _scale(magnitude: Floats) -> float:
    """The largest magnitude that is no mask's sentinel: none above a gap of 10³ that ends above 9·10³."""
    largest = float(magnitude.max(initial=0.0))
    if largest < SENTINEL_MIN:
        return largest
    ordered = np.sort(magnitude[magnitude > 1e-2])
    if ordered.size < 2:
        return largest
    gaps = (ordered[1:] >= SENTINEL_GAP * ordered[:-1]) & (ordered[1:] >= SENTINEL_MIN)
    return float(ordered[int(np.argmax(gaps))]) if gaps.any() else largest


def _judge(reference: Held, original: Floats, rewritten: Floats, row: Tolerance, rounding: Rounding) -> Comparison:
    against = np.asarray(reference, np.float64) if reference is not None else original
    if against.shape != original.shape:
        return refuse(f"the reference has shape {list(against.shape)}, the original {list(original.shape)}")
    own = _norms(against, original, row.least) | rounding.noise
    new = _norms(against, rewritten, row.least)
    floor, floor_rms = (row.stated, row.stated_rms) if rounding.stated else (row.floor, row.floor_rms)
    most = (row.stated, row.stated_rms) if rounding.stepped else (np.inf, np.inf)
    bound = float(_allowed(own.worst, row.k, floor * row.unit, most[0] * row.unit))
    steady = original.size >= STEADY and (rounding.averaged or not rounding.stated)
    bound_rms = float(_allowed(own.rms, row.k_rms, floor_rms * row.unit, most[1] * row.unit)) if steady else bound
    zero = not np.any(against) and not np.any(original)
    accept = new.worst <= bound and new.rms <= bound_rms
    where = tuple(int(i) for i in np.unravel_index(max(new.index, 0), original.shape))
    if zero:
        reason = f"{_g(np.abs(rewritten).max())} where the original is exactly zero"
    elif new.worst > bound:
        reason = f"error {_g(new.worst)} at {list(where)}, original {_g(own.worst)}, allowed {_g(bound)}"
    else:
        reason = f"rms error {_g(new.rms)}, original {_g(own.rms)}, allowed {_g(bound_rms)}"
    return Comparison(accept, own.worst, new.worst, bound, where, reason, own.rms, new.rms, bound_rms)


def _judge_steps(
    against: Floats, original: Floats, rewritten: Floats, row: Tolerance, spread: Floats, stated: bool
) -> Comparison:
    """Judge each element by how far it moves; see the module's docstring."""
    if against.shape != original.shape or spread.shape != original.shape:
        return refuse(f"the reference has shape {list(against.shape)}, the original {list(original.shape)}")
    moves = np.maximum(spread, np.abs(original - against))
    seen, moved = _relative(against, rewritten, row.least), _relative(against, rewritten, row.least, moves)
    if seen is None or moved is None:
        return _judge(against, original, rewritten, row, Rounding(stated=stated, stepped=True))
    usual = float(np.quantile(moved.error, 0.75))
    floor, floor_rms = (row.stated, row.stated_rms) if stated else (row.floor, row.floor_rms)
    bounds = _allowed(np.maximum(moved.error, usual), row.k, floor * row.unit, row.stated * row.unit)
    new, own = seen.norms(), moved.norms()
    bound_rms = float(_allowed(own.rms, row.k_rms, floor_rms * row.unit, row.stated_rms * row.unit))
    excess = seen.error / bounds
    worst = int(np.argmax(excess))
    where = tuple(int(i) for i in np.unravel_index(worst, original.shape))
    error, bound = float(seen.error.flat[worst]), float(bounds.flat[worst])
    steady = original.size >= STEADY
    if error > bound:
        reason = (
            f"error {_g(error)} at {list(where)}, which moves by {_g(moved.error.flat[worst])}, allowed {_g(bound)}"
        )
    else:
        reason = f"rms error {_g(new.rms)}, where {_g(own.rms)} moves, allowed {_g(bound_rms)}"
    accept = error <= bound and (new.rms <= bound_rms or not steady)
    return Comparison(accept, own.worst, error, bound, where, reason, own.rms, new.rms, bound_rms)


def _allowed(moves: Floats | float, k: float, floor: float, rounding: float) -> Floats:
    """The error allowed to an element, or in a norm, that moves by ``moves``; a move beyond ``rounding`` is a step."""
    return np.asarray(np.maximum(floor, np.minimum(k * moves, np.maximum(STEPS * moves, k * rounding))))


def _g(number: float) -> str:
    return f"{float(number):.2g}"


def _exact_only(original: Array, rewritten: Array) -> Comparison:
    different = np.argwhere(~_equal_elements(original, rewritten))
    where = tuple(int(i) for i in different[0]) if len(different) else None
    count = f"{len(different)} of {original.size} {original.dtype} elements differ"
    example = f", first at {list(where)}: {rewritten[where]!s}, was {original[where]!s}" if where is not None else ""
    return refuse(count + example, where)


def _patterns(original: Array, rewritten: Array) -> Comparison | None:
    if np.isfinite(original).all() and np.isfinite(rewritten).all():
        return None
    for name, test in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        before, after = test(original.astype(np.float64)), test(rewritten.astype(np.float64))
        if not np.array_equal(before, after):
            where = tuple(int(i) for i in np.argwhere(before != after)[0])
            return refuse(
                f"{name} in {int(after.sum())} elements, was in {int(before.sum())}; first difference at {list(where)}",
                where,
            )
    return None


def _compare_lists(reference: Held, original: Held, rewritten: Held, rounding: Rounding) -> Comparison:
    if not (isinstance(original, list) and isinstance(rewritten, list)):
        return refuse("a sequence on one side only")
    if len(original) != len(rewritten):
        return refuse(f"a sequence of {len(rewritten)}, was {len(original)}")
    worst, each = EXACT, Rounding(rounding.noise, rounding.stated)
    for i, (o, w) in enumerate(zip(original, rewritten, strict=True)):
        one = compare(reference[i] if isinstance(reference, list) else None, o, w, each)
        if not one.accept:
            return one
        worst = one if one.error_rewritten >= worst.error_rewritten else worst
    return worst
