"""Views: Reshape, Flatten, Squeeze and Unsqueeze for one another, split and merged."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script
from onnxrewrite.ir.dims import Dim, same_dim


def _target(s: Script, before: Sequence[Dim], after: Sequence[Dim]) -> ir.Value | None:
    """A constant shape with at most one -1, sizes that are not numbers being 0 where they stay; None where none is."""
    if 0 in (*before, *after):
        return None
    numbers = []
    for i, d in enumerate(after):
        stays = i < len(before) and same_dim(before[i], d)
        numbers.append(d if isinstance(d, int) else 0 if stays else -1)
    return s.integers(*numbers) if numbers.count(-1) <= 1 else None


@spelling("Squeeze", "Unsqueeze", "Flatten")
def view_as_reshape(s: Script) -> bool:
    """A view as a Reshape."""
    x, node = s.place.inputs[0], s.place
    before, after = s.shape(x), s.shape(node.outputs[0])
    target = _target(s, before, after) if before is not None and after is not None else None
    return target is not None and s.put(s.new("Reshape", x, target))


@spelling("Reshape")
def reshape_as_flatten(s: Script) -> bool:
    """A Reshape that keeps the first axis and makes one of the others as a Flatten."""
    x = s.place.inputs[0]
    before, after = s.shape(x), s.shape(s.place.outputs[0])
    if before is None or after is None or len(after) != 2 or not before or 0 in before:
        return False
    return same_dim(before[0], after[0]) and s.put(s.new("Flatten", x, axis=1))


@spelling("Reshape", "Flatten")
def reshape_in_two(s: Script) -> bool:
    """A Reshape by way of a list, or of an axis more."""
    x, node = s.place.inputs[0], s.place
    before, after = s.shape(x), s.shape(node.outputs[0])
    if before is None or not before or after is None or 0 in (*before, *after):
        return False
    if s.rng.random() < 0.5:
        numbers = [d if isinstance(d, int) else -1 for d in after]
        if numbers.count(-1) > 1:
            return False
        return s.put(s.new("Reshape", s.new("Reshape", x, s.integers(-1)), s.integers(*numbers)))
    wider = (*after, 1)
    target = _target(s, before, wider)
    if target is None:
        return False
    return s.put(s.new("Squeeze", s.new("Reshape", x, target), s.integers(len(after))))


@spelling("Unsqueeze")
def unsqueeze_by_axis(s: Script) -> bool:
    """An Unsqueeze of several axes as one after the other."""
    x, axes = s.place.inputs[0], s.place.inputs[1] if len(s.place.inputs) > 1 else None
    array, rank = s.array(axes), s.rank(x)
    if array is None or array.size < 2 or rank is None or s.opset < 13:
        return False
    total = rank + array.size
    for axis in sorted(int(a) % total for a in array.ravel()):
        x = s.new("Unsqueeze", x, s.integers(axis))
    return s.put(x)


@spelling("Add", "Mul", "Relu", "Softmax", "LayerNormalization", "MatMul")
def squeezed_between(s: Script) -> bool:
    """An operand through an Unsqueeze and the Squeeze that undoes it."""
    x = s.place.inputs[0]
    if s.rank(x) is None or s.is_constant(x) or s.opset < 13:
        return False
    axis = s.rng.randint(0, s.rank(x) or 0)
    return s.operand(0, s.new("Squeeze", s.new("Unsqueeze", x, s.integers(axis)), s.integers(axis)))
