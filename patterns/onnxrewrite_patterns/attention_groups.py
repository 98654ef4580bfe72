"""Queries by the heads of keys and values that they share: [B, G, R, S, D], for keys and values of shape [B, G, L, D].

Where heads are grouped before the product, they are not repeated: keys and values are broadcast over the group, or the
queries of a group stand one below the other, [B, G, R·S, D].  That is what einsum makes of it, in JAX above all.
Ainslie et al., 2023, arXiv:2305.13245.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import Three
from onnxrewrite_patterns.attention_terms import (
    by_group,
    flat_given,
    flat_q,
    flat_scores,
    q,
    scores,
)


def is_by_group(m: Match, of_kt: Sequence[Dim], of_v: Sequence[Dim]) -> bool:
    """True if a match of ``attention`` has queries by the heads that they share; refuses what is only like it."""
    of_q = m.shape(q) or ()
    if by_group not in m:
        m.require(flat_given not in m, "the weights are laid out by other heads than the scores", at=flat_given)
        shared = len(of_q) == len(of_kt) == len(of_v) == 5 and of_kt[2] == of_v[2] == 1 and of_q[2] != 1
        return shared and _same_heads(of_q, of_kt, of_v)
    m.require(len(of_q) == 5 and flat_given in m, "the scores are no scores by groups of heads", at=scores)
    batch, groups, each, tokens, size = of_q
    rows = (batch, groups, each * tokens)
    of_scores, keys = m.shape(flat_scores) or (0,), of_kt[-1]
    views = {flat_q: (*rows, size), flat_scores: (*rows, keys), flat_given: (*rows, keys), by_group: (*of_q[:4], keys)}
    same = all(same_shape(m.shape(view), shape) for view, shape in views.items()) and len(of_scores) == 4
    m.require(same and _same_heads(of_q, of_kt, of_v), "the Reshapes around the scores do more than group", at=scores)
    m.node(flat_q), m.node(by_group), m.node(flat_given)  # their results count, whatever their attributes
    return True


def _same_heads(of_q: Sequence[Dim], of_kt: Sequence[Dim], of_v: Sequence[Dim]) -> bool:
    """True if queries, keys and values have the same batch, and the same heads of keys and values."""
    return same_shape(of_q[:2], of_kt[:2]) and same_shape(of_q[:2], of_v[:2])


def without_groups(m: Match, build: Builder, parts: Three) -> tuple[Three, Value]:
    """Q as [B, G·R, S, D], k and v as [B, G, L, D], and the shape of the result."""
    query, *others = parts
    batch, groups, each, tokens, size = m.known(m.shape(query), "the rank of q is not known", at=q)
    heads = _reshaped(m, build, query, (batch, groups * each, tokens, size))
    key, value = (build.Squeeze(x, axes=(2,)) if m.rank(x) == 5 else x for x in others)
    wanted = m.known(m.shape(m.anchor), "the rank of the result is not known", at=m.anchor)
    sizes = _target(m, (batch, groups * each, tokens, wanted[-1]), wanted)
    return (heads, key, value), build.const(sizes)


def mask_without_groups(m: Match, build: Builder, part: Value, of_scores: Sequence[Dim]) -> Value:
    """Part of a mask for scores of shape [B, G, R, S, L], as one for [B, G·R, S, L]."""
    shape = m.known(m.shape(part), "the rank of the mask is not known", at=part)
    of_heads = shape[-4:-2]
    if len(shape) < 3 or of_heads in ((1,), (1, 1)):
        return part if len(shape) < 4 else build.Squeeze(part, axes=(len(shape) - 3,))
    m.require(same_shape(of_heads, of_scores[1:3]), "some heads of a group have masks of their own", at=part)
    return _reshaped(m, build, part, (*shape[:-4], of_scores[1] * of_scores[2], *shape[-2:]))


def _reshaped(m: Match, build: Builder, x: Value, wanted: Sequence[Dim]) -> Value:
    return build.Reshape(x, _target(m, m.shape(x), wanted))


def _target(m: Match, source: Sequence[Dim] | None, wanted: Sequence[Dim]) -> npt.NDArray[np.int64]:
    """A constant target; a -1 in it does, for no dimension is zero."""
    found = reshape_target(source, wanted, [-1] * len(wanted))
    return np.array(m.known(found, "no constant target groups heads", at=scores), np.int64)
