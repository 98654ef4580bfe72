"""Attention of three projections of one input, or of one cut in three: com.microsoft.Attention projects as well.

Why: one product with weights side by side instead of three; measured on one and on two cores, from 1 to 512 tokens,
it took from 0 to 30 % less time than three MatMuls and MultiHeadAttention.  Where there was one product already, its
parts are not cut out.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxrewrite.rules import *

mask = Var("mask", default=None)

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


@rule(
    "attention-pack",
    LOWER,
    multi_head_attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
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
def attention_pack(m: Match, build: Builder) -> Value:
    """MultiHeadAttention(x·wq + bq, x·wk + bk, x·wv + bv, mask) ⟶ com.microsoft.Attention(x, w, b, mask)."""
    values = [v for w in weights if (v := m.value(w)) is not None]
    m.require(len({m.shape(v) for v in values}) == 1, "the projections differ in size", at=x)
    m.require(all(map(is_read_once, values)), "a weight is used elsewhere, too", at=x)
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


# -- one projection, cut in three ----------------------------------------------------------------------------

w, b = Const("w", rank=2), Const("b", rank=1)
flat = op.Reshape(x, Var("shape without batch"))
unflat = op.Reshape(op.Gemm(flat, w, b), Var("shape with batch"))
joint = any_of(op.Add(op.MatMul(x, w), b), op.MatMul(x, w), unflat)
split = op.Split(joint, Each[Value]("sizes", at_least=0), axis=Attr[int]("axis", default=0))
slices = [op.Slice(joint, Each[Value](f"bounds of {name}")) for name in "qkv"]
pieces = [split[index] for index in range(3)]
joint_attention = microsoft.MultiHeadAttention(
    *(any_of(*each) for each in zip(pieces, slices, strict=True)),
    None,
    None,
    mask,
    num_heads=num_heads,
    scale=pack_scale,
)


def _thirds(m: Match, third: int) -> Iterator[bool]:
    """The checks that the pieces are the thirds that they should be, each True if it passes."""
    for index, each in enumerate(slices):
        if each in m:
            yield m.slice(m.node(each)).spans == (Span(2, index * third, (index + 1) * third),)
    if split in m:
        yield m.axis(m.node(split), 3) == 2
        yield [m.dim(piece, 2) for piece in m.node(split).outputs] == [third] * 3


_JOINT = "float[b,s,2] x; w = float[2,6] ~  t = MatMul(x, w)  a = Add(t, float[6] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0})"
_ATTEND = "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v)"


@rule(
    "attention-pack-joint",
    LOWER,
    joint_attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"{_JOINT} q, k, v = Split<axis=-1>(a, {{2, 2, 2}}) {_ATTEND}",
            to="float[b,s,2] x; w = float[2,6] ~  y = com.microsoft.Attention<num_heads=1, scale=0.5>"
            "(x, w, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0})",
        ),
        Rewrites(
            f"{_JOINT} q = Slice(a, {{0}}, {{2}}, {{2}})  k = Slice(a, {{2}}, {{4}}, {{2}})"
            f"v = Slice(a, {{4}}, {{6}}, {{2}}) {_ATTEND}",
            to="float[b,s,2] x; w = float[2,6] ~  y = com.microsoft.Attention<num_heads=1, scale=0.5>"
            "(x, w, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0})",
        ),
        Rejects(
            f"{_JOINT} q = Slice(a, {{2}}, {{4}}, {{2}})  k = Slice(a, {{0}}, {{2}}, {{2}})"
            f"v = Slice(a, {{4}}, {{6}}, {{2}}) {_ATTEND}",
            because="thirds in their order",
        ),
        Rejects(f"{_JOINT} q, k, v = Split<axis=-1>(a, {{2, 2, 2}}) {_ATTEND} z = Identity(v)", because="also used by"),
    ),
)
def attention_pack_joint(m: Match, build: Builder) -> Value:
    """MultiHeadAttention(Split(x·w + b), mask) ⟶ com.microsoft.Attention(x, w, b, mask)."""
    width = m.dim(w, 1)
    m.require(isinstance(width, int) and width % 3 == 0 and m.rank(joint) == 3, "q, k and v are not thirds", at=joint)
    m.require(same_shape((m.shape(joint) or ())[:2], (m.shape(x) or ())[:2]), "batch and length change", at=joint)
    if unflat in m:
        m.node(flat), m.node(unflat)  # between them is what was before, whatever their attributes
    third = int(str(width)) // 3
    m.require(all(_thirds(m, third)), "q, k and v are not the thirds in their order", at=joint)
    bias = m[b] if m.value(b) is not None else np.zeros(third * 3)
    m.require(bias.shape == (third * 3,), "the bias is not of the size of the projection", at=joint)
    return build.microsoft.Attention(
        m[x],
        m.value(w),
        m.value(b) or build.const(bias, like=x),
        None,
        None,
        m.value(mask),
        num_heads=m[num_heads],
        scale=m[pack_scale],
    )
