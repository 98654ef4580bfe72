"""The standard's Attention for ONNX Runtime: com.microsoft.MultiHeadAttention.

It takes queries as [B, S, H·D], which is what they were before the split into heads, and gives the result
likewise: the Reshapes and Transposes around the attention go, too.  Keys and values it takes either way.

Why: models older than opset 23 have no Attention.  Unlike ONNX Runtime's kernel for that, this one
computes what the formula says in rows that are masked throughout: NaN for -inf, the formula's numbers
for a finite mask.
Where q, k and v are projections of one input, com.microsoft.Attention computes them as well; measured
on one and on two cores, from 1 to 512 tokens, it took from 0 to 30 % less time than three MatMuls and
MultiHeadAttention.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite import (
    FLOATS,
    Assumption,
    Attr,
    Builder,
    Const,
    Dim,
    Match,
    Rejects,
    Rewrites,
    Rule,
    Stage,
    Value,
    Var,
    any_of,
    microsoft,
    op,
    same_dim,
)
from onnxrewrite_patterns.attention import Operands, operands
from onnxrewrite_patterns.attention import attention as sdpa

HEADS = (0, 2, 1, 3)
"""The permutation between [B, S, H, D] and [B, H, S, D], either way."""

q, k, v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v"))
mask = Var("mask", default=None)
scale = Attr[float | None]("scale", default=None)
q_heads, kv_heads = (
    Attr[int | None]("q_num_heads", default=None),
    Attr[int | None]("kv_num_heads", default=None),
)
attention = op.Attention(q, k, v, mask, scale=scale, q_num_heads=q_heads, kv_num_heads=kv_heads)


def lower(m: Match, build: Builder) -> Value:
    """Attention(q, k, v, mask) ⟶ com.microsoft.MultiHeadAttention(q, k, v, mask)."""
    m.require(m.is_newer(attention), "the model's own opset has Attention")
    heads = m[q_heads] if m.rank(q) == 3 else m.dim(q, 1)
    same = m[kv_heads] == heads if m.rank(q) == 3 else m.dim(k, 1) == heads
    m.require(isinstance(heads, int) and same, "q, k and v must have the same known number of heads", at=q)
    assert isinstance(heads, int)
    width = m.dim(q, -1)
    size = width // heads if isinstance(width, int) and m.rank(q) == 3 else width
    m.require(m[scale] is not None or isinstance(size, int), "the size of a head is not known", at=q)
    factor = m[scale] if m[scale] is not None else 1 / math.sqrt(size)  # type: ignore[arg-type]
    return multi_head(m, build, Operands(m[q], m[k], m[v], m.value(mask), float(factor or 0)), heads)


def multi_head(m: Match, build: Builder, given: Operands, heads: int) -> Value:
    """MultiHeadAttention of operands of rank 4, [B, H, S, D], or 3, [B, S, H·D]; the result has that rank."""
    m.require(m.dtype(given.query) == ir.DataType.FLOAT, "the kernel takes float32 only", at=given.query)
    m.require(given.scale > 0, "a scale of zero means the default one", at=given.query)
    query, key, value, width = given.query, given.key, given.value, 0
    if m.rank(query) == 4:
        width = _width(m, value)
        query = _merged(m, build, query)
        were_split = _before_split(m, key) is not None and _before_split(m, value) is not None
        if were_split or not same_dim(_width(m, key), width):
            key, value = _merged(m, build, key), _merged(m, build, value)
    bias = None if given.mask is None else _bias(m, build, given, query, key)
    result = build.microsoft.MultiHeadAttention(query, key, value, None, None, bias, num_heads=heads, scale=given.scale)
    by_head = given.mask is not None and m.dim(given.mask, -3) not in (None, 1)
    if not by_head:
        result = _zero_where_masked(m, build, given.mask, result)
    if width:
        result = build.Transpose(build.Reshape(result, np.array([0, 0, heads, width])), perm=HEADS)
    return _zero_where_masked(m, build, given.mask, result) if by_head else result


def _width(m: Match, x: Value) -> int:
    """D of [B, H, S, D]."""
    width = m.dim(x, -1)
    if not isinstance(width, int) or width == 0:
        m.refuse("the size of a head is not known", at=x)
    return width


def _before_split(m: Match, x: Value) -> Value | None:
    """The [B, S, H·D] that was split into x, of shape [B, H, S, D]; None if it was not made that way."""
    reshaped = _input_of(x, "Transpose")
    source = None if reshaped is None else _input_of(reshaped, "Reshape")
    before, shape = None if source is None else m.shape(source), m.shape(x)
    if before is None or shape is None or len(before) != 3 or len(shape) != 4 or _perm(x) != HEADS:
        return None
    after: list[Dim] = [shape[0], shape[2], shape[1] * shape[3]]
    return source if all(same_dim(a, b) for a, b in zip(before, after, strict=True)) else None


def _input_of(x: Value, op_type: str) -> Value | None:
    """What x is computed from, by one node of this operator."""
    node = x.producer()
    return node.inputs[0] if node is not None and node.op_type == op_type and not node.domain else None


def _perm(x: Value) -> tuple[int, ...] | None:
    node = x.producer()
    given = node.attributes.get("perm") if node is not None else None
    return tuple(given.as_ints()) if given is not None and not given.is_ref() else None


def _merged(m: Match, build: Builder, x: Value) -> Value:
    """[B, H, S, D] as [B, S, H·D]."""
    source = _before_split(m, x)
    if source is None:
        heads = m.dim(x, 1)
        assert isinstance(heads, int)
        return build.Reshape(build.Transpose(x, perm=HEADS), np.array([0, 0, heads * _width(m, x)]))
    transposed = x.producer()
    reshaped = transposed.inputs[0].producer() if transposed is not None and transposed.inputs[0] is not None else None
    m.cover(*(n for n in (transposed, reshaped) if n is not None))
    return source


# -- masks ---------------------------------------------------------------------------------------------------


def _bias(m: Match, build: Builder, given: Operands, query: Value, key: Value) -> Value:
    """The mask as what is added to the scores: of rank 4, and its last two dimensions those of the scores."""
    bias = given.mask
    assert bias is not None
    if m.dtype(bias) == ir.DataType.BOOL:
        bias = build.Where(bias, build.const(0.0), build.const(-math.inf))
    shape = m.shape(bias)
    if shape is None:
        m.refuse("the rank of the mask is unknown", at=bias)
    if len(shape) < 4:
        bias = build.Unsqueeze(bias, axes=tuple(range(4 - len(shape))))
        shape = (*[1] * (4 - len(shape)), *shape)
    queries, keys = m.dim(query, 1), m.dim(key, -2)
    if queries is None or keys is None:
        m.refuse("the rank of q or k is unknown", at=query)
    rows, columns = (same_dim(a, b) for a, b in zip(shape[-2:], (queries, keys), strict=True))
    if rows and columns:
        return bias
    m.require((rows or shape[-2] == 1) and (columns or shape[-1] == 1), "the mask does not fit", at=bias)
    # Where there are as many queries as keys, and one mask serves all layers, so does what it is expanded to.
    source, axis = (given.mask, -1) if columns and same_dim(queries, keys) else (query, 1)
    assert source is not None
    height = np.array([1]) if rows else _size(m, build, source, axis)
    width = np.array([1]) if columns else _size(m, build, key, -2)
    return build.Expand(bias, build.Concat(np.array([1, 1]), height, width, axis=0))


def _size(m: Match, build: Builder, x: Value, axis: int) -> Value | npt.NDArray[np.int64]:
    """One dimension of x, as a tensor of one element."""
    size = m.dim(x, axis)
    if isinstance(size, int):
        return np.array([size])
    rank = m.rank(x) or 0
    return build.Gather(build.Shape(x), np.array([axis % rank]))


def _zero_where_masked(m: Match, build: Builder, given: Value | None, result: Value) -> Value:
    """Zero for the queries that a boolean mask allows no key; the kernel has NaN there."""
    if given is None or m.dtype(given) != ir.DataType.BOOL:
        return result
    allowed = build.ReduceSum(build.Cast(given, to=int(ir.DataType.FLOAT)), axes=(-1,), keepdims=1)
    some = build.Greater(allowed, 0.0)
    if m.rank(some) == 4 and m.rank(result) == 3:
        some = build.Squeeze(some, axes=(1,))
    return build.Where(some, result, 0.0)


def lower_spelled(m: Match, build: Builder) -> Value:
    """softmax(s·q·kᵀ + mask)·v ⟶ com.microsoft.MultiHeadAttention(q, k, v, mask), which Attention is not."""
    m.require(build.opset >= 23, "that is for the raise stage")
    found = operands(m, build)
    heads = 1 if m.rank(found.query) == 3 else m.dim(found.query, 1)
    if not isinstance(heads, int):
        m.refuse("the number of heads is not known", at=found.query)
    return multi_head(m, build, found, heads)


_SPLIT = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {0}4 = Transpose<perm=[0,2,1,3]>(r{0})"
_HEADS = "float[b,s,24] q; float[b,s,24] k; float[b,s,24] v;" + "  ".join(map(_SPLIT.format, "qkv"))

ATTENTION_LOWER = Rule(
    name="attention-lower",
    stage=Stage.LOWER,
    pattern=attention,
    rewrite=lower,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    keeps_shared=True,
    looks_above=3,
    examples=(
        Rewrites(
            f"{_HEADS} float[b,1,s,s] mask; y = Attention<scale=0.5>(q4, k4, v4, mask)",
            to="float[b,s,24] q; float[b,s,24] k; float[b,s,24] v; float[b,1,s,s] mask;"
            "m = com.microsoft.MultiHeadAttention<num_heads=3, scale=0.5>(q, k, v, , , mask)"
            "r = Reshape(m, {0, 0, 3, 8})  y = Transpose<perm=[0,2,1,3]>(r)",
        ),
        Rewrites(
            "float[6,5,8] q; float[6,7,8] k; float[6,7,9] v; bool[5,7] keep;"
            "y = Attention<scale=0.5, q_num_heads=1, kv_num_heads=1>(q, k, v, keep)",
            to="float[6,5,8] q; float[6,7,8] k; float[6,7,9] v; bool[5,7] keep;"
            "w = Where(keep, 0.0, float -inf)  b = Unsqueeze(w, {0, 1})"
            "m = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v, , , b)"
            "c = Cast<to=1>(keep)  n = ReduceSum<keepdims=1>(c, {-1})  some = Greater(n, 0.0)"
            "y = Where(some, m, 0.0)",
        ),
        Rejects(f"{_HEADS} y = Attention<scale=0.5>(q4, k4, v4)", because="own opset has Attention", opset=23),
        Rejects(
            "float[b,h,s,8] q; float[b,h,s,8] k; float[b,h,s,8] v; y = Attention(q, k, v)",
            because="same known number of heads",
        ),
        Rejects(
            "float16[b,2,s,8] q; float16[b,2,s,8] k; float16[b,2,s,8] v; y = Attention(q, k, v)",
            because="float32 only",
        ),
        Rejects(f"{_HEADS} y = Attention<softcap=5.0>(q4, k4, v4)", because="does not consider softcap=5.0"),
    ),
)

SDPA_LOWER = Rule(
    name="attention-lower-spelled",
    stage=Stage.LOWER,
    pattern=sdpa,
    rewrite=lower_spelled,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    looks_above=3,
    examples=(
        Rewrites(
            "float[6,s,8] q; float[6,8,l] kt; float[6,l,8] v; float[s,l] mask;"
            "s = MatMul(q, kt)  a = Add(s, mask)  p = Softmax(a)  y = MatMul(p, v)",
            to="float[6,s,8] q; float[6,8,l] kt; float[6,l,8] v; float[s,l] mask;"
            "k = Transpose<perm=[0,2,1]>(kt)  b = Unsqueeze(mask, {0, 1})"
            "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=1.0>(q, k, v, , , b)",
            opset=23,
        ),
        Rejects(
            "float[6,s,8] q; float[6,8,l] kt; float[6,l,8] v;s = MatMul(q, kt)  p = Softmax(s)  y = MatMul(p, v)",
            because="raise stage",
        ),
    ),
)


# -- packed --------------------------------------------------------------------------------------------------

PACK_LIMIT = 64 * 2**20
"""Weights of more bytes than this, all three together, stay where they are: packing loads them."""

x = Var("x", dtype=FLOATS, rank=3)
weights = Const("wq", rank=2), Const("wk", rank=2), Const("wv", rank=2)
biases = Const("bq", rank=1), Const("bk", rank=1), Const("bv", rank=1)
num_heads, pack_scale = Attr[int]("num_heads"), Attr[float]("scale")
projections = [any_of(op.Add(op.MatMul(x, w), b), op.MatMul(x, w)) for w, b in zip(weights, biases, strict=True)]
multi_head_attention = microsoft.MultiHeadAttention(
    *projections, None, None, mask, num_heads=num_heads, scale=pack_scale
)


def pack(m: Match, build: Builder) -> Value:
    """MultiHeadAttention(x·wq + bq, x·wk + bk, x·wv + bv, mask) ⟶ com.microsoft.Attention(x, w, b, mask)."""
    values = [v for w in weights if (v := m.value(w)) is not None]
    m.require(len({m.shape(v) for v in values}) == 1, "the projections differ in size", at=x)
    m.require(all(len(v.uses()) == 1 for v in values), "a weight is used elsewhere, too", at=x)
    size = sum(m.facts.nbytes(v) or 0 for v in values)
    m.require(size <= PACK_LIMIT, f"the weights are {size} bytes", at=x)
    weight = np.concatenate([a for v in values if (a := m.facts.constant(v)) is not None], axis=1)
    none = np.zeros(weight.shape[1] // 3)
    bias = np.concatenate([m[b] if m.value(b) is not None else none for b in biases])
    m.require(bias.shape == weight.shape[1:], "the biases are not of the size of the projections", at=x)
    return build.microsoft.Attention(
        m[x],
        build.const(weight),
        build.const(bias, like=x),
        None,
        None,
        m.value(mask),
        num_heads=m[num_heads],
        scale=m[pack_scale],
    )


ATTENTION_PACK = Rule(
    name="attention-pack",
    stage=Stage.LOWER,
    pattern=multi_head_attention,
    rewrite=pack,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    looks_above=3,
    examples=(
        Rewrites(
            "float[b,s,2] x; q = MatMul(x, float[2,1] {1.0, 2.0})  k = MatMul(x, float[2,1] {3.0, 4.0})"
            "t = MatMul(x, float[2,1] {5.0, 6.0})  v = Add(t, {7.0})"
            "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v)",
            to="float[b,s,2] x; y = com.microsoft.Attention<num_heads=1, scale=0.5>"
            "(x, float[2,3] {1.0, 3.0, 5.0, 2.0, 4.0, 6.0}, {0.0, 0.0, 7.0})",
        ),
        Rejects(
            "float[b,s,2] x; q = MatMul(x, float[2,1] {1.0, 2.0})  k = MatMul(x, float[2,1] {3.0, 4.0})"
            "v = MatMul(x, float[2,2] {5.0, 6.0, 7.0, 8.0})"
            "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v)",
            because="the projections differ in size",
        ),
        Rejects(
            "float[b,s,2] x; float[b,l,2] z; q = MatMul(x, float[2,1] {1.0, 2.0})"
            "k = MatMul(z, float[2,1] {3.0, 4.0})  v = MatMul(z, float[2,1] {5.0, 6.0})"
            "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v)",
            because="x must be the same value in both places",
        ),
        Rejects(
            "float[b,s,2] x; w = float[2,1] {1.0, 2.0} q = MatMul(x, w)  k = MatMul(x, w)"
            "v = MatMul(x, float[2,1] {5.0, 6.0})"
            "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v)",
            because="a weight is used elsewhere, too",
        ),
    ),
)

RULES = (ATTENTION_LOWER, SDPA_LOWER, ATTENTION_PACK)
