"""Nodes that compute the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.graph import subgraphs
from onnxrewrite.ir.passing import readers, resolve

_CROWD = 256
"""Values with more readers are not searched: they are constants of no account."""

_SMALL = 4096

_FLOATS = (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)


def twin(node: ir.Node) -> ir.Node | None:
    """Another node of the same graph with the same operator, attributes and inputs, and so the same outputs.

    Constants of equal content are the same, and so is what Identities pass on.  Whether the operator is random is the
    caller's question.
    """
    inputs = [resolve(i) for i in node.inputs if i is not None and i.const_value is None]
    if not inputs or subgraphs(node):
        return None
    rarest = min(inputs, key=lambda i: len(i.uses()))
    if len(rarest.uses()) > _CROWD:
        return None
    return next((r for r in readers(rarest) if r is not node and _same(node, r)), None)


def _same(a: ir.Node, b: ir.Node) -> bool:
    return (
        a.op_type == b.op_type
        and a.domain == b.domain
        and a.overload == b.overload
        and a.version == b.version
        and a.graph is b.graph
        and len(a.inputs) == len(b.inputs)
        and len(a.outputs) == len(b.outputs)
        and all(_same_value(x, y) for x, y in zip(a.inputs, b.inputs, strict=True))
        and _same_attributes(a, b)
    )


def _same_value(a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is b:
        return True
    if a is not None and b is not None and resolve(a) is resolve(b):
        return True
    if a is None or b is None or a.const_value is None or b.const_value is None:
        return False
    return same_tensor(a.const_value, b.const_value)


def same_tensor(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """Whether two tensors are small and equal to the bit."""
    if a.dtype != b.dtype or tuple(a.shape) != tuple(b.shape) or a.size > _SMALL:
        return False
    if a.dtype == ir.DataType.STRING:
        return bool((a.numpy() == b.numpy()).all())
    return a.tobytes() == b.tobytes()


def _same_attributes(a: ir.Node, b: ir.Node) -> bool:
    if a.attributes.keys() != b.attributes.keys():
        return False
    for name, left in a.attributes.items():
        right = b.attributes[name]
        if left.type != right.type or left.ref_attr_name != right.ref_attr_name:
            return False
        if left.type == ir.AttributeType.TENSOR and not left.is_ref():
            if not same_tensor(left.as_tensor(), right.as_tensor()):
                return False
        elif left.type in _FLOATS and not left.is_ref():
            if np.float32(left.value).tobytes() != np.float32(right.value).tobytes():  # 0.0 is not -0.0
                return False
        elif left.value != right.value:
            return False
    return True
