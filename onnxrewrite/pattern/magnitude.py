"""Bounds of the elements of a value, as far as the graph shows them."""

from __future__ import annotations

import itertools
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

_NEVER = operators("pointwise softmax", marks="nonnegative")

_KEEPING = (*operators("reduce", marks="integers"), *operators(marks="bounded exact", but="odd"), "TopK")
"""Operators of whose results none is below zero where no element of the first input is."""

_JOINING = (*operators("broadcast", marks="commutative", but="bits comparison logic"), "Concat", "Div")
"""The same of all of their inputs."""


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


def nonnegative_by(m: Match, x: ir.Value, *, depth: int = 24) -> list[ir.Node] | None:
    """The nodes by which no element is below zero; None where that is not seen.

    Args:
        m: The match at hand.
        x: The value.
        depth: The number of nodes to look above, one after the other.
    """
    value = resolve(x)
    array, node = m.facts.constant(value), value.producer()
    if array is not None:
        return [] if (array >= 0).all() else None
    if node is None or not depth or value.dtype is None or not value.dtype.is_floating_point():
        return None
    activation = node.attributes.get("activation") if node.domain == "com.microsoft" else None
    if (not node.domain and node.op_type in _NEVER) or (activation is not None and activation.as_string() in _NEVER):
        return [node]
    if node.domain:
        return None
    if node.op_type in _JOINING or node.op_type == "Where":
        read = inputs_of(node)[node.op_type == "Where" :]
    else:
        read = inputs_of(node)[: node.op_type in _KEEPING]
    found = [nonnegative_by(m, each, depth=depth - 1) for each in read]
    known = [nodes for nodes in found if nodes is not None]
    return [node, *itertools.chain.from_iterable(known)] if 0 < len(found) == len(known) else None
