"""Attention with batch and heads in one dimension: q, k and v of shape [B·H, S, D], and where that comes from.

Modules older than scaled dot-product attention view heads so, to multiply by ``torch.bmm``; those with the sequence
first, as PyTorch has it by default, take [S, B, H·D] apart into [S, B·H, D].

Why: kernels take heads as they were before, where neither a view nor a Transpose is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import Three, head_size
from onnxrewrite_patterns.attention_terms import bias, fill, k, mask, penalty, perm, plain_kt, split, v

Back = Callable[[Value], Value]
"""Gives the result of attention the shape that a match has."""

_HEADS_BY_BATCH, _BATCHES_BY_HEAD, _TOKENS = (0, 1, 2, 3), (1, 0, 2, 3), (1, 2, 0, 3)
"""The permutations of [B, H, S, D], [H, B, S, D] and [S, B, H, D] to [B, H, S, D]."""


@dataclass(frozen=True)
class InBatch:
    """The value that q, k or v of rank 3 is a view of: [B, H, S, D] or [H, B, S, D]; or [S, B, H·D], tokens that were
    taken apart into [S, B·H, D].

    Attributes:
        source: That.
        shape: Its shape as [B, H, S, D].
        order: The permutation to [B, H, S, D], of tokens once heads are split.
    """

    source: Value
    shape: tuple[Dim, ...]
    order: tuple[int, ...]

    def by_head(self, m: Match, build: Builder) -> Value:
        """It as [B, H, S, D]."""
        apart = self.source
        if m.rank(apart) == 3:
            apart = build.Reshape(apart, np.array([0, 0, *self.shape[1::2]]))
        return apart if self.order == _HEADS_BY_BATCH else build.Transpose(apart, perm=self.order)


def _in_batch(m: Match, x: Value, order: Sequence[int] = (0, 1, 2)) -> InBatch | None:
    """The source of x, a view of which the axes in that order are [B·H, S, D]; None for any other value."""
    if tuple(order) == (1, 0, 2):
        return _of_tokens(m, x)
    if tuple(order) != (0, 1, 2):
        return None
    turn = path(x, "Transpose")
    if turn is not None and permutation(m.facts, turn.nodes[0]) == (1, 0, 2):
        return _of_tokens(m, turn.source)
    found = path(x, "Reshape")
    before, after = m.shape(found.source) if found is not None else None, m.shape(x)
    if found is None or before is None or after is None or len(before) != 4 or len(after) != 3:
        return None
    if not same_shape(before[2:], after[1:]) or not same_dim(before[0] * before[1], after[0]):
        return None
    moved = path(found.source, "Transpose")
    perm = permutation(m.facts, moved.nodes[0]) if moved is not None else None
    is_masked = any(term in m for term in (bias, mask, penalty, fill, split))  # masks are for heads by batch
    heads_first = isinstance(perm, tuple) and perm[:2] == (2, 0) and not is_masked
    layout = _BATCHES_BY_HEAD if heads_first else _HEADS_BY_BATCH
    return InBatch(found.source, tuple(before[axis] for axis in layout), layout)


def _of_tokens(m: Match, x: Value) -> InBatch | None:
    """The [S, B, H·D] that x, of shape [S, B·H, D], is a view of."""
    found, after = path(x, "Reshape"), m.shape(x) or ()
    before = m.shape(found.source) or () if found is not None else ()
    if found is None or len(before) != 3 or len(after) != 3 or not same_dim(before[0], after[0]):
        return None
    tokens, batch, width = before
    size = after[2]
    if not isinstance(width, int) or not isinstance(size, int) or size == 0 or width % size:
        return None
    return InBatch(found.source, (batch, width // size, tokens, size), _TOKENS)


def _as_tokens(m: Match, build: Builder, x: Value) -> Value:
    """[B, H, S, D] as [B·H, S, D], by way of [S, B·H, D]."""
    by_token = build.Transpose(x, perm=(2, 0, 1, 3))
    return build.Transpose(build.Reshape(by_token, np.array([0, -1, head_size(m, x)])), perm=(1, 0, 2))


def split_by_head(m: Match, build: Builder, query: Value, apart: bool) -> tuple[Three, Back | None] | None:
    """q, k and v of shape [B, H, S, D] where they are views of that as [B·H, S, D], and what becomes of the result.

    Args:
        m: A match of ``attention``.
        build: Its tape.
        query: q, multiplied by what the scores are.
        apart: True if the scores were taken apart by head: then v has that shape, and so has the result.
    """
    if v not in m or (plain_kt not in m and perm not in m):
        return None
    turned = plain_kt in m
    key, order = (m[plain_kt], (0, 1, 2)) if turned else (m[k], (*m[perm][:-2], *m[perm][:-3:-1]))
    one, two, three = _in_batch(m, query), _in_batch(m, key, order), _in_batch(m, m[v])
    if apart and three is None:
        three = InBatch(m[v], tuple(m.shape(v) or ()), _HEADS_BY_BATCH)
    if one is None or two is None or three is None or not isinstance(one.shape[1], int):
        return None
    if not same_shape(two.shape[:2], one.shape[:2]) or not same_shape(three.shape[:2], one.shape[:2]):
        return None
    if len({x.order == _BATCHES_BY_HEAD for x in (one, two, three)}) > 1 or (turned and two.order == _TOKENS):
        return None
    of_tokens = one.order == _TOKENS
    if not apart and not of_tokens and not same_dim(one.shape[3], three.shape[3]):
        return None  # q's shape, which the result is given, is not its own
    heads = two.by_head(m, build)
    heads = build.Transpose(heads, perm=(0, 1, 3, 2)) if turned else heads
    parts = one.by_head(m, build), heads, three.by_head(m, build)
    if apart:
        return parts, None
    if of_tokens:
        return parts, functools.partial(_as_tokens, m, build)
    node = query.producer()
    target = input_of(node, 1) if node is not None else None

    def back(result: Value) -> Value:
        moved = result if one.order == _HEADS_BY_BATCH else build.Transpose(result, perm=one.order)
        return build.Reshape(moved, target)

    return parts, back
