"""Bounds of the magnitude of the elements of a value, as far as the graph shows them."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.views import input_of, inputs_of
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.match import Match

_SAME = operators(marks="bounded")
"""Operators that compute no larger numbers than their first input has."""

_PRODUCTS = operators("linear")


def magnitude(m: Match, x: ir.Value | None, *, of_products: float = math.inf, depth: int = 24) -> float:
    """A bound of the magnitude of every element; infinite where none is known.

    Args:
        m: The match at hand.
        x: The value; one that is absent has no bound.
        of_products: The assumed bound of a product of matrices.
        depth: The number of nodes to look above, one after the other.
    """
    value = resolve(x) if x is not None else None
    array = m.facts.constant(value) if value is not None else None
    if array is not None:
        return float(np.abs(array.astype(np.float64)).max(initial=0.0))
    dtype, node = m.dtype(value) if value is not None else None, value.producer() if value is not None else None
    if dtype == ir.DataType.BOOL:
        return 1.0
    if dtype is not None and dtype.is_integer():
        return 2.0**dtype.bitwidth
    if node is None or node.domain or not depth:
        return math.inf
    if node.op_type in _PRODUCTS:
        return of_products
    if node.op_type in _SAME:
        return magnitude(m, input_of(node), of_products=of_products, depth=depth - 1)
    if node.op_type == "ConstantOfShape":
        given = node.attributes.get("value")
        return abs(float(given.as_tensor().numpy().reshape(()))) if given is not None else 0.0
    if node.op_type in ("Where", "Add", "Sub", "Mul", "Concat"):
        inputs = inputs_of(node)[node.op_type == "Where" :]
        parts = [magnitude(m, i, of_products=of_products, depth=depth - 1) for i in inputs]
        return math.prod(parts) if node.op_type == "Mul" else sum(parts)
    return math.inf
