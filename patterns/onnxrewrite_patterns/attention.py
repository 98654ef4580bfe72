"""Scaled dot-product attention in the spellings that exporters write, as the standard's Attention.

softmax(s·q·kᵀ + mask)·v, with q of shape [B, H, S, D], k [B, H, L, D], v [B, H, L, Dv]; or with batch
and heads in one dimension, which is attention with one head.

Why: the scores, S·L numbers a head, are written and read five times before they are summed up; a kernel for
the whole never writes them.   Vaswani et al., 2017, arXiv:1706.03762; Dao et al., 2022, arXiv:2205.14135.

What makes it delicate is a row of which every entry is masked.  Softmax makes it NaN where the mask is
-inf, and even where the mask is finite; the standard's Attention makes it zero under a boolean mask.
So a float mask stays a float mask, and only the spelling that turns those NaN into zeros (PyTorch's,
for a boolean mask) becomes a boolean one.  That spelling also hides NaN that come from q and k
themselves; they are not hidden any more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite import (
    FLOATS,
    Assumption,
    Attr,
    Builder,
    Dim,
    Match,
    Rejects,
    Rewrites,
    Rule,
    Scalar,
    Stage,
    Value,
    Var,
    any_of,
    op,
    same_dim,
    same_shape,
)

NEVER = -1e9
"""A score that is set to this or less counts for nothing beside one that is not."""

q, k, v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v"))
q_scale, k_scale, kt_scale, scale, outer_scale = map(
    Scalar, ("scale of q", "scale of k", "scale of kᵀ", "scale", "scale of scores and bias")
)
bias, mask = Var("bias"), Var("mask")
keep, drop, fill = Var("keep"), Var("drop"), Scalar("fill")
perm = Attr[tuple[int, ...]]("perm")

scaled_k = any_of(k * k_scale, k)
flat_k = op.Reshape(k, Var("shape of k without heads"))
unflat_kt = op.Reshape(op.Transpose(flat_k, perm=(0, 2, 1)), Var("shape of kᵀ"))
plain_kt = Var("kᵀ", dtype=FLOATS)
kt = any_of(op.Transpose(scaled_k, perm=perm), unflat_kt, plain_kt)

scores = op.MatMul(any_of(q * q_scale, q), any_of(kt * kt_scale, kt))
scaled = any_of(scores * scale, scores)
rescaled = op.Add(scaled, bias) * outer_scale
shifted = any_of(scaled, rescaled, op.Add(scaled, bias))
split = op.Reshape(shifted, Var("shape of scores with heads"))
viewed = op.Reshape(op.Add(split, mask), Var("shape of scores"))
replaced = any_of(op.Where(keep, shifted, fill), op.Where(drop, fill, shifted))
masked = any_of(op.Add(any_of(shifted, replaced), mask), viewed, replaced, scaled, rescaled)
softmax = op.Softmax(masked, axis=(axis := Attr[int]("axis", default=-1)))
is_nan = op.IsNaN(softmax)
weights = any_of(op.Where(is_nan, 0.0, softmax), softmax)
attention = op.MatMul(weights, v)


@dataclass(frozen=True)
class Operands:
    """softmax(scale·query·keyᵀ + mask)·value; the mask is added, or boolean: true where an entry counts."""

    query: Value
    key: Value
    value: Value
    mask: Value | None
    scale: float


def operands(m: Match, build: Builder) -> Operands:
    """What a match of ``attention`` computes; refuses unless it is that."""
    of_q, of_scores, of_v = (m.shape(t) or () for t in (q, scores, v))
    m.require(len(of_q) == len(of_scores) in (3, 4), "q, k and v must be of rank 4, or 3", at=scores)
    _require_batches(m, of_q, of_v)
    last = m.attr(softmax, "axis") in (-1, len(of_q) - 1)
    m.require(last, "Softmax must run along the last axis", at=softmax)
    given = [m[s] for s in (q_scale, k_scale, kt_scale, scale, outer_scale) if s in m]
    total = math.prod(map(float, given))
    m.require(0 < total < math.inf, f"the scale must be positive, it is {total:.6g}", at=scores)
    chosen = _boolean_mask(m, build) if is_nan in m else _float_mask(m, build)
    if chosen is not None:
        _require_fit(m, chosen, (*of_q[:-1], of_scores[-1]))
        if len(of_q) == m.rank(chosen) == 3:
            chosen = build.Unsqueeze(chosen, axes=(1,))
    return Operands(m[q], _key(m, build), m[v], chosen, total)


def _require_batches(m: Match, of_q: Sequence[Dim], of_v: Sequence[Dim]) -> None:
    of_kt = m.shape(_kt(m))
    ranks = {len(of_q), len(of_v), len(of_kt or ())}
    m.require(len(ranks) == 1, "q, k and v must have the same rank", at=scores)
    for other in (of_kt, of_v):
        for axis, (a, b) in enumerate(zip(of_q[:-2], (other or ())[:-2], strict=True)):
            m.require(same_dim(a, b), f"dimension {axis} of q is {a}, that of k or v is {b}", at=scores)


def _kt(m: Match) -> Value:
    """The second operand of q·kᵀ."""
    value = m.node(scores).inputs[1]
    assert value is not None
    return value


def _key(m: Match, build: Builder) -> Value:
    """The k behind kᵀ: the two Transposes in one, or none."""
    if plain_kt in m:
        rank = m.rank(plain_kt) or 0
        return build.Transpose(m[plain_kt], perm=(*range(rank - 2), rank - 1, rank - 2))
    if unflat_kt in m:
        of_k, flat, back = (m.shape(t) or () for t in (k, flat_k, unflat_kt))
        m.require(len(of_k) == 4 and len(flat) == 3 and len(back) == 4, "k must be of rank 4", at=k)
        same = same_shape(flat[1:], of_k[2:]) and same_shape(back, (*of_k[:2], of_k[3], of_k[2]))
        m.require(same, "the Reshapes around the Transpose do more than merge batch and heads", at=k)
        return m[k]
    *batch, last, second = m[perm]
    m.require(len(m[perm]) == m.rank(q), "k must have the rank of q", at=k)
    order = (*batch, second, last)
    return m[k] if order == tuple(range(len(order))) else build.Transpose(m[k], perm=order)


# -- masks ---------------------------------------------------------------------------------------------------


def _float_mask(m: Match, build: Builder) -> Value | None:
    """What is added to the scaled scores, all in all."""
    parts: list[Value] = []
    if bias in m:
        parts.append(build.Mul(m[bias], m[outer_scale]) if outer_scale in m else m[bias])
    if mask in m:
        parts.append(_merged_mask(m, build) if viewed in m else m[mask])
    if fill in m:
        parts.append(_replacing_mask(m, build))
    return functools.reduce(build.Add, parts) if parts else None


def _replacing_mask(m: Match, build: Builder) -> Value:
    """What is added to scores so that they become what Where makes of them.

    The lowest number, not another: every score vanishes beside it, so a row masked throughout is even.
    """
    number = m[fill]
    never = NEVER if mask not in m else -1e30  # what is added to it later may not make it count, either
    m.require(number <= never, f"masked scores become {number:g}, which a score may be less than", at=softmax)
    exact = number == -math.inf or m.dtype(q) == ir.DataType.FLOAT
    m.require(exact, f"masked scores become {number:g} in a dtype other than float32", at=softmax)
    lowest = number if number == -math.inf else float(np.finfo(np.float32).min)
    zero, masked_out = (build.const(number, like=q) for number in (0.0, lowest))
    return build.Where(m[keep], zero, masked_out) if keep in m else build.Where(m[drop], masked_out, zero)


def _merged_mask(m: Match, build: Builder) -> Value:
    """The mask of scores whose first dimension is split in two for it: heads, or windows of an image."""
    of_scores, of_split, of_mask = m.shape(scores) or (), m.shape(split) or (), m.shape(mask) or ()
    same = same_shape(m.shape(viewed), of_scores) and same_shape(of_split[2:], of_scores[1:])
    same = same and len(of_split) > 2 and same_dim(of_split[0] * of_split[1], of_scores[0])
    m.require(same, "the Reshapes around the mask do more than split the first dimension", at=mask)
    _require_fit(m, m[mask], of_split)
    missing = len(of_split) - len(of_mask)
    padded = build.Unsqueeze(m[mask], axes=tuple(range(missing))) if missing else m[mask]
    first = 1 if missing else of_mask[0]
    if first == 1 and (missing > 1 or of_mask[1 - missing] == 1):
        return build.Squeeze(padded, axes=(0,))
    batch, windows = build.Gather(build.Shape(m[q]), np.array([0])), of_split[1]
    if not isinstance(windows, int) or windows == 0:
        m.refuse("into how many parts the first dimension is split is not known", at=split)
    images = np.array([1]) if same_dim(first, of_split[0]) else build.Div(batch, np.array([windows]))
    full = build.Expand(padded, build.Concat(images, np.array([windows]), np.ones(len(of_split) - 2, np.int64), axis=0))
    rest = build.Slice(build.Shape(padded), np.array([2]), np.array([len(of_split)]), np.array([0]))
    return build.Reshape(full, build.Concat(batch, rest, axis=0))


def _boolean_mask(m: Match, build: Builder) -> Value | None:
    """The mask where Softmax's NaN become zeros: they come of rows that are -inf throughout."""
    if fill in m and m[fill] == -math.inf and bias not in m and mask not in m:
        return m[keep] if keep in m else build.Not(m[drop])
    chosen = _float_mask(m, build)
    if chosen is None:
        return None
    only = sum(t in m for t in (bias, mask, fill)) == 1
    m.require(only, "NaN become zeros, and there is more than a mask", at=softmax)
    node = chosen.producer()
    if node is None or node.op_type != "Where" or node.domain:
        m.refuse("NaN become zeros, and nobody knows which entries are masked", at=softmax)
    condition, *choices = node.inputs
    yes, no = (_number(m, choice) for choice in choices)
    if condition is None or yes is None or no is None or 0 not in (yes, no) or math.inf in (yes, no):
        m.refuse("NaN become zeros, and the mask is not one of zeros and a negative number", at=chosen)
    if -math.inf not in (yes, no):
        return chosen
    return condition if yes == 0 else build.Not(condition)


