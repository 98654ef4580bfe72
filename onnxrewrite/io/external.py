"""Weights outside the model file: checked when read, streamed when written.

Nothing here loads more than one tensor at a time, and checking loads none: existence and size come from the
file system.  This module must not know what a model means, only where its tensors lie.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.graph import attributes

PROTOBUF_LIMIT: Final = 2**31
"""Bytes; protobuf neither reads nor writes a message of this size or more."""

INLINE_LIMIT: Final = PROTOBUF_LIMIT - 2**28
"""Bytes of tensors up to which a model is written as one file; the margin is for nodes and new weights."""

EXTERNAL_THRESHOLD: Final = 1024
"""Bytes; smaller tensors stay in the model file, where shape inference finds them."""

ALIGNMENT: Final = 4096
"""Bytes; each external tensor starts at a multiple, so that it can be mapped into memory."""


def tensor_bytes(dims: Iterable[int], data_type: int) -> int | None:
    """Size of a tensor's raw data; None for strings and unknown types."""
    if data_type not in ir.DataType._value2member_map_:
        return None
    dtype = ir.DataType(data_type)
    if dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return None
    return (math.prod(dims) * dtype.bitwidth + 7) // 8


def check(tensor: onnx.TensorProto, folder: str, what: str) -> None:
    """ModelError unless an external tensor's data lie inside ``folder`` and are long enough.

    ``what`` begins the message: the model and the tensor.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    path = _contained(location, folder, what)
    try:
        status = os.stat(path)
    except OSError:
        raise ModelError(f"{what}: its external data file {path} is missing; put it beside the model") from None
    if not os.path.isfile(path):
        raise ModelError(f"{what}: its external data {path} is not a file")
    if status.st_nlink > 1:
        raise ModelError(f"{what}: its external data file {path} has several hard links; use a copy of it")
    expected = tensor_bytes(tensor.dims, tensor.data_type)
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else expected
    except ValueError:
        raise ModelError(f"{what}: offset or length of its external data is not a number") from None
    if expected is None or length is None or any(d < 0 for d in tensor.dims):
        raise ModelError(f"{what}: external data of this type or shape are not allowed")
    if offset < 0 or length != expected:
        raise ModelError(f"{what}: its external data are {length} bytes at {offset}, its shape needs {expected}")
    if offset + length > status.st_size:
        raise ModelError(
            f"{what}: its external data file {path} is too short ({status.st_size} bytes, "
            f"{offset + length} needed); copy or download it again"
        )


def _contained(location: str, folder: str, what: str) -> str:
    """The path of a location, refused if it is or leads outside the model's folder."""
    inside, root = os.path.normpath(location), os.path.realpath(folder)
    leaves = os.path.isabs(location) or inside in ("", ".") or inside.split(os.sep)[0] == os.pardir
    if not leaves and "\0" not in location:
        path = os.path.realpath(os.path.join(folder, location))
        leaves = os.path.commonpath([path, root]) != root
    if leaves or "\0" in location:
        raise ModelError(
            f"{what}: its external data path {location!r} leaves the model's folder; put the file beside it"
        )
    return os.path.join(folder, location)


@dataclass(frozen=True)
class Slot:
    """A place in the model that holds a tensor, and how to put another one there."""

    tensor: ir.TensorProtocol
    put: Callable[[ir.TensorProtocol], None]
    is_weight: bool


def slots(model: ir.Model) -> Iterator[Slot]:
    """Every initializer and every tensor attribute of the model, subgraphs and functions included."""
    waiting = deque([model.graph, *(f.graph for f in model.functions.values())])
    while waiting:
        graph = waiting.popleft()
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield Slot(value.const_value, _put_weight(value), is_weight=True)
        for node in graph:
            for attr in tuple(attributes(node)):
                if attr.is_ref():
                    continue
                if attr.type == ir.AttributeType.TENSOR:
                    yield Slot(attr.value, _put_attribute(node, attr), is_weight=False)
                elif attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                    waiting.extend([attr.value] if attr.type == ir.AttributeType.GRAPH else attr.value)


