"""Models in and out: ``load``, ``save``, ``to_proto``.

A loaded model is ready to be worked on: every value and node of it has a name of its own (inner graphs
included), nodes are in order, weights in other files stay there until they are read, and what must not be
taken for a constant is none.  Saving gives back what was taken away and writes the interface as it was read.
This module must not know what rewrites do in between.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import onnx
import onnx_ir as ir

from onnxrewrite.errors import IncompleteError, ModelError, Rest
from onnxrewrite.io import external, held, mapped, preserved, repair
from onnxrewrite.io.strings import repair_strings
from onnxrewrite.ir.names import repeated
from onnxrewrite.system import address_space, files, temporary


class Companion(NamedTuple):
    """A file that goes with a model.

    Attributes:
        what: Its name in a message.
        made: Makes it, given the model's file, and its files by the names that they shall get, under the names that
            they still have: where it is written, and what it holds.
    """

    what: str
    made: Callable[[Path, Mapping[Path, Path]], tuple[Path, bytes]]


_T = TypeVar("_T")
_P = TypeVar("_P", onnx.ValueInfoProto, onnx.TrainingInfoProto)


class Owned(NamedTuple):
    """A loaded model that nobody else works on, or changes later: it need not be copied."""

    model: ir.Model


Source = str | os.PathLike[str] | onnx.ModelProto | ir.Model | Owned

_TEXT: Final = frozenset(range(32, 127)) | frozenset(b"\t\n\r\f")


def load(source: Source, *, folder: str | os.PathLike[str] | None = None) -> ir.Model:
    """A model to work on; ``source`` is never changed, unless it is ``Owned``.

    A path is read without its external data.  A proto or an ``ir.Model`` is copied (an ``ir.Model`` shares
    its tensors with the copy); ``folder`` says where the external data of a proto lie.

    Unsorted nodes are sorted, missing and duplicate names of nodes are repaired, values of inner graphs are
    renamed where they shadow others: see ``repairs``.  ModelError, one line, for all else that is wrong.
    """
    if isinstance(source, Owned):
        return source.model
    if isinstance(source, ir.Model):
        return _from_model(source)
    if isinstance(source, onnx.ModelProto):
        copied = onnx.ModelProto()
        copied.CopyFrom(source)
        return _from_proto(copied, os.path.abspath(folder) if folder is not None else None, "model", None)
    path = os.path.abspath(source)
    where = os.fspath(source)
    proto, weights = _read(path, where)
    return _from_proto(proto, os.path.dirname(path), where, path, weights)


def load_weightless(proto: onnx.ModelProto, weights: mapped.Mapped) -> ir.Model:
    """The model of a message of ``to_weightless``, which becomes the model's own."""
    return _from_proto(proto, None, "model", None, weights)


def repairs(model: ir.Model) -> tuple[str, ...]:
    """The repairs made by ``load``, one line each; empty for a model that was not loaded."""
    known = preserved.origin(model)
    return known.repairs if known is not None else ()


def opset(model: ir.Model) -> int:
    """The model's ai.onnx opset; 1 where it imports none, which makes no newer operator legal."""
    return model.graph.opset_imports.get("", 1)


def needs_external_data(model: ir.Model) -> bool:
    """True if the model is too large for one file, by the nominal sizes of its tensors; loads nothing."""
    with preserved.completed(model):
        return external.total_bytes(model) > external.INLINE_LIMIT


# --------------------------------------------------------------------------------------------------- reading


def read_proto(path: str, where: str) -> onnx.ModelProto:
    """The model in a file as it is, external data left where they are.

    Raises:
        ModelError: It cannot be read, or holds no model; the message begins with ``where``.
    """
    return _parsed(_reading(lambda: files.read_bytes(path, external.PROTOBUF_LIMIT - 1), where), where)


def _read(path: str, where: str) -> tuple[onnx.ModelProto, mapped.Mapped]:
    """The same with large weights left where they are; these by name."""
    found = _reading(lambda: mapped.read(path), where)
    if found is None:
        return read_proto(path, where), {}
    data, weights = found
    return _parsed(data, where), weights