def _number(m: Match, value: Value | None) -> float | None:
    array = m.facts.constant(value) if value is not None else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def _require_fit(m: Match, chosen: Value, target: Sequence[Dim]) -> None:
    """A mask broadcasts to the scores, and the scores do not broadcast to the mask."""
    shape = m.shape(chosen)
    if shape is None or len(shape) > len(target):
        m.refuse("the rank of the mask is unknown, or larger than that of the scores", at=chosen)
    for a, b in zip(shape[::-1], target[::-1], strict=False):
        fits = a == 1 or same_dim(a, b)
        m.require(fits, f"a dimension of the mask is {a}, and not shown to be {b} or 1", at=chosen)


# -- raise ---------------------------------------------------------------------------------------------------


def to_attention(m: Match, build: Builder) -> Value:
    """softmax(s·q·kᵀ + mask)·v ⟶ Attention(q, k, v, mask, scale=s)."""
    found = operands(m, build)
    rank = m.rank(found.query)
    if build.opset >= 23 and found.mask is not None:
        # It would stay, and ONNX Runtime's kernel makes a row zero that the lowest float masks throughout.
        m.require(
            m.dtype(found.mask) == ir.DataType.BOOL,
            "a mask that is added is for the lower stage",
            at=found.mask,
        )
        full = zip((m.shape(found.mask) or ())[-2:], (m.shape(scores) or ())[-2:], strict=True)
        m.require(all(same_dim(a, b) for a, b in full), "the kernel does not broadcast the mask", at=found.mask)
    heads = 1 if rank == 3 else None
    return build.Attention(
        found.query,
        found.key,
        found.value,
        found.mask,
        scale=found.scale,
        q_num_heads=heads,
        kv_num_heads=heads,
    )


