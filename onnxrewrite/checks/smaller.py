"""A site at smaller sizes: the same nodes and weights, on inputs of which some sizes are smaller.

What a rewrite does to an image it does to a small one, and a convolution over 7 x 7 positions runs in no time.  A size
that becomes smaller does so in both sides and wherever it stands, in constants that are shapes and bounds, too, and so
do its multiples: 16 heads of 64 are 1024, of 16 they are 256.  Sizes of weights stay, and so does what attributes say,
and what is computed with.  No two numbers become one, 2, 3 and 4 divide what they did, and sizes stay above or below
what they may be compared with, so that what differs still does.  What depends on sizes in another way does not run, or
differs, and is checked at its own sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from onnxrewrite.checks.movement import MOVING
from onnxrewrite.inputs.bindings import Binding, InputSpec, candidates, input_specs, relations
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.protos import names_read

_FEW = 2**13
"""Inputs of fewer elements, all together, are small enough."""

_SMALL = 7
"""Sizes do not become smaller than this."""

_IMAGE = 2
"""An image begins at this axis, after batch and channels."""

_KEPT = 12
"""By so much a size becomes smaller, or by a multiple of it."""

_CLAMPING = frozenset(operators("select"))
"""Operators that take a bound beyond the size for the size."""

_MOST_BOUNDS = 64
"""So many elements a constant has at the most that gives shapes or bounds."""

_NUMBERS = frozenset(
    (
        onnx.TensorProto.INT64,
        onnx.TensorProto.INT32,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT16,
    )
)
"""The dtypes of numbers that a size may be compared with, or divided by."""

_SENTINEL = 2**31
"""A number that is as large is no size."""

_Sizes: TypeAlias = Mapping[int, int]
"""Sizes to what they become."""


def shrunk(before: onnx.ModelProto, after: onnx.ModelProto) -> Iterator[tuple[onnx.ModelProto, onnx.ModelProto]]:
    """Both models with inputs of smaller sizes, in one or two ways to try; nothing where nothing can be smaller."""
    shapes = [tuple(s.dims or ()) for s in input_specs(before) if not s.default]
    inputs = [[d for d in shape if isinstance(d, int)] for shape in shapes]
    if sum(map(math.prod, inputs)) <= _FEW:
        return
    bounds = {n for model in (before, after) for tensor in _bounds(model) for n in _elements(tensor)}
    fixed = {n for model in (before, after) for n in _fixed(model)}
    compared = {abs(n) for model in (before, after) for n in _compared(model)}  # -20 counts from the end
    sizes = _smaller_sizes(inputs, bounds, fixed, compared)
    if sizes:
        yield _resized(before, sizes), _resized(after, sizes)
    images = {d for shape in shapes if len(shape) > _IMAGE for d in shape[_IMAGE:] if _is_large(d)}
    if images - sizes.keys():
        divided = _divided([d for d in images if isinstance(d, int)])
        yield _resized(before, divided, _IMAGE), _resized(after, divided, _IMAGE)


def smaller(binding: Binding, specs: Sequence[InputSpec]) -> Iterator[Binding]:
    """The binding with its large sizes divided, but for those that follow from others, which follow; nothing where
    there are none."""
    derived = relations(list(binding), specs)
    free = {name: size for name, size in binding.items() if name not in derived}
    large = [size for size in free.values() if _is_large(size)]
    if large:
        divided = _divided(large)
        yield from candidates(specs, {name: divided.get(size, size) for name, size in free.items()}, 1)


def _is_large(size: object) -> bool:
    return isinstance(size, int) and 2 * _SMALL <= size < _SENTINEL


def _divided(sizes: Sequence[int]) -> dict[int, int]:
    """Each size divided by the same power of two, for so most layers divide."""
    divisor = 2 ** int(math.log2(min(sizes) / _SMALL))
    return {size: -(-size // divisor) for size in sizes}


def _smaller_sizes(shapes: Sequence[Sequence[int]], bounds: set[int], fixed: set[int], compared: set[int]) -> _Sizes:
    """The sizes that the inputs' and their multiples become: one size after the other, the smallest first; what stays
    is left out.

    A size of features, the last one of an input, stays where that of a weight is one of its multiples, for those will
    be heads; the length of a sequence has nothing to do with it.
    """
    inputs, last = {d for dims in shapes for d in dims}, {d for dims in shapes for d in dims[-1:]}
    numbers = {n: n for n in inputs | bounds | fixed | compared}
    standing = {n for n in fixed if _is_large(n)}
    for size in sorted(n for n in inputs | bounds if _is_large(n) and n not in standing):
        multiples = {n for n in numbers if n % size == 0 and abs(n) < _SENTINEL}
        related = [n for n in standing if n % size == 0 or size % n == 0]
        if size in inputs - last:
            multiples -= {n for n in multiples for other in related if other > size and n % other == 0}
            related = []
        least = _SMALL + (size - _SMALL) % _KEPT
        tried = (numbers | {n: numbers[n] // size * small for n in multiples} for small in range(least, size, _KEPT))
        if numbers[size] == size and not related:
            numbers = next((made for made in tried if _is_told_apart(made, compared)), numbers)
        standing |= {size} if numbers[size] == size else set()
    return {n: made for n, made in numbers.items() if made != n}


def _is_told_apart(numbers: _Sizes, compared: set[int]) -> bool:
    """True if different numbers are still different, and those ``compared`` are still less or greater than others."""
    are_different = len({*numbers.values()}) == len(numbers)
    return are_different and all((n < c) == (numbers[n] < numbers[c]) for c in compared for n in numbers)


def _bounds(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The constants that can be shapes or bounds, and that nothing is computed with."""
    computing = (n for n in model.graph.node if n.domain or n.op_type not in MOVING)
    others = {name for node in computing for name in names_read(node)}
    yield from (t for t in _few(model) if t.data_type == onnx.TensorProto.INT64 and t.name not in others)


