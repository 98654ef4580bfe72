"""Constants as nodes or initializers, of one shape or another that broadcasts alike."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling()
def as_node(s: Script) -> bool:
    """An initializer as a Constant node."""
    found = [i for i, v in enumerate(s.place.inputs) if v is not None and v.is_initializer() and s.is_constant(v)]
    if not found:
        return False
    value = s.place.inputs[index := s.rng.choice(found)]
    assert value is not None
    tensor = value.const_value
    assert tensor is not None
    return s.operand(index, s.new("Constant", value=ir.tensor(tensor.numpy(), dtype=tensor.dtype)))


@spelling()
def as_initializer(s: Script) -> bool:
    """A Constant node as an initializer."""
    found = [i for i, v in enumerate(s.place.inputs) if s.made_by(v, "Constant")]
    index = s.rng.choice(found) if found else None
    value = s.place.inputs[index] if index is not None else None
    array = s.array(value)
    if index is None or value is None or array is None:
        return False
    return s.operand(index, s.constant(array, value))


@spelling("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "Equal", "Less", "Greater")
def of_another_rank(s: Script) -> bool:
    """A number of shape [], [1] or [1, 1], where that broadcasts to the same result."""
    rank = s.rank(s.place.outputs[0])
    found = [i for i, v in enumerate(s.place.inputs) if s.number(v) is not None]
    others = [s.rank(v) for i, v in enumerate(s.place.inputs) if i not in found]
    if not rank or not found or rank not in others:
        return False
    value = s.place.inputs[index := s.rng.choice(found)]
    array = s.array(value)
    assert value is not None
    assert array is not None
    new = s.rng.choice([r for r in range(min(rank, 2) + 1) if r != array.ndim])
    return s.operand(index, s.constant(array.reshape((1,) * new), value))
