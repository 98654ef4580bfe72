"""Nodes that compute the same, found by what they compute: operator, attributes and inputs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.graph import subgraphs
from onnxrewrite.ir.passing import resolve

Expression: TypeAlias = tuple[Hashable, ...]

_SMALL = 4096
"""Constants of no more elements are compared by content, larger ones are the same only if they are one."""

_FLOATS = (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)


class Twins:
    """The first node met of every expression.

    A node whose inputs change is met again under another expression; what stands under the old one is looked at
    before it is believed.
    """

    def __init__(self) -> None:
        self._first: dict[Expression, ir.Node] = {}

    def find(self, node: ir.Node) -> ir.Node | None:
        """The node of the same graph that was met first with the same operator, attributes and inputs, and so the same
        outputs; None if that is ``node`` itself.

        Constants of equal content are the same, and so is what Identities pass on.  Whether the operator is random is
        the caller's question.
        """
        if not any(i is not None and i.const_value is None for i in node.inputs) or subgraphs(node):
            return None
        key = expression(node)
        first = self._first.setdefault(key, node)
        if first is node:
            return None
        if first.graph is not node.graph or expression(first) != key:
            self._first[key] = node
            return None
        return first


def expression(node: ir.Node) -> Expression:
    """What a node computes, as a key: equal for two nodes of one graph that compute the same."""
    operator = (node.domain, node.op_type, node.overload, node.version, id(node.graph), len(node.outputs))
    inputs = tuple(map(_value, node.inputs))
    attributes = tuple(sorted((name, _attribute(a)) for name, a in node.attributes.items())) if node.attributes else ()
    return (*operator, inputs, attributes)


def same_tensor(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """Whether two tensors are small and equal to the bit."""
    return a is b or (a.size <= _SMALL and _tensor(a) == _tensor(b))


def _value(value: ir.Value | None) -> Hashable:
    if value is None:
        return None
    value = resolve(value)
    tensor = value.const_value
    return id(value) if tensor is None or tensor.size > _SMALL else _tensor(tensor)


def _tensor(tensor: ir.TensorProtocol) -> Hashable:
    if tensor.size > _SMALL:
        return id(tensor)
    text = tensor.dtype == ir.DataType.STRING
    content = tuple(tensor.numpy().ravel().tolist()) if text else tensor.tobytes()
    return (int(tensor.dtype), tuple(tensor.shape.dims), content)


def _attribute(attribute: ir.Attr) -> tuple[Hashable, ...]:
    kind = int(attribute.type)
    if attribute.is_ref():
        return (kind, True, attribute.ref_attr_name)
    if attribute.type == ir.AttributeType.TENSOR:
        return (kind, False, _tensor(attribute.as_tensor()))
    if attribute.type in _FLOATS:
        return (kind, False, np.asarray(attribute.value, np.float32).tobytes())  # 0.0 is not -0.0
    value = attribute.value
    if isinstance(value, list | tuple):
        value = tuple(value)
    return (kind, False, value if isinstance(value, Hashable) else id(value))
