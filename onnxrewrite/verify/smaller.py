"""A site with smaller images: the same nodes and weights, on inputs of which some sizes are divided.

What a rewrite does to an image it does to a small one, and a convolution over 7 x 7 positions runs in no time.  Sizes
that also occur in a constant stay, for they are those of channels, kernels and shapes; what depends on the others in
another way does not run, and is checked at its own sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx

from onnxrewrite.verify.dims import input_specs

_FEW = 2**13
"""Inputs of fewer elements, all together, are small enough."""

_SMALL = 7
"""Sizes are not divided below this."""


def shrunk(before: onnx.ModelProto, after: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto] | None:
    """Both models with inputs of smaller sizes; None where there is nothing to divide."""
    shapes = [[d for d in s.dims or () if isinstance(d, int)] for s in input_specs(before) if not s.default]
    if sum(math.prod(shape) for shape in shapes) <= _FEW:
        return None
    fixed = {size for model in (before, after) for size in _in_constants(model)}
    sizes = {d for shape in shapes for d in shape if d >= 2 * _SMALL and d not in fixed}
    if not sizes:
        return None
    divisor = 2 ** int(math.log2(min(sizes) / _SMALL))  # a power of two, for so most layers divide
    smaller = {size: -(-size // divisor) for size in sizes}
    return _resized(before, smaller), _resized(after, smaller)


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


def _resized(model: onnx.ModelProto, sizes: dict[int, int]) -> onnx.ModelProto:
    """A model whose inputs have other sizes, and which says nothing of the shapes that follow."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    for value in result.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value"):
                dim.dim_value = sizes.get(dim.dim_value, dim.dim_value)
    for value in result.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return result
