"""Softmax and Where between DequantizeLinear and QuantizeLinear, by ONNX Runtime's kernels of integers.

Where it comes from: static quantization of attention, whose scores are masked and whose weights are quantized.

Why: neither the float tensors that Where chooses from nor the weights before they are rounded are written and read.
QLinearSoftmax (1.32) sums powers in fixed point, by less than a hundredth of a step beside those of floats, and counts
the steps from zero to one without their fraction: of 254.99998, which is what float32 makes of 1/(1/255), 254 are left.
QLinearWhere looks up in a table what Quantize- and DequantizeLinear make of each integer; where a zero is not constant,
it ends the process.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.qdq import grid, own_scale, own_zero, quantize, require_alone, result, whole

a, b = grid("a"), grid("b")

softmax = op.Softmax(a.whole)
of_softmax = quantize(softmax)

_Q = "uint8[n,8] q; d = DequantizeLinear(q, 0.5, uint8 3)  "


@rule(
    "quantized-softmax",
    LOWER,
    of_softmax,
    examples=(
        Rewrites(
            f"{_Q} s = Softmax<axis=-1>(d)  y = QuantizeLinear(s, 0.00390625, uint8 0)",
            to="uint8[n,8] q;y = com.microsoft.QLinearSoftmax<axis=-1, opset=17>(q, 0.5, uint8 3, 0.00390625, uint8 0)",
        ),
        Rewrites(
            "int8[n,8,2] q; d = DequantizeLinear(q, 0.5)  s = Softmax(d)  y = QuantizeLinear(s, 0.00390625, int8 -128)",
            to="int8[n,8,2] q; y = com.microsoft.QLinearSoftmax<axis=1, opset=11>"
            "(q, 0.5, int8 0, 0.00390625, int8 -128)",
            opset=11,
        ),
        Rejects(
            f"{_Q} s = Softmax(d)  y = QuantizeLinear(s, 0.00390625, uint8 0)  z = Relu(s)",
            because="needed as a float, too",
        ),
        Rejects(
            f"{_Q} s = Softmax(d)  y = QuantizeLinear(s, 0.003921569, uint8 0)", because="not a whole number of steps"
        ),
        Rejects(
            f"{_Q} s = Softmax(d)  y = QuantizeLinear(s, 0.00024414063, uint8 0)", because="not a whole number of steps"
        ),
        Rejects(f"{_Q} s = LogSoftmax(d)  y = QuantizeLinear(s, 0.5, uint8 0)", because="found LogSoftmax"),
        Rejects(f"{_Q} s = Softmax(d)  y = QuantizeLinear(s, 0.00390625, int8 0)", because="mixes uint8 and int8"),
        Rejects(
            "uint16[n,8] q; d = DequantizeLinear(q, 0.5)  s = Softmax(d)  y = QuantizeLinear(s, 0.00390625, uint8 0)",
            because="not of 8 bits",
            opset=21,
        ),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_softmax(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Softmax(DequantizeLinear(a))) ⟶ com.microsoft.QLinearSoftmax(a)."""
    require_alone(m, softmax)
    operands = [*whole(m, build, a), *result(m, build, of_softmax)]
    steps = (np.float32(1) / np.float32(m.facts.constant(m[own_scale]))).item()
    m.require(steps in range(1, _MOST + 1), "one is not a whole number of steps that the kernel counts", at=own_scale)
    settings = {"axis": m.attr(softmax, "axis"), "opset": build.opset}
    return build.microsoft.node("QLinearSoftmax", operands, settings)[0]


_MOST = 1024
"""So many steps from zero to one were tried."""

condition, fill = Var("condition"), Const("fill")
of_two = op.Where(condition, a.whole, b.whole)
filled, filling = op.Where(condition, a.whole, fill), op.Where(condition, fill, a.whole)
chosen = any_of(of_two, filled, filling)
of_chosen = quantize(chosen)

