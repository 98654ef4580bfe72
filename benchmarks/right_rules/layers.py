"""Rules of convolutions, products of matrices, pooling and normalization."""

from __future__ import annotations

import numpy as np

from benchmarks.handwritten import right
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Assumption, Builder, Const, Match, Scalar, Value, Var, op

x, z, w, v = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Const("w"), Const("v")
b, s, c = Const("b", default=None), Const("s"), Scalar("c")
conv, plain, gemm = op.Conv(x, w, b), op.Conv(x, w), op.Gemm(x, w, b)
pool, average = op.MaxPool(op.Relu(x)), op.AveragePool(op.Mul(x, c))
perm = (0, 2, 3, 1)
gamma, beta, mean, var = map(Const, ("gamma", "beta", "mean", "var"))
norm = op.BatchNormalization(x, gamma, beta, mean, var)
FINITE = (Assumption.FINITE,)
WHOLE = (Assumption.FINITE, Assumption.NOT_EMPTY)


def scaled_by_channel(m: Match, build: Builder) -> Value:
    """Conv(x, w)·s ⟶ Conv(x, s·w), for a number by output channel."""
    channels = m[w].shape[0]
    m.require(
        m[s].shape in ((channels, *[1] * (m[w].ndim - 2)), (1, channels, *[1] * (m[w].ndim - 2))), "not by channel"
    )
    return build.node(
        "Conv", [m[x], build.const(m[w] * m[s].reshape(-1, *[1] * (m[w].ndim - 1)), like=w)], m.attrs(plain)
    )[0]


def into_beta(m: Match, build: Builder) -> Value:
    """c·Gemm(x, w, b) ⟶ Gemm(x, w, b, c·alpha, c·beta)."""
    scaled = {n: m.attr(gemm, n) * m[c] for n in ("alpha", "beta")}
    return build.node("Gemm", [m[x], m.value(w), m.value(b)], {**m.attrs(gemm), **scaled})[0]


def as_affine(m: Match, build: Builder) -> Value:
    """BatchNormalization(x) ⟶ x·s + t."""
    m.require(not m.attr(norm, "training_mode") and len(m.node(norm).outputs) == 1, "in training")
    gain = m[gamma] / np.sqrt(m[var] + m.attr(norm, "epsilon"))
    rank = m.rank(x) or 0
    m.require(np.isfinite(gain).all() and rank >= 2, "without a scale")
    shape = (-1, *[1] * (rank - 2))
    scale, shift = gain.reshape(shape), (m[beta] - m[mean] * gain).reshape(shape)
    return build.Add(build.Mul(m[x], build.const(scale, like=x)), build.const(shift, like=x))


RULES = [
    right("products-added", op.Add(op.MatMul(x, w), op.MatMul(x, v)), lambda m, b: b.MatMul(m[x], b.const(m[w] + m[v], like=w)),
          when=lambda m: m[w].shape == m[v].shape, assumes=FINITE),
    right("sums-multiplied", op.Add(op.MatMul(x, w), op.MatMul(z, w)), lambda m, b: b.MatMul(b.Add(m[x], m[z]), m.value(w)),
          when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z), assumes=FINITE),
    right("weights-multiplied", op.MatMul(op.MatMul(x, w), v), lambda m, b: b.MatMul(m[x], b.const(m[w] @ m[v], like=w)),
          when=lambda m: m[w].ndim == m[v].ndim == 2, assumes=FINITE),
    right("product-transposed", op.Transpose(op.MatMul(x, w), perm=(1, 0)),
          lambda m, b: b.MatMul(b.const(m[w].T, like=w), b.Transpose(m[x], perm=(1, 0))),
          when=lambda m: m[w].ndim == 2 and m.rank(x) == 2, assumes=WHOLE),
    right("relu-after-pool", pool, lambda m, b: b.Relu(b.node("MaxPool", [m[x]], m.attrs(pool))[0]), assumes=WHOLE),
    right("scale-after-average", average, lambda m, b: b.Mul(b.node("AveragePool", [m[x]], m.attrs(average))[0], b.const(m[c], like=x)), assumes=FINITE),
    right("convolution-scaled-by-channel", op.Mul(plain, s), scaled_by_channel, assumes=FINITE),
    right("gemm-scaled", op.Mul(gemm, c), into_beta, assumes=FINITE),
    right("batch-norm-as-affine", norm, as_affine, assumes=FINITE),
    right("convolutions-of-a-sum", op.Add(op.Conv(x, w), op.Conv(z, w)), lambda m, b: b.Conv(b.Add(m[x], m[z]), m.value(w)),
          when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z), assumes=FINITE),
    right("sigmoid-moved-over-transpose", op.Transpose(op.Sigmoid(x), perm=perm), lambda m, b: b.Sigmoid(b.Transpose(m[x], perm=perm))),
    right("leaky-by-max", op.Max(op.Mul(x, c), x), lambda m, b: b.LeakyRelu(m[x], alpha=float(np.float32(m[c]))),
          when=lambda m: 0 <= m[c] <= 1 and m.dtype(x) == 1, assumes=FINITE),
    right("six-by-clip", op.Min(op.Relu(x), 6.0), lambda m, b: b.Clip(m[x], b.const(0.0, like=x), b.const(6.0, like=x))),
    right("hard-swish-by-parts", op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5)), lambda m, b: b.HardSwish(m[x]), assumes=FINITE),
]  # fmt: skip
