"""Models that move elements and never look at them: what they do with one class of values they do with every other."""

from __future__ import annotations

import onnx

from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.protos import names_read

_JOINING = frozenset(operators("join"))

MOVING = frozenset((*operators("view permute select repeat gather join"), "Identity"))
"""Operators that move the elements of their first operand, and look at no other one but to know where."""

_SIZES = frozenset(operators("shape"))


def only_moves(model: onnx.ModelProto) -> bool:
    """True if every element of every output is one of the inputs', whatever these are, or follows from sizes alone.

    Such a function commutes with any change of elements one by one ("theorems for free", Wadler, 1989): inputs whose
    elements all differ say what it does.
    """
    moved = {each.name for each in model.graph.input}
    for node in model.graph.node:
        read = names_read(node)
        if moved.isdisjoint(read) or (not node.domain and node.op_type in _SIZES):
            continue
        is_moving = not node.domain and node.op_type in MOVING
        others = [] if node.op_type in _JOINING else node.input[1:]
        if not is_moving or not moved.isdisjoint(others):
            return False
        moved.update(node.output)
    return True