_A = "bool[n,3] c; uint8[n,3] p; a = DequantizeLinear(p, 0.5, uint8 3)  "
_B = "bool[n,3] c; uint8[3] q; b = DequantizeLinear(q, 0.25)  "
_TWO = "bool[n,3] c; uint8[n,3] p; uint8[3] q; a = DequantizeLinear(p, 0.5, uint8 3)  b = DequantizeLinear(q, 0.25)  "


@rule(
    "quantized-where",
    LOWER,
    of_chosen,
    examples=(
        Rewrites(
            f"{_TWO} w = Where(c, a, b)  y = QuantizeLinear(w, 1.0, uint8 7)",
            to="bool[n,3] c; uint8[n,3] p; uint8[3] q;"
            "y = com.microsoft.QLinearWhere(c, p, 0.5, uint8 3, q, 0.25, uint8 0, 1.0, uint8 7)",
        ),
        Rewrites(
            f"{_A} w = Where(c, a, {{1.75, -1e9, 2.5}})  y = QuantizeLinear(w, 1.0, uint8 7)",
            to="bool[n,3] c; uint8[n,3] p; s = float 1.0  z = uint8 7"
            "  y = com.microsoft.QLinearWhere(c, p, 0.5, uint8 3, uint8[3] {9, 0, 9}, s, z, s, z)",
        ),
        Rewrites(
            f"{_B} w = Where(c, inf, b)  y = QuantizeLinear(w, 1.0, uint8 7)",
            to="bool[n,3] c; uint8[3] q; s = float 1.0  z = uint8 7"
            "  y = com.microsoft.QLinearWhere(c, uint8 255, s, z, q, 0.25, uint8 0, s, z)",
        ),
        Rejects(
            f"{_TWO} w = Where(c, a, b)  y = QuantizeLinear(w, 1.0, uint8 7)  z = Relu(w)",
            because="needed as a float, too",
        ),
        Rejects(f"{_A} w = Where(c, a, nan)  y = QuantizeLinear(w, 1.0, uint8 7)", because="no number"),
        Rejects(f"{_A} w = Where(c, a, x)  y = QuantizeLinear(w, 1.0, uint8 7)", because="expected"),
        Rejects(f"{_TWO} w = Where(c, a, b)  y = QuantizeLinear(w, 1.0, int8 7)", because="mixes uint8 and int8"),
        Rejects(f"uint8 z; {_TWO} w = Where(c, a, b)  y = QuantizeLinear(w, 1.0, z)", because="a zero is not constant"),
    ),
    benefit=30,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
)
def quantized_where(m: Match, build: Builder) -> Value:
    """QuantizeLinear(Where(c, DequantizeLinear(a), DequantizeLinear(b))) ⟶ com.microsoft.QLinearWhere(c, a, b)."""
    call = m.call(chosen)
    require_alone(m, call)
    zeros = [v for each in (a.zero, b.zero, own_zero) if (v := m.value(each)) is not None]
    m.require(all(m.facts.tensor(v) is not None for v in zeros), "a zero is not constant", at=call)
    own = result(m, build, of_chosen)
    first = whole(m, build, a)
    second = whole(m, build, b) if call is of_two else [_rounded(m, build), *own]
    operands = [*second, *first] if call is filling else [*first, *second]
    return build.microsoft.node("QLinearWhere", [m[condition], *operands, *own], m.attrs(call))[0]


def _rounded(m: Match, build: Builder) -> Value:
    """The constant that is filled in, as QuantizeLinear rounds it."""
    dtype = m.dtype(of_chosen) or ir.DataType.UINT8
    m.require(not np.isnan(m[fill]).any(), "what is filled in is no number", at=fill)
    step, zero = m.facts.constant(m[own_scale]), m.value(own_zero)
    offset = m.facts.constant(zero) if zero is not None else None
    ends = np.iinfo(dtype.numpy())
    steps = np.rint(np.float32(m[fill]) / np.float32(step)) + (0 if offset is None else int(offset.item()))
    return build.const(np.clip(steps, ends.min, ends.max), like=dtype)
