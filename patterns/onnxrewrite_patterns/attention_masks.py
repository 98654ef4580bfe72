"""Masks of attention: what a match of ``attention_terms`` adds to the scores, or which of them it lets count.

What makes it delicate is a row of which every entry is masked.  Softmax makes it NaN where the mask is
-inf, and even where the mask is finite; the standard's Attention makes it zero under a boolean mask.
So a float mask stays a float mask, and only the spellings that make such rows zero become a boolean one:
PyTorch's for a boolean mask, which turns NaN into zeros, and masking a second time after Softmax.
The former also hides NaN that come from q and k themselves; they are not hidden any more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_groups import mask_without_groups
from onnxrewrite_patterns.attention_terms import (
    bias,
    cap,
    drop,
    fill,
    floor,
    is_nan,
    keep,
    mask,
    outer_scale,
    penalty,
    q,
    replaced,
    replaced_apart,
    scores,
    second_mask,
    softmax,
    split,
    viewed,
    zeroed,
)

NEVER = -1e9
"""A score that is set to this or less counts for nothing beside one that is not."""

NEVER_AT_ALL = -1e30
"""A score of this or less counts for nothing, and keeps its value, whatever is added to it."""

SMALL = 1e6
"""The bound that matrix products added to scores are assumed to stay below."""

LOWEST = float(np.finfo(np.float32).min)


Sides = tuple[Value, Value]
"""The query and the key that scores are of."""

Size = Value | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Mask:
    """The mask of an attention: which scores count.

    Attributes:
        added: The value added to the scores; or boolean: true where an entry counts, rows without any are zero.
        alive: Boolean; rows of the result for which nothing in it is true are zero.
    """

    added: Value | None
    alive: Value | None = None


def mask_of(m: Match, build: Builder, sides: Sides) -> Mask:
    """The mask of a match of ``attention``, for a query and a key of shape [B, H, S, D], or [B, S, D] for one head."""
    if is_nan in m:
        return Mask(_guarded(m, build, sides))
    if zeroed not in m:
        return Mask(_total(m, build, sides))
    _require_never(m)
    m.require(mask not in m, "weights are masked again, and so are the scores", at=softmax)
    m.require(bias not in m or _is_small(m, m[bias]), "the bias may hide all scores that count", at=softmax)
    counts = _placed(m, build, _counting(m, build), sides)
    return Mask(counts) if bias not in m and mask not in m else Mask(_total(m, build, sides), counts)


def require_fit(m: Match, given: Value, target: Sequence[Dim], what: str = "the mask") -> None:
    """Refuse unless a value added to or multiplied with a tensor broadcasts to its shape, and the tensor does not."""
    shape = m.shape(given)
    if shape is None or len(shape) > len(target):
        m.refuse(f"the rank of {what} is unknown, or larger than that of the scores", at=given)
    if is_window_to(shape, target):
        shape = (*shape[:-2], *target[-2:])
    for a, b in zip(shape[::-1], target[::-1], strict=False):
        m.require(_fits(a, b), f"a dimension of {what} is {a}, and not shown to be {b} or 1", at=given)


def _fits(size: Dim, other: Dim) -> bool:
    """True if a size is shown to be 1, where nothing is empty, or another one."""
    return size == 1 or is_one_of(size) or same_dim(size, other) or is_cut_to(size, other)


def size_of(m: Match, build: Builder, x: Value, axis: int) -> Size:
    """One dimension of x, as a tensor of one element."""
    size = m.dim(x, axis)
    if isinstance(size, int):
        return np.array([size])
    return build.Gather(build.Shape(x), np.array([axis % (m.rank(x) or 1)]))


def zero_where_masked(m: Match, build: Builder, given: Value | None, result: Value) -> Value:
    """Zero for the queries that a boolean mask allows no key, of a result of rank 4 or 3."""
    if given is None or m.dtype(given) != ir.DataType.BOOL:
        return result
    allowed = build.ReduceSum(build.Cast(given, to=int(ir.DataType.FLOAT)), axes=(-1,), keepdims=1)
    some = build.Greater(allowed, 0.0)
    if m.rank(some) == 4 and m.rank(result) == 3:
        some = build.Squeeze(some, axes=(1,))
    return build.Where(some, result, 0.0)


# -- float masks ---------------------------------------------------------------------------------------------


def _total(m: Match, build: Builder, sides: Sides) -> Value | None:
    """The sum of everything that is added to the scaled scores."""
    return _sum(m, build, [_placed(m, build, part, sides) for part in _parts(m, build, sides)])


def _sum(m: Match, build: Builder, parts: list[Value]) -> Value | None:
    if len({m.dtype(p) for p in parts}) > 1:
        parts = [build.Cast(p, to=int(ir.DataType.FLOAT)) for p in parts]
    total = functools.reduce(build.Add, parts) if parts else None
    return total if total is None or floor not in m else _floored(m, build, total)


def _parts(m: Match, build: Builder, sides: Sides) -> list[Value]:
    """All that is added to the scaled scores, each as it is."""
    parts: list[Value] = []
    before = None
    if bias in m:
        m.require(cap not in m or outer_scale not in m, "capped scores are scaled again", at=scores)
        before = build.Mul(m[bias], m[outer_scale]) if outer_scale in m else m[bias]
    if fill in m:
        m.require(before is None or split not in m, "scores are replaced by head, and a bias is not", at=scores)
        parts.append(_by_head(m, build, sides, _replacing(m, build, before)))
    elif before is not None:
        parts.append(before)
    if mask in m:
        given = build.Add(m[second_mask], m[mask]) if second_mask in m else m[mask]
        parts.append(_by_head(m, build, sides, given))
    if penalty in m:
        parts.append(build.Neg(m[penalty]))
    return parts


def _by_head(m: Match, build: Builder, sides: Sides, given: Value) -> Value:
    """A mask of scores that were taken apart by head for it, as one of scores that were not, where there are such."""
    return _apart(m, build, sides, given) if split in m else given


def _placed(m: Match, build: Builder, part: Value, sides: Sides) -> Value:
    """Part of a mask in the place that the kernel has for it: batch and heads are two dimensions there."""
    of_scores, of_part, of_query = m.shape(scores) or (), m.shape(part), m.shape(sides[0]) or ()
    long = _as_long_as_keys(m, build, part, sides[1])
    wanted = of_scores if long is part or of_part is None else (*of_scores[:-1], of_part[-1])
    if of_part is not None and len(of_part) > len(of_scores):  # it was added to scores with heads
        require_fit(m, part, (*of_query[:2], *wanted[1:]))
        return long
    require_fit(m, part, wanted)
    part = long
    if len(of_scores) == 5 and len(of_query) == 4:
        return mask_without_groups(m, build, part, of_scores)
    if len(of_scores) == 4 or of_part is None or len(of_part) < 3:
        return part
    if len(of_query) == 3:
        return build.Unsqueeze(part, axes=(1,))
    if of_part[0] == 1:
        return part
    by_head = build.Slice(build.Shape(sides[0]), np.array([0]), np.array([2]), np.array([0]))
    rest = build.Slice(build.Shape(part), np.array([1]), np.array([3]), np.array([0]))
    return build.Reshape(part, build.Concat(by_head, rest, axis=0))


def _as_long_as_keys(m: Match, build: Builder, part: Value, key: Value) -> Value:
    """Part of a mask, its last axis as long as there are keys, where that is not shown.

    It is that long, or 1: with one key and a longer mask there would be more weights than values to multiply them by.
    """
    size, keys, rank = m.dim(part, -1), m.dim(key, -2), m.rank(part)
    if rank is None or size is None or keys is None or _fits(size, keys) or isinstance(size, int):
        return part
    return build.Expand(part, build.Concat(np.ones(rank - 1, np.int64), size_of(m, build, key, -2), axis=0))


def _floored(m: Match, build: Builder, total: Value) -> Value:
    """The larger of mask and floor: beside a floor that low, the scores do not count."""
    low = m[floor] <= NEVER_AT_ALL and m.dtype(total) == ir.DataType.FLOAT
    m.require(low, f"scores of less than {m[floor]:g} become that", at=softmax)
    return build.Max(total, build.const(m[floor], like=total))


def _require_never(m: Match) -> None:
    """A score that is replaced counts for nothing, and what it is replaced by is the same for all."""
    number, dtype = m[fill], _replaced_dtype(m)
    half = dtype == ir.DataType.FLOAT16
    never = NEVER_AT_ALL if mask in m else float(np.finfo(np.float16).min) if half else NEVER
    m.require(number <= never, f"masked scores become {number:g}, which a score may be less than", at=softmax)
    exact = number == -math.inf or half or dtype == ir.DataType.FLOAT
    m.require(exact, f"masked scores become {number:g} in a dtype other than float32", at=softmax)


def _replaced_dtype(m: Match) -> ir.DataType | None:
    return m.dtype(replaced_apart if split in m else replaced)


def _replacing(m: Match, build: Builder, otherwise: Value | None = None) -> Value:
    """The addend that has the effect of Where on the scores: ``otherwise``, or zero, for a score that is kept.

    For the others, a number beside which every score vanishes, so that a row masked throughout is even.  For that it is
    float32, whatever the dtype of the scores, unless it is -inf.
    """
    _require_never(m)
    lowest = m[fill] if m[fill] <= NEVER_AT_ALL else LOWEST
    if otherwise is not None and m[fill] > NEVER_AT_ALL:
        m.require(_is_small(m, otherwise), f"a score and the bias may be less than {m[fill]:g}", at=softmax)
    kind = _replaced_dtype(m) if lowest == -math.inf else ir.DataType.FLOAT
    rest = build.const(0.0, like=kind) if otherwise is None else otherwise
    if m.dtype(rest) != kind:
        rest = build.Cast(rest, to=int(kind or 0))
    masked_out = build.const(lowest, like=kind)
    return build.Where(m[keep], rest, masked_out) if keep in m else build.Where(m[drop], masked_out, rest)


def _is_small(m: Match, x: Value) -> bool:
    """True if no element hides a score that it is added to: none is large, and matrix products are not masks."""
    return magnitude(m, x, of_products=SMALL) < -NEVER / 10


def _apart(m: Match, build: Builder, sides: Sides, given: Value) -> Value:
    """The mask of scores whose first dimension is split in two for it: heads, or windows of an image."""
    of_scores, of_split, of_mask = m.shape(scores) or (), m.shape(split) or (), m.shape(given) or ()
    views = [m.node(view) for view in (split, viewed) if view in m]  # their results count, whatever their attributes
    same = len(views) == 1 or same_shape(m.shape(viewed), of_scores)
    same = same and same_shape(of_split[2:], of_scores[1:])
    same = same and len(of_split) > 2 and same_dim(of_split[0] * of_split[1], of_scores[0])
    m.require(same, "the Reshapes around the mask do more than split the first dimension", at=given)
    require_fit(m, given, of_split)
    missing = len(of_split) - len(of_mask)
    padded = build.Unsqueeze(given, axes=tuple(range(missing))) if missing else given
    of_query = m.shape(sides[0]) or ()
    if len(of_query) > len(of_scores) and same_shape(of_split[:2], of_query[:2]):
        return padded
    first = 1 if missing else of_mask[0]
    if first == 1 and (missing > 1 or of_mask[1 - missing] == 1):
        return build.Squeeze(padded, axes=(0,))
    batch, windows = build.Gather(build.Shape(m[q]), np.array([0])), of_split[1]
    if not isinstance(windows, int) or windows == 0:
        m.refuse("into how many parts the first dimension is split is not known", at=split)
    images = np.array([1]) if same_dim(first, of_split[0]) else build.Div(batch, np.array([windows]))
    full = build.Expand(padded, build.Concat(images, np.array([windows]), np.ones(len(of_split) - 2, np.int64), axis=0))
    rest = build.Slice(build.Shape(padded), np.array([2]), np.array([len(of_split)]), np.array([0]))
    return build.Reshape(full, build.Concat(batch, rest, axis=0))


# -- boolean masks -------------------------------------------------------------------------------------------


def _counting(m: Match, build: Builder) -> Value:
    """The condition that is true where a score is not replaced."""
    m.require((keep in m) != (drop in m), "scores and weights are masked by different conditions", at=softmax)
    return m[keep] if keep in m else build.Not(m[drop])


def _guarded(m: Match, build: Builder, sides: Sides) -> Value | None:
    """The mask where Softmax's NaN become zeros: they come of rows that are -inf throughout."""
    if fill in m and m[fill] == -math.inf and bias not in m and mask not in m:
        return _placed(m, build, _by_head(m, build, sides, _counting(m, build)), sides)
    parts = _parts(m, build, sides)
    if not parts:
        return None
    only, *others = parts
    m.require(not others and floor not in m, "NaN become zeros, and there is more than a mask", at=softmax)
    fixed = m.facts.constant(only)
    if fixed is not None and not fixed.any():
        return None
    if fixed is not None and np.isin(fixed, (0, -math.inf)).all():
        return _placed(m, build, build.const(fixed == 0), sides)
    if fixed is not None and (fixed < math.inf).all() and np.isfinite(fixed).any(axis=-1).all():
        return _placed(m, build, only, sides)  # no row is -inf throughout
    node = made_by(only, "Where")
    if node is None:
        m.refuse("NaN become zeros, and nobody knows which entries are masked", at=softmax)
    condition, *choices = inputs_of(node)
    yes, no = (_number(m, choice) for choice in choices)
    if yes is None or no is None or 0 not in (yes, no) or math.inf in (yes, no):
        m.refuse("NaN become zeros, and the mask is not one of zeros and a negative number", at=only)
    if -math.inf not in (yes, no):
        return _placed(m, build, only, sides)
    return _placed(m, build, condition if yes == 0 else build.Not(condition), sides)


def _number(m: Match, value: Value | None) -> float | None:
    array = m.facts.constant(value) if value is not None else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None
