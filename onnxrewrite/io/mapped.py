"""A model file without copies of its weights: mapped into memory when it is read, tensor by tensor when it is written.

A model file is one protobuf message, and protobuf holds all of it, twice while it reads or writes.  So the message is
taken apart, and put together, by its encoding (https://protobuf.dev/programming-guides/encoding), and what protobuf
handles has no large weights.  Only files of some size are mapped: one that is written over in place changes under the
model that was read from it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.io import preserved
from onnxrewrite.io.external import EXTERNAL_THRESHOLD, PROTOBUF_LIMIT, inlined, slots, tensor_bytes
from onnxrewrite.system import files

LEAST: Final = 2**24
"""Bytes of a file that is mapped."""

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_GRAPH: Final = onnx.ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER: Final = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
_RAW: Final = onnx.TensorProto.RAW_DATA_FIELD_NUMBER
_LOCATION: Final = onnx.TensorProto.DATA_LOCATION_FIELD_NUMBER
_EXTERNAL: Final = onnx.TensorProto.EXTERNAL_DATA_FIELD_NUMBER

LOCATION: Final = "weights"
"""The location of the data of an initializer that only bears a name; the file of that name is none."""

_Part: TypeAlias = memoryview | bytes | ir.TensorProtocol
Mapped: TypeAlias = Mapping[str, ir.TensorProtocol]
"""Initializers of the main graph, by name."""


def weightless(model: ir.Model, is_wanted: Callable[[ir.TensorProtocol], bool]) -> tuple[onnx.ModelProto, Mapped]:
    """The complete model as a message in which those initializers of the main graph that are wanted only bear their
    names, and these by name.  Other external data go into the message.

    ModelError as ``preserved.serialized``, which makes Constants of initializers in a model of old: it stays whole.
    """
    is_old = model.ir_version < preserved.OVERRIDABLE_SINCE
    with preserved.completed(model):
        found = {v: v.const_value for v in model.graph.initializers.values() if v.const_value is not None}
        large = (pair for pair in found.items() if not isinstance(pair[1], _OWN_MESSAGE) and is_wanted(pair[1]))
        wanted = {} if is_old else dict(large)
        with inlined(model, besides={id(tensor) for tensor in wanted.values()}):
            return _named_only(model, wanted), {value.name or "": tensor for value, tensor in wanted.items()}


def _named_only(model: ir.Model, wanted: Mapping[ir.Value, ir.TensorProtocol]) -> onnx.ModelProto:
    """The message with names in place of some initializers."""
    try:
        for value, tensor in wanted.items():
            shape, name = ir.Shape(tensor.shape.numpy()), value.name or ""
            value.const_value = ir.ExternalTensor(
                LOCATION,
                None,
                tensor.nbytes,
                tensor.dtype,
                shape=shape,
                name=name,
                doc_string=tensor.doc_string,
                metadata_props=dict(tensor.metadata_props),
            )
        return preserved.serialized(model)
    finally:
        for value, tensor in wanted.items():
            value.const_value = tensor


def write(proto: onnx.ModelProto, weights: Mapped, file: BinaryIO, where: str) -> None:
    """Write the message of ``weightless``, the weights in their places: the bytes that protobuf would write.

    Raises:
        ModelError: A tensor has other data than its shape needs, or the message is too large.
    """
    if size(proto, weights) >= PROTOBUF_LIMIT:
        raise ModelError(f"{where}: does not fit into 2 GB; save it with external data")
    for part in _parts(proto, weights):
        if isinstance(part, ir.TensorProtocol):
            _write_tensor(part, file)
        else:
            file.write(part)


def size(proto: onnx.ModelProto, weights: Mapped) -> int:
    """The bytes that ``write`` writes."""
    return sum(map(_length, _parts(proto, weights)))


def _parts(proto: onnx.ModelProto, weights: Mapped) -> Iterator[_Part]:
    data = memoryview(proto.SerializeToString(deterministic=True))
    (graph,) = (field for field in _fields(data, 0, len(data)) if field.number == _GRAPH)
    parts = list(_with_weights(data, graph, proto, weights))
    yield data[: graph.start]
    yield _key(_GRAPH) + _varint(sum(map(_length, parts)))
    yield from parts
    yield data[graph.end :]


def _length(part: _Part) -> int:
    return part.nbytes if isinstance(part, ir.TensorProtocol) else len(part)


def _with_weights(data: memoryview, graph: _Field, proto: onnx.ModelProto, weights: Mapped) -> Iterator[_Part]:
    """The contents of a graph; the weights in their places as tensors."""
    initializers, kept = iter(proto.graph.initializer), graph.content
    for field in _fields(data, graph.content, graph.end):
        initializer = next(initializers) if field.number == _INITIALIZER else None
        if initializer is None or not is_weightless(initializer):
            continue
        tensor = weights[initializer.name]
        head = onnx.TensorProto()
        head.CopyFrom(initializer)
        head.ClearField("data_location")
        head.ClearField("external_data")
        own = memoryview(head.SerializeToString(deterministic=True))
        later = next((f.start for f in _fields(own, 0, len(own)) if f.number > _RAW), len(own))
        raw = _key(_RAW) + _varint(tensor.nbytes)
        length = len(own) + len(raw) + tensor.nbytes
        yield data[kept : field.start]
        yield _key(_INITIALIZER) + _varint(length) + bytes(own[:later]) + raw
        yield tensor
        yield own[later:]
        kept = field.end
    yield data[kept : graph.end]


def _write_tensor(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    start = file.tell()
    if isinstance(tensor, ir.ExternalTensor):
        tensor.tofile(file)  # copied by the kernel, piece by piece
    else:
        file.write(tensor.tobytes())
    if file.tell() != start + tensor.nbytes:
        raise ModelError(f"tensor '{tensor.name}' has other data than its shape needs; check its rule")


def is_weightless(tensor: onnx.TensorProto) -> bool:
    """True if an initializer only bears its name, see ``weightless``."""
    is_outside = tensor.data_location == onnx.TensorProto.EXTERNAL
    return is_outside and any(e.key == "location" and e.value == LOCATION for e in tensor.external_data)


_OWN_MESSAGE: Final = (ir.serde.TensorProtoTensor, ir.StringTensor)
"""Tensors that are messages already, or have no bytes of their own."""


def place_of(tensor: ir.TensorProtocol) -> tuple[str, int] | None:
    """The file that a tensor's bytes lie in, all links followed, and where they begin; None where they lie in none."""
    if isinstance(tensor, MappedTensor):
        return (tensor.file.path, tensor.offset) if tensor.file.is_there else None
    if isinstance(tensor, ir.ExternalTensor):
        return os.path.realpath(tensor.path), tensor.offset or 0
    return None


