"""Operators that round to a grid, as what they are but for the rounding.

An integer that QuantizeLinear makes is x/scale + zero here, neither rounded nor limited to the range of its dtype, so
that quantizing what was dequantized gives it back.  Where two sides round other numbers, a difference is a doubt.
"""

from __future__ import annotations

from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.evaluate import Call, NotApplicable, Run, computes
from onnxrewrite.system.arrays import Array


@computes("DequantizeLinear")
def _dequantize(run: Run, call: Call, q: Array, scale: Array, zero: Array | None = None) -> Array:
    """(q - zero)·scale."""
    elements, axis = ring.elements(q), call.get("axis", 1)
    centred = elements if zero is None else ring.sub(elements, _along(ring.elements(zero), elements.ndim, axis))
    return ring.mul(centred, _along(scale, elements.ndim, axis))


@computes("QuantizeLinear")
def _quantize(run: Run, call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """x/scale + zero."""
    axis = call.get("axis", 1)
    result = ring.div(x, _along(scale, x.ndim, axis))
    result = result if zero is None else ring.add(result, _along(ring.elements(zero), x.ndim, axis))
    run.note("QuantizeLinear", result)
    return result


def _along(parameter: Array, rank: int, axis: int) -> Array:
    """One number, or one for each index of an axis."""
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim != 1:
        raise NotApplicable("blocks of a quantized tensor")
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])
