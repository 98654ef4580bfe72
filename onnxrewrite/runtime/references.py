"""Weights by reference: messages whose large initializers only name arrays that this process holds.

Such a message costs as much as its nodes, whatever its weights: it is copied, converted and changed like any other.
``source`` gives a session the arrays where they lie.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import numpy_helper

from onnxrewrite.io import external, mapped
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import Array

LEAST: Final = 2**14
"""Bytes of an initializer that is referred to; a smaller one may be a shape, which readers of the message look at."""

POOLED: Final = 2**27
"""Bytes of weights up to which a session for checks keeps the memory of a run for the next one: weights that are cast
to a wider dtype where they are read would all be kept."""

PACKED: Final = 2**28
"""Bytes of weights up to which they are packed in a session that is timed, as they will be where it is used."""

_FOLDER: Final = "session.model_external_initializers_file_folder_path"
_TOKEN: Final = "checksum"
"""The entry of a tensor's external data that names its array; ONNX Runtime does not look at it."""

_DTYPES: Final = frozenset(map(ir.DataType.__getitem__, ("FLOAT", "DOUBLE", "FLOAT16", "UINT8", "INT8")))
_FEW_BITS: Final = frozenset(d.value for d in ir.DataType if d.is_integer() and d.bitwidth <= 8)
_held: dict[str, Array] = {}
_places: dict[str, tuple[str, int]] = {}
"""The file of an array, and where in it it begins."""
_tokens = itertools.count()


@contextlib.contextmanager
def by_reference(model: ir.Model) -> Iterator[onnx.ModelProto]:
    """The model as a message that refers to its weights, as long as the context lasts."""
    inputs = {value.name for value in model.graph.inputs}
    proto, weights = mapped.weightless(model, _is_referred)
    held = []
    for tensor in filter(mapped.is_weightless, proto.graph.initializer):
        if tensor.name in inputs:  # not constant
            tensor.CopyFrom(ir.to_proto(weights[tensor.name]))
            continue
        held.append(str(next(_tokens)))
        tensor.external_data.add(key=_TOKEN, value=held[-1])
        _held[held[-1]] = weights[tensor.name].numpy()
        place = mapped.place_of(weights[tensor.name])
        if place is not None:
            _places[held[-1]] = place
    try:
        yield proto
    finally:
        for token in held:
            del _held[token]
            _places.pop(token, None)


def _is_referred(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype in _DTYPES and tensor.nbytes >= LEAST


def inner_bytes(model: ir.Model) -> int:
    """The bytes of tensors that a message of ``by_reference`` would hold itself."""
    return sum(s.tensor.nbytes for s in external.slots(model) if not (s.is_weight and _is_referred(s.tensor)))


def referred(tensor: onnx.TensorProto) -> Array | None:
    """The array that an initializer refers to; None where it is none of ``by_reference``."""
    return _held.get(_token(tensor)) if mapped.is_weightless(tensor) else None


def _token(tensor: onnx.TensorProto) -> str:
    return next((e.value for e in tensor.external_data if e.key == _TOKEN), "")


def array_of(tensor: onnx.TensorProto) -> Array:
    """The elements of an initializer, which may be one that refers to them."""
    found = referred(tensor)
    return numpy_helper.to_array(tensor) if found is None else found


def referred_bytes(model: onnx.ModelProto) -> int:
    """The bytes of the arrays that a message refers to."""
    return sum(array.nbytes for t in model.graph.initializer if (array := referred(t)) is not None)


def digest(model: onnx.ModelProto) -> str:
    """The SHA-256 of a message, without the numbers of weights that it refers to."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if referred(tensor) is not None:
            del tensor.external_data[:]
    return hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()


def source(
    model: onnx.ModelProto, options: ort.SessionOptions, *, timed: bool, packed: bool = False
) -> tuple[bytes, object]:
    """The bytes from which ONNX Runtime opens a session that gets the arrays that a model refers to; and an object to
    keep as long as the session.

    A session that is not timed takes them where they lie, and does not pack them for its kernels: these would be
    copies.  One that is timed gets copies, and packs them; of more than ``PACKED`` bytes it maps the file in which they
    lie, and packs nothing, unless they are to be ``packed``.
    """
    found = {t.name: array for t in model.graph.initializer if (array := referred(t)) is not None}
    if not found:
        return model.SerializeToString(), None
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in found.items()}
    is_large = sum(array.nbytes for array in found.values()) > PACKED
    # Kernels for weights of few bits compute in other ways when these are not packed.
    if ((is_large and not packed) or not timed) and not any(t.data_type in _FEW_BITS for t in model.graph.initializer):
        options.add_session_config_entry("session.disable_prepacking", "1")
    if not timed:
        options.add_session_config_entry(_FOLDER, str(_folder()))
        for name, value in values.items():
            options.add_initializer(name, value)
        return model.SerializeToString(), values
    if is_large:
        model = _located(model, options, values)
    options.add_external_initializers(list(values), list(values.values()))
    return model.SerializeToString(), values


def _located(model: onnx.ModelProto, options: ort.SessionOptions, values: dict[str, ort.OrtValue]) -> onnx.ModelProto:
    """A copy in which the weights of the file that most of them lie in refer to it; ``values`` loses these.

    An optimizer that changes a weight reads the file, and keeps its name: a value that is given would stay as it is.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    places = {t.name: _places[token] for t in copy.graph.initializer if (token := _token(t)) in _places}
    most = Counter(path for path, _ in places.values()).most_common(1)
    if not most:
        return copy
    file = Path(most[0][0])
    options.add_session_config_entry(_FOLDER, str(file.parent))
    for tensor in copy.graph.initializer:
        path, offset = places.get(tensor.name, ("", 0))
        if path == str(file):
            length = values.pop(tensor.name).tensor_size_in_bytes()
            del tensor.external_data[:]
            for key, entry in (("location", file.name), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(entry))
    return copy


@functools.cache
def _folder() -> Path:
    """The folder of the file that the initializers name: ONNX Runtime looks whether it is there, and reads nothing."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(temporary.folder())
    (folder / mapped.LOCATION).touch()
    return folder
