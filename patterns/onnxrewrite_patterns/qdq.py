"""Operators between DequantizeLinear and QuantizeLinear: what the rules that give them integer kernels have in common.

No rules here.  A *grid* is a quantized tensor with its scale and its zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

EIGHT_BITS = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


ROOM = 2**30
"""Half of what 32 bits hold is for the bias; products of 32,896 bytes fit into the other."""


class Grid(NamedTuple):
    """The terms of a dequantized tensor: the whole, and what it is made of."""

    whole: Call
    integers: Var
    scale: Var
    zero: Var


def grid(name: str) -> Grid:
    """A tensor that is dequantized where it is read."""
    parts = Var(name), Var(f"scale of {name}"), Var(f"zero of {name}", default=None)
    return Grid(op.DequantizeLinear(*parts), *parts)


own_scale, own_zero = Var("own scale"), Var("own zero", default=None)


def quantize(of: Term) -> Call:
    """A computed term, quantized with ``own_scale`` and ``own_zero``."""
    return op.QuantizeLinear(of, own_scale, own_zero)


def require_alone(m: Match, call: Call) -> None:
    """Refuse what is needed as a float, too.  Dequantized operands may be: each reader has its own kernel."""
    value = m[call]
    m.require(is_read_once(value), "it is needed as a float, too", at=value)


_SWITCHED = "between QuantizeLinear and DequantizeLinear, ONNX Runtime makes int8 uint8, which is faster"
"""It does so when it opens a model on x86, where 8-bit products want unsigned activations, and only for pairs of these
two: an operator of integers beside one leaves what is beyond it in int8, or in float.  Measured on three convolutions
with int8 activations: 11 times as slow with QLinearConv, 2.5 times with one QLinearGlobalAveragePool after them."""


def require_unsigned(m: Match, of: Grid) -> None:
    """Refuse signed activations of a product, for which there is no fast kernel on x86, and which stay as they are
    elsewhere: ONNX Runtime replaces them itself."""
    m.require(m.dtype(of.integers) != ir.DataType.INT8, "a product of int8 activations is slow", at=of.integers)


def whole(m: Match, build: Builder, of: Grid) -> list[Value]:
    """Integers, scale and zero of a tensor that has one of each; refuses another, and one that is just quantized to
    int8."""
    m.require(m.dtype(of.integers) in EIGHT_BITS, "it is not of 8 bits", at=of.integers)
    maker = m[of.integers].producer()
    is_quantized = maker is not None and maker.op_type == "QuantizeLinear"
    m.require(not is_quantized or m.dtype(of.integers) != ir.DataType.INT8, _SWITCHED, at=of.integers)
    _require_number(m, of.scale, of.zero)
    m.node(of.whole)  # its axis says nothing where there is one scale
    return [m[of.integers], m[of.scale], m.value(of.zero) or _zeros(m, build, of)]


def sliced(m: Match, build: Builder, of: Grid, axis: int) -> list[Value]:
    """The same of a tensor that may have a scale for each index of an axis, but only one zero."""
    rank, scale, zero = m.rank(of.integers), _constant(m, of.scale), _constant(m, of.zero)
    if scale is None or rank is None or scale.size == 1:
        return whole(m, build, of)
    m.require(m.dtype(of.integers) in EIGHT_BITS, "it is not of 8 bits", at=of.integers)
    along = scale.ndim == 1 and m.attr(of.whole, "axis") % rank == axis % rank
    m.require(along, f"there are scales along another axis than {axis % rank}", at=of.scale)
    m.require(_ordinary(scale), "a scale is too large or too small", at=of.scale)
    m.require(m.value(of.zero) is None or zero is not None, "its zero is not constant", at=of.zero)
    m.require(zero is None or (zero == zero.flat[0]).all(), "it has several zeros", at=of.zero)
    m.require(not m.attrs(of.whole).get("block_size"), "it is scaled by blocks", at=of.whole)
    return [m[of.integers], m[of.scale], m.value(of.zero) or _zeros(m, build, of)]


def _require_number(m: Match, scale: Var, zero: Var) -> None:
    known = _constant(m, scale)
    m.require(known is not None and known.size == 1, f"{scale!r} is not one constant number", at=scale)
    m.require(known is None or _ordinary(known), "a scale is too large or too small", at=scale)
    m.require_one_number(scale)
    m.require_one_number(zero)


def _ordinary(scale: Array) -> bool:
    """True if products and quotients of three such scales are normal numbers."""
    return bool((scale > _RANGE[0]).all() and (scale < _RANGE[1]).all())


_RANGE = 1e-12, 1e12


def _zeros(m: Match, build: Builder, of: Grid) -> Value:
    """Zeros of the dtype of a tensor, for one that has none, of the shape of its scale."""
    shape = [d for d in m.shape(of.scale) or () if isinstance(d, int)]
    return build.const(np.zeros(shape, np.int64), like=m.dtype(of.integers))


def result(m: Match, build: Builder, quantized: Call) -> list[Value]:
    """Scale and zero of what is quantized, one number each; of fewer bits, it would be rounded before.  Refuses what is
    int8 and dequantized again."""
    m.require(m.dtype(quantized) in EIGHT_BITS, "the result is not of 8 bits", at=quantized)
    is_dequantized = any(node.op_type == "DequantizeLinear" for node in readers(m[quantized], within=1))
    m.require(not is_dequantized or m.dtype(quantized) != ir.DataType.INT8, _SWITCHED, at=quantized)
    dtype = m.dtype(own_scale)
    m.require(dtype == ir.DataType.FLOAT, f"the dtype of its scale is {dtype}, not FLOAT", at=own_scale)
    _require_number(m, own_scale, own_zero)
    m.node(quantized)  # its axis says nothing where there is one scale
    return [m[own_scale], m.value(own_zero) or build.const(0, like=m.dtype(quantized))]


def bias_in_steps(m: Match, bias: Grid, *scales: Var) -> Value:
    """The integers of a bias whose scale is the product of others; refuses another bias."""
    m.require(m.dtype(bias.integers) == ir.DataType.INT32, "the bias is not of 32 bits", at=bias.integers)
    m.require(m.rank(bias.integers) == 1, "the bias is not known to be one number for each channel", at=bias.integers)
    fits = is_product(m.facts, m.value(bias.scale), *map(m.value, scales))
    m.require(fits, "the scale of the bias is not the product of the other scales", at=bias.scale)
    zero = _constant(m, bias.zero)
    m.require(m.value(bias.zero) is None or (zero is not None and not zero.any()), "the bias has a zero", at=bias.zero)
    steps = _constant(m, bias.integers)
    has_room = steps is not None and bool((np.abs(steps) < ROOM).all())
    m.require(has_room, "the bias is not known to leave room for the products in 32 bits", at=bias.integers)
    m.node(bias.whole)
    return m[bias.integers]


def _constant(m: Match, term: Var) -> Array | None:
    value = m.value(term)
    tensor = None if value is None else m.facts.tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy(), np.float64)
