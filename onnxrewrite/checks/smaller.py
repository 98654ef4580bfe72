"""A site with smaller images: the same nodes and weights, on inputs of which some sizes are divided.

What a rewrite does to an image it does to a small one, and a convolution over 7 x 7 positions runs in no time.  Sizes
that also occur in a constant stay, for they are those of channels, kernels and shapes, unless they are where an image
has its height and width; what depends on the others in another way does not run, and is checked at its own sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import onnx

from onnxrewrite.inputs.bindings import Binding, InputSpec, candidates, input_specs, relations

_FEW = 2**13
"""Inputs of fewer elements, all together, are small enough."""

_SMALL = 7
"""Sizes are not divided below this."""

_IMAGE = 2
"""An image begins at this axis, after batch and channels."""


def shrunk(before: onnx.ModelProto, after: onnx.ModelProto) -> Iterator[tuple[onnx.ModelProto, onnx.ModelProto]]:
    """Both models with inputs of smaller sizes, in one or two ways to try; nothing where there is nothing to divide."""
    shapes = [tuple(s.dims or ()) for s in input_specs(before) if not s.default]
    if sum(math.prod(d for d in shape if isinstance(d, int)) for shape in shapes) <= _FEW:
        return
    fixed = {size for model in (before, after) for size in _in_constants(model)}
    anywhere = {d for shape in shapes for d in shape if _is_large(d) and d not in fixed}
    if anywhere:
        yield _both(before, after, anywhere, 0)
    images = {d for shape in shapes if len(shape) > _IMAGE for d in shape[_IMAGE:] if _is_large(d)}
    if images - anywhere:
        yield _both(before, after, images, _IMAGE)


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
    return isinstance(size, int) and size >= 2 * _SMALL


def _both(
    before: onnx.ModelProto, after: onnx.ModelProto, sizes: Iterable[object], axis: int
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The models with these sizes divided, from an axis of the inputs on."""
    divided = _divided([size for size in sizes if isinstance(size, int)])
    return _resized(before, divided, axis), _resized(after, divided, axis)


def _divided(sizes: Sequence[int]) -> dict[int, int]:
    """Each size divided by the same power of two, for so most layers divide."""
    divisor = 2 ** int(math.log2(min(sizes) / _SMALL))
    return {size: -(-size // divisor) for size in sizes}


def _in_constants(model: onnx.ModelProto) -> Iterable[int]:
    """The sizes of constants, and the elements of those that could be shapes."""
    tensors = [*model.graph.initializer]
    tensors += [a.t for n in model.graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR]
    for tensor in tensors:
        yield from tensor.dims
        if tensor.data_type == onnx.TensorProto.INT64 and math.prod(tensor.dims) <= _FEW:
            yield from onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
    for attribute in (a for n in model.graph.node for a in n.attribute):
        yield from attribute.ints


def _resized(model: onnx.ModelProto, sizes: dict[int, int], axis: int) -> onnx.ModelProto:
    """A model whose inputs have other sizes from an axis on, and which says nothing of the shapes that follow."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    for value in result.graph.input:
        for dim in value.type.tensor_type.shape.dim[axis:]:
            if dim.HasField("dim_value"):
                dim.dim_value = sizes.get(dim.dim_value, dim.dim_value)
    for value in result.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return result
