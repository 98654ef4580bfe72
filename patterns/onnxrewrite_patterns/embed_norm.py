"""The normalized sum of embeddings, as BERT begins, as ONNX Runtime's EmbedLayerNormalization.

Why: rows of two or three tables are read, added and normalized one by one, and nothing is written in between.   Devlin
et al., 2018, arXiv:1810.04805.

The kernel calls its tables those of words, positions and segments, and does the same with all of them, but that
positions may be shared by the batch, or count up where they are not given.  So any table will do for any of them.
Unlike Gather it does not take indices that count from the end.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.norm_parts import with_sum

Lookup: TypeAlias = tuple[Value, Value]
"""A table [rows, width], and which of its rows."""

FLOAT = ir.DataType.FLOAT
tables = [Var(f"table {n}", dtype=FLOAT, rank=2) for n in range(3)]
ids = [Var(f"ids of table {n}") for n in range(3)]
a, b, c = (op.Gather(table, rows, axis=0) for table, rows in zip(tables, ids, strict=True))
fixed = Const("embedding of positions", dtype=FLOAT)
scale, bias = Var("scale", rank=1), Var("bias", rank=1, default=None)


def normed(x: Term, skip: Term) -> Call:
    """The normalized sum as ONNX Runtime's own optimizer writes it."""
    return microsoft.SkipLayerNormalization(x, skip, scale, bias)


total = any_of(a + b + c, a + b + fixed, a + b, a + fixed)
layer_norm = op.LayerNormalization(total, scale, bias)
embedding = any_of(layer_norm, normed(a + b, c), normed(a + b, fixed), normed(a + fixed, b), normed(a, b))


def _positions(m: Match, build: Builder, found: list[Lookup], shape: Sequence[Dim]) -> tuple[Value, Value | None]:
    """The table that serves as that of positions, which is taken out of ``found``, with its rows [B, S] or [1, S]."""
    if fixed in m:
        rows = m[fixed].reshape(m[fixed].shape[-2:]) if m[fixed].shape[:-2] == (1,) else m[fixed]
        m.require(same_shape(rows.shape, shape[1:]), "the constant is not one row for each position", at=fixed)
        return build.const(rows, like=fixed), None
    counting = {rows: nodes for _, rows in found if (nodes := _counted_up(m, rows, shape[1]))}
    alone = (f for f in found if f[1] in counting or not same_shape(m.shape(f[1]), shape[:2]))
    table, chosen = next(alone, found[1])
    found.remove((table, chosen))
    if chosen in counting:
        m.cover(*counting[chosen])
        return table, None
    given = m.shape(chosen) or ()
    if len(given) == 1:
        given, chosen = (1, *given), build.Unsqueeze(chosen, axes=(0,))
    m.require(len(given) == 2, "the positions are not of rank 2, or 1", at=chosen)
    fits = (given[0] == 1 or same_dim(given[0], shape[0])) and (
        same_dim(given[1], shape[1]) or _is_cut(m, chosen, shape[1])
    )
    m.require(fits, "there is not a row for each position", at=chosen)
    return table, chosen


def _counted_up(m: Match, rows: Value, size: Dim) -> Sequence[ir.Node]:
    """The nodes that make rows 0, 1, 2, ..., the same for all of the batch, as the kernel takes them where it is given
    none; empty for other rows, and for those that something else needs, too."""
    spread = path(rows, "Expand")
    row = rows if spread is None else spread.source
    counting = path(row, "Unsqueeze", "Range")
    if counting is None or not same_shape(m.shape(row), (1, size)):
        return ()
    start, _, step = (m.facts.elements(v) for v in inputs_of(counting.nodes[-1]))
    nodes = (*(spread.nodes if spread else ()), *counting.nodes)
    alone = all(is_read_once(node.outputs[0]) for node in nodes)
    return nodes if alone and start == (0,) and step == (1,) else ()


