"""Pieces by Split, Slice or Gather."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import LARGE, Script
from onnxrewrite.ir import views


@spelling("Split")
def split_as_slices(s: Script) -> bool:
    """A Split as a Slice, or a Gather, for each piece."""
    node, x = s.place, s.place.inputs[0]
    axis = node.attributes.get_int("axis", 0)
    sizes = [s.size(o, axis) for o in node.outputs]
    if x is None or None in sizes or any(o.is_graph_output() for o in node.outputs):
        return False
    ends = list(itertools.accumulate(n or 0 for n in sizes))
    gathers = s.rng.random() < 0.3
    for old, end, size in zip(list(node.outputs), ends, sizes, strict=True):
        if old.uses():
            new = _piece(s, x, axis, end - (size or 0), end, gathers, is_last=end == ends[-1])
            s.facts.inherit(new, old)
            for user, index in list(old.uses()):
                user.replace_input_with(index, new)
    s.graph.remove(node, safe=True)
    return True


def _piece(s: Script, x: ir.Value, axis: int, start: int, end: int, gathers: bool, is_last: bool) -> ir.Value:
    if gathers:
        return s.new("Gather", x, s.integers(*range(start, end)), axis=axis)
    until = LARGE if is_last and s.rng.random() < 0.5 else end
    return s.new("Slice", x, s.integers(start), s.integers(until), s.integers(axis))


@spelling("Slice")
def slice_as_gather(s: Script) -> bool:
    """A Slice of an axis of a known size as a Gather."""
    piece = views.piece_of(s.facts, s.place.outputs[0])
    if isinstance(piece, str) or not isinstance(piece.size, int) or len(piece.elements) > 64:
        return False
    return s.put(s.new("Gather", piece.source, s.integers(*piece.elements), axis=piece.axis))


@spelling("Slice")
def slice_as_split(s: Script) -> bool:
    """A Slice at the start or the end of an axis of a known size as a part of a Split."""
    piece = views.piece_of(s.facts, s.place.outputs[0])
    if isinstance(piece, str) or not isinstance(piece.size, int) or piece.elements.step != 1:
        return False
    start, stop, size = piece.elements.start, piece.elements.stop, piece.size
    sizes = [n for n in (start, stop - start, size - stop) if n]
    if not piece.elements or len(sizes) < 2:
        return False
    made = s.make("Split", piece.source, s.integers(*sizes), outputs=len(sizes), axis=piece.axis)
    return s.put(made.outputs[1 if start else 0])


@spelling("Gather")
def gather_as_slice(s: Script) -> bool:
    """A Gather of one index as a Slice, and a Squeeze."""
    node = s.place
    x, index = node.inputs
    number, axis = s.number(index), node.attributes.get_int("axis", 0)
    if number is None or s.rank(x) is None or s.is_constant(x) or (s.rank(index) or 0) > 1 or s.opset < 13:
        return False
    place = int(number)
    made = s.new("Slice", x, s.integers(place), s.integers(place + 1 if place != -1 else LARGE), s.integers(axis))
    return s.put(made if s.rank(index) else s.new("Squeeze", made, s.integers(axis)))


@spelling("Gather")
def negative_index(s: Script) -> bool:
    """Constant indices counted from the other end."""
    node = s.place
    x, index = node.inputs
    array, size = s.array(index), s.size(x, node.attributes.get_int("axis", 0))
    if index is None or array is None or not size:
        return False
    return s.operand(1, s.constant(np.where(array < 0, array + size, array - size), index))
