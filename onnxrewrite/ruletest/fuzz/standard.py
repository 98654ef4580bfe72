"""The shapes of operands that the standard allows, and the attributes with them: ONNX Runtime takes more."""

from __future__ import annotations

import random

import onnx_ir as ir

from onnxrewrite.ir import schema, target
from onnxrewrite.ir.operators import operators
from onnxrewrite.ruletest.fuzz.operand_position import DoesNotFit, Shape, Spot, known_attributes, static_shape
from onnxrewrite.ruletest.fuzz.operands import LISTS, OPERANDS, STRICT

OF_RANK = {("Attention", "q_num_heads"): 3, ("Attention", "kv_num_heads"): 3}
"""Attributes that only go with a first operand of this rank."""

EVEN = {("RotaryEmbedding", "rotary_embedding_dim")}
"""Attributes that are even numbers: half of so many elements turn with the other half."""

VECTORS = frozenset(place for place in STRICT if place[0].endswith(("Normalization", "Conv", "ConvTranspose")))
"""Operands of one axis, whatever its size."""


def is_standard(model: ir.Model) -> bool:
    """True if the operands of a model, whose facts are known, have the shapes that the standard allows, and none an
    attribute that is for others."""
    rng = random.Random(0)
    for node in model.graph:
        found = schema.schema(node.domain, node.op_type, node.version or model.opset_imports.get(node.domain, 1))
        shapes = [static_shape(v) for v in node.inputs]
        ranks = (None if node.domain else OF_RANK.get((node.op_type, name)) for name in node.attributes)
        if any(rank is not None and shapes[0] is not None and len(shapes[0]) != rank for rank in ranks):
            return False
        if (
            _is_too_wide(node)
            or _has_odd(node)
            or _is_miscounted(node)
            or _saturates_nothing(node)
            or not (found is None or _goes_with(node, found))
        ):
            return False
        for index, shape in enumerate(shapes):
            spot = Spot(node, index, shapes, rng, known_attributes(node, found))
            if shape is not None and not is_legal(spot, shape):
                return False
    return True


def is_legal(spot: Spot, shape: Shape) -> bool:
    """True if the standard allows an operand of this shape, or does not say."""
    if spot.place in LISTS or (spot.place in VECTORS and len(shape) != 1):
        return len(shape) == 1
    try:
        return spot.place not in STRICT or OPERANDS[spot.place](spot) == shape
    except DoesNotFit:
        return True


def _has_odd(node: ir.Node) -> bool:
    """True if a number is odd that has to be even."""
    return any((node.op_type, name) in EVEN and given.as_int() % 2 for name, given in node.attributes.items())


def _saturates_nothing(node: ir.Node) -> bool:
    """True of a Cast that says what to do beyond the range of eight bits, and makes other floats: ONNX Runtime refuses
    it, unless it merges it with another."""
    to = None if node.domain or "saturate" not in node.attributes else node.attributes.get("to")
    return to is not None and not to.is_ref() and ir.DataType(to.as_int()).bitwidth != 8


def _goes_with(node: ir.Node, found: schema.Schema) -> bool:
    """True if the operator has all of a node's attributes, and takes the dtypes of its operands, in the opset of the
    model: a later one, to which it is raised to be run, may make other dtypes of other operators."""
    formals = [found.inputs[min(i, len(found.inputs) - 1)] for i in range(len(node.inputs))] if found.inputs else []
    taken = (
        value is None or value.dtype is None or target.type_string(value.dtype) in formal.types
        for value, formal in zip(node.inputs, formals, strict=False)
    )
    return node.attributes.keys() <= found.attributes.keys() and all(taken)


def _is_miscounted(node: ir.Node) -> bool:
    """True of a Split that says of another number of pieces than it has: ONNX Runtime divides by what it says."""
    told = None if node.domain else node.attributes.get("num_outputs")
    return told is not None and not told.is_ref() and told.as_int() != len(node.outputs)


def _is_too_wide(node: ir.Node) -> bool:
    """True if a window is wider than the image that it moves over, so that there is no place for it: ONNX Runtime's
    pools cut it off."""
    if node.domain or node.op_type not in operators(marks="images"):
        return False
    image, result = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    return image is not None and result is not None and min(image) > 0 >= min(result)
