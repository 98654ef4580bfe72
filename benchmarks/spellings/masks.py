"""Masks that are added, or chosen by Where; the part of a matrix by Trilu or a comparison."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("Where")
def mask_as_product(s: Script) -> bool:
    """Where(c, 0, m) as (1 - c)·m, for a finite m."""
    condition, yes, no = s.place.inputs
    number = s.number(no)
    if s.number(yes) != 0 or number is None or not np.isfinite(number) or not s.is_float(no):
        return False
    if s.rank(yes) or s.rank(no):
        return False
    assert no is not None
    assert no.dtype is not None
    chosen = s.new("Cast", condition, to=int(no.dtype))
    return s.put(s.new("Mul", s.new("Sub", s.constant(1.0, no), chosen), no))


@spelling("Where")
def condition_negated(s: Script) -> bool:
    """Where(c, a, b) as Where(Not(c), b, a)."""
    condition, yes, no = s.place.inputs
    return s.put(s.new("Where", s.new("Not", condition), no, yes))


@spelling("Add")
def mask_as_choice(s: Script) -> bool:
    """X + Where(c, 0, m) as Where(c, x, m), for an m beside which x is nothing."""
    for x, mask in (tuple(s.place.inputs), tuple(s.place.inputs)[::-1]):
        node = s.made_by(mask, "Where")
        if node is None or s.rank(x) != s.rank(s.place.outputs[0]):
            continue
        condition, yes, no = node.inputs
        number = s.number(no)
        if s.number(yes) == 0 and number is not None and number < -1e30 and not s.rank(no) and not s.rank(yes):
            return s.put(s.new("Where", condition, x, no))
    return False


@spelling("And", "Or")
def conditions_swapped(s: Script) -> bool:
    """A and b as b and a."""
    a, b = s.place.inputs
    return s.put(s.new(s.place.op_type, b, a))


@spelling("LessOrEqual", "GreaterOrEqual", "Less", "Greater")
def comparison_turned(s: Script) -> bool:
    """A ≤ b as b ≥ a, or as not a > b for integers."""
    a, b = s.place.inputs
    name = s.place.op_type
    if s.rng.random() < 0.5:
        return s.put(s.new(name.replace("Less", "*").replace("Greater", "Less").replace("*", "Greater"), b, a))
    if s.is_float(a):
        return False
    opposite = {"LessOrEqual": "Greater", "GreaterOrEqual": "Less", "Less": "GreaterOrEqual", "Greater": "LessOrEqual"}
    return s.put(s.new("Not", s.new(opposite[name], a, b)))


def _positions(s: Script, value: ir.Value | None) -> tuple[ir.Node, int] | None:
    """The Range from zero that a value is, and the axis from the back along which it runs."""
    shape = s.shape(value)
    long = [i - len(shape) for i, d in enumerate(shape) if d != 1] if shape is not None else []
    if len(long) != 1:
        return None
    while (node := s.made_by(value, "Unsqueeze", "Reshape", "Identity", "Cast")) is not None:
        value = node.inputs[0]
    made = s.made_by(value, "Range")
    is_plain = made is not None and s.number(made.inputs[0]) == 0 and s.number(made.inputs[2]) == 1
    return (made, long[0]) if made is not None and is_plain else None


@spelling("LessOrEqual", "GreaterOrEqual")
def causal_buffer(s: Script) -> bool:
    """J ≤ i as the slice of a buffer of all positions, or as a Trilu."""
    a, b = (_positions(s, v) for v in s.place.inputs[:: 1 if s.place.op_type == "LessOrEqual" else -1])
    shape = s.shape(s.place.outputs[0])
    if a is None or b is None or (a[1], b[1]) != (-1, -2) or a[0] is not b[0] or shape is None:
        return False
    size = s.new(
        "Reshape", s.new("Squeeze", a[0].inputs[1]) if s.rank(a[0].inputs[1]) else a[0].inputs[1], s.integers(1)
    )
    if s.rng.random() < 0.5:
        buffer = s.constant(np.tril(np.ones((64, 64), bool)), ir.DataType.BOOL)
        rows = s.new("Slice", buffer, s.integers(0), size, s.integers(0))
        made = s.new("Slice", rows, s.integers(0), size, s.integers(1))
    else:
        both = s.new("Concat", size, size, axis=0)
        ones = s.new("ConstantOfShape", both, value=ir.tensor(np.ones(1, np.float32)))
        made = s.new("Cast", s.new("Trilu", ones, upper=0), to=int(ir.DataType.BOOL))
    return s.put(s.new("Unsqueeze", made, s.integers(*range(len(shape) - 2))) if len(shape) > 2 else made)