def _reading(read: Callable[[], _T], where: str) -> _T:
    """The result of reading a file; ModelError where it cannot be read."""
    try:
        return read()
    except FileNotFoundError:
        raise ModelError(f"{where}: no such file") from None
    except IsADirectoryError:
        raise ModelError(f"{where}: is a folder; give the .onnx file in it") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ModelError(f"{where}: is 2 GB or larger, which protobuf cannot read; use external data") from None
        raise ModelError(f"{where}: cannot be read: {error.strerror or error}") from None


def _parsed(data: bytes, where: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{where}: is empty")
    proto, parsed = onnx.ModelProto(), True
    try:
        proto.ParseFromString(data)
    except Exception:  # protobuf's implementations raise different types; each means: not parsed
        parsed = False
    if not parsed or not proto.HasField("graph"):
        raise ModelError(f"{where}: {_what_else(data, parsed=parsed)}")
    return proto


def _what_else(data: bytes, *, parsed: bool) -> str:
    if data.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the model; run git lfs pull"
    if set(data[:4096]) <= _TEXT:
        return "is a text file, not a binary ONNX model"
    if parsed:
        return "has no graph; it is not a complete ONNX model"
    return "is not an ONNX model, or a truncated one; export or download it again"


def _from_proto(
    proto: onnx.ModelProto, folder: str | None, where: str, path: str | None, beside: mapped.Mapped | None = None
) -> ir.Model:
    """Takes the proto over: its tensors become the model's, and those ``beside`` it, which it only names."""
    beside = beside or {}
    if not proto.HasField("graph"):
        raise ModelError(f"{where}: has no graph; it is not a complete ONNX model")
    try:
        said = repair_strings(proto, where)
        repair.check(proto, folder, where, beside.keys())
        said += repair.repair_header(proto)
        inputs = {each.name for each in proto.graph.input}
        sparse = tuple(t for t in proto.graph.sparse_initializer if t.values.name in inputs)
        interface = _copies(proto.graph.input), _copies(proto.graph.output)
        preserved.hide_sparse(proto)
        preserved.hide_maps(proto)
        preserved.hide_functions(proto)
        with preserved.quiet():
            model = ir.from_proto(proto)
        for name, weight in beside.items():
            model.graph.initializers[name].const_value = weight
        known = set(map(id, beside.values()))
        outside = [t for t in held.hold(model) if isinstance(t, ir.ExternalTensor) and id(t) not in known]
        for tensor in outside:
            tensor.base_dir = folder or ""
        said += repair.repair(model, where)
    except RecursionError:
        raise ModelError(f"{where}: its graphs are nested too deeply") from None
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{where}: cannot be read: {preserved.root_cause(error)}") from None
    is_old = model.ir_version < preserved.OVERRIDABLE_SINCE
    weights = [(v.name or "", v.const_value) for v in model.graph.initializers.values()]
    address_space.expect(external.total_bytes(model))
    preserved.remember(
        model,
        preserved.Origin(
            path=path,
            size=os.path.getsize(path) if path is not None else None,
            data_files=tuple(dict.fromkeys(os.fspath(t.location) for t in outside)),
            repairs=tuple(said),
            inputs=interface[0],
            outputs=interface[1],
            described=frozenset(info.name for info in proto.graph.value_info),
            training=_copies(proto.training_info),
            sparse_defaults=sparse,
            constants={n: t for n, t in weights if t is not None and n in inputs} if is_old else {},
        ),
    )
    preserved.set_aside(model)
    return model


def _from_model(source: ir.Model) -> ir.Model:
    known = preserved.origin(source)
    imports = (source.opset_imports, *(f.opset_imports for f in source.functions.values()))
    for each in imports:
        repair.check_versions(each.items(), "model")
    for slot in external.slots(source):
        if isinstance(slot.tensor, ir.ExternalTensor):
            folder = os.fspath(slot.tensor.base_dir)
            external.check(ir.to_proto(slot.tensor), folder, f"model: tensor '{slot.tensor.name}'")
    if not all(repair.in_order(g) for g in (source.graph, *(f.graph for f in source.functions.values()))):
        return _from_unsorted(source)
    try:
        model = source.clone()
        with preserved.quiet():
            inputs, outputs = ([ir.to_proto(v) for v in each] for each in (model.graph.inputs, model.graph.outputs))
    except RecursionError:
        raise ModelError("model: its graphs are nested too deeply") from None
    except Exception as error:
        raise ModelError(f"model: cannot be copied: {preserved.root_cause(error)}") from None
    names = {proto.name for proto in inputs}
    twice = repeated(proto.name for proto in inputs)
    if twice is not None:
        raise ModelError(f"model: graph input '{twice}' is listed twice")
    said = repair.repair(model, "model")
    if known is None:
        weights = [(v.name or "", v.const_value) for v in model.graph.initializers.values()]
        is_old = model.ir_version < preserved.OVERRIDABLE_SINCE
        known = preserved.Origin(
            path=None,
            size=None,
            data_files=(),
            repairs=tuple(said),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            described=frozenset(),
            training=(),
            sparse_defaults=(),
            constants={n: t for n, t in weights if t is not None and n in names} if is_old else {},
        )
    preserved.remember(model, replace(known, size=None))  # it may have changed since it was loaded
    preserved.set_aside(model)
    return model


def _from_unsorted(source: ir.Model) -> ir.Model:
    """By way of a proto, whose check says what is wrong if it is more than the order."""
    tensors = [slot.tensor for slot in external.slots(source)]
    folders = {os.fspath(t.base_dir) for t in tensors if isinstance(t, ir.ExternalTensor)}
    if len(folders) > 1:
        raise ModelError("model: nodes are not in order and weights lie in several folders; sort it first")
    with preserved.completed(source):
        proto = ir.to_proto(source)
    return load(proto, folder=next(iter(folders), None))


def _copies(protos: Iterable[_P]) -> tuple[_P, ...]:
    copies = []
    for each in protos:
        copied = type(each)()
        copied.CopyFrom(each)
        copies.append(copied)
    return tuple(copies)


# --------------------------------------------------------------------------------------------------- writing


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as one self-contained proto, as ``save`` would write it; ModelError if it is too large."""
    if needs_external_data(model):
        raise ModelError("model: 2 GB of weights do not fit into one proto; save it with external data")
    with preserved.completed(model), external.inlined(model):
        return preserved.serialized(model)


def to_weightless(model: ir.Model) -> tuple[onnx.ModelProto, mapped.Mapped]:
    """The model as a message in which large initializers only bear their names, and these by name."""
    return mapped.weightless(model, lambda tensor: tensor.nbytes >= external.EXTERNAL_THRESHOLD)


def to_bytes(model: ir.Model) -> bytes:
    """The bytes of ``to_proto``; the same model gives the same bytes."""
    return _bytes(to_proto(model), "model")


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    external_data: bool | None = None,
    location: str | None = None,
    companion: Companion | None = None,
) -> None:
    """Write the model; it is then complete, or the files at ``path`` are what they were.

    Large models (``needs_external_data``, or ``external_data=True``) put their weights into
    ``NAME.onnx.data`` beside the model, tensor by tensor; ``location`` is what the model calls that file, where it is
    to be called otherwise later.  Files get their names only when they are complete, the ``companion`` together with
    them.  Where ``path`` is a link, it stays one, and the file that it points to is written; other hard links of a file
    that is replaced keep what it was.
    ``path`` may be where the model came from: tensors that were read from an overwritten data file are read
    from the new one afterwards, in this model; other clones of it can no longer read them, and say so.

    Raises:
        ModelError: It cannot be written.
        IncompleteError: It is written, and its companion cannot be made, or not be written.
    """
    try:
        target = files.destination(path)
    except OSError as error:
        raise ModelError(f"{os.fspath(path)}: cannot be written: {error.strerror}; nothing was changed") from None
    _check_interface(model, target)
    mapped.check_unchanged(model, os.fspath(path))
    if os.path.isdir(target):
        raise ModelError(f"{target}: is a folder; give a file name")
    if os.path.exists(target) and not files.is_regular(target):
        raise ModelError(f"{target}: cannot be written: it is not a regular file")
    if not os.path.isdir(target.parent):
        raise ModelError(f"{target}: cannot be written: there is no folder {target.parent}")
    if external_data is None:
        external_data = needs_external_data(model)
    try:
        if external_data:
            lost = _save_with_data(model, target, _data_name(model, target), location, companion)
        else:
            lost = _save_alone(model, target, companion)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"{target}: cannot be written: {reason}; nothing was changed") from None
    if lost is not None:
        raise lost


def replace_proto(proto: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write a model that was read by ``read_proto`` back to its file, all of it or nothing; external data stay.

    A link is followed, so that it stays one.

    Raises:
        ModelError: The file cannot be written.
    """
    target = Path(os.path.realpath(path))
    data = _bytes(proto, os.fspath(path))
    try:
        with temporary.beside(target) as file:
            _write(file, data)
            _replace({target: file})
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"{os.fspath(path)}: cannot be written: {reason}; nothing was changed") from None


