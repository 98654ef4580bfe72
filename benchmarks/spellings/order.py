"""Order and association of sums and products."""

from __future__ import annotations

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script
from onnxrewrite.pattern.paths import is_read_once


@spelling("Add", "Mul")
def swapped(s: Script) -> bool:
    """A + b as b + a."""
    a, b = s.place.inputs
    s.operand(0, b)
    return s.operand(1, a)


@spelling("Add", "Mul")
def associated(s: Script) -> bool:
    """(a + b) + c as a + (b + c) or b + (a + c)."""
    outer = s.place
    if not s.is_float(outer.outputs[0]):
        return False
    found = [i for i, v in enumerate(outer.inputs) if s.made_by(v, outer.op_type) and is_read_once(v)]
    if not found:
        return False
    inner = s.made_by(outer.inputs[index := s.rng.choice(found)], outer.op_type)
    assert inner is not None
    c = outer.inputs[1 - index]
    a, b = s.rng.sample(list(inner.inputs), 2)
    return s.put(s.new(outer.op_type, a, s.new(outer.op_type, b, c)))


@spelling("Add")
def as_sum(s: Script) -> bool:
    """Sums as one Sum of several."""
    if not s.is_float(s.place.outputs[0]):
        return False
    terms = []
    for value in s.place.inputs:
        inner = s.made_by(value, "Add") if is_read_once(value) else None
        terms += list(inner.inputs) if inner is not None else [value]
    s.rng.shuffle(terms)
    return s.put(s.new("Sum", *terms))


@spelling("Sub")
def plus_opposite(s: Script) -> bool:
    """A - b as a + (-b)."""
    a, b = s.place.inputs
    return s.is_float(a) and s.put(s.new("Add", a, s.new("Neg", b)))