def check_unchanged(model: ir.Model, where: str) -> None:
    """ModelError if a file was written over in place whose mapped weights the model has."""
    for file in {slot.tensor.file for slot in slots(model) if isinstance(slot.tensor, MappedTensor)}:
        if file.was_written_over:
            raise ModelError(f"{where}: not written, for {file.path} was changed after it was read; apply to it again")


@dataclass(frozen=True)
class _File:
    """A file, all links followed, and its device, number, size and time of change when it was mapped."""

    path: str
    state: tuple[int, int, int, int]

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> _File:
        return cls(os.path.realpath(path), (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))

    def _now(self) -> tuple[int, int, int, int] | None:
        try:
            return _File.of(self.path, os.stat(self.path)).state
        except OSError:
            return None

    @property
    def is_there(self) -> bool:
        """True if its path still leads to it, unchanged."""
        return self._now() == self.state

    @property
    def was_written_over(self) -> bool:
        """True if it is the same file with other contents; one that took its place leaves what is mapped."""
        now = self._now()
        return now is not None and now[:2] == self.state[:2] and now != self.state


class MappedTensor(ir.Tensor):  # type: ignore[type-arg]  # of any array
    """A tensor whose elements lie in a file that is mapped.

    Attributes:
        file: The file.
        offset: The place of its first byte.
    """

    file: _File
    offset: int


class _Field(NamedTuple):
    """A field of a message: its number, and where it, and what it holds, lie."""

    number: int
    wire: int
    start: int
    content: int
    end: int


class _Unreadable(ValueError):
    """The message is damaged, or written as nobody writes it."""