def _is_cut(m: Match, rows: Value, size: Dim) -> bool:
    """True if rows are the first ``size`` of a constant, not of a single row: with fewer the sum would be invalid."""
    node = made_by(rows, "Slice")
    if node is None:
        return False
    table, ends = m.facts.tensor(m.operand(node)), named_input(m.facts, node, "ends")
    given = [parameter(m.facts, node, name) for name in ("starts", "axes", "steps")]
    at_start = given[0] == (0,) and given[1] in ((1,), (-1,)) and given[2] in (None, (1,))
    whole = table is not None and table.shape[-1] != 1 and at_start and ends is not None
    return whole and same_shape(m.facts.elements(ends), (size,))  # type: ignore[arg-type]


def _int32(m: Match, build: Builder, rows: Value | None) -> Value | None:
    """Indices in the dtype that the kernel takes."""
    if rows is None or m.dtype(rows) == ir.DataType.INT32:
        return rows
    return build.Cast(rows, to=int(ir.DataType.INT32))


_TABLES = "float[9,8] w, float[7,8] p, float[2,8] s, float[8] g, float[8] o"
_IDS = "int32[b,t] i, int32[1,t] j, int32[b,t] k"
_SUM = "u = Gather(w, i)  v = Gather(p, j)  r = Gather(s, k)  d = Add(u, v)  e = Add(d, r)"