def _put_weight(value: ir.Value) -> Callable[[ir.TensorProtocol], None]:
    def put(tensor: ir.TensorProtocol) -> None:
        value.const_value = tensor

    return put


def _put_attribute(node: ir.Node, attr: ir.Attr) -> Callable[[ir.TensorProtocol], None]:
    def put(tensor: ir.TensorProtocol) -> None:
        same = tensor is attr.value
        node.attributes[attr.name] = attr if same else ir.Attr(attr.name, attr.type, tensor, doc_string=attr.doc_string)

    return put


def total_bytes(model: ir.Model) -> int:
    """Nominal size of all tensors; loads nothing.  A tensor used twice counts twice, as it is written."""
    return sum(slot.tensor.nbytes for slot in slots(model))


def _contents(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The tensor as one that is read when its bytes are asked for, and not kept."""
    if tensor.size == 0:
        return ir.Tensor(np.empty(tensor.shape.numpy(), tensor.dtype.numpy()), tensor.dtype, name=tensor.name)
    return ir.LazyTensor(
        lambda: tensor,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


@contextlib.contextmanager
def inlined(model: ir.Model, *, besides: Container[int] = ()) -> Iterator[None]:
    """For the time of serialization, external tensors go into the model file; ``besides``: ids of others."""
    outside = (slot for slot in slots(model) if isinstance(slot.tensor, ir.ExternalTensor))
    held = [slot for slot in outside if id(slot.tensor) not in besides]
    try:
        for slot in held:
            slot.put(_contents(slot.tensor))
        yield
    finally:
        for slot in held:
            slot.put(slot.tensor)


@dataclass(frozen=True)
class Placed:
    """A tensor and where in the data file it goes."""

    slot: Slot
    reference: ir.ExternalTensor


@contextlib.contextmanager
def placed(model: ir.Model, folder: str, location: str) -> Iterator[list[Placed]]:
    """For the time of serialization, large tensors are references into the data file ``location``."""
    plan: list[Placed] = []
    small: list[Slot] = []
    offsets: dict[int, int] = {}
    end = 0
    for slot in slots(model):
        tensor, is_external = slot.tensor, isinstance(slot.tensor, ir.ExternalTensor)
        if not (slot.is_weight or is_external) or tensor.dtype == ir.DataType.STRING:
            continue
        if tensor.nbytes < EXTERNAL_THRESHOLD:
            small += [slot] if is_external else []
            continue
        if id(tensor) not in offsets:
            offsets[id(tensor)] = -(-end // ALIGNMENT) * ALIGNMENT
            end = offsets[id(tensor)] + tensor.nbytes
        plan.append(Placed(slot, _reference(tensor, folder, location, offsets[id(tensor)])))
    try:
        for each in plan:
            each.slot.put(each.reference)
        for slot in small:
            slot.put(_contents(slot.tensor))
        yield plan
    finally:
        for slot in (*(each.slot for each in plan), *small):
            slot.put(slot.tensor)


def _reference(tensor: ir.TensorProtocol, folder: str, location: str, offset: int) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
        base_dir=folder,
    )


def write(plan: Iterable[Placed], file: BinaryIO) -> None:
    """Write the tensors' data one after another; a tensor that was not in memory is not kept there."""
    for each in plan:
        offset, length = each.reference.offset or 0, each.slot.tensor.nbytes
        if file.tell() > offset:
            continue  # the same tensor again
        file.seek(offset)
        if isinstance(each.slot.tensor, ir.ExternalTensor):
            each.slot.tensor.tofile(file)  # copied by the kernel, piece by piece
        else:
            file.write(each.slot.tensor.tobytes())
        if file.tell() != offset + length:
            raise ModelError(f"tensor '{each.slot.tensor.name}' has other data than its shape needs; check its rule")


def reads_from(model: ir.Model, path: str) -> list[Slot]:
    """Places whose tensor is still read from the file at ``path``."""
    if not os.path.exists(path):
        return []
    real = os.path.realpath(path)
    external = [(s, s.tensor) for s in slots(model)]
    return [s for s, t in external if isinstance(t, ir.ExternalTensor) and os.path.realpath(t.path) == real]