def read(path: str) -> tuple[bytes, Mapped] | None:
    """The message without its large weights, which are said to be external, and these; None where it is better read.

    Raises:
        OSError: The file cannot be read.
    """
    with files.open_regular(path) as file:
        status = os.fstat(file.fileno())
        if not LEAST <= status.st_size < PROTOBUF_LIMIT:
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _without_weights(memoryview(data), _File.of(path, status))
    except _Unreadable:
        return None


def _without_weights(data: memoryview, file: _File) -> tuple[bytes, Mapped]:
    parts: list[memoryview | bytes] = []
    weights: dict[str, ir.TensorProtocol] = {}
    graphs = 0
    for field in _fields(data, 0, len(data)):
        if field.number != _GRAPH:
            parts.append(data[field.start : field.end])
            continue
        graph, graphs = _graph(data, field, file, weights), graphs + 1
        parts += [_key(_GRAPH), _varint(sum(map(len, graph))), *graph]
    if graphs != 1:
        raise _Unreadable
    return b"".join(parts), weights


def _graph(
    data: memoryview, graph: _Field, file: _File, weights: dict[str, ir.TensorProtocol]
) -> list[memoryview | bytes]:
    """The fields of a graph, large initializers without their numbers; these are added to ``weights``."""
    parts: list[memoryview | bytes] = []
    kept = graph.content
    for field in _fields(data, graph.content, graph.end):
        if field.number != _INITIALIZER or field.end - field.content < EXTERNAL_THRESHOLD:
            continue
        stub = _taken_apart(data, field, file, weights)
        if stub is not None:
            parts += [data[kept : field.start], _key(_INITIALIZER), _varint(len(stub)), stub]
            kept = field.end
    return [*parts, data[kept : graph.end]]


def _taken_apart(
    data: memoryview, initializer: _Field, file: _File, weights: dict[str, ir.TensorProtocol]
) -> bytes | None:
    """An initializer without its numbers; None where it is as it is."""
    fields = list(_fields(data, initializer.content, initializer.end))
    raw = [f for f in fields if f.number == _RAW]
    if len(raw) != 1 or raw[0].wire != _LENGTH or any(_is_outside(data, f) for f in fields):
        return None
    rest = b"".join(data[f.start : f.end] for f in fields if f.number != _RAW)
    try:
        proto = onnx.TensorProto.FromString(rest)
    except Exception as error:  # protobuf's implementations raise different types
        raise _Unreadable from error
    length = raw[0].end - raw[0].content
    if length < EXTERNAL_THRESHOLD or tensor_bytes(proto.dims, proto.data_type) != length:
        return None
    dtype = ir.DataType(proto.data_type)
    if dtype.bitwidth < 8 or not isinstance(proto.name, str) or proto.name in weights:
        return None
    array = np.frombuffer(data, dtype.numpy(), offset=raw[0].content, count=length * 8 // dtype.bitwidth)
    props = {each.key: each.value for each in proto.metadata_props}
    tensor = weights[proto.name] = MappedTensor(
        array.reshape(tuple(proto.dims)), dtype, name=proto.name, doc_string=proto.doc_string, metadata_props=props
    )
    tensor.file, tensor.offset = file, raw[0].content
    proto.data_location = onnx.TensorProto.EXTERNAL
    proto.external_data.add(key="location", value=LOCATION)
    stub: bytes = proto.SerializeToString()
    return stub


def _is_outside(data: memoryview, field: _Field) -> bool:
    """True for a field that says that the numbers of a tensor lie elsewhere; that they lie here may be said, too."""
    if field.number == _LOCATION and field.wire == _VARINT:
        return _number(data, field.content, field.end)[0] != onnx.TensorProto.DEFAULT
    return field.number in (_LOCATION, _EXTERNAL)


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    """The fields of the message that lies between two places."""
    while at < end:
        start = at
        key, at = _number(data, at, end)
        wire, content = key & 7, at
        if wire == _VARINT:
            _, at = _number(data, at, end)
        elif wire == _LENGTH:
            length, content = _number(data, at, end)
            at = content + length
        elif wire in (_EIGHT, _FOUR):
            at += 8 if wire == _EIGHT else 4
        else:
            raise _Unreadable
        if at > end:
            raise _Unreadable
        yield _Field(key >> 3, wire, start, content, at)


def _number(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    number = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise _Unreadable


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _key(number: int) -> bytes:
    return _varint(number << 3 | _LENGTH)