@rule(
    "embed-norm",
    LOWER,
    embedding,
    benefit=20,
    allow_shared=True,
    assumes=(Assumption.NOT_NEGATIVE,),
    examples=(
        Rewrites(
            f"({_TABLES}, {_IDS}) => (y) {{ {_SUM} y = LayerNormalization<axis=-1, epsilon=1e-12>(e, g, o) }}",
            to=f"({_TABLES}, {_IDS}) => (y)"
            "{ y, n = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, k, w, p, s, g, o, , j) }",
        ),
        Rewrites(
            f"({_TABLES}, int64[b,t] i, int32[t] j) => (y)"
            "{ u = Gather(w, i)  v = Gather(p, j)  e = Add(v, u)  y = LayerNormalization<epsilon=1e-12>(e, g, o) }",
            to=f"({_TABLES}, int64[b,t] i, int32[t] j) => (y) {{ c = Cast<to=6>(i)  q = Unsqueeze(j, {{0}})"
            "y, n = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(c, , w, p, , g, o, , q) }",
        ),
        Rewrites(
            "(float[9,2] w, float[2] g, float[2] o, int32[b,2] i) => (y) { u = Gather(w, i)"
            "e = Add(u, float[1,2,2] {1.0, 2.0, 3.0, 4.0})  y = LayerNormalization<epsilon=1e-12>(e, g, o) }",
            to="(float[9,2] w, float[2] g, float[2] o, int32[b,2] i) => (y) { p = float[2,2] {1.0, 2.0, 3.0, 4.0}"
            "y, n = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, , w, p, , g, o) }",
        ),
        Rewrites(
            f"({_TABLES}, {_IDS}) => (y) {{ u = Gather(w, i)  v = Gather(p, j)  r = Gather(s, k)  d = Add(u, v)"
            "y = com.microsoft.SkipLayerNormalization<epsilon=1e-12>(d, r, g, o) }",
            to=f"({_TABLES}, {_IDS}) => (y)"
            "{ y, n = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, k, w, p, s, g, o, , j) }",
        ),
        Rewrites(
            f"({_TABLES}, {_IDS}) => (y, z){{ {_SUM} y = LayerNormalization<epsilon=1e-12>(e, g, o)  z = Relu(e) }}",
            to=f"({_TABLES}, {_IDS}) => (y, z)"
            "{ y, n, e = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, k, w, p, s, g, o, , j)  z = Relu(e) }",
        ),
        Rewrites(
            f"({_TABLES}, int32[b,t] i) => (y) {{ h = Shape(i)  n = Gather(h, {{1}})"
            "j = Slice(int32[1,3] {4, 5, 6}, {0}, n, {1}, {1})  u = Gather(w, i)  v = Gather(p, j)  e = Add(u, v)"
            "y = LayerNormalization<epsilon=1e-12>(e, g, o) }",
            to=f"({_TABLES}, int32[b,t] i) => (y) {{ h = Shape(i)  n = Gather(h, {{1}})"
            "j = Slice(int32[1,3] {4, 5, 6}, {0}, n, {1}, {1})"
            "y, k = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, , w, p, , g, o, , j) }",
        ),
        Rewrites(
            f"({_TABLES}, int32[b,t] i) => (y) {{ h = Shape(i)  n = Gather(h, 1)  r = Range(0, n, 1)"
            "q = Unsqueeze(r, {0})  j = Expand(q, h)  u = Gather(w, i)  v = Gather(p, j)  e = Add(u, v)"
            "y = LayerNormalization<epsilon=1e-12>(e, g, o) }",
            to=f"({_TABLES}, int32[b,t] i) => (y)"
            "{ y, k = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, , w, p, , g, o) }",
        ),
        Rejects(
            f"({_TABLES}, int32[b,1] i, int32[1,t] j) => (y)"
            "{ u = Gather(w, i)  v = Gather(p, j)  e = Add(u, v)  y = LayerNormalization(e, g, o) }",
            because="there is not a row for each position",
        ),
        Rejects(
            f"({_TABLES}, float[7,1] q, {_IDS}) => (y)"
            "{ u = Gather(w, i)  v = Gather(q, j)  e = Add(u, v)  y = LayerNormalization(e, g, o) }",
            because="like those of the sum",
        ),
        Rejects(
            f"({_TABLES}, {_IDS}) => (y) {{ {_SUM} y = LayerNormalization<epsilon=-0.5>(e, g, o) }}",
            because="epsilon is negative",
        ),
        Rejects(
            f"({_TABLES}, {_IDS}) => (y) {{ {_SUM} y = LayerNormalization<axis=1>(e, g, o) }}",
            because="not along the last axis",
        ),
        Rejects(
            f"({_TABLES}, {_IDS}) => (y)"
            "{ u = Gather(w, i)  v = Gather<axis=1>(p, j)  e = Add(u, v)  y = LayerNormalization(e, g, o) }",
            because="expected axis=0",
        ),
        Rejects(
            f"({_TABLES}, {_IDS}) => (y, z) {{ {_SUM} y = LayerNormalization(e, g, o)  z = Relu(d) }}",
            because="needed elsewhere",
        ),
    ),
)
def embed_norm(m: Match, build: Builder) -> Value | tuple[Value, Value]:
    """LayerNormalization(w[i] + p[j] + s[k]) ⟶ com.microsoft.EmbedLayerNormalization(i, k, w, p, s, position_ids=j)."""
    call = m.alternative(embedding)
    assert isinstance(call, Call)
    shape = m.shape(m.anchor)
    if shape is None or len(shape) != 3 or not isinstance(shape[2], int):
        m.refuse("the sum is not of rank 3, with rows of a known size")
    m.require(call is not layer_norm or m.attr(call, "axis") in (-1, 2), "it is not along the last axis")
    m.require(m.attr(call, "epsilon") >= 0, "epsilon is negative")
    found = [(m[table], m[rows]) for table, rows in zip(tables, ids, strict=True) if table in m]
    for row in (*(table for table, _ in found), m[scale], *filter(None, [m.value(bias)])):
        m.require(
            m.dim(row, -1) == shape[2],
            f"its rows are of size {m.dim(row, -1)}, not {shape[2]} like those of the sum",
            at=row,
        )
    positions, position_ids = _positions(m, build, found, shape)
    for _, rows in found:
        m.require(same_shape(m.shape(rows), shape[:2]), "there is not a row for each position", at=rows)
    (words, word_ids), (segments, segment_ids) = (*found, (None, None))[:2]
    offset = m.value(bias) or build.const(np.zeros(shape[2]), like=scale)
    inputs = [_int32(m, build, word_ids), _int32(m, build, segment_ids), words, positions, segments, m[scale], offset]
    inputs += [None, _int32(m, build, position_ids)]
    epsilon = {"epsilon": m.attr(call, "epsilon")}
    if call is not layer_norm or not with_sum(m, total, a, b, c):
        return build.microsoft.node("EmbedLayerNormalization", inputs, epsilon, outputs=2)[0]
    m.widen((), (m.anchor, m[total]))
    result, _, summed = build.microsoft.node("EmbedLayerNormalization", inputs, epsilon, outputs=3)
    return result, summed
