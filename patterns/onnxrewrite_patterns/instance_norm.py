"""Instance normalization from its parts: (x - mean)/√(var + ε), means taken over all positions of a channel.

Why: six passes over memory become one kernel.   Ulyanov, Vedaldi & Lempitsky, 2016, arXiv:1607.08022.

What is normalized is raised with a scale of ones and no shift, and takes in those of each channel afterwards.
With one axis of positions it may as well be a LayerNormalization, and is taken for one.

A GroupNormalization, which exporters write as an InstanceNormalization between Reshapes, stays that: ONNX Runtime has
no kernel of its own for it on a CPU, and the standard's function body took 1.8 to 5.4 times as long.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.layernorm import eps, mean_axes, normalized, var_axes, x
from onnxrewrite_patterns.linear_layers import per_channel
from onnxrewrite_patterns.norm_parts import finite, last_axes, require_epsilon

_PARTS = (
    "m = ReduceMean<axes=[2,3]>(x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean<axes=[2,3]>(q)"
    "a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)"
)


@rule(
    "instance-norm",
    RAISE,
    normalized,
    benefit=30,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"float[n,2,h,w] x; {_PARTS}",
            to="float[n,2,h,w] x; y = InstanceNormalization<epsilon=1e-5>(x, {1.0, 1.0}, {0.0, 0.0})",
            opset=13,
        ),
        Rejects(f"float[n,c,h,w] x; {_PARTS}", because="the number of channels is not known"),
        Rejects(
            "float[n,s,4] x; m = ReduceMean<axes=[2]>(x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean<axes=[2]>(q)"
            "a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
            because="the mean is not that of each channel",
        ),
    ),
)
def instance_norm(m: Match, build: Builder) -> Value:
    """(x - mean)/√(var + ε) ⟶ InstanceNormalization(x, 1, 0), where mean and var are those of a channel's positions."""
    require_epsilon(m, eps)
    m.require(m[eps] > 0, "where nothing is added to the variance it may underflow")
    count, rank, channels = last_axes(m, x, m[mean_axes], m[var_axes]), m.rank(x), m.dim(x, 1)
    m.require(rank is not None and rank > 3 and count == rank - 2, "the mean is not that of each channel", at=x)
    if not isinstance(channels, int):
        m.refuse("the number of channels is not known", at=x)
    m.require(m.dtype(x) == m.dtype(m.anchor) == ir.DataType.FLOAT, "the kernel takes float32 only", at=x)
    ones, zeros = (build.const(np.full(channels, number), like=x) for number in (1.0, 0.0))
    return build.InstanceNormalization(m[x], ones, zeros, epsilon=m[eps])


source = Var("x", dtype=FLOATS)
scale, shift, factor, addend = Const("scale"), Const("shift"), Const("factor"), Const("addend")
norm = op.InstanceNormalization(source, scale, shift)


@rule(
    "instance-norm-parameters",
    RAISE,
    any_of(norm * factor, norm + addend),
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[n,2,h,w] x; i = InstanceNormalization<epsilon=1e-6>(x, {1.0, 2.0}, {0.0, 0.5})"
            "y = Mul(i, float[2,1,1] {3.0, 4.0})",
            to="float[n,2,h,w] x; y = InstanceNormalization<epsilon=1e-6>(x, {3.0, 8.0}, {0.0, 2.0})",
        ),
        Rewrites(
            "float[n,2,l] x; i = InstanceNormalization(x, {1.0, 2.0}, {0.0, 0.5})y = Add(float[1,2,1] {3.0, 4.0}, i)",
            to="float[n,2,l] x; y = InstanceNormalization(x, {1.0, 2.0}, {3.0, 4.5})",
        ),
        Rejects(
            "float[n,2,h,w] x; i = InstanceNormalization(x, {1.0, 2.0}, {0.0, 0.5})  y = Mul(i, {3.0, 4.0})",
            because="varies along another axis than the channels",
        ),
        Rejects(
            "i = InstanceNormalization(x, {1.0, 2.0}, {0.0, 0.5})  y = Mul(i, 3.0)",
            because="the rank is not known",
        ),
        Rejects(
            "float[n,2,l] x; i = InstanceNormalization(x, {1.0, 2.0}, {0.0, 0.5})  y = Div(i, 0.0)",
            because="what is folded in is not finite",
        ),
    ),
)
def instance_norm_parameters(m: Match, build: Builder) -> Value:
    """InstanceNormalization(x, γ, β)·c ⟶ InstanceNormalization(x, γ·c, β·c), and likewise a sum."""
    rank, channels = m.rank(source), len(m[scale])
    if rank is None:
        m.refuse("the rank is not known", at=source)
    gain, offset = np.ones(channels), np.zeros(channels)
    if factor in m:
        gain = per_channel(m, m[factor], rank, 1, channels)
    else:
        offset = per_channel(m, m[addend], rank, 1, channels)
    folded = m[scale] * gain, m[shift] * gain + offset
    own = [finite(m, build.const(each, like=source), at=source) for each in folded]
    made: Value = build.InstanceNormalization(m[source], *own, **m.attrs(norm))
    return made
