"""Masks as kernels take them: the last two dimensions those of the scores, and no number that means more than it is.

ONNX Runtime's kernel for the standard's Attention (1.31) makes a row zero of which every entry is masked by the
lowest number of its dtype, or by -inf.  With any other number it computes what the formula says; -1e30 hides every
score as well.  In float16 scores are rounded once the mask is added, where the operators keep them in float32.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_masks import NEVER_AT_ALL, size_of


def full(m: Match, build: Builder, mask: Value, query: Value, key: Value) -> Value:
    """A mask whose last two dimensions are as many queries and keys; those are the second last dimension of theirs."""
    shape = m.shape(mask)
    if shape is None:
        m.refuse("the rank of the mask is unknown", at=mask)
    if len(shape) < 2:
        mask = build.Unsqueeze(mask, axes=tuple(range(2 - len(shape))))
        shape = (*[1] * (2 - len(shape)), *shape)
    queries, keys = m.dim(query, -2), m.dim(key, -2)
    if queries is None or keys is None:
        m.refuse("the rank of q or k is unknown", at=query)
    if is_window_to(shape, (queries, keys)):
        return mask
    rows, columns = (same_dim(a, b) or is_cut_to(a, b) for a, b in ((shape[-2], queries), (shape[-1], keys)))
    columns = columns or _is_expanded_to(m, mask, keys)
    if rows and columns:
        return mask
    m.require((rows or shape[-2] == 1) and (columns or shape[-1] == 1), "the mask does not fit", at=mask)
    # Where there are as many queries as keys, and one mask serves all layers, so does what it is expanded to.
    source, axis = (mask, -1) if columns and same_dim(queries, keys) else (query, -2)
    height = np.array([1]) if rows else size_of(m, build, source, axis)
    width = np.array([1]) if columns else size_of(m, build, key, -2)
    ones = np.ones(len(shape) - 2, np.int64)
    return build.Expand(mask, build.Concat(ones, height, width, axis=0))


def _is_expanded_to(m: Match, mask: Value, keys: Dim) -> bool:
    """True if the last axis of a mask was expanded to the number of keys: it is that long, or longer than a mask can
    be.  One that is not may be shorter, which the standard's Attention allows."""
    made = made_by(mask, "Expand")
    target = m.facts.elements(m.operand(made, 1)) if made is not None else None
    return target is not None and len(target) > 0 and same_dim(target[-1], keys)


MODERATE = 1e20
"""A number of at most this magnitude is negligible beside ``NEVER_AT_ALL``."""

ROUNDS = 64.0
"""Beside a number larger than this, float16 has no more than four bits for the fraction of a score."""


def countable(m: Match, build: Builder, mask: Value) -> Value:
    """A mask for the standard's kernel that masks rows throughout as the formula does, if that can be told."""
    limit = ROUNDS if m.dtype(mask) == ir.DataType.FLOAT16 else -NEVER_AT_ALL
    if m.dtype(mask) == ir.DataType.BOOL or magnitude(m, mask) <= limit or _shows_something(m, mask):
        return mask
    m.require(limit > ROUNDS, "float16 rounds scores to which such a mask is added", at=mask)
    add, where = made_by(mask, "Add"), made_by(mask, "Where")
    if add is not None:
        a, b = sorted(inputs_of(add), key=lambda x: magnitude(m, x))
        m.require(magnitude(m, a) <= MODERATE, "several masks may hide a score", at=mask)
        return build.Add(a, countable(m, build, b))
    if where is None:
        m.refuse("the mask may be the lowest number throughout a row", at=mask)
    condition, *rest = inputs_of(where)
    choices = [_number(m, x) for x in rest]
    hides = next((i for i, n in enumerate(choices) if n is not None and -math.inf < n <= NEVER_AT_ALL), None)
    bias = rest[1 - hides] if hides is not None else None
    m.require(magnitude(m, bias) <= MODERATE, "the mask may be the lowest number throughout a row", at=mask)
    never = build.const(NEVER_AT_ALL, like=mask)
    made = build.Where(condition, 0.0, never) if hides else build.Where(condition, never, 0.0)
    return made if choices[1 - (hides or 0)] == 0 else build.Add(bias, made)


def _shows_something(m: Match, mask: Value) -> bool:
    """True if a mask is known to hide no row throughout: it, or what it is chosen by, is constant."""
    array, where = m.facts.constant(mask), made_by(mask, "Where")
    if array is None and where is not None:
        condition, *choices = inputs_of(where)
        chosen, (a, b) = m.facts.constant(condition), [_number(m, x) for x in choices]
        if (
            chosen is not None
            and chosen.ndim
            and m.dim(mask, -1) == chosen.shape[-1]
            and a is not None
            and b is not None
        ):
            array = np.where(chosen, a, b)
    if array is None or not array.ndim:
        return False
    return bool((array <= ROUNDS).all() and (array >= -ROUNDS).any(axis=-1).all())


def _number(m: Match, x: Value | None) -> float | None:
    array = m.facts.constant(x) if x is not None else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None
