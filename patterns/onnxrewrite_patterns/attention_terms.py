"""softmax(s·q·kᵀ + mask)·v in the spellings that exporters write: the terms, and nothing about what they mean.

Scores pass through up to five stations on their way, each of which may be left out: cast, scale, cap, mask, cast.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *

q, k, v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v"))
q_scale, k_scale, kt_scale, scale, outer_scale = map(
    Scalar, ("scale of q", "scale of k", "scale of kᵀ", "scale", "scale of scores and bias")
)
factor, divisor = Var("factor of the scores"), Var("divisor of the scores")
cap, floor = Scalar("softcap"), Scalar("floor")
bias, mask, second_mask, penalty = Var("bias"), Var("mask"), Var("second mask"), Var("penalty")
keep, drop, fill = Var("keep"), Var("drop"), Scalar("fill")
perm = Attr[tuple[int, ...]]("perm")


def _float32(of: Term) -> Term:
    """float16 scores in float32, or as they are; a Cast of what is float32 already is none."""
    return any_of(op.Cast(of, to=int(ir.DataType.FLOAT)), of)


# -- k, transposed -------------------------------------------------------------------------------------------

scaled_k = any_of(k * k_scale, k)
flat_k = op.Reshape(k, Var("shape of k without heads"))
unflat_kt = op.Reshape(op.Transpose(flat_k, perm=(0, 2, 1)), Var("shape of kᵀ"))
plain_kt = Var("kᵀ", dtype=FLOATS)
kt = any_of(op.Transpose(scaled_k, perm=perm), unflat_kt, plain_kt)

# -- scores --------------------------------------------------------------------------------------------------

scaled_kt = any_of(kt * kt_scale, kt)
product = op.MatMul(any_of(q * q_scale, q), scaled_kt)
flat_q = op.Reshape(q, Var("shape of q without groups"))
flat_scores = op.MatMul(any_of(flat_q * q_scale, flat_q), scaled_kt)
by_group = op.Reshape(flat_scores, Var("shape of scores by group"))
scores = any_of(product, by_group)
products = _float32(scores)
scaled = any_of(products * scale, op.Mul(products, factor), op.Div(products, divisor), products)
score = any_of(op.Tanh(scaled) * cap, scaled)
rescaled = op.Add(score, bias) * outer_scale
shifted = any_of(score, rescaled, op.Add(score, bias))
replaced = any_of(op.Where(keep, shifted, fill), op.Where(drop, fill, shifted))

split = op.Reshape(shifted, Var("shape of scores with heads"))
added = op.Add(any_of(shifted, replaced), mask)
added_apart = op.Add(any_of(op.Add(split, second_mask), split), mask)
replaced_apart = any_of(op.Where(keep, split, fill), op.Where(drop, fill, split))
apart = any_of(op.Max(added_apart, floor), added_apart, replaced_apart)
viewed = op.Reshape(apart, Var("shape of scores"))
masked = any_of(
    added,
    op.Max(added, floor),
    op.Sub(shifted, penalty),
    added_apart,
    replaced_apart,
    viewed,
    replaced,
    score,
    rescaled,
)

# -- weights -------------------------------------------------------------------------------------------------

softmax = op.Softmax(_float32(masked), axis=Attr[int]("axis", default=-1))
is_nan = op.IsNaN(softmax)
hidden = op.Softmax(_float32(any_of(replaced, op.Add(replaced, mask))), axis=Attr[int]("axis", default=-1))
zeroed = any_of(op.Where(drop, 0.0, hidden), op.Where(keep, hidden, 0.0))
weights = any_of(zeroed, op.Where(is_nan, 0.0, softmax), softmax)
given = any_of(op.Cast(weights, to=int(ir.DataType.FLOAT16)), weights)
flip = Attr[tuple[int, ...]]("perm")
vt, turned = Var("vᵀ", dtype=FLOATS), op.Transpose(given, perm=flip)
flat_given = op.Reshape(given, Var("shape of weights without groups"))
attention = any_of(op.MatMul(given, v), op.MatMul(flat_given, v), op.MatMul(vt, turned))
