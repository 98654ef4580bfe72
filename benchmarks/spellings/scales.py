"""The scale of attention: on the scores, on q, on k, on both."""

from __future__ import annotations

import math

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


def _scaled(s: Script, value: ir.Value | None) -> tuple[ir.Value, float] | None:
    """What a value is a multiple of by a number, and that number."""
    node = s.made_by(value, "Mul", "Div")
    if node is None or not s.is_float(value):
        return None
    for x, c in (tuple(node.inputs), tuple(node.inputs)[::-1])[: 2 if node.op_type == "Mul" else 1]:
        number = s.number(c)
        if number and x is not None and not s.is_constant(x) and not s.rank(c):
            return x, 1 / number if node.op_type == "Div" else number
    return None


def _times(s: Script, x: ir.Value, number: float) -> ir.Value:
    """A multiple by a Mul or a Div."""
    if s.rng.random() < 0.5:
        return s.new("Mul", x, s.constant(number, x))
    return s.new("Div", x, s.constant(1 / number, x))


@spelling("Mul", "Div")
def scale_on_operands(s: Script) -> bool:
    """c·(a × b) as (c·a) × b, a × (c·b), or √c·a × √c·b."""
    found = _scaled(s, s.place.outputs[0])
    product = s.made_by(found[0], "MatMul") if found is not None else None
    if found is None or product is None or found[1] <= 0 or any(s.is_constant(v) for v in product.inputs):
        return False
    a, b = product.inputs
    assert a is not None
    assert b is not None
    way = s.rng.randrange(3)
    number = found[1] if way else math.sqrt(found[1])
    left = _times(s, a, number) if way != 2 else a
    right = _times(s, b, number) if way != 1 else b
    return s.put(s.new("MatMul", left, right))


@spelling("MatMul")
def scale_on_product(s: Script) -> bool:
    """(c·a) × b, and the same of b, as c·(a × b)."""
    operands: list[ir.Value | None] = []
    number = 1.0
    for value in s.place.inputs:
        found = _scaled(s, value)
        operands.append(found[0] if found is not None else value)
        number *= found[1] if found is not None else 1.0
    if number == 1 or any(s.is_constant(v) for v in operands):
        return False
    return s.put(_times(s, s.new("MatMul", *operands), number))


@spelling("Transpose")
def scale_after_transposition(s: Script) -> bool:
    """Transpose(c·x) as c·Transpose(x)."""
    found = _scaled(s, s.place.inputs[0])
    if found is None:
        return False
    perm = s.place.attributes.get_ints("perm", ())
    if not perm:
        return False
    return s.put(_times(s, s.new("Transpose", found[0], perm=perm), found[1]))