def _save_alone(model: ir.Model, target: Path, companion: Companion | None) -> IncompleteError | None:
    with temporary.beside(target) as file:
        proto, weights = to_weightless(model)
        with open(file, "wb") as stream:
            mapped.write(proto, weights, stream, str(target))
            stream.flush()
            os.fsync(stream.fileno())
        return _accompanied(target, {target: file}, companion)


def _save_with_data(
    model: ir.Model, target: Path, data_name: str, location: str | None, companion: Companion | None
) -> IncompleteError | None:
    folder = os.path.abspath(target.parent)
    with preserved.completed(model):
        data_path = target.parent / data_name
        overwritten = external.reads_from(model, os.fspath(data_path))
        with temporary.beside(data_path) as data_file, temporary.beside(target) as model_file:
            with external.placed(model, folder, location or data_path.name) as plan:
                proto = preserved.serialized(model)
            with open(data_file, "wb") as file:
                external.write(plan, file)
                file.flush()
                os.fsync(file.fileno())
            _write(model_file, _bytes(proto, str(target)))
            lost = _accompanied(target, {data_path: data_file, target: model_file}, companion)
        references = {id(each.slot.tensor): each.reference for each in plan}
        for slot in overwritten:
            if isinstance(slot.tensor, ir.ExternalTensor):
                slot.put(references[id(slot.tensor)])
                slot.tensor.invalidate()
    return lost


