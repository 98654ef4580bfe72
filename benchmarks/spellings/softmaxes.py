"""Softmax along the last axis in parts: along another one the parts are the faster, and stay."""

from __future__ import annotations

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("Softmax")
def softmax_in_parts(s: Script) -> bool:
    """Softmax as powers divided by their sum, the maximum subtracted before."""
    return _in_parts(s, subtract=True)


@spelling("Softmax")
def softmax_without_maximum(s: Script) -> bool:
    """Softmax as powers divided by their sum, where no element is so large that that matters."""
    return _in_parts(s, subtract=False)


def _in_parts(s: Script, subtract: bool) -> bool:
    node = s.place
    x, rank = node.inputs[0], s.rank(node.inputs[0])
    if x is None or rank is None or s.opset < 13:
        return False
    axis = node.attributes.get_int("axis", -1)
    if axis not in (-1, rank - 1):
        return False
    shifted = s.new("Sub", x, s.reduced("ReduceMax", x, [axis])) if subtract else x
    powers = s.new("Exp", shifted)
    return s.put(s.new("Div", powers, s.reduced("ReduceSum", powers, [axis])))
