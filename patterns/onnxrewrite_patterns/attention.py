"""Scaled dot-product attention in the spellings that exporters write, as the standard's Attention.

softmax(s·q·kᵀ + mask)·v, with q of shape [B, H, S, D], k [B, H, L, D], v [B, H, L, Dv]; or with batch
and heads in one dimension, which is attention with one head, unless it is known how they got there.
What the scores of a query are multiplied by may differ from query to query: then the query is multiplied instead.

Why: the scores, S·L numbers a head, are written and read five times before they are summed up; a kernel for
the whole never writes them.   Vaswani et al., 2017, arXiv:1706.03762; Dao et al., 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_bias import countable, full
from onnxrewrite_patterns.attention_groups import is_by_group, without_groups
from onnxrewrite_patterns.attention_heads import Three, swapped, with_one_batch
from onnxrewrite_patterns.attention_in_batch import Back, split_by_head
from onnxrewrite_patterns.attention_masks import Mask, mask_of, require_fit, zero_where_masked
from onnxrewrite_patterns.attention_terms import (
    attention,
    bias,
    by_group,
    cap,
    divisor,
    factor,
    fill,
    flat_k,
    flat_scores,
    flip,
    hidden,
    k,
    k_scale,
    kt_scale,
    mask,
    outer_scale,
    penalty,
    perm,
    plain_kt,
    product,
    q,
    q_scale,
    scale,
    scores,
    softmax,
    split,
    turned,
    unflat_kt,
    v,
    viewed,
    vt,
)
from onnxrewrite_patterns.softmax import require_last_axis


@dataclass(frozen=True)
class Operands:
    """softmax(softcap·tanh(scale·query·keyᵀ / softcap) + mask)·value, with no cap where that is zero.

    Attributes:
        scale: Positive.
        softmax_precision: The dtype that Softmax computes in, None for that of the operands.
        back: Gives the result the shape that the match has, None where it has it.
        dtype: The dtype that the result must be given.
    """

    query: Value
    key: Value
    value: Value
    mask: Mask
    scale: float
    softcap: float = 0.0
    softmax_precision: int | None = None
    back: Back | None = None
    dtype: ir.DataType | None = None

    def dtypes(self, m: Match) -> set[ir.DataType | None]:
        """The dtypes of what is computed with."""
        parts = (self.query, self.key, self.value, self.mask.added)
        return {m.dtype(p) for p in parts if p is not None} - {ir.DataType.BOOL}

    def in_float32(self, m: Match, build: Builder) -> Operands:
        """The same attention, computed in float32."""
        half = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
        m.require(self.dtypes(m) <= half, "neither float32 nor float16 is computed with", at=self.query)

        def wide(x: Value) -> Value:
            return build.Cast(x, to=int(ir.DataType.FLOAT)) if m.dtype(x) == ir.DataType.FLOAT16 else x

        added = None if self.mask.added is None else wide(self.mask.added)
        q, k, v = map(wide, (self.query, self.key, self.value))
        mask = Mask(added, self.mask.alive)
        return replace(self, query=q, key=k, value=v, mask=mask, softmax_precision=None)

    def finished(self, m: Match, build: Builder, result: Value) -> Value:
        """The result of attention to the operands, in the dtype, layout and shape that the match has."""
        result = zero_where_masked(m, build, self.mask.alive, result)
        if self.dtype is not None and m.dtype(result) != self.dtype:
            result = build.Cast(result, to=int(self.dtype))
        if turned in m:
            result = build.Transpose(result, perm=swapped(m.rank(result) or 0))
        return result if self.back is None else self.back(result)


def operands(m: Match, build: Builder) -> Operands:
    """The operands of the attention that a match of ``attention`` computes; refuses a match that computes none."""
    value = _value(m, build)
    of_q, of_scores, of_v = (m.shape(t) or () for t in (q, scores, value))
    m.require(len(of_q) == len(of_scores) > 2, "q, k and v must be of rank 3 or more", at=scores)
    apart = split in m and viewed not in m
    grouped = is_by_group(m, m.shape(_kt(m)) or (), of_v)
    if not apart and not grouped:
        _require_batches(m, of_q, of_v)
    end = hidden if hidden in m else softmax
    require_last_axis(m, build, end)
    query = _query(m, build)
    by_head = split_by_head(m, build, query, apart)
    m.require(by_head is not None or not apart, "q and k are not views of what is split by head like v", at=scores)
    parts, back = by_head or ((query, _key(m, build), value), None)
    if grouped:
        parts, back = _viewed_back(build, *without_groups(m, build, parts))
    elif len(of_q) > 4:
        m.require(not any(term in m for term in (bias, mask, penalty, fill)), "windows are masked", at=scores)
        parts, back = _viewed_back(build, *with_one_batch(m, build, parts))
    chosen = mask_of(m, build, parts[:2])
    given = Operands(*parts, chosen, *_scales(m), None, back, m.dtype(m.anchor))
    if len(given.dtypes(m)) > 1:
        return given.in_float32(m, build)
    wider = m.dtype(end) == ir.DataType.FLOAT and ir.DataType.FLOAT16 in given.dtypes(m)
    return replace(given, softmax_precision=int(ir.DataType.FLOAT)) if wider else given


def _viewed_back(build: Builder, parts: Three, target: Value) -> tuple[Three, Back]:
    """q, k and v, and a Reshape of the result."""
    return parts, lambda result: build.Reshape(result, target)


def _scales(m: Match) -> tuple[float, float]:
    """The scale, and the softcap."""
    given = [m[s] for s in (q_scale, k_scale, kt_scale, scale, outer_scale, cap) if s in m]
    total, capped = math.prod(map(float, given)), float(m[cap]) if cap in m else 0.0
    m.require(0 < total < math.inf, f"the scale must be positive, it is {total:.6g}", at=scores)
    m.require(0 <= capped < math.inf, f"the cap must be positive, it is {capped:.6g}", at=scores)
    return total, capped


def _require_batches(m: Match, of_q: Sequence[Dim], of_v: Sequence[Dim]) -> None:
    """As many keys and values as queries in the batch, and as many heads; or one head of each for all."""
    of_kt = m.shape(_kt(m)) or ()
    m.require(len(of_q) == len(of_v) == len(of_kt), "q, k and v must have the same rank", at=scores)
    shared = len(of_q) == 4 and of_kt[1] == of_v[1] == 1
    for other in (of_kt, of_v):
        for axis, (a, b) in enumerate(zip(of_q[: 1 if shared else -2], other, strict=False)):
            m.require(same_dim(a, b), f"dimension {axis} of q is {a}, that of k or v is {b}", at=scores)


def _query(m: Match, build: Builder) -> Value:
    """q, multiplied by what the scores are multiplied by: one number a query at most."""
    for term, emit in ((factor, build.Mul), (divisor, build.Div)):
        if term in m:
            require_fit(m, m[term], (*(m.shape(q) or ())[:-1], 1), "the scale")
            m.require(m.dtype(term) == m.dtype(q), "scores are scaled in another dtype than q", at=term)
            return emit(m[q], m[term])
    return m[q]


def _kt(m: Match) -> Value:
    """The second operand of q·kᵀ."""
    value = input_of(m.node(product if product in m else flat_scores), 1)
    assert value is not None
    return value


def _key(m: Match, build: Builder) -> Value:
    """The k behind kᵀ: the two Transposes in one, or none."""
    if plain_kt in m:
        return build.Transpose(m[plain_kt], perm=swapped(m.rank(plain_kt) or 0))
    if unflat_kt in m:
        m.node(flat_k), m.node(unflat_kt)  # of both the results count, whatever their attributes
        of_k, flat, back = (m.shape(t) or () for t in (k, flat_k, unflat_kt))
        m.require(len(flat) == 3 and len(back) == 4, "k must be of rank 4", at=k)
        by_head = (*back[:2], back[3], back[2])
        same = same_shape(flat, (back[0] * back[1], back[3], back[2]))
        m.require(same, "the Reshapes around the Transpose do more than merge batch and heads", at=k)
        if same_shape(of_k, by_head):
            return m[k]
        sizes = [d for d in by_head if isinstance(d, int)]
        m.require(len(sizes) == 4, "k must be of rank 4, or all its sizes be known", at=k)
        return build.Reshape(m[k], np.array(sizes))
    *batch, last, second = m[perm]
    m.require(len(m[perm]) == m.rank(flat_scores if by_group in m else q), "k must have the rank of q", at=k)
    order = (*batch, second, last)
    return m[k] if order == tuple(range(len(order))) else build.Transpose(m[k], perm=order)


def _value(m: Match, build: Builder) -> Value:
    """v, of what is v·pᵀ as well."""
    if v in m:
        return m[v]
    rank = m.rank(vt) or 0
    m.require(rank > 2 and m[flip] == swapped(rank), "the weights are not just transposed", at=turned)
    return build.Transpose(m[vt], perm=swapped(rank))


# -- raise ---------------------------------------------------------------------------------------------------


_QKV = "float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; kt = Transpose<perm=[0,1,3,2]>(k);"
_THREE = "float[b,3,s,8] q; float[b,3,3,8] k; float[b,3,3,8] v; kt = Transpose<perm=[0,1,3,2]>(k);"
_TOKENS = "float[5,b,24] x; float[4,b,24] z; float[4,b,24] u;"
_END = "p = Softmax(a)  y = MatMul(p, v)"
_WINDOW = (
    "f = Shape<start=2, end=3>(a)  e = Shape<start=2, end=3>(k)  t = ConstantOfShape({7, 7})  w = Slice(t, f, e, {0})"
    "  mask = Slice(w, {0}, e, {1})"
)
_MASKED = f"{_QKV} float[b,1,1,l] mask; s = MatMul(q, kt)  d = Div(s, 4.0)  a = Add(d, mask)"


@rule(
    "attention",
    RAISE,
    attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"{_MASKED} p = Softmax(a)  y = MatMul(p, v)",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; float[b,1,1,l] mask;"
            "y = Attention<scale=0.25>(q, k, v, mask)",
        ),
        Rewrites(
            "float[6,s,8] q; float[6,s,8] k; float[6,s,8] v; kt = Transpose<perm=[0,2,1]>(k)"
            "a = Mul(q, 0.5)  b = Mul(kt, 0.5)  s = MatMul(a, b)  p = Softmax(s)  y = MatMul(p, v)",
            to="float[6,s,8] q; float[6,s,8] k; float[6,s,8] v;"
            "y = Attention<scale=0.25, q_num_heads=1, kv_num_heads=1>(q, k, v)",
        ),
        Rewrites(
            f"{_QKV} bool[s,l] keep; mask = Where(keep, 0.0, float -inf)  s = MatMul(q, kt)  a = Add(s, mask)"
            "p = Softmax(a)  n = IsNaN(p)  w = Where(n, 0.0, p)  y = MatMul(w, v)",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; bool[s,l] keep;"
            "y = Attention<scale=1.0>(q, k, v, keep)",
        ),
        Rewrites(
            "float[b,4,3,6,8] q; float[b,4,3,5,8] k; float[b,4,3,5,8] v; kt = Transpose<perm=[0,1,2,4,3]>(k)"
            "s = MatMul(q, kt)  p = Softmax(s)  y = MatMul(p, v)",
            to="float[b,4,3,6,8] q; float[b,4,3,5,8] k; float[b,4,3,5,8] v; a = Reshape(q, {-1, 3, 6, 8})"
            "c = Reshape(k, {-1, 3, 5, 8})  d = Reshape(v, {-1, 3, 5, 8})  r = Attention<scale=1.0>(a, c, d)"
            "y = Reshape(r, {-1, 4, 3, 6, 8})",
        ),
        Rewrites(
            "float[b,s,2,3,8] q; float[b,2,l,8] k; float[b,2,l,8] v; float[s,l] mask;"
            "t = Transpose<perm=[0,2,3,1,4]>(q)  ke = Unsqueeze(k, {2})  kt = Transpose<perm=[0,1,2,4,3]>(ke)"
            "ve = Unsqueeze(v, {2})  s = MatMul(t, kt)  a = Add(s, mask)  p = Softmax(a)  y = MatMul(p, ve)",
            to="float[b,s,2,3,8] q; float[b,2,l,8] k; float[b,2,l,8] v; float[s,l] mask;"
            "t = Transpose<perm=[0,2,3,1,4]>(q)  ke = Unsqueeze(k, {2})  ve = Unsqueeze(v, {2})"
            "u = Reshape(t, {0, 6, -1, 8})  c = Squeeze(ke, {2})  d = Squeeze(ve, {2})"
            "r = Attention<scale=1.0>(u, c, d, mask)  y = Reshape(r, {0, 2, 3, -1, 8})",
        ),
        Rejects(
            "float[2,4,3,5,8] q; float[2,4,3,8,5] kt; float[2,4,3,5,8] v; float[4,1,5,5] mask; s = MatMul(q, kt)"
            "a = Add(s, mask)  p = Softmax(a)  y = MatMul(p, v)",
            because="windows are masked",
        ),
        Rejects(f"{_MASKED} p = Softmax<axis=1>(a)  y = MatMul(p, v)", because="must run along the last axis"),
        Rewrites(
            "float[2,4,3,8] q; float[2,2,2,5,8] k; float[2,4,5,8] v; f = Reshape(k, {8, 5, 8})"
            "t = Transpose<perm=[0,2,1]>(f)  kt = Reshape(t, {2, 4, 8, 5})  s = MatMul(q, kt)  p = Softmax(s)"
            "y = MatMul(p, v)",
            to="float[2,4,3,8] q; float[2,2,2,5,8] k; float[2,4,5,8] v; f = Reshape(k, {2, 4, 5, 8})"
            "y = Attention<scale=1.0>(q, f, v)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} float[b,3,s,m] mask; s = MatMul(q, kt)  a = Add(s, mask) {_END}",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; float[b,3,s,m] mask; z = Shape(k)"
            "l = Gather(z, {2})  t = Concat<axis=0>({1, 1, 1}, l)  w = Expand(mask, t)"
            "y = Attention<scale=1.0>(q, k, v, w)",
        ),
        Rejects(
            f"{_QKV} float[b,3,m,l] mask; s = MatMul(q, kt)  a = Add(s, mask) {_END}",
            because="a dimension of the mask is m, and not shown to be s or 1",
        ),
        Rewrites(
            f"{_QKV} c = Shape<start=2, end=3>(q)  l = Shape<start=2, end=3>(v)  w = float[2,3] {{0, 1, 2, 3, 4, 5}}"
            "m = Slice(w, {0}, c, {0})  mask = Slice(m, {0}, l, {1})  s = MatMul(q, kt)  a = Add(s, mask)"
            f"{_END}",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; c = Shape<start=2, end=3>(q)"
            "l = Shape<start=2, end=3>(v)  w = float[2,3] {0, 1, 2, 3, 4, 5}  m = Slice(w, {0}, c, {0})"
            "mask = Slice(m, {0}, l, {1})  y = Attention<scale=1.0>(q, k, v, mask)",
        ),
        Rewrites(
            "float[b,3,s,8] q; float[b,3,p,8] a; float[b,3,s,8] z; float[b,3,l,8] v; k = Concat<axis=2>(a, z)"
            f"kt = Transpose<perm=[0,1,3,2]>(k)  s = MatMul(q, kt)  {_WINDOW} c = Add(s, mask)  p = Softmax(c)"
            "y = MatMul(p, v)",
            to="float[b,3,s,8] q; float[b,3,p,8] a; float[b,3,s,8] z; float[b,3,l,8] v; k = Concat<axis=2>(a, z)"
            f"{_WINDOW} y = Attention<scale=1.0>(q, k, v, mask)",
        ),
        Rejects(
            f"{_QKV} c = Shape<start=3>(q)  w = float[2,1] {{0, 1}}  mask = Slice(w, {{0}}, c, {{1}})"
            f"s = MatMul(q, kt)  a = Add(s, mask) {_END}",
            because="a dimension of the mask is 2, and not shown to be s or 1",
        ),
        Rejects(
            f"{_QKV} bool[s,l] keep; s = MatMul(q, kt)  a = Where(keep, s, -10000.0) {_END}",
            because="masked scores become -10000, which a score may be less than",
        ),
        Rewrites(
            f"{_THREE} mask = float[1,3] {{0, -3.4028234663852886e+38, -inf}}  s = MatMul(q, kt)  a = Add(s, mask)"
            "p = Softmax(a)  n = IsNaN(p)  w = Where(n, 0.0, p)  y = MatMul(w, v)",
            to="float[b,3,s,8] q; float[b,3,3,8] k; float[b,3,3,8] v; mask = float[1,3] {0, -3.4028235e38, -inf}"
            "y = Attention<scale=1.0>(q, k, v, mask)",
        ),
        Rejects(
            f"{_THREE} s = MatMul(q, kt)  a = Add(s, {{0, nan, -inf}})  p = Softmax(a)  n = IsNaN(p)"
            "w = Where(n, 0.0, p)  y = MatMul(w, v)",
            because="NaN become zeros, and nobody knows which entries are masked",
        ),
        Rejects(
            f"{_MASKED} p = Softmax(a)  n = IsNaN(p)  w = Where(n, 0.0, p)  y = MatMul(w, v)",
            because="NaN become zeros, and nobody knows which entries are masked",
        ),
        Rejects(
            "float[1,3,s,8] q; float[b,3,8,l] kt; float[b,3,l,8] v;s = MatMul(q, kt)  p = Softmax(s)  y = MatMul(p, v)",
            because="dimension 0 of q is 1, that of k or v is b",
        ),
        Rewrites(
            f"{_QKV} float[3,1,1] t; s = MatMul(q, kt)  d = Mul(t, s)  p = Softmax(d)  y = MatMul(p, v)",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; float[3,1,1] t; u = Mul(q, t)"
            "y = Attention<scale=1.0>(u, k, v)",
        ),
        Rewrites(
            f"{_QKV} bool[s,l] keep; mask = Where(keep, 0.0, -3.4028234663852886e+38)  s = MatMul(q, kt)"
            f"d = Div(s, 5.0)  t = Tanh(d)  c = Mul(t, 20.0)  a = Add(c, mask) {_END}",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; bool[s,l] keep; mask = Where(keep, 0.0, -1e30)"
            "y = Attention<scale=4.0, softcap=20.0>(q, k, v, mask)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} bool[s,l] drop; float[8,1] u; bias = MatMul(q, u)  s = MatMul(q, kt)  c = Add(s, bias)"
            "a = Where(drop, -3.4028234663852886e+38, c)  p = Softmax(a)  w = Where(drop, 0.0, p)  y = MatMul(w, v)",
            to="float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; bool[s,l] drop; float[8,1] u;"
            "bias = MatMul(q, u)  a = Where(drop, -3.4028234663852886e+38, bias)  r = Attention<scale=1.0>(q, k, v, a)"
            "keep = Not(drop)  f = Cast<to=1>(keep)  n = ReduceSum<keepdims=1>(f, {-1})  g = Greater(n, 0.0)"
            "y = Where(g, r, 0.0)",
        ),
        Rewrites(
            "float16[b,3,s,8] q; float16[b,3,l,8] k; float16[b,3,l,8] v; kt = Transpose<perm=[0,1,3,2]>(k)"
            "s = MatMul(q, kt)  d = Mul(s, float16 0.5)  f = Cast<to=1>(d)  p = Softmax(f)  w = Cast<to=10>(p)"
            "y = MatMul(w, v)",
            to="float16[b,3,s,8] q; float16[b,3,l,8] k; float16[b,3,l,8] v;"
            "y = Attention<scale=0.5, softmax_precision=1>(q, k, v)",
        ),
        Rewrites(
            "float[2,3,s,8] q; float[2,3,l,8] k; float[2,3,l,8] v; float[6,s,l] bias; t = int64[3] {6, -1, 8}"
            "qs = Reshape(q, t)  ks = Reshape(k, t)  vs = Reshape(v, t)  kt = Transpose<perm=[0,2,1]>(ks)"
            "s = MatMul(qs, kt)  p = Softmax(s)  y = MatMul(p, vs)",
            to="float[2,3,s,8] q; float[2,3,l,8] k; float[2,3,l,8] v; r = Attention<scale=1.0>(q, k, v)"
            "y = Reshape(r, {6, -1, 8})",
        ),
        Rewrites(
            "float[6,4,8] q; float[6,8,4] kt; float[6,4,8] v; float[1,1,4,4] mask; float[1,1,4,4] shift;"
            "s = MatMul(q, kt)  f = Reshape(s, {2, 3, 4, 4})  a = Add(f, mask)  c = Add(a, shift)"
            "r = Reshape(c, {6, 4, 4})  p = Softmax(r)  y = MatMul(p, v)",
            to="float[6,4,8] q; float[6,8,4] kt; float[6,4,8] v; float[1,1,4,4] mask; float[1,1,4,4] shift;"
            "k = Transpose<perm=[0,2,1]>(kt)  t = Add(mask, shift)  u = Squeeze(t, {0})  m = Unsqueeze(u, {1})"
            "y = Attention<scale=1.0, q_num_heads=1, kv_num_heads=1>(q, k, v, m)",
        ),
        Rewrites(
            "float[b,s,8] q; float[b,8,l] kt; float[b,9,l] vt; s = MatMul(q, kt)  p = Softmax(s)"
            "pt = Transpose<perm=[0,2,1]>(p)  y = MatMul(vt, pt)",
            to="float[b,s,8] q; float[b,8,l] kt; float[b,9,l] vt; v = Transpose<perm=[0,2,1]>(vt)"
            "k = Transpose<perm=[0,2,1]>(kt)  a = Attention<scale=1.0, q_num_heads=1, kv_num_heads=1>(q, k, v)"
            "y = Transpose<perm=[0,2,1]>(a)",
        ),
        Rewrites(
            f"{_TOKENS} bool[b,1,1,4] drop; q = Reshape(x, {{0, -1, 8}})  t = Transpose<perm=[1,0,2]>(q)"
            "  k = Reshape(z, {0, -1, 8})  kt = Transpose<perm=[1,2,0]>(k)  w = Reshape(u, {0, -1, 8})"
            "  v = Transpose<perm=[1,0,2]>(w)  s = MatMul(t, kt)  f = Reshape(s, {-1, 3, 5, 4})"
            "  g = Where(drop, float -inf, f)  r = Reshape(g, {-1, 5, 4})  p = Softmax(r)  y = MatMul(p, v)",
            to=f"{_TOKENS} bool[b,1,1,4] drop; m = Where(drop, float -inf, 0.0)  q4 = Reshape(x, {{0, 0, 3, 8}})"
            "  q = Transpose<perm=[1,2,0,3]>(q4)  k4 = Reshape(z, {0, 0, 3, 8})  k = Transpose<perm=[1,2,0,3]>(k4)"
            "  v4 = Reshape(u, {0, 0, 3, 8})  v = Transpose<perm=[1,2,0,3]>(v4)  a = Attention<scale=1.0>(q, k, v, m)"
            "  at = Transpose<perm=[2,0,1,3]>(a)  r = Reshape(at, {0, -1, 8})  y = Transpose<perm=[1,0,2]>(r)",
        ),
        Rejects(
            "float[b,s,8] q; float[b,8,l] kt; float[b,9,s] vt; s = MatMul(q, kt)  p = Softmax(s)"
            "pt = Transpose<perm=[0,1,2]>(p)  y = MatMul(vt, pt)",
            because="not just transposed",
        ),
        Rejects(
            f"{_QKV} float[s,l] t; s = MatMul(q, kt)  d = Mul(s, t)  p = Softmax(d)  y = MatMul(p, v)",
            because="a dimension of the scale is l, and not shown to be 1 or 1",
        ),
        Rejects(
            f"{_QKV} s = MatMul(q, kt)  t = Tanh(s)  c = Mul(t, 20.0)  p = Softmax(c)  y = MatMul(p, v)",
            because="Attention needs opset 23",
        ),
        Rejects(f"{_MASKED} p = Softmax(a)  y = MatMul(p, v)  z = Identity(p)", because="is also used by"),
    ),
)
def to_attention(m: Match, build: Builder) -> Value:
    """softmax(s·q·kᵀ + mask)·v ⟶ Attention(q, k, v, mask, scale=s)."""
    found = operands(m, build)
    rank, given = m.rank(found.query), found.mask.added
    if build.opset >= 23 and given is not None:  # then it may stay, so the kernel must take it
        given = full(m, build, countable(m, build, given), found.query, found.key)
    heads = 1 if rank == 3 else None
    result = build.Attention(
        found.query,
        found.key,
        found.value,
        given,
        scale=found.scale,
        softcap=found.softcap or None,
        softmax_precision=found.softmax_precision,
        q_num_heads=heads,
        kv_num_heads=heads,
    )
    return found.finished(m, build, result)
