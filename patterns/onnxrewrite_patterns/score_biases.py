"""Several terms that are added to the scores of an attention, as one: relative positions, types of tokens, a mask.

Why: attention takes one bias, and its rule knows what is added in two steps; models of relative positions add three
and more.  What is added together first is rounded otherwise, by no more than the scores are.
"""

from __future__ import annotations

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_terms import kt, score

first, second = Var("first"), Var("second")
biased = op.Add(score, first)
summed, less = op.Add(biased, second), op.Sub(biased, second)

_ON_THE_WAY = frozenset(operators("pointwise broadcast"))
_STEPS = 8
"""So far below the scores stands the Softmax."""

_SCORES = "float[n,h,s,8] q; float[n,h,8,l] k; float[n,h,s,l] a; float[h,s,l] b; float[n,1,1,l] c; z = MatMul(q, k)"
_END = "p = Softmax(w)  y = MatMul(p, v)"


@rule(
    "biases-of-scores",
    RAISE,
    any_of(summed, less),
    assumes=(Assumption.IN_RANGE,),
    examples=(
        Rewrites(
            f"{_SCORES} u = Add(z, a)  t = Add(u, b)  w = Add(t, c) {_END}",
            to=f"{_SCORES} ab = Add(a, b)  t = Add(z, ab)  w = Add(t, c) {_END}",
        ),
        Rewrites(
            f"{_SCORES} u = Add(a, z)  t = Sub(u, b)  w = Mul(t, 0.5) {_END}",
            to=f"{_SCORES} ab = Sub(a, b)  t = Add(z, ab)  w = Mul(t, 0.5) {_END}",
        ),
        Rejects(f"{_SCORES} u = Add(z, a)  w = Add(u, c) {_END}", because="attention takes two"),
        Rejects(f"{_SCORES} u = Add(z, a)  t = Add(u, b)  y = Add(t, c)", because="no scores of attention"),
        Rejects(
            "float[n,s,2] q; float[n,s,2] a; float[n,s,2] c; z = MatMul(q, float[2,2] {1.0, 2.0, 3.0, 4.0})"
            "u = Add(z, {1.0, 2.0})  t = Add(u, a)  w = Add(t, c)  y = Softmax(w)",
            because="a layer's weights",
        ),
    ),
)
def biases_of_scores(m: Match, build: Builder) -> Value:
    """((q·kᵀ + a) + b) + c ⟶ (q·kᵀ + (a + b)) + c before a Softmax, and likewise a - b."""
    m.require(m.facts.constant(m[kt]) is None, "these are a layer's weights", at=m[kt])
    below = [n.op_type for n in readers(m.anchor, _ON_THE_WAY, within=_STEPS)]
    m.require("Softmax" in below, "these are no scores of attention")
    m.require(below[0] != "Softmax", "attention takes two")
    together = build.Add(m[first], m[second]) if summed in m else build.Sub(m[first], m[second])
    return build.Add(m[score], together)
