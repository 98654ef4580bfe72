"""The cost by which of two graphs that compute the same one is the dearer: operators, then bytes, then operations."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from onnxrewrite.ir.operators import operators
from onnxrewrite.measure.cost_models import Bytes, Operations, Region

_NOTHING = frozenset((*operators(marks="free", but="view"), "Constant", "Identity"))
"""Operators that nobody counts."""


class Cost(NamedTuple):
    """The cost of a graph, the parts that count first first.

    Attributes:
        nodes: The number of operators.
        bytes: Read and written; 0 where it is not known.
        operations: Floating-point operations; 0 where they are not known.
    """

    nodes: int
    bytes: float
    operations: float


def cost_of(model: onnx.ModelProto) -> Cost:
    """The cost of a model whose inputs have numbers for sizes."""
    region = Region(model, {}, dict, lambda: ("", ()))
    nodes = sum(n.op_type not in _NOTHING or bool(n.domain) for n in model.graph.node)
    return Cost(nodes, Bytes().of(region) or 0.0, Operations().of(region) or 0.0)
