"""The arithmetic that cannot be spelled away: how many sums of products a graph takes, and whether it rounds to a grid.

A region and a kernel that differ in it do not compute the same, so the one is not evaluated for the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.bodies.emitter import Emit, Unsupported
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.schema import normal_domain

_LINEAR, _ATTENTION = frozenset(operators("linear")), frozenset(operators("attention"))
_ROUNDING = frozenset(operators(marks="rounding"))
_NORMALIZING = frozenset(operators("normalize"))
_AVERAGING = frozenset(operators("normalize reduce softmax attention pool"))

_OF_ATTENTION = 2
"""An attention is two products of matrices."""


_ALSO = {"SimplifiedLayerNormalization": "RMSNormalization"}
"""An operator that bodies have and the standard has not, and the one that it is."""


class Profile(NamedTuple):
    """The arithmetic of a graph.

    Attributes:
        products: The number of sums of products.
        normalizations: The number of operators that normalize.
        averages: True if anything is taken over the elements of an axis, beside products.
        rounds: True if anything is rounded to a grid.
    """

    products: int
    normalizations: int
    averages: bool
    rounds: bool

    def may_equal(self, kernel: Profile) -> bool:
        """True if a kernel of that profile may compute what a graph of this one does.  What a kernel's definition has
        as one operator, the graph may spell; the other way round there is no such definition."""
        same = (self.products, self.averages, self.rounds) == (kernel.products, kernel.averages, kernel.rounds)
        return same and self.normalizations <= kernel.normalizations


def of_operators(names: Iterable[str]) -> Profile:
    """The profile of operators of the standard by their names."""
    given = list(names)
    return Profile(
        sum(_OF_ATTENTION if n in _ATTENTION else n in _LINEAR for n in given),
        sum(n in _NORMALIZING for n in given),
        any(n in _AVERAGING for n in given),
        any(n in _ROUNDING for n in given),
    )


def of_nodes(nodes: Iterable[ir.Node]) -> Profile | None:
    """The profile of nodes, of the standard's operators; None where there are others."""
    members = list(nodes)
    return None if any(n.domain for n in members) else of_operators(n.op_type for n in members)


def of_model(model: onnx.ModelProto) -> Profile | None:
    """The profile of a model, the operators of ONNX Runtime as they are defined; None where a definition does not
    cover what it is asked for."""
    spelled = spelled_out(model)
    return None if spelled is None else of_operators(_ALSO.get(n.op_type, n.op_type) for n in spelled.graph.node)


def spelled_out(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A model with the definitions of ONNX Runtime's operators in their place; None where one does not cover what it is
    asked for.

    Args:
        model: The sizes of its inputs are numbers.
    """
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.input}
    shapes |= {t.name: tuple(t.dims) for t in model.graph.initializer}
    opset = next(o.version for o in model.opset_import if not o.domain)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    for number, node in enumerate(model.graph.node):
        body = BODIES.get((normal_domain(node.domain), node.op_type))
        try:
            own = [node] if body is None else Emit(opset, f"spelled{number}", shapes).define(body, node)
        except (Unsupported, KeyError, ValueError, IndexError, TypeError):  # a body that was given what it cannot take
            return None
        made.graph.node.extend(own if body is None else map(_in_single, own))
    return made


def _in_single(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node of a definition, whose constants are doubles, as the reference has them, in the precision of a model."""
    for tensor in (a.t for a in node.attribute if a.t.data_type == onnx.TensorProto.DOUBLE):
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32)))
    return node
