"""The standard's Attention for ONNX Runtime: com.microsoft.MultiHeadAttention.

It takes queries as [B, S, H·D], which is what they were before the split into heads, and gives the result
likewise: the Reshapes and Transposes around the attention go, too.  Keys and values it takes either way.

Why: models older than opset 23 have no Attention.  Unlike ONNX Runtime's kernel for that, this one
computes what the formula says in rows that are masked throughout: NaN for -inf, the formula's numbers
for a finite mask.
Where several heads share keys and values, they are taken for one head with as many times the queries, so keys and
values are not repeated.   Ainslie et al., 2023, arXiv:2305.13245.
float16 is computed in float32, as ONNX Runtime does on a CPU for the operators that this stands for.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention import Operands, operands
from onnxrewrite_patterns.attention_bias import full
from onnxrewrite_patterns.attention_heads import HEADS, head_size, is_merged_before, merged
from onnxrewrite_patterns.attention_masks import NEVER_AT_ALL, Mask, Size, size_of, zero_where_masked
from onnxrewrite_patterns.attention_terms import attention as sdpa

q, k, v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v"))
mask = Var("mask", default=None)
scale = Attr[float | None]("scale", default=None)
q_heads, kv_heads, precision = (
    Attr[int | None](name, default=None) for name in ("q_num_heads", "kv_num_heads", "softmax_precision")
)
attention = op.Attention(
    q, k, v, mask, scale=scale, q_num_heads=q_heads, kv_num_heads=kv_heads, softmax_precision=precision
)


def to_multi_head(m: Match, build: Builder) -> Value:
    """Attention(q, k, v, mask) ⟶ com.microsoft.MultiHeadAttention(q, k, v, mask), of which the faster one is taken."""
    m.require(not m.is_newer(attention), "the model's opset has no Attention")
    added = m.value(mask)
    plain = added is None or m.dtype(added) == ir.DataType.BOOL or magnitude(m, added) <= -NEVER_AT_ALL
    m.require(plain, "the kernels differ where the mask is the lowest number throughout a row", at=mask)
    return _lowered(m, build)


def _lowered(m: Match, build: Builder) -> Value:
    heads, shared = (m[q_heads], m[kv_heads]) if m.rank(q) == 3 else (m.dim(q, 1), m.dim(k, 1))
    known = isinstance(heads, int) and isinstance(shared, int) and heads * shared > 0 and heads % shared == 0
    known = known and (heads == shared or m.rank(q) == 4)
    m.require(known, "q, k and v must have the same known number of heads", at=q)
    assert isinstance(heads, int)
    assert isinstance(shared, int)
    m.require(m[precision] in (None, int(ir.DataType.FLOAT), m.dtype(q)), "Softmax runs in another dtype", at=q)
    width = m.dim(q, -1)
    size = width // heads if isinstance(width, int) and m.rank(q) == 3 else width
    m.require(m[scale] is not None or isinstance(size, int), "the size of a head is not known", at=q)
    factor = m[scale] if m[scale] is not None else 1 / math.sqrt(size)  # type: ignore[arg-type]
    given = Operands(m[q], m[k], m[v], Mask(m.value(mask)), float(factor or 0), dtype=m.dtype(attention))
    if heads == shared:
        return multi_head(m, build, given, heads)
    length = size_of(m, build, m[q], 2)
    folded = _together(m, build, given, length, heads // shared)
    return _asunder(m, build, multi_head(m, build, folded, shared), length, heads)


def multi_head(m: Match, build: Builder, given: Operands, heads: int) -> Value:
    """MultiHeadAttention of operands of rank 4, [B, H, S, D], or 3, [B, S, H·D]; the result has that rank."""
    m.require(not given.softcap, "the kernel does not cap scores", at=given.query)
    m.require(given.scale > 0, "a scale of zero means the default one", at=given.query)
    width = head_size(m, given.value) if m.rank(given.query) == 4 else 0
    if width:
        key, value = _keys(m, build, given.key, given.value)
        given = replace(given, query=merged(m, build, given.query), key=key, value=value)
    given = given.in_float32(m, build)
    query, key, value = given.query, given.key, given.value
    added = None if given.mask.added is None else _bias(m, build, given, query, key)
    result = build.microsoft.MultiHeadAttention(
        query, key, value, None, None, added, num_heads=heads, scale=given.scale
    )
    by_head = given.mask.added is not None and m.dim(given.mask.added, -3) not in (None, 1)
    if not by_head:
        result = zero_where_masked(m, build, given.mask.added, result)
    if width:
        result = build.Transpose(build.Reshape(result, np.array([0, 0, heads, width])), perm=HEADS)
    if by_head:
        result = zero_where_masked(m, build, given.mask.added, result)
    return given.finished(m, build, result)


def _keys(m: Match, build: Builder, key: Value, value: Value) -> tuple[Value, Value]:
    """Keys and values as [B, S, H·D] where they were that, or must be; the kernel takes [B, H, S, D] as well."""
    one_size = same_dim(head_size(m, key), head_size(m, value))
    if one_size and not (is_merged_before(m, key) and is_merged_before(m, value)):
        return key, value
    return merged(m, build, key), merged(m, build, value)


# -- heads that share keys -----------------------------------------------------------------------------------


def _together(m: Match, build: Builder, given: Operands, length: Size, group: int) -> Operands:
    """Heads that share keys as one head with more queries: [B, K·group, length, D] as [B, K, group·length, D]."""
    shared, size = m.dim(given.key, 1), head_size(m, given.query)
    rows = length * group if isinstance(length, np.ndarray) else build.Mul(length, np.array([group]))
    target = build.Concat(np.array([0, shared]), rows, np.array([size]), axis=0)
    query, added = build.Reshape(given.query, target), given.mask.added
    if added is None:
        return replace(given, query=query)
    m.require(m.dim(added, -3) in (None, 1), "heads that share keys have masks of their own", at=added)
    if m.dim(added, -2) in (None, 1):
        return replace(given, query=query)
    return replace(given, query=query, mask=Mask(build.Concat(*[added] * group, axis=-2)))


def _asunder(m: Match, build: Builder, result: Value, length: Size, heads: int) -> Value:
    """The result by head again."""
    target = build.Concat(np.array([0, heads]), length, np.array([head_size(m, result)]), axis=0)
    return build.Reshape(result, target)


# -- masks ---------------------------------------------------------------------------------------------------


def _bias(m: Match, build: Builder, given: Operands, query: Value, key: Value) -> Value:
    """The mask as what is added to the scores: of rank 4, and its last two dimensions those of the scores."""
    bias = given.mask.added
    assert bias is not None
    if m.dtype(bias) == ir.DataType.BOOL:
        bias = build.Where(bias, build.const(0.0), build.const(-math.inf))
    shape = m.shape(bias)
    if shape is not None and len(shape) < 4:
        bias = build.Unsqueeze(bias, axes=tuple(range(4 - len(shape))))
    return full(m, build, bias, query, key)


_SPLIT = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {0}4 = Transpose<perm=[0,2,1,3]>(r{0})"
_HEADS = "float[b,s,24] q; float[b,s,24] k; float[b,s,24] v;" + "  ".join(map(_SPLIT.format, "qkv"))


@rule(
    "attention-lower",
    LOWER,
    attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    allow_shared=True,
    is_fallback=True,
    examples=(
        Rejects(
            "float[b,6,s,8] q; float[b,2,l,8] k; float[b,2,l,8] v; float[6,1,l] mask;"
            "y = Attention<scale=0.5>(q, k, v, mask)",
            because="heads that share keys have masks of their own",
        ),
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
        Rewrites(
            "float[b,4,s,8] q; float[b,2,l,8] k; float[b,2,l,8] v; y = Attention<scale=0.5>(q, k, v)",
            to="float[b,4,s,8] q; float[b,2,l,8] k; float[b,2,l,8] v; h = Shape(q)  n = Gather(h, {2})"
            "r = Mul(n, {2})  g = Concat<axis=0>({0, 2}, r, {8})  q2 = Reshape(q, g)"
            "t = Transpose<perm=[0,2,1,3]>(q2)  u = Reshape(t, {0, 0, 16})"
            "m = com.microsoft.MultiHeadAttention<num_heads=2, scale=0.5>(u, k, v)  w = Reshape(m, {0, 0, 2, 8})"
            "z = Transpose<perm=[0,2,1,3]>(w)  f = Concat<axis=0>({0, 4}, n, {8})  y = Reshape(z, f)",
        ),
        Rejects(
            "double[b,2,s,8] q; double[b,2,s,8] k; double[b,2,s,8] v; y = Attention<scale=0.5>(q, k, v)",
            because="float32 nor float16",
        ),
        Rejects(f"{_HEADS} y = Attention<softcap=5.0>(q4, k4, v4)", because="does not consider softcap=5.0"),
    ),
)
def attention_lower(m: Match, build: Builder) -> Value:
    """Attention(q, k, v, mask) ⟶ com.microsoft.MultiHeadAttention(q, k, v, mask)."""
    m.require(m.is_newer(attention), "the model's own opset has Attention")
    return _lowered(m, build)


@rule(
    "attention-lower-spelled",
    LOWER,
    sdpa,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
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
def attention_lower_spelled(m: Match, build: Builder) -> Value:
    """softmax(s·q·kᵀ + mask)·v ⟶ com.microsoft.MultiHeadAttention(q, k, v, mask), which Attention is not."""
    m.require(build.opset >= 23, f"that is for the raise stage, for opset {build.opset} has no Attention")
    found = operands(m, build)
    heads = 1 if m.rank(found.query) == 3 else m.dim(found.query, 1)
    one = m.rank(found.query) == 3 or same_dim(m.dim(found.key, 1) or 0, heads or 0)
    if not isinstance(heads, int) or not one:
        m.refuse("q, k and v must have the same known number of heads", at=found.query)
    return multi_head(m, build, found, heads)
