"""Bugs of other tools as rules: each is written as its tool does it, with an example on which it looks right.

Missing are bugs that cannot be written down here, for the engine does not let them be: a shape that a rewrite changes
(Reshape∘Reshape with 0, Slice∘Slice with clamped ends, x·1 that broadcasts), an overridable initializer that is taken
for constant.  The rule ladder has to refute every one of them (``benchmarks/verification.py``,
``tests/ruletest/test_published_bugs.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxrewrite.rules import (
    FLOATS,
    Assumption,
    Attr,
    Builder,
    Const,
    Match,
    Rewrites,
    Rule,
    Scalar,
    Stage,
    Value,
    Var,
    op,
)


@dataclass(frozen=True)
class Bug:
    """A published bug.

    Attributes:
        rule: The rewrite that the tool makes.
        source: The place where it was seen.
        overlooks: The condition that it does not look at.
    """

    rule: Rule
    source: str
    overlooks: str


def _bug(rewrite: object, pattern: object, source: str, overlooks: str, example: Rewrites, stage: Stage) -> Bug:
    name = getattr(rewrite, "__name__", "").replace("_", "-")
    rule = Rule(name=name, stage=stage, pattern=pattern, rewrite=rewrite, examples=(example,), assumes=FINITE)  # type: ignore[arg-type]
    return Bug(rule, source, overlooks)


FINITE = (Assumption.FINITE,)
"""Infinity and NaN would refute some of them at once."""

SURVEY = "seen in a survey of onnxscript 0.7, OnnxSlim 0.1.98, onnxsim 0.8, onnxoptimizer 0.4 and ONNX Runtime 1.31"

x, y, w = Var("x", dtype=FLOATS), Var("y", dtype=FLOATS), Const("w")
b, scale = Const("b", default=0.0), Const("scale")
gamma, beta, mean, var = map(Const, ("gamma", "beta", "mean", "var"))
axes, axis, perm = Attr[tuple[int, ...]]("axes"), Attr[int]("axis"), (0, 1, 3, 2)
STATISTICS = "{2.0, 1.0}, {0.5, 0.25}, {1.0, 0.5}, {3.0, 0.5}"

# -- layers --------------------------------------------------------------------------------------------------

gemm = op.Gemm(x, w, b)
normed_gemm = op.BatchNormalization(gemm, gamma, beta, mean, var)


def batchnorm_into_gemm(m: Match, build: Builder) -> Value:
    """BatchNormalization(Gemm(x, w, b)) ⟶ Gemm(x, w′, b′)."""
    gain = m[gamma] / np.sqrt(m[var] + m.attr(normed_gemm, "epsilon"))
    weight = m[w] * (gain[:, None] if m.attr(gemm, "transB") else gain)
    bias = (m[b] - m[mean]) * gain + m[beta]
    inputs = [m[x], build.const(weight, like=w), build.const(bias, like=w)]
    return build.node("Gemm", inputs, m.attrs(gemm))[0]


conv = op.Conv(x, w, b)
normed_conv = op.BatchNormalization(conv, gamma, beta, mean, var)


def batchnorm_into_conv(m: Match, build: Builder) -> Value:
    """BatchNormalization(Conv(x, w, b)) ⟶ Conv(x, w′, b′)."""
    gain = m[gamma] / np.sqrt(m[var] + m.attr(normed_conv, "epsilon"))
    weight = m[w] * gain.reshape(-1, *[1] * (m[w].ndim - 1))
    bias = (m[b] - m[mean]) * gain + m[beta]
    inputs = [m[x], build.const(weight, like=w), build.const(bias, like=w)]
    return build.node("Conv", inputs, m.attrs(conv))[0]


def scale_into_conv(m: Match, build: Builder) -> Value:
    """Conv(x, w)·scale ⟶ Conv(x, w′), for a number by channel."""
    channels = m[w].shape[0]
    m.require(m[scale].size in (1, channels), "not by channel")
    gain = np.broadcast_to(m[scale].reshape(-1), (channels,))
    weight = m[w] * gain.reshape(-1, *[1] * (m[w].ndim - 1))
    bias = build.const(m[b] * gain, like=w) if b in m else None
    return build.node("Conv", [m[x], build.const(weight, like=w), bias], m.attrs(conv))[0]


# -- padding -------------------------------------------------------------------------------------------------

pads = Attr[tuple[int, ...]]("pads")
pad = op.Pad(x, pads=pads, mode="constant", constant_value=Attr("filling", 0.0))
padded_conv = op.Conv(pad, w, b)
maximum, average = op.MaxPool(pad), op.AveragePool(pad)


def _spatial(m: Match) -> list[int]:
    half = len(m[pads]) // 2
    m.require(half > 2 and not any((*m[pads][:2], *m[pads][half : half + 2])), "not spatial")
    return [*m[pads][2:half], *m[pads][half + 2 :]]


def pad_into_max_pool(m: Match, build: Builder) -> Value:
    """MaxPool(Pad(x, p)) ⟶ MaxPool(x, pads=p)."""
    m.require(not any(m.attr(maximum, "pads") or ()) and m.attr(maximum, "auto_pad") == "NOTSET", "padded already")
    attributes = {**m.attrs(maximum), "pads": _spatial(m)}
    return build.node("MaxPool", [m[x]], attributes)[0]


def pad_into_average_pool(m: Match, build: Builder) -> Value:
    """AveragePool(Pad(x, p)) ⟶ AveragePool(x, pads=p)."""
    m.require(not any(m.attr(average, "pads") or ()) and m.attr(average, "auto_pad") == "NOTSET", "padded already")
    attributes = {**m.attrs(average), "pads": _spatial(m)}
    return build.node("AveragePool", [m[x]], attributes)[0]


def pad_into_conv(m: Match, build: Builder) -> Value:
    """Conv(Pad(x, p), w) ⟶ Conv(x, w, pads=p)."""
    given = m.attr(padded_conv, "pads") or (0,) * (2 * m[w].ndim - 4)
    m.require(m.attr(padded_conv, "auto_pad") == "NOTSET", "padded already")
    total = [a + b for a, b in zip(_spatial(m), given, strict=True)]
    return build.node("Conv", [m[x], m.value(w), m.value(b)], {**m.attrs(padded_conv), "pads": total})[0]


# -- attention and normalization -----------------------------------------------------------------------------

q, k, v = (Var(name, dtype=FLOATS, rank=4) for name in ("q", "k", "v"))
s, t = Scalar("s"), Scalar("t")


def attention_without_scale(m: Match, build: Builder) -> Value:
    """softmax(s·q·kᵀ)·v ⟶ Attention(q, k, v)."""
    return build.Attention(m[q], m[k], m[v])


def attention_scaled_twice(m: Match, build: Builder) -> Value:
    """softmax((s·q)·(t·k)ᵀ)·v ⟶ Attention(q, k, v, scale=s)."""
    return build.Attention(m[q], m[k], m[v], scale=m[s])


eps = Scalar("eps")
center = x - op.ReduceMean(x, axes=axes)
variance = op.ReduceMean(center**2, axes=axes)


def layer_normalization(m: Match, build: Builder) -> Value:
    """(x - mean)/√(variance + ε)·w + b ⟶ LayerNormalization(x, w, b)."""
    m.require(len(m[axes]) == 1, "more than one axis")
    return build.LayerNormalization(m[x], m.value(scale), m.value(beta), epsilon=m[eps])


softmax = op.Softmax(x, axis=axis)


def softmax_written_out(m: Match, build: Builder) -> Value:
    """Softmax(x) ⟶ exp(x - max x)/Σ exp(x - max x) along its axis."""
    shifted = build.Exp(build.Sub(m[x], build.ReduceMax(m[x], axes=(m[axis],), keepdims=1)))
    return build.Div(shifted, build.ReduceSum(shifted, axes=(m[axis],), keepdims=1))


# -- clamps and constants ------------------------------------------------------------------------------------

low, high, lower, upper = (Attr[float](name) for name in ("low", "high", "lower", "upper"))
bounded = op.Clip(x, min=low, max=high)


def clip_of_clip(m: Match, build: Builder) -> Value:
    """Clip(Clip(x, a, b), c, d) ⟶ Clip(x, max(a, c), min(b, d))."""
    return build.Clip(m[x], min=max(m[low], m[lower]), max=min(m[high], m[upper]))


def relu_of_clip(m: Match, build: Builder) -> Value:
    """Relu(Clip(x, a, b)) ⟶ Clip(x, max(a, 0), b)."""
    return build.Clip(m[x], min=max(m[low], 0.0), max=m[high])


def clip_to_relu(m: Match, build: Builder) -> Value:
    """Clip(x, 0, b) ⟶ Relu(x)."""
    m.require(m[low] == 0.0, "not from zero")
    return build.Relu(m[x])


n, divisor, factor = Var("n"), Const("divisor"), Const("factor")


def divided_and_multiplied(m: Match, build: Builder) -> Value:
    """(x / c)·c ⟶ x."""
    m.require(m[divisor].size == 1 and np.array_equal(m[divisor], m[factor]), "not the same constant")
    return m[n]


# -- dtypes and shapes ---------------------------------------------------------------------------------------

a, to = Var("a"), Attr[int]("to")
between = Attr[int]("between")


def cast_of_cast(m: Match, build: Builder) -> Value:
    """Cast(Cast(x, between), to) ⟶ Cast(x, to)."""
    return build.Cast(m[a], to=m[to])


first_scale, first_zero, second_scale, second_zero = map(Const, ("s1", "z1", "s2", "z2"))


def quantized_again(m: Match, build: Builder) -> Value:
    """QuantizeLinear(DequantizeLinear(x, s), s) ⟶ x."""
    m.require(np.array_equal(m[first_scale], m[second_scale]), "another scale")
    return m[a]


LAYER = "float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}"
QKV = "float[2,2,3,4] q; float[2,2,5,4] k; float[2,2,5,4] v;"
CANONICALIZE, RAISE = Stage.CANONICALIZE, Stage.RAISE

HISTORY: tuple[Bug, ...] = (
    _bug(
        batchnorm_into_gemm,
        normed_gemm,
        "onnxscript, FuseBatchNormIntoGemm before pull request 3027",
        "beta of Gemm",
        Rewrites(
            f"float[n,2] x; g = Gemm(x, float[2,2] {{1.0, 2.0, 3.0, 4.0}}, {{1.0, 2.0}})"
            f"  y = BatchNormalization(g, {STATISTICS}, epsilon=1.0)",
            to="y = Gemm(x, w, b)",
        ),
        CANONICALIZE,
    ),
    _bug(
        batchnorm_into_conv,
        normed_conv,
        SURVEY,
        "training_mode of BatchNormalization",
        Rewrites(
            f"float[n,2,h,w] x; c = Conv(x, {LAYER})  y = BatchNormalization(c, {STATISTICS}, epsilon=1.0)",
            to="y = Conv(x, w, b)",
        ),
        CANONICALIZE,
    ),
    _bug(
        scale_into_conv,
        conv * scale,
        SURVEY,
        "along which axis the constant varies: Conv(x)·[1,1,H,1]",
        Rewrites(
            f"float[n,2,2,2] x; c = Conv(x, {LAYER})  y = Mul(c, float[1,2,1,1] {{2.0, 3.0}})", to="y = Conv(x, w)"
        ),
        CANONICALIZE,
    ),
    _bug(
        pad_into_max_pool,
        maximum,
        "onnxsim issue 290, onnx/optimizer pull request 318: fuse_pad_into_pool",
        "that MaxPool pads with -inf",
        Rewrites(
            "float[3,2,5,7] x; r = Relu(x)  p = Pad(r, {0, 0, 1, 1, 0, 0, 1, 1})  y = MaxPool(p, kernel_shape=[3,3])",
            to="r = Relu(x)  y = MaxPool(r, kernel_shape=[3,3], pads=[1,1,1,1])",
        ),
        CANONICALIZE,
    ),
    _bug(
        pad_into_average_pool,
        average,
        "onnx/optimizer, fuse_pad_into_pool before pull request 108",
        "count_include_pad",
        Rewrites(
            "float[3,2,5,7] x; p = Pad(x, {0, 0, 1, 1, 0, 0, 1, 1})"
            "  y = AveragePool(p, kernel_shape=[3,3], count_include_pad=1)",
            to="y = AveragePool(x, kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1)",
        ),
        CANONICALIZE,
    ),
    _bug(
        pad_into_conv,
        padded_conv,
        "onnxscript issue 2838 and its kin: fuse_pad_into_conv",
        "what Pad fills with",
        Rewrites(
            f"float[3,2,5,7] x; p = Pad(x, {{0, 0, 1, 1, 0, 0, 1, 1}}, 0.0)  y = Conv(p, {LAYER})",
            to="y = Conv(x, w, pads=[1,1,1,1])",
        ),
        CANONICALIZE,
    ),
    _bug(
        attention_without_scale,
        op.MatMul(op.Softmax(op.MatMul(q, op.Transpose(k, perm=perm)) * s, axis=-1), v),
        SURVEY,
        "a scale other than 1/√d",
        Rewrites(
            f"{QKV} t = Transpose(k, perm=[0,1,3,2])  d = MatMul(q, t)  m = Mul(d, 0.5)  p = Softmax(m, axis=-1)"
            "  y = MatMul(p, v)",
            to="y = Attention(q, k, v)",
        ),
        RAISE,
    ),
    _bug(
        attention_scaled_twice,
        op.MatMul(op.Softmax(op.MatMul(q * s, op.Transpose(k * t, perm=perm)), axis=-1), v),
        SURVEY,
        "the scale of k",
        Rewrites(
            f"{QKV} r = Mul(q, 0.5)  o = Mul(k, 1.0)  t = Transpose(o, perm=[0,1,3,2])  d = MatMul(r, t)"
            "  p = Softmax(d, axis=-1)  y = MatMul(p, v)",
            to="y = Attention(q, k, v, scale=0.5)",
        ),
        RAISE,
    ),
    _bug(
        layer_normalization,
        center / op.Sqrt(variance + eps) * scale + beta,
        "ONNX Runtime, LayerNormFusion before pull request 15844",
        "over which axis the mean is taken",
        Rewrites(
            "float[n,4] x; u = ReduceMean(x, axes=[-1])  c = Sub(x, u)  q = Mul(c, c)  r = ReduceMean(q, axes=[-1])"
            "  e = Add(r, 0.001)  d = Sqrt(e)  z = Div(c, d)  g = Mul(z, {1.0, 2.0, 3.0, 4.0})"
            "  y = Add(g, {1.0, 2.0, 3.0, 4.0})",
            to="y = LayerNormalization(x, w, b)",
        ),
        RAISE,
    ),
    _bug(
        softmax_written_out,
        softmax,
        SURVEY,
        "that Softmax takes all axes from its own on before opset 13",
        Rewrites("float[n,3,4] x; y = Softmax(x, axis=1)", to="y = Div(e, s)"),
        CANONICALIZE,
    ),
    _bug(
        clip_of_clip,
        op.Clip(bounded, min=lower, max=upper),
        SURVEY,
        "ranges that are disjoint",
        Rewrites("float[n] x; a = Clip(x, -1.0, 6.0)  y = Clip(a, 0.0, 7.0)", to="y = Clip(x, 0.0, 6.0)"),
        CANONICALIZE,
    ),
    _bug(
        relu_of_clip,
        op.Relu(bounded),
        SURVEY,
        "a max below zero",
        Rewrites("float[n] x; a = Clip(x, -1.0, 6.0)  y = Relu(a)", to="y = Clip(x, 0.0, 6.0)"),
        CANONICALIZE,
    ),
    _bug(
        clip_to_relu,
        bounded,
        "TensorRT issue 4606",
        "the upper bound",
        Rewrites("float[n] x; y = Clip(x, 0.0, 3e38)", to="y = Relu(x)"),
        CANONICALIZE,
    ),
    _bug(
        divided_and_multiplied,
        op.Mul(op.Div(n, divisor), factor),
        SURVEY,
        "that integers are divided without a remainder",
        Rewrites("float[n] x; d = Div(x, 2.0)  y = Mul(d, 2.0)", to="y = Identity(x)"),
        CANONICALIZE,
    ),
    _bug(
        cast_of_cast,
        op.Cast(op.Cast(a, to=between), to=to),
        "ONNX Runtime issues 8787, 9915 and 17565, before pull request 17953",
        "what the dtype between cannot hold",
        Rewrites("float[n] x; c = Cast(x, to=11)  y = Cast(c, to=10)", to="y = Cast(x, to=10)"),
        CANONICALIZE,
    ),
    _bug(
        quantized_again,
        op.QuantizeLinear(op.DequantizeLinear(a, first_scale, first_zero), second_scale, second_zero),
        SURVEY,
        "the zero point",
        Rewrites(
            "uint8[n] x; d = DequantizeLinear(x, 0.5, uint8 3)  y = QuantizeLinear(d, 0.5, uint8 3)",
            to="y = Identity(x)",
        ),
        CANONICALIZE,
    ),
)
"""The bugs that the ladder has to find."""
