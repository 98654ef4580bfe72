"""Linear layers and affine maps by channel: what the rules that fold one into the other have in common.

No rules here.  Folding is computed in float64 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnxrewrite import FLOATS, Builder, Call, Const, Match, Term, Value, Var, epsilon, op

Array = npt.NDArray[Any]

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
    m.require(
        sum(bool(o.name) for o in m.node(call).outputs) == 1, "its further outputs put it in training mode"
    )
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


def product(m: Match, build: Builder, array: Array, gain: Array) -> Value:
    """``array · gain`` in the layer's dtype, refused where small numbers lose more than one rounding."""
    with np.errstate(all="ignore"):
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
    with np.errstate(all="ignore"):
        value = build.const(exact, like=w)
    m.require(np.isfinite(_stored(m, value)).all(), "the new weight is not finite in its dtype", at=w)
    return value


def _stored(m: Match, value: Value) -> Array:
    array = m.facts.constant(value)
    assert array is not None
    return array.astype(np.float64)