def _data_name(model: ir.Model, target: Path) -> str:
    """``NAME.onnx.data``, unless that is a data file of the input, and the input is to be kept."""
    known = preserved.origin(model)
    is_same = known is not None and known.path is not None and known.path == os.path.abspath(target)
    for count in itertools.count():
        name = f"{target.name}{f'.{count}' if count else ''}.data"
        if is_same or not external.reads_from(model, os.fspath(target.parent / name)):
            return name
    raise AssertionError("unreachable")


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _accompanied(model: Path, moves: dict[Path, Path], companion: Companion | None) -> IncompleteError | None:
    """Give the files of a model their names, with its companion before them; where that is lost, the model is not."""
    rest, added = Rest(f"{model} was written"), dict[Path, Path]()
    with contextlib.ExitStack() as stack:
        if companion is not None:
            with rest.part(companion.what):
                path, content = companion.made(model, moves)
                own = files.destination(path)
                file = stack.enter_context(temporary.beside(own))
                _write(file, content)
                added[own] = file
        _replace({**added, **moves})
    return rest.incomplete()


def _replace(moves: dict[Path, Path]) -> None:
    """Give complete files their names, the model last; if one cannot have it, all are as they were."""
    done: list[tuple[Path, Path | None]] = []
    with contextlib.ExitStack() as stack:
        try:
            for target, file in moves.items():
                old = None
                if target.exists():
                    shutil.copymode(target, file)
                    old = stack.enter_context(temporary.second_name(target)) if len(moves) > 1 else None
                os.replace(file, target)
                done.append((target, old))
        except BaseException:
            for target, old in reversed(done):
                if old is not None:
                    os.replace(old, target)
                else:
                    target.unlink(missing_ok=True)
            raise


def _bytes(proto: onnx.ModelProto, where: str) -> bytes:
    try:
        data: bytes = proto.SerializeToString(deterministic=True)
    except Exception:  # protobuf's implementations raise different types for a message that is too large
        raise ModelError(f"{where}: does not fit into 2 GB; save it with external data") from None
    return data


def _check_interface(model: ir.Model, target: Path) -> None:
    known = preserved.origin(model)
    if known is None:
        return
    for kind, before, after in (
        ("inputs", known.inputs, model.graph.inputs),
        ("outputs", known.outputs, model.graph.outputs),
    ):
        if [proto.name for proto in before] != [value.name for value in after]:
            raise ModelError(f"{target}: not written, for the model's {kind} changed; this is a bug of a rule")
