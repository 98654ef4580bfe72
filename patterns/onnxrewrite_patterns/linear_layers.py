"""Linear layers and affine maps by channel: what the rules that fold one into the other have in common.

No rules here.  Folding is computed in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)
w, b = Const("w"), Const("b", default=0.0)
gamma, beta, mean, var = map(Const, ("gamma", "beta", "mean", "var"))
scale, shift = Const("scale"), Const("shift")


def layer(source: Term) -> Call:
    """A layer with a weight and an optional bias of its own."""
    return op["Conv", "ConvTranspose", "Gemm"](source, w, b)


def batchnorm(source: Term) -> Call:
    """A BatchNormalization with constant statistics."""
    return op.BatchNormalization(source, gamma, beta, mean, var)


plain = layer(x)
norm = op.BatchNormalization(x, w, b, (norm_mean := Var("norm_mean")), (norm_var := Var("norm_var")))
matmul = op.MatMul(x, w)
biased = matmul + (bias := Const("bias"))
with_bias = (plain, norm, biased)
body = any_of(*with_bias, matmul)
"""A matrix product may have a bias after it; BatchNormalization is a layer whose weight is its scale."""


# -- affine maps -------------------------------------------------------------------------------------------


def affine(m: Match, call: Call) -> tuple[Array, Array]:
    """The gain and the shift by channel of a BatchNormalization that uses its statistics."""
    require_inference(m, call)
    variance = m[var] + m.attr(call, "epsilon")
    m.require((variance > 0).all(), "var + epsilon must be positive", at=var)
    gain = m[gamma] / np.sqrt(variance)
    return gain, m[beta] - m[mean] * gain


def require_inference(m: Match, call: Call) -> None:
    """Refuse a BatchNormalization that makes statistics, as each opset says it, or has them by position."""
    m.require(not m.attr(call, "training_mode"), "BatchNormalization is in training mode")
    m.require(sum(bool(o.name) for o in m.node(call).outputs) == 1, "its further outputs put it in training mode")
    m.require(m.attr(call, "is_test") in (None, 1), "without is_test it is in training mode")
    m.require(m.attr(call, "spatial") in (None, 1), "with spatial=0 it has statistics for each position")


def per_channel(m: Match, constant: Array, rank: int, axis: int, channels: int) -> Array:
    """A constant that varies along the channels only, as one element for each of them."""
    written = f"the constant of shape {list(constant.shape)}"
    m.require(constant.ndim <= rank, f"{written} may raise the rank")
    shape = (1,) * (rank - constant.ndim) + constant.shape
    across = all(size == 1 for i, size in enumerate(shape) if i != axis)
    m.require(across, f"{written} varies along another axis than the channels")
    m.require(constant.size in (1, channels), f"{written} does not fit {channels} channels")
    return np.broadcast_to(constant.reshape(-1), (channels,))


# -- layers ------------------------------------------------------------------------------------------------


def body_layout(m: Match) -> tuple[int, int, int]:
    """Rank, channel axis and number of channels of what a ``body`` computes."""
    shape = m[w].shape
    if norm in m:
        require_inference(m, norm)
        return m.rank(x) or 0, 1, shape[0]
    if plain not in m:
        m.require(len(shape) > 1, "the product with a vector has no channels", at=w)
        rank = m.rank(biased if biased in m else matmul) or 1  # where it is unknown: at least one, the channels
        return rank, rank - 1, shape[-1]
    match m.node(plain).op_type:
        case "Gemm":
            return 2, 1, shape[0] if m.attr(plain, "transB") else shape[1]
        case "ConvTranspose":
            return len(shape), 1, shape[1] * m.attr(plain, "group")
    return len(shape), 1, shape[0]


def body_folded(m: Match, build: Builder, gain: Array, offset: Array) -> Value:
    """The ``body`` whose outputs are the old ones times ``gain`` plus ``offset``."""
    if norm in m:
        new_scale, new_shift = product(m, build, m[w], gain), rounded(m, build, m[b] * gain + offset)
        inputs = [m[x], new_scale, new_shift, m[norm_mean], m[norm_var]]
        return build.node("BatchNormalization", inputs, m.attrs(norm))[0]
    weight = weighted(m, build, along_outputs(m, gain))
    if plain in m:
        return relayered(m, build, plain, weight, bias_of(m, plain) * gain, offset)
    result, addend = build.MatMul(m[x], weight), (m[bias] * gain if biased in m else 0.0) + offset
    return build.Add(result, rounded(m, build, addend)) if biased in m or addend.any() else result


def along_outputs(m: Match, gain: Array) -> Array:
    """``gain`` by output channel in a shape that broadcasts over the weight."""
    array = m[w]
    op_type = m.node(plain).op_type if plain in m else "MatMul"
    if op_type == "MatMul" or (op_type == "Gemm" and not m.attr(plain, "transB")):
        return gain.reshape(*[1] * (array.ndim - 1), -1)
    if op_type == "ConvTranspose":  # input channels, output channels of one group, kernel
        groups = m.attr(plain, "group")
        rows = np.repeat(gain.reshape(groups, -1), array.shape[0] // groups, axis=0)
        return rows.reshape(*rows.shape, *[1] * (array.ndim - 2))
    return gain.reshape(-1, *[1] * (array.ndim - 1))


def weighted(m: Match, build: Builder, gain: Array) -> Value:
    """The weight times ``gain``, which broadcasts over it: the old one where nothing changes."""
    old = m.value(w)
    return old if old is not None and (gain == 1).all() else product(m, build, m[w], gain)


def relayered(m: Match, build: Builder, call: Call, weight: Value, old: Array, moved: Array) -> Value:
    """The layer of ``call`` with another weight, and with the bias ``old + moved`` unless there is none."""
    attributes = {name: value for name, value in m.attrs(call).items() if name != "beta"}
    bias = rounded(m, build, old + moved) if b in m or moved.any() else None
    (result,) = build.node(m.node(call).op_type, [m[x], weight, bias], attributes)
    return result


def bias_of(m: Match, call: Call) -> Array:
    """The bias that a layer adds: zero where there is none, scaled where Gemm does so."""
    factor: float = m.attr(call, "beta") if m.node(call).op_type == "Gemm" else 1.0
    return np.asarray(factor * m[b])


# -- what is around them -----------------------------------------------------------------------------------

STEPS = 6
"""So far below a layer one looks for what may take it in."""

_ATTENTIONS = frozenset({"Attention", "GroupQueryAttention", "MultiHeadAttention"})


def feeds_attention(m: Match, value: Value) -> bool:
    """True if an attention that may absorb a layer reads its result, with a bias or split into heads: one of ONNX
    Runtime's own operators, or one that will be lowered to them."""
    below = readers(value, through=("Add", "Reshape", "Transpose"), within=STEPS)
    return any(n.op_type in _ATTENTIONS and (bool(n.domain) or m.facts.is_newer(n)) for n in below)


