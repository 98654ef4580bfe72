"""Tokens that nobody reads: a few are picked before anything is computed of them, not afterwards.

Where it comes from: a classifier reads the first token of the last layer, a decoder that goes on writing the last one.
Exports compute the layer for all of them.

Why: of the last layer only keys and values need all tokens.  Queries, attention, the products after it and the
normalizations are computed for those that are read.  Each step moves Gather or Slice above one operator; from there
the next one goes on, up to what something else reads as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x, indices = Var("x", dtype=FLOATS), Var("indices")
gathered = op.Gather(x, indices, axis=Attr[int]("axis", default=0))
sliced = op.Slice(x, Each("bounds", at_least=0))
picked = any_of(gathered, sliced)

_FEW = 4
"""Where the number of elements is known, at most one in so many is picked."""

_Axes: TypeAlias = Mapping[int, int]
"""An input to the axis of it that the picked axis is."""

_LAYER = "float[b,s,8] x; float[8,16] w; float[16] c;"
_QKV = "float[b,2,s,8] q; float[b,2,t,8] k; float[b,2,t,8] v; float[b,1,s,t] m;"


@rule(
    "pick-upstream",
    RAISE,
    picked,
    assumes=(Assumption.NOT_EMPTY, Assumption.IN_RANGE),
    examples=(
        Rewrites(
            f"{_LAYER} p = MatMul(x, w)  y = Gather<axis=1>(p, 0)",
            to=f"{_LAYER} t = Gather<axis=1>(x, {{0}})  p = MatMul(t, w)  y = Squeeze(p, {{1}})",
        ),
        Rewrites(
            f"{_LAYER} float[b,s,16] r; a = Add(r, c)  y = Slice(a, {{-1}}, {{9223372036854775807}}, {{1}})",
            to=f"{_LAYER} float[b,s,16] r; t = Slice(r, {{-1}}, {{9223372036854775807}}, {{1}}, {{1}})y = Add(t, c)",
        ),
        Rewrites(
            "float[b,12,16] r; a = Relu(r)  y = Slice(a, {-3}, {-1}, {1})",
            to="float[b,12,16] r; t = Slice(r, {-3}, {-1}, {1}, {1})  y = Relu(t)",
        ),
        Rewrites(
            "float[b,s,16] r; p, q = Split<axis=2>(r, {8, 8})  t = Gather<axis=1>(p, {0})  u = Gather<axis=1>(q, {0})"
            "y = Mul(t, u)",
            to="(float[b,s,16] r) => (y) { k = int64[2] {8, 8}  v = Gather<axis=1>(r, {0})"
            "t, q = Split<axis=2>(v, k)  w = Gather<axis=1>(r, {0})  o, u = Split<axis=2>(w, k)  y = Mul(t, u) }",
        ),
        Rewrites(
            "float[b,12,16] x; float[b,1,16] z; int64[2] i; a = Mul(x, z)  y = Gather<axis=1>(a, i)",
            to="float[b,12,16] x; float[b,1,16] z; int64[2] i; t = Gather<axis=1>(x, i)  y = Mul(t, z)",
        ),
        Rewrites(
            "float[b,s,8] x; float[8] w; n = LayerNormalization(x, w)  y = Gather<axis=1>(n, {0})",
            to="float[b,s,8] x; float[8] w; t = Gather<axis=1>(x, {0})  y = LayerNormalization(t, w)",
        ),
        Rewrites(
            "float[b,s,4,8] x; r = Reshape(x, {0, 0, 32})  y = Gather<axis=1>(r, {0})",
            to="float[b,s,4,8] x; g = Gather<axis=1>(x, {0})  y = Reshape(g, {0, 1, 32})",
        ),
        Rewrites(
            "float[b,4,s,8] x; t = Transpose<perm=[0,2,1,3]>(x)  y = Gather<axis=1>(t, {0})",
            to="float[b,4,s,8] x; g = Gather<axis=2>(x, {0})  y = Transpose<perm=[0,2,1,3]>(g)",
        ),
        Rewrites(
            f"{_QKV} a = Attention(q, k, v, m)  y = Gather<axis=2>(a, {{0}})",
            to=f"{_QKV} i = int64[1] {{0}}  g = Gather<axis=2>(q, i)  h = Gather<axis=2>(m, i)"
            "y = Attention(g, k, v, h)",
            opset=23,
        ),
        Rewrites(
            "float[b,2,s,8] q; float[b,s,4] c; float[b,s,4] k; r = RotaryEmbedding(q, c, k)y = Gather<axis=2>(r, {0})",
            to="float[b,2,s,8] q; float[b,s,4] c; float[b,s,4] k; i = int64[1] {0}  g = Gather<axis=2>(q, i)"
            "d = Gather<axis=1>(c, i)  e = Gather<axis=1>(k, i)  y = RotaryEmbedding(g, d, e)",
            opset=23,
        ),
        Rejects(
            "float[b,s,8] x; float[8] w; n = LayerNormalization(x, w)  t = Gather<axis=1>(n, {0})y = Add(n, t)",
            because="is read elsewhere",
        ),
        Rejects("float[b,12,8] x; r = Relu(x)  y = Slice(r, {1}, {12}, {1})", because="not a few"),
        Rejects(f"{_LAYER} p = MatMul(x, w)  y = Gather<axis=2>(p, {{0}})", because="along that axis"),
        Rejects("float[b,s,8] x; n = Softmax<axis=1>(x)  y = Gather<axis=1>(n, {0})", because="along that axis"),
        Rejects("float[b,s,8] x; float[b,t,8] z; n = Add(x, z)  y = Gather<axis=1>(n, {0})", because="not shown to be"),
        Rejects(
            f"{_QKV} a = Attention<is_causal=1>(q, k, v, m)  y = Gather<axis=2>(a, {{0}})",
            because="its place among the queries",
            opset=23,
        ),
        Rejects("float[b,s,8] x; n = CumSum(x, 1)  y = Gather<axis=1>(n, {0})", because="may need all"),
    ),
)
def pick_upstream(m: Match, build: Builder) -> Value:
    """f(x)[:, i] ⟶ f(x[:, i]), where f computes what is picked of nothing but that."""
    rank = m.rank(x) or 0
    m.require(rank > 1, "the rank is not known, or there is one axis only", at=x)
    axis, is_dropped, pick = _pick(m, build, rank)
    maker = made_by(m[x], *_CARRIED)
    if maker is None:
        m.refuse("what is picked from may need all of its operands", at=x)
    m.require(is_read_once(m[x]), "what is picked from is read elsewhere, too", at=x)
    axes = _CARRIED[maker.op_type](m, maker, axis)
    if maker.op_type != "Split":  # of which other pieces are picked from as well
        m.cover(maker)
    operands = [input_of(maker, i) for i in range(max(axes, default=0) + 1)]
    inputs = [pick(v, axes[i]) if i in axes and v is not None else v for i, v in enumerate(operands)]
    is_view = maker.op_type == "Reshape"
    result = _reshaped(m, build, inputs[0], axis) if is_view else build.again(maker, *inputs)[m[x].index() or 0]
    return build.Squeeze(result, axes=(axis,)) if is_dropped else result


def _reshaped(m: Match, build: Builder, source: Value | None, axis: int) -> Value:
    """The picked part of the operand of a Reshape, in the shape that it has in the result."""
    few, shape = m.shape(source) if source is not None else None, list(m.shape(x) or ())
    target = reshape_target(few, [*shape[:axis], few[axis], *shape[axis + 1 :]], None) if few is not None else None
    m.require(target is not None, "no constant target reshapes what is picked", at=x)
    result: Value = build.Reshape(source, np.array(target, np.int64))
    return result


_Pick: TypeAlias = Callable[[Value, int], Value]


def _pick(m: Match, build: Builder, rank: int) -> tuple[int, bool, _Pick]:
    """The axis that is picked along, whether it is dropped, and what picks the same of another value, and keeps it."""
    if sliced in m:
        spans = m.slice(m.node(sliced)).spans
        m.require(len(spans) == 1, "several axes are cut", at=sliced)
        (span,) = spans
        axis = span.axis % rank
        _require_few(m, _most(span, m.dim(x, axis)), axis)
        bounds = {"starts": [span.start], "ends": [span.end], "steps": [span.step]}
        return axis, False, lambda value, along: build.Slice(value, axes=[along], **bounds)
    axis, places, shape = m.axis(m.node(gathered), rank), m[indices], m.shape(indices)
    if shape is None or len(shape) > 1:
        m.refuse("indices of several axes", at=indices)
    _require_few(m, shape[0] if shape else 1, axis)
    if not shape:
        known = m.facts.constant(resolve(places))
        places = build.Unsqueeze(places, axes=(0,)) if known is None else build.const(known.reshape(1))
    return axis, not shape, lambda value, along: build.Gather(value, places, axis=along)


def _most(span: Span, size: Dim | None) -> int | None:
    """At most so many elements are taken; None where that depends on the size of the axis."""
    taken = span.of(size)
    if not isinstance(taken, str):
        return len(taken)
    to_the_end = span.start < 0 and span.end >= FAR
    return -span.start if to_the_end else span.end - span.start if (span.start < 0) == (span.end < 0) else None


def _require_few(m: Match, count: Dim | None, axis: int) -> None:
    size = m.dim(x, axis)
    few = isinstance(count, int) and count * _FEW <= (size if isinstance(size, int) else 2 * _FEW)
    m.require(few, "not a few are picked", at=x)


# -- what operators compute an element of ----------------------------------------------------------------------


def _first(m: Match, node: ir.Node, axis: int) -> _Axes:
    return {0: axis}


def _broadcast(m: Match, node: ir.Node, axis: int) -> _Axes:
    return _aligned(m, enumerate(inputs_of(node)), axis, m.rank(x) or 0)


def _aligned(m: Match, operands: Iterable[tuple[int, Value | None]], axis: int, rank: int) -> _Axes:
    """Of operands that are broadcast those that have the axis; refuses where its size does not tell."""
    axes = {}
    for index, value in operands:
        own = m.rank(value) if value is not None else rank
        if value is None or own is None:
            m.refuse("the rank of an operand is not known", at=x)
        along = axis - (rank - own)
        if along >= 0 and m.dim(value, along) != 1:
            same = same_dim(m.dim(value, along) or 0, m.dim(x, axis) or 0)
            m.require(same, "an operand is not shown to be as long as the result", at=value)
            axes[index] = along
    return axes


def _before(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of a normalization of the axes from one on."""
    m.require(axis < m.axis(node, m.rank(x)), "it is computed along that axis", at=x)
    return {0: axis}


