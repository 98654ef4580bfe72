"""Operators in between that change nothing."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


def _one_operand(s: Script) -> tuple[int, ir.Value] | None:
    """An operand that is computed, or is an input of the graph."""
    found = [(i, v) for i, v in enumerate(s.place.inputs) if v is not None and not s.is_constant(v)]
    return s.rng.choice(found) if found else None


@spelling()
def through_identity(s: Script) -> bool:
    """An operand through an Identity."""
    found = _one_operand(s)
    return found is not None and s.operand(found[0], s.new("Identity", found[1]))


@spelling()
def cast_to_own_type(s: Script) -> bool:
    """An operand through a Cast to the type that it has."""
    found = _one_operand(s)
    if found is None or found[1].dtype is None:
        return False
    return s.operand(found[0], s.new("Cast", found[1], to=int(found[1].dtype)))


@spelling("Add", "MatMul", "Gemm", "Conv", "Mul", "LayerNormalization", "Transpose", "Softmax", "Relu")
def through_dropout(s: Script) -> bool:
    """An operand through a Dropout, which does nothing in inference."""
    found = _one_operand(s)
    if found is None or not s.is_float(found[1]):
        return False
    ratio = [s.constant(0.1, ir.DataType.FLOAT)] if s.rng.random() < 0.5 else []
    return s.operand(found[0], s.new("Dropout", found[1], *ratio))


@spelling()
def weight_through_identity(s: Script) -> bool:
    """A weight through an Identity, as shared weights are exported."""
    found = [(i, v) for i, v in enumerate(s.place.inputs) if v is not None and v.is_initializer() and s.is_constant(v)]
    if not found:
        return False
    index, value = s.rng.choice(found)
    return s.operand(index, s.new("Identity", value))
