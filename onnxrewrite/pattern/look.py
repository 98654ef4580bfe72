"""Nodes as patterns see them: through Identities, and with parameters found as attributes or as inputs."""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.skip_identity import may_pass, passed, passes, resolve

COMMUTATIVE = frozenset(operators(marks="commutative"))
"""Operators of two inputs whose order does not matter."""

__all__ = ["COMMUTATIVE", "called", "may_pass", "passed", "passes", "resolve"]


def called(node: ir.Node) -> str:
    """A node in words: its operator, and its name or else that of what it computes; one just built has neither."""
    name = node.name or next((o.name for o in node.outputs if o.name), "")
    return f"{node.op_type} `{name}`" if name else node.op_type