def _beside(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of what is computed along one axis."""
    m.require(axis != m.axis(node, m.rank(x)), "it is computed along that axis", at=x)
    m.require((m.facts.version(node) or 0) >= 13, "it flattens its operand", at=x)
    return {0: axis}


def _pieces(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of a Split: each piece that is read is picked from."""
    m.require(axis != m.axis(node, m.rank(x)), "it is cut along that axis", at=x)
    alike = all(only_reader(piece, m.node(gathered if gathered in m else sliced).op_type) for piece in siblings(m[x]))
    m.require(alike, "a piece is read as a whole", at=x)
    return {0: axis}


def _joined(m: Match, node: ir.Node, axis: int) -> _Axes:
    m.require(axis != m.axis(node, m.rank(x)), "it is joined along that axis", at=x)
    return dict.fromkeys(range(len(inputs_of(node))), axis)


def _rows(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of a product of matrices: the rows of the first, or those that both have."""
    operands, rank = list(enumerate(inputs_of(node))), m.rank(x) or 0
    ranks = [m.rank(v) or 0 for _, v in operands]
    m.require(axis < rank - 1 and min(ranks) > 1, "it sums along that axis", at=x)
    return {0: ranks[0] - 2} if axis == rank - 2 else _aligned(m, operands, axis, rank)


def _rows_of_gemm(m: Match, node: ir.Node, axis: int) -> _Axes:
    m.require(axis == 0 and not node.attributes.get_int("transA", 0), "it sums along that axis", at=x)
    bias = input_of(node, 2)
    return {0: 0, **(_aligned(m, [(2, bias)], 0, 2) if bias is not None else {})}


def _permuted(m: Match, node: ir.Node, axis: int) -> _Axes:
    perm = permutation(m.facts, node)
    if isinstance(perm, str):
        m.refuse(perm, at=x)
    return {0: perm[axis]}


def _kept(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of a Reshape: an axis up to which all stay."""
    before, after = m.shape(m.operand(node)) or (), m.shape(x) or ()
    m.require(same_shape(before[: axis + 1], after[: axis + 1]), "Reshape changes that axis, or one before", at=x)
    return {0: axis}


def _queries(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of attention: queries, and their rows of the mask."""
    m.require(axis == (2 if m.rank(x) == 4 else 1), "they are no queries", at=x)
    own = not node.attributes.get_int("is_causal", 0) and all(input_of(node, i) is None for i in (4, 5, 6))
    m.require(own, "a query's result depends on its place among the queries", at=x)
    mask = input_of(node, 3)
    if mask is None:
        return {0: axis}
    rank, size = m.rank(mask) or 0, m.dim(mask, -2)
    same = size == 1 or same_dim(size or 0, m.dim(x, axis) or 0)
    m.require(rank > 1 and same, "the rows of the mask are not shown to be as many as the queries", at=mask)
    return {0: axis} if size == 1 else {0: axis, 3: rank - 2}


def _tokens(m: Match, node: ir.Node, axis: int) -> _Axes:
    """Of a rotary embedding: tokens, and their angles or positions."""
    m.require(axis == (m.rank(x) or 0) - 2, "they are no tokens", at=x)
    return {0: axis, 3: 1} if input_of(node, 3) is not None else {0: axis, 1: 1, 2: 1}


_CARRIED: Mapping[str, Callable[[Match, ir.Node, int], _Axes]] = {
    **dict.fromkeys(operators("pointwise"), _first),
    **dict.fromkeys(operators("broadcast"), _broadcast),
    **dict.fromkeys(operators("softmax", but="Hardmax"), _beside),
    "Attention": _queries,
    "Concat": _joined,
    "Gemm": _rows_of_gemm,
    "LayerNormalization": _before,
    "MatMul": _rows,
    "RMSNormalization": _before,
    "Reshape": _kept,
    "RotaryEmbedding": _tokens,
    "Split": _pieces,
    "Transpose": _permuted,
}
"""Operators of which an element of the result needs one element of some operands along an axis, and their axes."""
