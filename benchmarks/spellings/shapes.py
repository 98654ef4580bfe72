"""Shapes as operands: constant, with 0 and -1, or computed."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script
from onnxrewrite.ir.dims import Dim, same_dim


def _sizes(s: Script) -> tuple[ir.Value, tuple[Dim, ...], tuple[Dim, ...]] | None:
    """What a Reshape reads, and the shapes before and after it, if they are known and hold no zero."""
    node = s.place
    x, before, after = node.inputs[0], s.shape(node.inputs[0]), s.shape(node.outputs[0])
    if x is None or before is None or not after or node.attributes.get_int("allowzero", 0) == 1:
        return None
    return None if 0 in (*before, *after) else (x, before, after)


@spelling("Reshape")
def with_zero_and_minus_one(s: Script) -> bool:
    """The shape as a constant: numbers, 0 for a size that stays, one -1 for a size that follows."""
    found = _sizes(s)
    if found is None:
        return False
    _, before, after = found
    stays = [i < len(before) and same_dim(before[i], d) for i, d in enumerate(after)]
    shape: list[int | None] = [d if isinstance(d, int) else None for d in after]
    shape = [0 if stays[i] and (d is None or s.rng.random() < 0.5) else d for i, d in enumerate(shape)]
    unknown = [i for i, d in enumerate(shape) if d is None]
    if len(unknown) > 1:
        return False
    free = unknown or (s.rng.sample(range(len(shape)), 1) if s.rng.random() < 0.5 else [])
    made = s.integers(*(-1 if i in free else d or 0 for i, d in enumerate(shape)))
    return s.operand(1, made)


def _size(s: Script, x: ir.Value, axis: int) -> ir.Value:
    """One size of a value, as exporters compute it: a list of one integer."""
    shape = s.new("Shape", x)
    way = s.rng.randrange(3)
    if way == 0:
        return s.new("Slice", shape, s.integers(axis), s.integers(axis + 1), s.integers(0))
    if way == 1:
        return s.new("Gather", shape, s.integers(axis))
    return s.new("Unsqueeze", s.new("Gather", shape, s.constant(axis, ir.DataType.INT64)), s.integers(0))


@spelling("Reshape", "Expand")
def computed(s: Script) -> bool:
    """The shape put together of sizes of what is read, and numbers."""
    found = _sizes(s)
    if found is None:
        return False
    x, before, after = found
    parts: list[tuple[int | None, int | None]] = []
    follows = 0
    for d in after:
        equal = [i for i, b in enumerate(before) if same_dim(b, d)]
        if equal and (not isinstance(d, int) or s.rng.random() < 0.3):
            parts.append((equal[0], None))
        elif isinstance(d, int):
            parts.append((None, d))
        else:
            follows += 1
            parts.append((None, -1))
    if follows > 1 or (follows and s.place.op_type == "Expand"):
        return False
    if not s.rng.randrange(4) and not follows and s.place.op_type == "Reshape":
        parts[s.rng.randrange(len(parts))] = None, -1
    return s.operand(1, s.new("Concat", *(_part(s, x, *each) for each in parts), axis=0))


def _part(s: Script, x: ir.Value, axis: int | None, number: int | None) -> ir.Value:
    return _size(s, x, axis) if axis is not None else s.integers(number or 0)


@spelling("Concat")
def size_by_another_way(s: Script) -> bool:
    """A shape put together: a constant part in another part of its own, lists in lists."""
    node = s.place
    if node.outputs[0].dtype != ir.DataType.INT64 or s.rank(node.outputs[0]) != 1 or len(node.inputs) < 3:
        return False
    cut = s.rng.randrange(1, len(node.inputs))
    halves = [list(node.inputs[:cut]), list(node.inputs[cut:])]
    made = [s.new("Concat", *half, axis=0) if len(half) > 1 else half[0] for half in halves]
    return s.put(s.new("Concat", *made, axis=0))
