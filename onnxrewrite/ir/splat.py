"""Tensors of one number throughout, whatever their size: ``Expand(true, [n, 1, s, s])``."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.views import input_of, inputs_of
from onnxrewrite.system.arrays import Array

_VIEWS = frozenset((*operators("view permute repeat"), "Identity"))
"""They repeat and rearrange elements."""

_FAR = 8
"""No more nodes are looked at, one above the other."""

Number: TypeAlias = bool | int | float


def uniform(facts: Facts, value: ir.Value | None, used: list[ir.Node], far: int = _FAR) -> Number | None:
    """The number that every element is; None where nobody knows.  The nodes that tell it go to ``used``."""
    if value is None or far == 0:
        return None
    array = facts.constant(value)
    if array is not None:
        same = array.size > 0 and bool((array == array.flat[0]).all())
        found: Number | None = array.flat[0].item() if same else None
        return found
    node = value.producer()
    if node is None or node.domain:
        return None
    used.append(node)
    if node.op_type == "ConstantOfShape":
        filled: Number = fill_of(node).item()
        return filled
    if node.op_type in _VIEWS:
        return uniform(facts, input_of(node), used, far - 1)
    if node.op_type != "Where":
        return None
    condition, *choices = (uniform(facts, v, used, far - 1) for v in inputs_of(node))
    if condition is not None:
        return choices[0] if condition else choices[1]
    return choices[0] if choices[0] == choices[1] else None


def fill_of(node: ir.Node) -> Array:
    """The number that a ConstantOfShape fills its result with, of shape []."""
    value = node.attributes.get("value")
    return np.zeros((), np.float32) if value is None else value.as_tensor().numpy().reshape(())