def _compared(model: onnx.ModelProto) -> Iterator[int]:
    """The numbers that sizes may be compared with: what attributes say, bounds that are taken for the size where they
    are beyond it, and all that is computed with."""
    clamping = (n for n in model.graph.node if n.op_type in _CLAMPING)
    unlike = {t.name for t in _bounds(model)} - {name for node in clamping for name in node.input}
    for tensor in _few(model):
        yield from _elements(tensor) if tensor.name not in unlike else ()
    for attribute in (a for n in model.graph.node for a in n.attribute):
        yield from (*attribute.ints, attribute.i)


def _fixed(model: onnx.ModelProto) -> Iterator[int]:
    """The numbers that stay what they are: the sizes of constants, what attributes say, and what is computed with."""
    bounds = {tensor.name for tensor in _bounds(model)}
    for tensor in model.graph.initializer:
        yield from tensor.dims
    for tensor in _few(model):
        yield from _elements(tensor) if tensor.name not in bounds else ()
    for attribute in (a for n in model.graph.node for a in n.attribute):
        yield from (*attribute.ints, *attribute.t.dims, attribute.i)


def _few(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The constants of a few numbers."""
    for tensor in model.graph.initializer:
        is_inside = tensor.data_location != onnx.TensorProto.EXTERNAL
        if tensor.data_type in _NUMBERS and is_inside and math.prod(tensor.dims) <= _MOST_BOUNDS:
            yield tensor


def _elements(tensor: onnx.TensorProto) -> list[int]:
    """The elements that are whole numbers."""
    return [int(n) for n in numpy_helper.to_array(tensor).flat if math.isfinite(n) and n == int(n)]


def _resized(model: onnx.ModelProto, sizes: _Sizes, axis: int = 0) -> onnx.ModelProto:
    """A model with other sizes, which says nothing of the shapes that follow; where only those of inputs from a later
    ``axis`` on are others, constants stay."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    for dim in _dims(result.graph.input, axis):
        if dim.HasField("dim_value"):
            dim.dim_value = sizes.get(dim.dim_value, dim.dim_value)
    for dim in _dims(result.graph.output):
        dim.Clear()
    for tensor in _bounds(result) if not axis else ():
        made = np.array([sizes.get(n, n) for n in _elements(tensor)], np.int64)
        tensor.CopyFrom(numpy_helper.from_array(made.reshape(tensor.dims), tensor.name))
    return result


def _dims(values: Iterable[onnx.ValueInfoProto], axis: int = 0) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in values:
        yield from value.type.tensor_type.shape.dim[axis:]