def require_unquantized(m: Match, *operands: Value | None) -> None:
    """Refuse a layer of quantized operands: ONNX Runtime has kernels for it, and looks for the plain operator."""
    quantized = any(made_by(value, "DequantizeLinear") for value in operands)
    m.require(not quantized, "quantized operands have kernels of their own")


# -- constants ---------------------------------------------------------------------------------------------


def product(m: Match, build: Builder, array: Array, gain: Array) -> Value:
    """``array · gain`` in the layer's dtype, refused where small numbers lose more than one rounding."""
    exact = array * gain
    value = rounded(m, build, exact)
    if exact.size and value.dtype is not None:
        error = np.abs(_stored(m, value) - exact)
        alike = tuple(axis for axis, size in enumerate(gain.shape) if size == 1)
        largest = np.abs(exact).max(axis=alike, keepdims=True)
        fine = (error <= epsilon(value.dtype) * largest).all()
        m.require(fine, "the new weight is too small for its dtype", at=w)
    return value


def rounded(m: Match, build: Builder, exact: Array) -> Value:
    """A constant in the layer's dtype, refused where it is not finite."""
    value = build.const(exact, like=m[x])
    m.require(np.isfinite(_stored(m, value)).all(), "the new weight is not finite in its dtype", at=w)
    return value


def _stored(m: Match, value: Value) -> Array:
    array = m.facts.constant(value)
    assert array is not None
    return array.astype(np.float64)
