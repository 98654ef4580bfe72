"""The standard's RotaryEmbedding: called for heads in either layout, for part of a head, and as ONNX Runtime's own.

com.microsoft.RotaryEmbedding takes cosines and sines as tables, and for every token the row that it is at.  It wants
at least as many rows as there are positions, and a row for negative positions it has not, which a Gather has.  So the
rows, one for each token, become the table, in their order: they are gathered as before, once for all layers.
Where one batch serves all, its kernel needs no more than the row to start at.

Heads that were split and transposed are turned before that, which leaves the Transpose to what follows: attention
takes queries as they were.

Why: models older than opset 23 have no RotaryEmbedding.   Source: ONNX Runtime, docs/ContribOperators.md; what it does
not say was tried (1.31): kernels for float32 and float16; ``scale`` does nothing; a head of odd size is computed wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from onnxrewrite.rules import *

x, cos, sin = Var("x", dtype=FLOATS), Var("cos"), Var("sin")


def head_size(m: Match, heads: Value) -> int:
    """The number of features of a head, the last dimension."""
    size = m.dim(heads, -1)
    if not isinstance(size, int) or size < 2 or size % 2:
        m.refuse(f"the size of a head must be a known even number, it is {size}", at=heads)
    return size


def embedded(
    m: Match,
    build: Builder,
    heads: Value,
    tables: Sequence[Value],
    *,
    interleaved: bool = False,
    turned: int | None = None,
) -> Value:
    """RotaryEmbedding of heads of shape [B, H, S, D], [B, S, H, D] or [B, S, D].

    Args:
        m: The match.
        build: Its tape.
        heads: The heads to turn.
        tables: Cosines and sines, which broadcast to half the heads; the same for all heads.
        interleaved: True if neighbours are turned, and not halves.
        turned: The number of features at the front to turn; None for all.
    """
    shape = m.shape(heads) or ()
    m.require(len(shape) in (3, 4), "heads must be of rank 3 or 4", at=heads)
    width = (turned or head_size(m, heads)) // 2
    m.require(all(m.dim(t, -1) == width for t in tables), f"there must be {width} cosines and sines", at=heads)
    axis = _axis_of_heads(m, heads, tables)
    return called(m, build, heads, [_rows(m, build, t, heads, axis) for t in tables], axis, interleaved, turned)


def called(
    m: Match,
    build: Builder,
    heads: Value,
    rows: Sequence[Value],
    axis: int | None,
    interleaved: bool,
    turned: int | None,
) -> Value:
    """The same of cosines and sines of shape [B, S, D/2], where ``axis`` of ``heads``, if any, is that for heads."""
    how = {"interleaved": 1 if interleaved else None, "rotary_embedding_dim": turned}
    if axis == 1:
        return build.RotaryEmbedding(heads, *rows, **how)
    if axis is None:
        return build.RotaryEmbedding(heads, *rows, num_heads=1, **how)
    count, size = m.dim(heads, 2), head_size(m, heads)
    if not isinstance(count, int) or count == 0:
        m.refuse("the number of heads is not known", at=heads)
    flat = build.Reshape(heads, np.array([0, 0, count * size]))
    result = build.RotaryEmbedding(flat, *rows, num_heads=count, **how)
    return build.Reshape(result, np.array([0, 0, count, size]))


def _axis_of_heads(m: Match, heads: Value, tables: Sequence[Value]) -> int | None:
    """The axis that is for heads, 1 or 2, none for a rank of 3: there are as many cosines as positions."""
    shape = m.shape(heads) or ()
    for axis in (1, 2) if len(shape) == 4 else (None,):
        if all(_fits(_padded(m, t, len(shape)), shape, axis) for t in tables):
            return axis
    shown = " and ".join(f"[{', '.join(map(str, m.shape(t) or '?'))}]" for t in tables)
    return m.refuse(f"the shapes of cosines and sines {shown} are not one for each position", at=heads)


def _padded(m: Match, table: Value, rank: int) -> tuple[Dim, ...]:
    """The shape of a table with as many dimensions as that of heads."""
    shape = m.shape(table)
    return () if shape is None else (*[1] * (rank - len(shape)), *shape)


def _fits(table: Sequence[Dim], shape: Sequence[Dim], axis: int | None) -> bool:
    """True if a table has a row for each position, for each batch or for all, and the same for all heads."""
    if len(table) != len(shape):
        return False
    kept = [place for place in range(1, len(shape) - 1) if place != axis]
    alike = all(_as_long(table[k], shape[k]) for k in kept)
    return alike and (axis is None or table[axis] == 1) and (table[0] == 1 or same_dim(table[0], shape[0]))


def _as_long(rows: Dim, positions: Dim | None) -> bool:
    """True if a table has as many rows as there are positions."""
    return positions is not None and (same_dim(rows, positions) or is_cut_to(rows, positions))


def _rows(m: Match, build: Builder, table: Value, heads: Value, axis: int | None) -> Value:
    """Cosines or sines as [B, S, D/2]."""
    own = None if axis is None else axis - (m.rank(heads) or 0) + (m.rank(table) or 0)
    rows = table if own is None or own < 0 else build.Squeeze(table, axes=(own,))
    missing = 3 - (m.rank(rows) or 0)
    rows = build.Unsqueeze(rows, axes=tuple(range(missing))) if missing else rows
    if m.dim(rows, 0) != 1 or m.dim(heads, 0) == 1:
        return rows
    batch = build.Gather(build.Shape(heads), np.array([0]), axis=0)
    return build.Expand(rows, build.Concat(batch, np.array([1, 1]), axis=0))


# -- part of a head ------------------------------------------------------------------------------------------

split = op.Split(x, Each("sizes", at_least=0), axis=Attr[int]("axis of Split", default=0))
front = any_of(op.Slice(x, Each("bounds of the front", at_least=0)), split[0])
back = any_of(op.Slice(x, Each("bounds of the back", at_least=0)), split[1])
mode = {"interleaved": (interleaved := Attr[int]("interleaved", default=0)), "rotary_embedding_dim": 0}
plain = op.RotaryEmbedding(front, cos, sin, **mode)
flat = op.Reshape(front, Var("shape without heads"))
heads_last = op.RotaryEmbedding(flat, cos, sin, num_heads=(count := Attr[int]("num_heads")), **mode)
unflat = op.Reshape(heads_last, Var("shape with heads"))
partial = op.Concat(any_of(plain, unflat), back, axis=Attr[int]("axis"))

_PART = "float[b,s,2] c; float[b,s,2] k;"
_SLICED = f"float[b,3,s,8] x; {_PART} x1 = Slice(x, {{0}}, {{4}}, {{3}})  x2 = Slice(x, {{4}}, {{8}}, {{3}})"


@rule(
    "rotary-partial",
    RAISE,
    partial,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"{_SLICED} r = RotaryEmbedding<interleaved=1>(x1, c, k)  y = Concat<axis=-1>(r, x2)",
            to=f"float[b,3,s,8] x; {_PART} y = RotaryEmbedding<interleaved=1, rotary_embedding_dim=4>(x, c, k)",
            opset=23,
        ),
        Rewrites(
            f"float[b,s,3,8] x; {_PART} x1, x2 = Split<axis=-1>(x, {{4, 4}})  f = Reshape(x1, {{0, 0, 12}})"
            "r = RotaryEmbedding<num_heads=3>(f, c, k)  u = Reshape(r, {0, 0, 3, 4})  y = Concat<axis=-1>(u, x2)",
            to=f"float[b,s,3,8] x; {_PART} f = Reshape(x, {{0, 0, 24}})"
            "r = RotaryEmbedding<num_heads=3, rotary_embedding_dim=4>(f, c, k)  y = Reshape(r, {0, 0, 3, 8})",
            opset=23,
        ),
        Rejects(
            f"float[b,3,s,8] x; {_PART} x1 = Slice(x, {{4}}, {{8}}, {{3}})  x2 = Slice(x, {{0}}, {{4}}, {{3}})"
            "r = RotaryEmbedding(x1, c, k)  y = Concat<axis=-1>(r, x2)",
            because="are not all of them",
            opset=23,
        ),
        Rejects(
            f"float[b,3,s,8] x; {_PART} x1 = Slice(x, {{0}}, {{5}}, {{3}})  x2 = Slice(x, {{5}}, {{8}}, {{3}})"
            "r = RotaryEmbedding<interleaved=1>(x1, c, k)  y = Concat<axis=-1>(r, x2)",
            because="of 5 features one has none to turn with",
            opset=23,
        ),
        Rejects(
            f"{_SLICED} r = RotaryEmbedding(x1, c, k)  y = Concat<axis=2>(r, x2)",
            because="joined along their last axis",
            opset=23,
        ),
    ),
)
def rotary_partial(m: Match, build: Builder) -> Value:
    """(RotaryEmbedding(x[:r], cos, sin), x[r:]) ⟶ RotaryEmbedding(x, cos, sin, rotary_embedding_dim=r)."""
    size, rank = head_size(m, m[x]), m.rank(x)
    joined = rank == 4 and m.axis(m.node(partial), rank) == 3
    m.require(joined, "heads must be of rank 4, and joined along their last axis", at=x)
    turned, kept = (m.piece(resolve(m[t]), 3) for t in (front, back))
    everything = turned == range(turned.stop) and kept == range(turned.stop, size)
    m.require(everything, f"features {turned} and {kept} are not all of them, in their order", at=x)
    m.require(turned.stop % 2 == 0, f"of {turned.stop} features one has none to turn with", at=x)
    if unflat in m:
        only_heads = m[count] == m.dim(x, 2) and same_shape(m.shape(unflat), m.shape(front))
        m.require(only_heads, "the Reshapes do more than merge heads", at=x)
    axis = 2 if unflat in m else 1
    return called(m, build, m[x], (m[cos], m[sin]), axis, bool(m[interleaved]), turned.stop)


# -- either layout -------------------------------------------------------------------------------------------

HEADS = (0, 2, 1, 3)
"""The permutation between [B, S, H, D] and [B, H, S, D], either way."""

turning = Attr[int]("rotary_embedding_dim", default=0)
moved = op.RotaryEmbedding(op.Transpose(x, perm=HEADS), cos, sin, interleaved=interleaved, rotary_embedding_dim=turning)


@rule(
    "rotary-before-transpose",
    RAISE,
    moved,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"float[b,s,3,4] x; {_PART} t = Transpose<perm=[0,2,1,3]>(x)  y = RotaryEmbedding(t, c, k)",
            to=f"float[b,s,3,4] x; {_PART} f = Reshape(x, {{0, 0, 12}})  r = RotaryEmbedding<num_heads=3>(f, c, k)"
            "u = Reshape(r, {0, 0, 3, 4})  y = Transpose<perm=[0,2,1,3]>(u)",
            opset=23,
        ),
        Rejects(
            f"float[b,3,s,4] x; {_PART} t = Transpose<perm=[0,1,2,3]>(x)  y = RotaryEmbedding(t, c, k)",
            because="expected perm=(0, 2, 1, 3)",
            opset=23,
        ),
        Rejects(
            f"float[b,s,h,4] x; {_PART} t = Transpose<perm=[0,2,1,3]>(x)  y = RotaryEmbedding(t, c, k)",
            because="the number of heads is not known",
            opset=23,
        ),
    ),
)
def rotary_before_transpose(m: Match, build: Builder) -> Value:
    """RotaryEmbedding(Transpose(x), cos, sin) ⟶ Transpose(RotaryEmbedding(x, cos, sin)), of x of shape [B, S, H, D]."""
    turned = called(m, build, m[x], (m[cos], m[sin]), 2, bool(m[interleaved]), m[turning] or None)
    return build.Transpose(turned, perm=HEADS)


# -- ONNX Runtime's own --------------------------------------------------------------------------------------

all_cos, all_sin = (op.Expand(t, Var(f"shape of {t}")) for t in (cos, sin))
heads = Attr[int]("num_heads", default=0)
parameters = {"num_heads": heads, "rotary_embedding_dim": turning, "interleaved": interleaved}
rotary = any_of(op.RotaryEmbedding(x, all_cos, all_sin, **parameters), op.RotaryEmbedding(x, cos, sin, **parameters))


def _require_even(m: Match, half: Dim) -> None:
    """Heads are of even size, and of as many cosines as half of what is turned."""
    size = m.dim(x, -1)
    head = size // m[heads] if isinstance(size, int) and m.rank(x) == 3 and m[heads] else size
    told = f"rotary_embedding_dim={m[turning]}" if m[turning] else "the size of a head"
    even = isinstance(head, int) and isinstance(half, int) and head % 2 == 0 and 2 * half == (m[turning] or head)
    m.require(even, f"{m[turning] or head} features ({told}) cannot be turned by {half} cosines", at=cos)


def _positions(m: Match, build: Builder, rows: Value) -> Value | npt.NDArray[np.int64]:
    """0, 1, 2, ... for the rows of a table of shape [B, S, D/2]."""
    batch, length, _ = m.shape(rows) or (None, None, None)
    if isinstance(batch, int) and isinstance(length, int):
        return np.arange(batch * length).reshape(batch, length)
    sizes = build.Slice(build.Shape(rows), np.array([0]), np.array([2]), np.array([0]))
    number = build.ReduceProd(sizes, keepdims=0)
    return build.Reshape(build.Range(np.array(0), number, np.array(1)), sizes)


@rule(
    "rotary-lower",
    LOWER,
    rotary,
    allow_shared=True,  # queries and keys are turned by the same angles
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[b,3,s,8] x; float[b,3,s,8] z; float[1,s,4] c; float[1,s,4] k; int64[3] e; c3 = Expand(c, e)"
            "k3 = Expand(k, e)  y = RotaryEmbedding(x, c3, k3)  w = RotaryEmbedding(z, c3, k3)",
            to="float[b,3,s,8] x; float[b,3,s,8] z; float[1,s,4] c; float[1,s,4] k; c2 = Reshape(c, {-1, 4})"
            "k2 = Reshape(k, {-1, 4})  y = com.microsoft.RotaryEmbedding(x, {0}, c2, k2)"
            "c5 = Reshape(c, {-1, 4})  k5 = Reshape(k, {-1, 4})"
            "w = com.microsoft.RotaryEmbedding(z, {0}, c5, k5)",
        ),
        Rewrites(
            "float[b,3,s,8] x; float[b,s,4] c; float[b,s,4] k; y = RotaryEmbedding(x, c, k)",
            to="float[b,3,s,8] x; float[b,s,4] c; float[b,s,4] k; h = Shape(c)  p = Slice(h, {0}, {2}, {0})"
            "n = ReduceProd<keepdims=0>(p)  i = Range(0, n, 1)  j = Reshape(i, p)  c2 = Reshape(c, {-1, 4})"
            "k2 = Reshape(k, {-1, 4})  y = com.microsoft.RotaryEmbedding(x, j, c2, k2)",
        ),
        Rewrites(
            "float[b,3,s,8] x; float[1,s,2] c; float[1,s,2] k; int64[3] e; c3 = Expand(c, e)  k3 = Expand(k, e)"
            "y = RotaryEmbedding<interleaved=1, rotary_embedding_dim=4>(x, c3, k3)",
            to="float[b,3,s,8] x; float[1,s,2] c; float[1,s,2] k; c2 = Reshape(c, {-1, 2})  k2 = Reshape(k, {-1, 2})"
            "y = com.microsoft.RotaryEmbedding<interleaved=1, num_heads=3, rotary_embedding_dim=4>(x, {0}, c2, k2)",
        ),
        Rewrites(
            "float[2,3,2,8] x; float[1,1,4] c; float[1,1,4] k; c3 = Expand(c, {2, 2, 4})  k3 = Expand(k, {2, 2, 4})"
            "y = RotaryEmbedding(x, c3, k3)",
            to="float[2,3,2,8] x; float[1,1,4] c; float[1,1,4] k; c3 = Expand(c, {2, 2, 4})  k3 = Expand(k, {2, 2, 4})"
            "c2 = Reshape(c3, {-1, 4})  k2 = Reshape(k3, {-1, 4})"
            "y = com.microsoft.RotaryEmbedding(x, int64[2,2] {0, 1, 2, 3}, c2, k2)",
        ),
        Rejects(
            "float[b,3,s,8] x; float[b,s,4] c; float[b,s,4] k; y = RotaryEmbedding(x, c, k)",
            because="own opset has RotaryEmbedding",
            opset=23,
        ),
        Rejects(
            "float[b,h,s,8] x; float[b,s,2] c; float[b,s,2] k; y = RotaryEmbedding<rotary_embedding_dim=4>(x, c, k)",
            because="the number of heads is not known",
        ),
        Rejects(
            "float[b,3,s,8] x; float[b,s,2] c; float[b,s,2] k; y = RotaryEmbedding<rotary_embedding_dim=5>(x, c, k)",
            because="cannot be turned by 2 cosines",
        ),
    ),
)
def rotary_lower(m: Match, build: Builder) -> Value:
    """RotaryEmbedding(x, cos, sin) ⟶ com.microsoft.RotaryEmbedding(x, positions, table of cos, table of sin)."""
    call = m.alternative(rotary)
    assert isinstance(call, Call)
    m.require(m.is_newer(call), "the model's own opset has RotaryEmbedding")
    shape = m.shape(cos)
    if shape is None or len(shape) != 3 or not same_shape(shape, m.shape(sin)):
        m.refuse("cosines and sines must be of one shape of rank 3", at=cos)
    batch, length, half = shape
    only_batch = all_cos not in m or (batch == 1 and _as_long(length, m.dim(x, -2)))
    m.require(only_batch, "more than the batch is expanded", at=cos)
    _require_even(m, half)
    count = m[heads] or (m.dim(x, 1) if m[turning] else None)
    m.require(isinstance(count, int) or not m[turning], "the number of heads is not known", at=x)
    positions = np.zeros(1, np.int64) if batch == 1 else _positions(m, build, m[cos])
    return build.microsoft.RotaryEmbedding(
        m[x],
        positions,
        *(build.Reshape(m[t], np.array([-1, half])) for t in (cos, sin)),
        interleaved=m[interleaved] or None,
        num_heads=count or None,
        rotary_embedding_dim=m[turning] or None,
    )
