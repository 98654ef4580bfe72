"""Rotary position embedding by matrices: each pair of features is multiplied by [[cos, -sin], [sin, cos]].

Where it comes from: FLUX as Black Forest Labs publish it, and what is made of it: the matrices are stacked, taken apart
by columns, and these are multiplied by the first and the second feature of each pair.

Why: as in ``rotary.py``; and every cosine and sine is there twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.duplicated_halves import Twice, is_twice
from onnxrewrite_patterns.rotary_operator import embedded, head_size

x = Var("x", dtype=FLOATS)
first, second = Var("first columns"), Var("second columns")
axis = Attr[int]("axis of the first features", default=0)
other_axis = Attr[int]("axis of the second features", default=0)
pairs = op.Reshape(x, Var("shape of pairs"))
x1, x2 = op.Gather(pairs, 0, axis=axis), op.Gather(pairs, 1, axis=other_axis)
turned = op.Reshape(op.Add(op.Mul(first, x1), op.Mul(second, x2)), Var("shape of heads"))

_HEADS = "float[b,3,s,4] x; float[b,1,s,2] c; float[b,1,s,2] k;"
_STACKED = "c5 = Unsqueeze(c, {-1})  k5 = Unsqueeze(k, {-1})  n5 = Neg(k5)"
_COLUMNS = "m = Reshape(t, {0, 0, 0, 0, 2, 2})  f = Gather<axis=5>(m, 0)  g = Gather<axis=5>(m, 1)"
_PAIRS = "p = Reshape(x, {0, 0, 0, 2, 1, 2})  x1 = Gather<axis=5>(p, 0)  x2 = Gather<axis=5>(p, 1)"
_SUM = "u = Mul(f, x1)  v = Mul(g, x2)  w = Add(u, v)  y = Reshape(w, {0, 0, 0, 4})"
_FIXED = "float[2,3,1,2] x; p = Reshape(x, {2, 3, 1, 1, 1, 2})  x1 = Gather<axis=5>(p, 0)  x2 = Gather<axis=5>(p, 1)"
_MADE = "u = Mul(float[1,1,2] {1.0, 3.0}, x1)  v = Mul(x2, float[1,1,2] {-3.0, 1.0})  w = Add(u, v)"


@rule(
    "rotary-by-matrices",
    RAISE,
    turned,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_HEADS} {_STACKED} t = Concat<axis=-1>(c5, n5, k5, c5) {_COLUMNS} {_PAIRS} {_SUM}",
            to=f"{_HEADS} c5 = Unsqueeze(c, {{-1}})  k5 = Unsqueeze(k, {{-1}})  c4 = Squeeze(c5, {{-1}})"
            "k4 = Squeeze(k5, {-1})  c3 = Squeeze(c4, {1})  k3 = Squeeze(k4, {1})"
            "y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,s,4] x; float[b,s,1,1] c; float[b,s,1,1] k; n = Neg(k)  t = Concat<axis=-1>(c, n, k, c)"
            "z = Reshape(t, {0, 0, 0, 2, 2})  j = Concat<axis=2>(z, z)  m = Unsqueeze(j, {1})"
            f"f = Gather<axis=5>(m, 0)  g = Gather<axis=5>(m, 1) {_PAIRS} {_SUM}",
            to="float[b,3,s,4] x; float[b,s,1,1] c; float[b,s,1,1] k; a = Squeeze(c, {-1})  d = Squeeze(c, {-1})"
            "h = Concat<axis=2>(a, d)  u = Unsqueeze(h, {1})  e = Squeeze(k, {-1})"
            "r = Squeeze(k, {-1})  o = Concat<axis=2>(e, r)  v = Unsqueeze(o, {1})  c3 = Squeeze(u, {1})"
            "k3 = Squeeze(v, {1})  y = RotaryEmbedding<interleaved=1>(x, c3, k3)",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_STACKED} t = Concat<axis=-1>(c5, k5, k5, c5) {_COLUMNS} {_PAIRS} {_SUM}",
            because="does not turn",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_STACKED} t = Concat<axis=-1>(c5, n5, k5, c5) {_COLUMNS} {_PAIRS}"
            "u = Mul(g, x1)  v = Mul(f, x2)  w = Add(u, v)  y = Reshape(w, {0, 0, 0, 4})",
            because="are not the columns of one matrix",
            opset=23,
        ),
        Rejects(
            f"{_HEADS} {_STACKED} t = Concat<axis=-1>(c5, n5, k5, c5) {_COLUMNS}"
            f"{_PAIRS.replace('2, 1, 2}', '1, 2, 2}')} {_SUM}",
            because="are not pairs of features",
            opset=23,
        ),
        Rejects(f"{_FIXED} {_MADE.replace('-3.0', '3.0')} y = Reshape(w, {{2, 3, 1, 2}})", because="does not turn"),
    ),
)
def rotary_by_matrices(m: Match, build: Builder) -> Value:
    """(x₁·(cos, sin) + x₂·(-sin, cos)) ⟶ RotaryEmbedding(x, cos, sin), of pairs (x₁, x₂)."""
    *before, size = m.known(m.shape(x), "the rank is not known", at=x)
    half = head_size(m, m[x]) // 2
    m.require(same_shape(m.shape(pairs), (*before, half, 1, 2)), "they are not pairs of features", at=pairs)
    m.require(same_shape(m.shape(turned), (*before, size)), "the Reshape does not make heads", at=turned)
    last = len(before) + 2
    by_pairs = m.axis(m.node(x1), last + 1) == m.axis(m.node(x2), last + 1) == last
    m.require(by_pairs, "they are not features of one pair", at=pairs)
    return embedded(m, build, m[x], _of_columns(m, build), interleaved=True)


def _of_columns(m: Match, build: Builder) -> tuple[Value, Value]:
    """Cosines and sines, of columns that are constant, or picked from matrices."""
    one, other = (m.facts.constant(m[t]) for t in (first, second))
    if one is not None and other is not None:
        m.require(one.shape == other.shape, "the matrix does not turn", at=turned)
        return _of_table(m, build, np.stack((one, other), axis=-1), m[first])
    found = [gather_of(m.facts, node) for t in (first, second) if (node := made_by(m[t], "Gather")) is not None]
    places = [(g.source, g.axis, g.indices.tolist()) for g in found if not isinstance(g, str)]
    rank = m.rank(places[0][0]) if places else None
    is_one = rank is not None and places == [(places[0][0], rank - 1, 0), (places[0][0], rank - 1, 1)]
    m.require(is_one, "they are not the columns of one matrix", at=turned)
    m.cover(*(node for t in (first, second) if (node := made_by(m[t], "Gather")) is not None))
    return _of_matrices(m, build, places[0][0])


def _of_table(m: Match, build: Builder, table: Array, like: Value) -> tuple[Value, Value]:
    """Cosines and sines of constant matrices."""
    m.require(table.ndim > 1 and table.shape[-2:] == (2, 2), "they are not two by two", at=like)
    (a, b), (c, d) = np.moveaxis(table, (-2, -1), (0, 1))
    m.require(np.array_equal(a, d) and np.array_equal(-b, c), "the matrix does not turn", at=like)
    return build.const(a, like=like), build.const(c, like=like)


def _of_matrices(m: Match, build: Builder, value: Value) -> tuple[Value, Value]:
    """Cosines and sines of matrices of shape [..., 2, 2] that are made of them; those of each part of a Concat."""
    value = resolve(value)
    *rows, _, _ = m.known(m.shape(value), "the rank of the matrices is not known", at=value)
    table, joined = m.facts.constant(value), made_by(value, "Concat")
    if table is not None:
        return _of_table(m, build, table, value)
    if joined is not None and (along := m.axis(joined, len(rows) + 2)) < len(rows):
        parts = [_of_matrices(m, build, v) for v in inputs_of(joined)]
        m.cover(joined)
        cosines, sines = (build.Concat(*part, axis=along) for part in zip(*parts, strict=True))
        return cosines, sines
    lifted = made_by(value, "Unsqueeze")
    axes = unit_axes(m.facts, lifted) if lifted is not None else None
    if lifted is not None and isinstance(axes, tuple) and max(axes) < len(rows):
        m.cover(lifted)
        cosines, sines = (build.Unsqueeze(v, axes=axes) for v in _of_matrices(m, build, m.operand(lifted)))
        return cosines, sines
    return _of_stack(m, build, value, rows)


def _of_stack(m: Match, build: Builder, value: Value, rows: Sequence[Dim]) -> tuple[Value, Value]:
    """Cosines and sines that are stacked to matrices: (cos, -sin, sin, cos), viewed as two by two."""
    stacked = path(value, "Reshape", "Concat")
    entries = [resolve(v) for v in inputs_of(stacked.nodes[-1])] if stacked is not None else []
    if stacked is None or len(entries) != 4:
        m.refuse("the matrices are not stacked of cosines and sines", at=value)
    of_entry = m.known(m.shape(entries[0]), "the rank of the cosines is not known", at=entries[0])
    missing = len(rows) + 1 - len(of_entry)
    by_entry = same_shape(m.shape(stacked.values[-2]), (*of_entry[:-1], 4)) and of_entry[-1] == 1
    placed = missing >= 0 and same_shape((*[1] * missing, *of_entry[:-1]), rows)
    m.require(by_entry and placed, "the matrices are not stacked of cosines and sines", at=value)
    opposite = is_twice(m, entries[1:3], Twice(interleaved=False, opposite=True))
    m.require(entries[0] is entries[3] and opposite, "the matrix does not turn", at=value)
    m.cover(*stacked.nodes)
    cosines, sines = (build.Squeeze(v, axes=(-1,)) for v in (entries[0], entries[2]))
    return cosines, sines
