"""Heads of queries that share keys and values, as the standard's Attention has them: with fewer heads of these.

Attention(q, repeat(k), repeat(v)) ⟶ Attention(q, k, v), where head h of k and v is for the heads h·G to h·G + G - 1
of q.

Why: the repeated keys and values are G times as many numbers to write and to read again.
Ainslie et al., 2023, arXiv:2305.13245; Shazeer, 2019, arXiv:1911.02150.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import has_past

q, k, v = (Var(name, dtype=FLOATS, rank=4) for name in ("q", "k", "v"))
rest = Each[Value]("rest", at_least=0)
attention = op.Attention(q, k, v, rest)


def before_repeat(m: Match, x: Value) -> Value | None:
    """The [B, K, L, D] of which each head was repeated G times, to x of shape [B, K·G, L, D]."""
    repeat, view = ("Expand", "Tile"), ("Unsqueeze", "Reshape")
    gathered = _before_gather(m, x)
    found = path(x, "Reshape", repeat, view) or path(x, "Reshape", repeat) or path(x, repeat)
    if found is None or gathered is not None:
        return gathered
    wide, narrow = found.values[len(found.nodes) > 1 :][:2]
    if m.rank(found.source) != 4 or not _repeats(m, m.shape(x) or (), m.shape(found.source) or (), wide, narrow):
        return None
    m.cover(*found.nodes)
    return found.source


def _repeats(m: Match, of_x: tuple[Dim, ...], of_source: tuple[Dim, ...], wide: Value, narrow: Value) -> bool:
    """True if ``narrow``, [B, K, 1, L, D] or [B, 1, L, D], was repeated along the 1, and is a view of the source."""
    batch, heads, *rest = of_source
    of_wide, of_narrow = m.shape(wide) or (), m.shape(narrow)
    if len(of_wide) == 4:
        return heads == 1 and same_shape(of_x, (batch, of_x[1], *rest))
    whole = len(of_wide) == 5 and isinstance(of_wide[2], int)
    whole = whole and same_shape(of_narrow, (batch, heads, 1, *rest))
    whole = whole and same_shape(of_wide, (batch, heads, of_wide[2], *rest))
    return whole and same_shape(of_x, (batch, heads * of_wide[2], *rest))


def _before_gather(m: Match, x: Value) -> Value | None:
    """The same where the heads were picked by number: 0, 0, 1, 1."""
    node = made_by(x, "Gather")
    found = gather_of(m.facts, node) if node is not None else ""
    if node is None or isinstance(found, str) or found.axis != 1 or found.indices.ndim != 1:
        return None
    heads, picked = m.dim(found.source, 1), found.indices
    if not isinstance(heads, int) or not heads or len(picked) % heads or len(picked) == heads:
        return None
    if not np.array_equal(picked, np.repeat(np.arange(heads), len(picked) // heads)):
        return None
    m.cover(node)
    return found.source


_REPEAT = "u{0} = Unsqueeze({0}, {{2}})  e{0} = Expand(u{0}, {{1, 1, 3, 1, 1}})  r{0} = Reshape(e{0}, {{0, 6, -1, 8}})"
_KV = "float[b,6,s,8] q; float[b,2,5,8] k; float[b,2,5,8] v;"


@rule(
    "attention-shared-heads",
    RAISE,
    attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_KV} {_REPEAT.format('k')} {_REPEAT.format('v')} y = Attention<scale=0.5>(q, rk, rv)",
            to=f"{_KV} y = Attention<scale=0.5>(q, k, v)",
            opset=23,
        ),
        Rewrites(
            f"{_KV} float[s,5] mask; kk = Gather<axis=1>(k, {{0, 0, 0, 1, 1, 1}})"
            "vv = Gather<axis=1>(v, {0, 0, 0, 1, 1, 1})  y = Attention<scale=0.5>(q, kk, vv, mask)",
            to=f"{_KV} float[s,5] mask; y = Attention<scale=0.5>(q, k, v, mask)",
            opset=23,
        ),
        Rewrites(
            "float[b,6,s,8] q; float[b,1,l,8] k; float[b,1,l,8] v; kk = Expand(k, {1, 6, 1, 1})"
            "vv = Tile(v, {1, 6, 1, 1})  y = Attention<scale=0.5>(q, kk, vv)",
            to="float[b,6,s,8] q; float[b,1,l,8] k; float[b,1,l,8] v; y = Attention<scale=0.5>(q, k, v)",
            opset=23,
        ),
        Rejects(
            f"{_KV} kk = Gather<axis=1>(k, {{0, 1, 0, 1, 0, 1}})  vv = Gather<axis=1>(v, {{0, 1, 0, 1, 0, 1}})"
            "y = Attention<scale=0.5>(q, kk, vv)",
            because="not heads repeated one after the other",
            opset=23,
        ),
        Rejects(
            f"{_KV} kk = Tile(k, {{1, 3, 1, 1}})  vv = Tile(v, {{1, 3, 1, 1}})  y = Attention<scale=0.5>(q, kk, vv)",
            because="not heads repeated one after the other",
            opset=23,
        ),
        Rejects(
            "float[b,6,s,8] q; float[b,2,5,8] k; float[b,3,5,8] v; kk = Gather<axis=1>(k, {0, 0, 0, 1, 1, 1})"
            "vv = Gather<axis=1>(v, {0, 0, 1, 1, 2, 2})  y = Attention<scale=0.5>(q, kk, vv)",
            because="different heads",
            opset=23,
        ),
    ),
)
def attention_shared_heads(m: Match, build: Builder) -> Value:
    """Attention(q, repeat(k), repeat(v)) ⟶ Attention(q, k, v), with fewer heads of keys and values."""
    key, value = (before_repeat(m, m[x]) for x in (k, v))
    if key is None or value is None:
        m.refuse("keys and values are not heads repeated one after the other", at=k if key is None else v)
    m.require(same_dim(m.dim(key, 1) or 0, m.dim(value, 1) or 0), "keys and values have different heads", at=k)
    node = m.node(attention)
    m.require(not has_past(node), "keys and values are joined to earlier ones", at=q)
    return build.again(node, m[q], key, value)[0]
