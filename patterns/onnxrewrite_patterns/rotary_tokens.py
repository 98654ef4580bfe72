"""Rotary embeddings of some tokens of a row, while others stay: as if those were turned by no angle.

Where it comes from: image transformers turn patches, and not the class and register tokens before them (DINOv3,
EVA-02).

Why: cutting the tokens apart and joining them again copies q and k twice, and attention does not find its heads there.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.rotary_operator import back, cos, front, interleaved, mode, sin, x

kept_before = op.Concat(front, op.RotaryEmbedding(back, cos, sin, **mode), axis=Attr[int]("axis"))
kept_behind = op.Concat(op.RotaryEmbedding(front, cos, sin, **mode), back, axis=Attr[int]("axis"))
either = any_of(kept_before, kept_behind)

_TOKENS = "float[2,3,5,4] x; float[2,4,2] c; float[2,4,2] k; x1, x2 = Split<axis=2>(x, {1, 4})"
_WHOLE = "float[2,3,5,4] x; float[2,4,2] c; float[2,4,2] k;"
_ROW = "float[2,1,2] {{{0}, {0}, {0}, {0}}}"


@rule(
    "rotary-of-some-tokens",
    RAISE,
    either,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"{_TOKENS} r = RotaryEmbedding<interleaved=1>(x2, c, k)  y = Concat<axis=-2>(x1, r)",
            to=f"{_WHOLE} d = Concat<axis=1>({_ROW.format(1.0)}, c)  l = Concat<axis=1>({_ROW.format(0.0)}, k)"
            "y = RotaryEmbedding<interleaved=1>(x, d, l)",
            opset=23,
        ),
        Rewrites(
            "float[n,3,5,4] x; float[1,4,2] c; float[1,4,2] k; s = Shape<end=1>(x)  t = Concat<axis=0>(s, {1, 1})"
            "d = Expand(c, t)  l = Expand(k, t)  x1 = Slice(x, {0}, {4}, {2})  x2 = Slice(x, {4}, {5}, {2})"
            "r = RotaryEmbedding(x1, d, l)  y = Concat<axis=2>(r, x2)",
            to="float[n,3,5,4] x; float[1,4,2] c; float[1,4,2] k; d = Concat<axis=1>(c, float[1,1,2] {1.0, 1.0})"
            "  s = Shape(x)  b = Gather(s, {0})  t = Concat<axis=0>(b, int64[2] {1, 1})  e = Expand(d, t)"
            "  l = Concat<axis=1>(k, float[1,1,2] {0.0, 0.0})  u = Shape(x)  g = Gather(u, {0})"
            "  w = Concat<axis=0>(g, int64[2] {1, 1})  f = Expand(l, w)  y = RotaryEmbedding(x, e, f)",
            opset=23,
        ),
        Rejects(
            "float[2,3,5,4] x; float[2,4,1] c; float[2,4,1] k; x1, x2 = Split<axis=2>(x, {1, 4})"
            "  r = RotaryEmbedding<rotary_embedding_dim=2>(x2, c, k)  y = Concat<axis=-2>(x1, r)",
            because="expected rotary_embedding_dim=0",
            opset=23,
        ),
        Rejects(
            "float[2,3,5,4] x; float[1,1,2] c; float[1,1,2] k; d = Expand(c, {2, 4, 2})  l = Expand(k, {2, 4, 2})"
            "  x1, x2 = Split<axis=2>(x, {1, 4})  r = RotaryEmbedding(x2, d, l)  y = Concat<axis=-2>(x1, r)",
            because="expanded further",
            opset=23,
        ),
        Rejects(
            "float[2,3,5,d] x; float[2,4,2] c; float[2,4,2] k; x1, x2 = Split<axis=2>(x, {1, 4})"
            "  r = RotaryEmbedding(x2, c, k)  y = Concat<axis=-2>(x1, r)",
            because="from end to end",
            opset=23,
        ),
        Rejects(
            f"{_TOKENS} r = RotaryEmbedding(x2, c, k)  y = Concat<axis=-2>(r, x1)",
            because="expected",
            opset=23,
        ),
        Rejects(
            "float[2,3,5,4] x; float[2,3,2] c; float[2,3,2] k;"
            "x1 = Slice(x, {0}, {1}, {2})  x2 = Slice(x, {2}, {5}, {2})"
            "r = RotaryEmbedding(x2, c, k)  y = Concat<axis=-2>(x1, r)",
            because="are not all of them",
            opset=23,
        ),
    ),
)
def rotary_of_some_tokens(m: Match, build: Builder) -> Value:
    """(x[:p], RotaryEmbedding(x[p:], cos, sin)) ⟶ RotaryEmbedding(x, (1, cos), (0, sin)), of tokens, or behind them."""
    heads = m.known(m.shape(x), "the shape of the heads is not known", at=x)
    is_before = kept_before in m
    axis = m.axis(m.node(kept_before if is_before else kept_behind), len(heads))
    m.require(len(heads) == 4 and axis == 2, "heads must be of rank 4, and joined along their tokens", at=x)
    first, second = (m.piece(resolve(m[t]), 2) for t in (front, back))
    everything = first == range(first.stop) and second == range(first.stop, second.stop) and second.stop == heads[2]
    m.require(everything, f"tokens {first} and {second} are not all of them, in their order", at=x)
    half = m.dim(cos, -1)
    is_whole = isinstance(half, int) and heads[3] == 2 * half
    m.require(is_whole, "heads are not known to be turned from end to end", at=x)
    rows = [_with_kept(m, build, m[t], len(first if is_before else second), number, is_before) for t, number in _STILL]
    return build.RotaryEmbedding(m[x], *rows, interleaved=1 if m[interleaved] else None)


_STILL = ((cos, 1.0), (sin, 0.0))
"""Cosine and sine of no angle."""


def _with_kept(m: Match, build: Builder, rows: Value, count: int, number: float, is_before: bool) -> Value:
    """Cosines or sines of shape [B, S, D/2] with a ``number`` for so many tokens that stay, before or behind them."""
    table = path(rows, "Expand")
    known = table.source if table is not None and m.rank(table.source) == 3 else rows
    shape = m.known(m.shape(known), "the number of cosines is not known", at=rows)
    is_same = same_shape((m.shape(rows) or ())[1:], shape[1:])
    m.require(is_same and len(shape) == 3, "the cosines are expanded further", at=rows)
    batch, _, width = shape
    m.require(isinstance(batch, int) and isinstance(width, int), "the number of cosines is not known", at=rows)
    still = build.const(np.full((batch, count, width), number), like=rows)
    joined = build.Concat(*([still, known] if is_before else [known, still]), axis=1)
    if known is rows or m.dim(m[x], 0) == batch:
        return joined
    return build.Expand(joined, build.Concat(build.Gather(build.Shape(m[x]), np.array([0])), np.array([1, 1]), axis=0))
