"""Nodes as patterns see them: through Identities, and with parameters found as attributes or as inputs."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.skip_identity import passed, passes, resolve

COMMUTATIVE = frozenset(operators(marks="commutative"))
"""Operators of two inputs whose order does not matter."""

__all__ = ["COMMUTATIVE", "called", "parameter", "passed", "passes", "resolve"]


def parameter(facts: Facts, node: ir.Node, name: str) -> Any:
    """A parameter of a node, an attribute or a constant input by the schema's name, as a Python value.

    None when absent; ``schema.UNKNOWN`` when it is an input that is not constant.
    """
    if name in node.attributes:
        return schema.attribute(node, name, None)
    version = facts.version(node)
    index = schema.formal_index(schema.schema(node.domain, node.op_type, version), name)
    if index is None:
        return schema.attribute(node, name, version)
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return None
    array = facts.constant(resolve(value))
    if array is None:
        return schema.UNKNOWN
    if array.ndim == 0 or (array.size == 1 and schema.is_number(node.domain, node.op_type, name)):
        return array.item()
    return tuple(array.ravel().tolist())


def called(node: ir.Node) -> str:
    """A node in words: its operator, and its name or else that of what it computes; one just built has neither."""
    name = node.name or next((o.name for o in node.outputs if o.name), "")
    return f"{node.op_type} `{name}`" if name else node.op_type
