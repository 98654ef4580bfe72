"""Attention of three quantized projections of one input: com.microsoft.QAttention multiplies the integers itself.

Where it comes from: dynamic quantization of an encoder; queries, keys and values are products of the same integers.

Why: one operator instead of four, with the weights side by side.  On one core it took 0.93 to 1.03 of their time; the
standard's Attention takes less where the model can have it.  There is no additive mask: only attention to all keys
becomes this.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_pack import PACK_LIMIT

x = Var("x", rank=3)
x_scale, x_zero = Var("scale of x"), Var("zero of x", default=None)
weights = [Const(name, rank=2) for name in ("wq", "wk", "wv")]
scales = [Const(f"scale of {w.name}") for w in weights]
zeros = [Const(f"zero of {w.name}", default=None) for w in weights]
biases = [Const(name, rank=1, default=None) for name in ("bq", "bk", "bv")]
mask = Var("mask", default=None)
num_heads, scale = Attr[int]("num_heads"), Attr[float]("scale")
attention = microsoft.MultiHeadAttention(
    *(
        microsoft.MatMulIntegerToFloat(x, w, x_scale, s, x_zero, z, b)
        for w, s, z, b in zip(weights, scales, zeros, biases, strict=True)
    ),
    None,
    None,
    mask,
    num_heads=num_heads,
    scale=scale,
)


def _by_column(m: Match, given: Sequence[Const], width: int) -> npt.NDArray[Any]:
    """The scales or zero points of the three weights: one number for all of them, or one for each column."""
    none = np.zeros((), m.dtype(weights[0]).numpy())  # type: ignore[union-attr]
    found = [m[g] if m.value(g) is not None else none for g in given]
    if all(f.size == 1 and f.reshape(()) == found[0].reshape(()) for f in found):
        return found[0].reshape(())
    return np.concatenate([np.broadcast_to(f, (width,)) for f in found])


_X = "uint8[b,s,2] x; float sx; uint8 zx; "
_PRODUCT = "{0} = com.microsoft.MatMulIntegerToFloat(x, int8[2,2] {1}, sx, {2}, zx, int8 0{3})  "
_QK = _PRODUCT.format("q", "{1, 2, 3, 4}", "0.5", "") + _PRODUCT.format("k", "{5, 6, 7, 8}", "0.5", "")
_SIDE_BY_SIDE = "int8[2,6] {1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12}"
_ATTEND = "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v)"


@rule(
    "quantized-attention",
    LOWER,
    attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"{_X}{_QK}{_PRODUCT.format('v', '{9, 10, 11, 12}', '0.5', ', {7.0, 8.0}')}{_ATTEND}",
            to=f"{_X} y = com.microsoft.QAttention<num_heads=1, scale=0.5>"
            f"(x, {_SIDE_BY_SIDE}, {{0.0, 0.0, 0.0, 0.0, 7.0, 8.0}}, sx, 0.5, , zx, int8 0)",
        ),
        Rewrites(
            f"{_X}{_QK}{_PRODUCT.format('v', '{9, 10, 11, 12}', '{0.25, 1.0}', '')}{_ATTEND}",
            to=f"{_X} y = com.microsoft.QAttention<num_heads=1, scale=0.5>"
            f"(x, {_SIDE_BY_SIDE}, {{0.0, 0.0, 0.0, 0.0, 0.0, 0.0}}, sx,"
            " {0.5, 0.5, 0.5, 0.5, 0.25, 1.0}, , zx, int8 0)",
        ),
        Rejects(
            f"{_X} float[b,1,s,s] mask; {_QK}{_PRODUCT.format('v', '{9, 10, 11, 12}', '0.5', '')}"
            "y = com.microsoft.MultiHeadAttention<num_heads=1, scale=0.5>(q, k, v, , , mask)",
            because="adds no mask",
        ),
        Rejects(
            f"{_X} uint8[b,l,2] z; {_QK}"
            "v = com.microsoft.MatMulIntegerToFloat(z, int8[2,2] {9, 10, 11, 12}, sx, 0.5, zx, int8 0)"
            f"{_ATTEND}",
            because="x must be the same value in both places",
        ),
        Rejects(
            f"{_X}{_QK} v = com.microsoft.MatMulIntegerToFloat(x, int8[2,1] {{9, 10}}, sx, 0.5, zx, int8 0)  {_ATTEND}",
            because="differ in size",
        ),
    ),
)
def quantized_attention(m: Match, build: Builder) -> Value:
    """MultiHeadAttention(x·wq + bq, x·wk + bk, x·wv + bv) of integers ⟶ com.microsoft.QAttention(x, w, b)."""
    m.require(m.value(mask) is None, "QAttention adds no mask to the scores", at=mask)
    m.require_one_number(x_scale)
    m.require_one_number(x_zero)
    shapes = {m.shape(w) for w in weights}
    m.require(len(shapes) == 1 and len({m.dtype(w) for w in weights}) == 1, "the projections differ in size", at=x)
    size = sum(m.facts.nbytes(v) or 0 for w in weights if (v := m.value(w)) is not None)
    m.require(size <= PACK_LIMIT, f"the weights are {size} bytes", at=x)
    width = m[weights[0]].shape[1]
    bias = np.concatenate([m[b] if m.value(b) is not None else np.zeros(width) for b in biases])
    m.require(bias.shape == (3 * width,), "the biases are not of the size of the projections", at=x)
    return build.microsoft.QAttention(
        m[x],
        build.const(np.concatenate([m[w] for w in weights], axis=1)),
        build.const(bias, like=ir.DataType.FLOAT),
        m[x_scale],
        build.const(_by_column(m, scales, width)),
        None,
        m.value(x_zero),
        build.const(_by_column(m, zeros, width)),
        num_heads=m[num_heads],
        scale=m[scale],
    )
