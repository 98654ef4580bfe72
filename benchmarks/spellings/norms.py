"""Normalizations in parts, and the forms of a variance."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


def _square(s: Script, x: ir.Value) -> ir.Value:
    return s.new("Mul", x, x) if s.rng.random() < 0.5 else s.new("Pow", x, s.constant(2.0, x))


def _of_squares(s: Script, x: ir.Value, mean: ir.Value, axes: list[int]) -> ir.Value:
    """The variance as E[x²] - µ², kept from being negative or not."""
    found = s.new("Sub", s.reduced("ReduceMean", _square(s, x), axes), _square(s, mean))
    way = s.rng.randrange(3)
    return (found, s.new("Relu", found), s.new("Max", found, s.constant(0.0, x)))[way] if way else found


def _divided(s: Script, x: ir.Value, variance: ir.Value, epsilon: float) -> ir.Value:
    """X / √(variance + ε), in one of the ways to say so."""
    total = s.new("Add", variance, s.constant(epsilon, x))
    way = s.rng.randrange(4)
    if way == 0:
        return s.new("Div", x, s.new("Sqrt", total))
    if way == 1:
        return s.new("Mul", x, s.new("Reciprocal", s.new("Sqrt", total)))
    if way == 2:
        return s.new("Mul", x, s.new("Pow", total, s.constant(-0.5, x)))
    return s.new("Mul", x, s.new("Div", s.constant(1.0, x), s.new("Sqrt", total)))


@spelling("LayerNormalization")
def layer_norm_in_parts(s: Script) -> bool:
    """LayerNormalization as means, a root, and the scale and bias after it."""
    node = s.place
    x, scale, *bias = node.inputs
    rank = s.rank(x)
    axis = node.attributes.get_int("axis", -1)
    if x is None or rank is None or len([o for o in node.outputs if o.uses()]) > 1:
        return False
    axes = list(range(axis - rank if axis >= 0 else axis, 0))
    mean = s.reduced("ReduceMean", x, axes)
    centred = s.new("Sub", x, mean)
    way = s.rng.random()
    variance = _of_squares(s, x, mean, axes) if way < 0.4 else s.reduced("ReduceMean", _square(s, centred), axes)
    made = s.new("Mul", _divided(s, centred, variance, node.attributes.get_float("epsilon", 1e-5)), scale)
    return s.put(s.new("Add", made, bias[0]) if bias and bias[0] is not None else made)


@spelling("RMSNormalization")
def rms_norm_in_parts(s: Script) -> bool:
    """RMSNormalization as the mean of squares, a root, and the scale after it."""
    node = s.place
    x, scale = node.inputs
    rank, axis = s.rank(x), node.attributes.get_int("axis", -1)
    if x is None or rank is None:
        return False
    axes = list(range(axis - rank if axis >= 0 else axis, 0))
    mean = s.reduced("ReduceMean", _square(s, x), axes)
    return s.put(s.new("Mul", _divided(s, x, mean, node.attributes.get_float("epsilon", 1e-5)), scale))


@spelling("ReduceMean")
def mean_of_squares_less_square(s: Script) -> bool:
    """E[(x - µ)²] as E[x²] - µ²."""
    square = s.made_by(s.place.inputs[0], "Pow", "Mul")
    if square is None or not (square.inputs[0] is square.inputs[1] or s.number(square.inputs[1]) == 2):
        return False
    centred = s.made_by(square.inputs[0], "Sub")
    mean = s.made_by(centred.inputs[1], "ReduceMean") if centred is not None else None
    axes = s.axes(s.place)
    if centred is None or mean is None or mean.inputs[0] is not centred.inputs[0] or not axes:
        return False
    x, µ = centred.inputs
    rank = s.rank(x)
    assert x is not None
    assert µ is not None
    is_kept = s.place.attributes.get_int("keepdims", 1) and mean.attributes.get_int("keepdims", 1)
    if rank is None or not is_kept or s.axes(mean) != axes:
        return False
    return s.put(_of_squares(s, x, µ, list(axes)))
