"""Rotary position embedding of which the sines, and not the heads, have the signs: x·cos + (x₂, x₁)·(-sin, sin).

What is swapped is rolled by half a head, picked by indices, or flipped two by two; or a matrix of zeros and ones swaps
it and has the signs.

Why: a roll needs no Neg, and the signs are computed once for all layers; as one kernel it is faster still (`rotary`).
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.duplicated_halves import Twice, once
from onnxrewrite_patterns.rotary import Joined, cos, heads_of_x, is_by_pairs, pairs, require_parts, sin, x, x1, x2
from onnxrewrite_patterns.rotary_operator import embedded, head_size

joined = Joined(x2.term, x1.term, x1.slot)
picked = op.Gather(x, order := Const("order", rank=1))
reversed_pairs = op.Slice(pairs, Each("bounds of what is reversed", at_least=0))
flipped = op.Reshape(reversed_pairs, Var("shape of what is flipped"))
swapped = any_of(joined.term, picked, flipped)
signs = Const("signs")

_HEADS = "float[b,3,s,8] x; float[b,1,s,4] c; float[b,1,s,4] k;"
_TABLES = "cos = Concat<axis=-1>(c, c)  n = Neg(k)  sin = Concat<axis=-1>(n, k)"
_SUM = "u = Mul(x, cos)  v = Mul(r, sin)  y = Add(u, v)"
_ROLLED = "x1, x2 = Split<axis=3>(x, {4, 4})  r = Concat<axis=3>(x2, x1)"
_TURNED = "c3 = Squeeze(c, {1})  k3 = Squeeze(k, {1})  y = RotaryEmbedding(x, c3, k3)"
_COSINES = "float[1,4] {1.0, 1.0, 2.0, 2.0}"


@rule(
    "rotary-of-signed-sines",
    RAISE,
    heads_of_x * cos + any_of(swapped * sin, swapped * signs * sin),
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(f"{_HEADS} {_TABLES} {_ROLLED} {_SUM}", to=f"{_HEADS} {_TURNED}", opset=23),
        Rewrites(
            f"{_HEADS} cos = Concat<axis=-1>(c, c)  sin = Concat<axis=-1>(k, k) {_ROLLED} u = Mul(x, cos)"
            "q = Mul(r, {-1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0})  v = Mul(q, sin)  y = Add(u, v)",
            to=f"{_HEADS} {_TURNED}",
            opset=23,
        ),
        Rewrites(
            f"float[2,3,1,4] x; r = Gather<axis=3>(x, {{1, 0, 3, 2}})  u = Mul(x, {_COSINES})"
            "v = Mul(r, {-3.0, 3.0, -4.0, 4.0})  y = Add(u, v)",
            to="float[2,3,1,4] x; c = Unsqueeze(float[1,2] {1.0, 2.0}, {0})  h = Shape(x)  b = Gather<axis=0>(h, {0})"
            "e = Concat<axis=0>(b, {1, 1})  c3 = Expand(c, e)  k = Unsqueeze({3.0, 4.0}, {0, 1})  g = Shape(x)"
            "d = Gather<axis=0>(g, {0})  f = Concat<axis=0>(d, {1, 1})  k3 = Expand(k, f)"
            "y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,s,4] x; float[b,1,s,2] c; float[b,1,s,2] k; c5 = Unsqueeze(c, {-1})  k5 = Unsqueeze(k, {-1})"
            "cc = Concat<axis=-1>(c5, c5)  cos = Reshape(cc, {0, 0, 0, 4})  n = Neg(k5)  kk = Concat<axis=-1>(n, k5)"
            "sin = Reshape(kk, {0, 0, 0, 4})  p = Reshape(x, {0, 0, 0, 2, 2})  t = Slice(p, {-1}, {-9}, {4}, {-1})"
            f"r = Reshape(t, {{0, 0, 0, 4}})  {_SUM}",
            to="float[b,3,s,4] x; float[b,1,s,2] c; float[b,1,s,2] k; c5 = Unsqueeze(c, {-1})  k5 = Unsqueeze(k, {-1})"
            "c4 = Squeeze(c5, {4})  k4 = Squeeze(k5, {4})  c3 = Squeeze(c4, {1})  k3 = Squeeze(k4, {1})"
            "y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} cos = Concat<axis=-1>(c, c)  sin = Concat<axis=-1>(k, k) {_ROLLED} {_SUM}",
            because="not shown to repeat itself",
            opset=23,
        ),
        Rejects(
            f"float[2,3,1,4] x; r = Gather<axis=3>(x, {{1, 0, 3, 2}})  u = Mul(x, {_COSINES})"
            "v = Mul(r, {-3.0, 3.0, -4.0, 5.0})  y = Add(u, v)",
            because="does not repeat itself",
            opset=23,
        ),
        Rejects(
            f"float[2,3,1,4] x; r = Gather<axis=3>(x, {{1, 2, 3, 0}})  u = Mul(x, {_COSINES})"
            "v = Mul(r, {-3.0, 3.0, -4.0, 4.0})  y = Add(u, v)",
            because="is no swap",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_TABLES} x1, x2 = Split<axis=3>(x, {{5, 3}})  r = Concat<axis=3>(x2, x1) {_SUM}",
            because="are not what is joined",
            opset=23,
        ),
    ),
)
def rotary_of_signed_sines(m: Match, build: Builder) -> Value:
    """x·cos + (x₂, x₁)·(-sin, sin) ⟶ RotaryEmbedding(x, cos, sin), of cos and sin that repeat themselves."""
    heads = m[heads_of_x]
    interleaved = _is_interleaved(m, heads)
    m.require(is_read_once(m[swapped]), "the swapped heads are used elsewhere, too", at=swapped)
    signed = signs not in m
    cosines, sines = (once(m, build, m[t], Twice(interleaved, t is sin and signed)) for t in (cos, sin))
    sines = sines if signed else _times(m, build, sines, m[signs], interleaved)
    return embedded(m, build, heads, (cosines, sines), interleaved=interleaved)


def _times(m: Match, build: Builder, sines: Value, factors: Array, interleaved: bool) -> Value:
    """Sines, multiplied by what comes second in factors that have the signs."""
    signed = Twice(interleaved, opposite=True)
    m.require(signed.is_of(factors), "the signs are not of what is swapped", at=x)
    second = signed.halves(factors)[1]
    return sines if np.all(second == 1) else build.Mul(sines, build.const(second, like=sines))


def _is_interleaved(m: Match, heads: Value) -> bool:
    """True if neighbours are swapped, and not halves; refuses where neither are."""
    rank, size = m.rank(heads) or 0, head_size(m, heads)
    if joined.term in m:
        interleaved = joined.is_interleaved(m, heads)
        require_parts(m, heads, size, interleaved)
        return interleaved
    if flipped in m:
        found = piece_of(m.facts, resolve(m[reversed_pairs]))
        if isinstance(found, str) or found.elements != range(1, -1, -1):
            m.refuse("what is flipped is not two by two", at=reversed_pairs)
        m.require(same_shape(m.shape(flipped), m.shape(heads)), "the Reshape does not make heads", at=flipped)
        return is_by_pairs(m, heads, pairs, found.axis)
    is_of_heads = heads is m[x] and m.axis(m.node(picked), rank) == rank - 1
    m.require(is_of_heads, "what is picked are not features of the heads", at=picked)
    return _swaps_pairs(m, m[order], size)


def _swaps_pairs(m: Match, places: Array, size: int) -> bool:
    """True if neighbours are picked for each other, False if halves are; refuses where neither are."""
    each = np.arange(size)
    if np.array_equal(places, each ^ 1):
        return True
    m.require(np.array_equal(places, np.roll(each, size // 2)), "what is picked is no swap of features", at=x)
    return False


turn = Const("turn", rank=2)
mixed = op.MatMul(x, turn)

_WHOLE = f"{_HEADS} cos = Concat<axis=-1>(c, c)  sin = Concat<axis=-1>(k, k)"
_BY_MATRIX = "float[2,3,1,2] x; u = Mul(x, {1.0, 1.0})"
_SECOND = "v = Mul(r, {2.0, 2.0})  y = Add(u, v)"


def _swap(first: float, second: float) -> str:
    """The matrix that swaps the halves of a head of 8 features, of the signs of the first half and the second."""
    numbers = np.kron([[0.0, second], [first, 0.0]], np.eye(4)).ravel()
    return f"float[8,8] {{{', '.join(map(str, numbers))}}}"


@rule(
    "rotary-by-matrix",
    RAISE,
    x * cos + mixed * sin,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    allow_shared=True,
    examples=(
        Rewrites(f"{_WHOLE} r = MatMul(x, {_swap(-1.0, 1.0)}) {_SUM}", to=f"{_HEADS} {_TURNED}", opset=23),
        Rejects(f"{_WHOLE} r = MatMul(x, {_swap(1.0, 1.0)}) {_SUM}", because="the signs are not of what", opset=23),
        Rejects(f"{_BY_MATRIX} r = MatMul(x, float[2,2] {{0.0, 1.0, -1.0, 1.0}}) {_SECOND}", because="mixes features"),
        Rejects(f"{_BY_MATRIX} r = MatMul(x, float[2,2] {{1.0, 0.0, 0.0, -1.0}}) {_SECOND}", because="no swap"),
    ),
)
def rotary_by_matrix(m: Match, build: Builder) -> Value:
    """x·cos + (x·R)·sin ⟶ RotaryEmbedding(x, cos, sin), of a matrix R that gives (-x₂, x₁)."""
    heads, matrix = m[x], m[turn]
    size = head_size(m, heads)
    m.require(is_read_once(m[mixed]), "the swapped heads are used elsewhere, too", at=mixed)
    picks = matrix.shape == (size, size) and bool((np.count_nonzero(matrix, axis=0) == 1).all())
    m.require(picks, "the matrix mixes features, or makes other ones", at=turn)
    interleaved = _swaps_pairs(m, np.argmax(matrix != 0, axis=0), size)
    cosines, sines = (once(m, build, m[t], Twice(interleaved)) for t in (cos, sin))
    sines = _times(m, build, sines, matrix.sum(axis=0), interleaved)
    return embedded(m, build, heads, (cosines, sines), interleaved=interleaved)
