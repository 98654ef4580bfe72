"""Tensors as a file holds them, whose head is read once: onnx_ir reads it from the protobuf whenever it is asked."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from onnxrewrite.io.external import slots


class StoredTensor(ir.TensorProtoTensor):
    """A tensor in a protobuf message.

    Attributes:
        dtype: The type of its elements.
        shape: Its dimensions.
        size: The number of its elements.
    """

    __slots__ = ("dtype", "shape", "size")

    def __init__(self, proto: onnx.TensorProto) -> None:
        super().__init__(proto)
        self.dtype = ir.DataType(proto.data_type)  # type: ignore[misc]  # properties before
        self.shape = ir.Shape(proto.dims, frozen=True)  # type: ignore[misc]
        self.size = math.prod(proto.dims)  # type: ignore[misc]


def hold(model: ir.Model) -> list[ir.TensorProtocol]:
    """Put tensors whose head is known in the places of a model's stored ones; all of its tensors."""
    held = []
    for slot in slots(model):
        tensor = slot.tensor
        if type(tensor) is ir.TensorProtoTensor:
            tensor = StoredTensor(tensor.raw)
            slot.put(tensor)
        held.append(tensor)
    return held
