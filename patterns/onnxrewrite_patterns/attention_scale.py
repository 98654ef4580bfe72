"""A scale of attention that is a factor of q or k, somewhere above Transposes, Reshapes and rotary embeddings.

Where it comes from: exporters multiply q and k by the root of the scale each, or q alone, before they split them by
head; ESM does before it turns them.

Why: one pass over memory less; the kernel scales the scores anyway.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxrewrite.rules import *

q, k, v, mask = Var("q", dtype=FLOATS), Var("k", dtype=FLOATS), Var("v", dtype=FLOATS), Var("mask", default=None)
attention = op.Attention(q, k, v, mask)
_LINEAR = frozenset((*operators("view permute"), "RotaryEmbedding"))
"""Operators that a factor of the first operand is a factor of the result of."""

_QKV = "float[b,5,3,8] q; float[b,3,7,8] k; float[b,3,7,8] v;"
_ROTARY = "float[b,3,5,8] q; float[b,5,4] c; float[b,5,4] s; float[b,3,7,8] k; float[b,3,7,8] v;"


@rule(
    "scale-into-attention",
    RAISE,
    attention,
    assumes=(Assumption.IN_RANGE,),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_QKV} m = Mul(q, 0.5)  t = Transpose<perm=[0,2,1,3]>(m)  y = Attention<scale=0.5>(t, k, v)",
            to=f"{_QKV} t = Transpose<perm=[0,2,1,3]>(q)  y = Attention<scale=0.25>(t, k, v)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} t = Transpose<perm=[0,2,1,3]>(q)  l = Div(k, 2.0)  y = Attention<scale=0.5>(t, l, v)",
            to=f"{_QKV} t = Transpose<perm=[0,2,1,3]>(q)  y = Attention<scale=0.25>(t, k, v)",
            opset=23,
        ),
        Rewrites(
            f"{_ROTARY} m = Mul(q, 0.5)  r = RotaryEmbedding(m, c, s)  y = Attention<scale=1.0>(r, k, v)",
            to=f"{_ROTARY} r = RotaryEmbedding(q, c, s)  y = Attention<scale=0.5>(r, k, v)",
            opset=23,
        ),
        Rewrites(
            "float[b,3,5,10] q; float[b,5,4] c; float[b,5,4] s; float[b,3,7,10] k; float[b,3,7,8] v; m = Mul(q, 0.5)"
            "  r = RotaryEmbedding<interleaved=1, rotary_embedding_dim=8>(m, c, s)  y = Attention<scale=1.0>(r, k, v)",
            to="float[b,3,5,10] q; float[b,5,4] c; float[b,5,4] s; float[b,3,7,10] k; float[b,3,7,8] v;"
            "r = RotaryEmbedding<interleaved=1, rotary_embedding_dim=8>(q, c, s)  y = Attention<scale=0.5>(r, k, v)",
            opset=23,
        ),
        Rejects(
            f"{_QKV} m = Mul(q, -0.5)  t = Transpose<perm=[0,2,1,3]>(m)  y = Attention<scale=0.5>(t, k, v)",
            because="is no scale",
            opset=23,
        ),
        Rejects(
            f"{_QKV} m = Mul(q, 0.5)  t = Transpose<perm=[0,2,1,3]>(m)  a = Attention<scale=0.5>(t, k, v)"
            "  r = Relu(m)  y = Concat<axis=0>(a, r)",
            because="neither q nor k",
            opset=23,
        ),
        Rejects(
            f"{_QKV} m = Mul(q, 0.5)  t = Transpose<perm=[0,2,1,3]>(m)  y = Attention(t, k, v)",
            because="its own",
            opset=23,
        ),
        Rejects(
            "double[b,3,5,8] q; double[b,3,7,8] k; double[b,3,7,8] v; m = Mul(q, 0.5)"
            "  y = Attention<scale=1.0>(m, k, v)",
            because="round a scale",
            opset=23,
        ),
        Rejects(
            f"{_QKV} m = Mul(q, 4.0)  t = Transpose<perm=[0,2,1,3]>(m)  y = Attention<scale=0.5>(t, k, v)",
            because="may overflow",
            opset=23,
        ),
    ),
)
def scale_into_attention(m: Match, build: Builder) -> Value:
    """Attention(Transpose(c·q), k, v, scale=s) ⟶ Attention(Transpose(q), k, v, scale=c·s), and likewise of k."""
    m.require(m.dtype(q) != ir.DataType.DOUBLE, "kernels round a scale to float32, but no factor of dtype double", at=q)
    given = m.attr(attention, "scale")
    m.require(given is not None, "the scale is its own, by the size of a head")
    operands, number = [m[q], m[k]], float(given)
    for index, value in enumerate(operands):
        found = _scaled(m, value)
        if found is not None:
            steps, source, factor = found
            operands[index], number = _again(build, steps, source), number * factor
            m.cover(*steps.nodes)
    m.require(operands != [m[q], m[k]], "neither q nor k is a multiple that nothing else reads", at=q)
    m.require(number <= max(1, given), "kernels multiply k by the root of the scale, which may overflow then", at=q)
    attributes = m.attrs(attention) | {"scale": number}
    rest = [m[v], *([m[mask]] if mask in m else [])]
    return build.node("Attention", [*operands, *rest], attributes)[0]


def _scaled(m: Match, value: Value) -> tuple[NodePath, Value, float] | None:
    """The nodes below a product with a positive number, what is multiplied, and the number; None where there is none,
    or something else reads it."""
    steps = path_through(value, lambda node: not node.domain and node.op_type in _LINEAR)
    node = made_by(steps.source, "Mul", "Div")
    if node is None or not all(map(is_read_once, steps.values)):
        return None
    first, second = m.operand(node), m.operand(node, 1)
    pairs = [(first, second), (second, first)] if node.op_type == "Mul" else [(first, second)]
    for source, factor in pairs:
        number = _number(m, factor)
        if number is not None and m.rank(source) == m.rank(steps.source):
            m.require(number > 0 and math.isfinite(number), f"{number:g} is no scale", at=factor)
            m.cover(node)
            return steps, source, number if node.op_type == "Mul" else 1 / number
    return None


def _number(m: Match, value: Value) -> float | None:
    array = m.facts.constant(resolve(value))
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def _again(build: Builder, steps: NodePath, source: Value) -> Value:
    """The nodes once more, of another value."""
    for node in reversed(steps.nodes):
        (source,) = build.again(node, source)
    return source