_QKV = "float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; kt = Transpose<perm=[0,1,3,2]>(k);"
_END = "p = Softmax(a)  y = MatMul(p, v)"
_MASKED = f"{_QKV} float[b,1,1,l] mask; s = MatMul(q, kt)  d = Div(s, 4.0)  a = Add(d, mask)"

ATTENTION = Rule(
    name="attention",
    stage=Stage.RAISE,
    pattern=attention,
    rewrite=to_attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    looks_above=2,
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
        Rejects(f"{_MASKED} p = Softmax<axis=1>(a)  y = MatMul(p, v)", because="must run along the last axis"),
        Rejects(
            f"{_QKV} float[b,3,s,m] mask; s = MatMul(q, kt)  a = Add(s, mask) {_END}",
            because="a dimension of the mask is m, and not shown to be l or 1",
        ),
        Rejects(
            f"{_QKV} bool[s,l] keep; s = MatMul(q, kt)  a = Where(keep, s, -10000.0) {_END}",
            because="masked scores become -10000, which a score may be less than",
        ),
        Rejects(
            f"{_MASKED} p = Softmax(a)  n = IsNaN(p)  w = Where(n, 0.0, p)  y = MatMul(w, v)",
            because="NaN become zeros, and nobody knows which entries are masked",
        ),
        Rejects(
            "float[1,3,s,8] q; float[b,3,8,l] kt; float[b,3,l,8] v;s = MatMul(q, kt)  p = Softmax(s)  y = MatMul(p, v)",
            because="dimension 0 of q is 1, that of k or v is b",
        ),
        Rejects(
            f"{_QKV} s = MatMul(q, kt)  d = Mul(s, -1.0)  p = Softmax(d)  y = MatMul(p, v)",
            because="must be positive",
        ),
        Rejects(f"{_MASKED} p = Softmax(a)  y = MatMul(p, v)  z = Identity(p)", because="is also used by"),
    ),
)

RULES = (ATTENTION,)
