"""Opening and running ONNX Runtime sessions, in one place and always the same way.

Every check runs with graph optimizations off (``ORT_DISABLE_ALL``): ORT's own fusions would otherwise be
compared with ours, and the difference that is looked for would be hidden.  Failures come back as one line of
text, not as exceptions, because a model that does not run is a *result* here.  This module knows neither
tolerances nor inputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeAlias

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from onnxrewrite import io
from onnxrewrite.errors import one_line as one_line
from onnxrewrite.io import external, preserved
from onnxrewrite.ir import custom
from onnxrewrite.runtime import native, references
from onnxrewrite.runtime.limited import Overrun, seconds_for
from onnxrewrite.runtime.providers import EXACT
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import Array, Feeds, Held, Outputs, is_tensor

ModelLike: TypeAlias = onnx.ModelProto | ir.Model | str | Path

PROTO_LIMIT = 1_900_000_000
"""Bytes above which a model is handed to ORT as a file: one protobuf message holds less than 2 GiB."""

_MOST_THREADS = ContextVar("most threads", default=0)

_NO_MEMORY = re.compile(r"bad_alloc|bad allocation|allocate memory|requested bytes|MemoryError|memory exhausted", re.I)
"""Messages of ONNX Runtime and numpy when memory is exhausted."""

ORT_SUFFIX = ".ort"
"""Of files in ONNX Runtime's own format, which nothing else reads."""

COPIED = 2**22
"""Bytes of weights up to which a part of a model is a message of its own."""

_FATAL_OF_NOTHING = frozenset({"Einsum"})
"""Operators whose kernels divide by a size, zero or not, where they transpose an operand."""

_NARROW = {
    onnx.TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    onnx.TensorProto.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    onnx.TensorProto.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
}


def as_proto(model: ModelLike) -> onnx.ModelProto:
    """The model as one protobuf message, external data loaded.  Raises when it does not fit (2 GiB)."""
    if isinstance(model, onnx.ModelProto):
        return model
    return io.to_proto(model) if isinstance(model, ir.Model) else onnx.load(str(model))


@contextmanager
def site_proto(model: ir.Model) -> Iterator[onnx.ModelProto]:
    """A part of a model as one message, which refers to its weights where these are many."""
    if external.total_bytes(model) <= COPIED:
        yield io.to_proto(model)
        return
    with references.by_reference(model) as proto:
        yield proto


def skeleton(model: ModelLike) -> onnx.ModelProto:
    """The model without external weights: cheap to copy and to look at, not always runnable."""
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, ir.Model):
        with preserved.completed(model):
            return ir.to_proto(model)
    return onnx.load(str(model), load_external_data=False)


def weight_bytes(model: ModelLike) -> int:
    """Size of all initializers in bytes, without reading external data."""
    if isinstance(model, ir.Model):
        with preserved.completed(model):
            return external.total_bytes(model)
    if isinstance(model, (str, Path)) and Path(model).suffix == ORT_SUFFIX:
        return os.path.getsize(model)
    total = 0
    for tensor in skeleton(model).graph.initializer:
        is_outside = tensor.data_location == onnx.TensorProto.EXTERNAL  # else its entries say nothing
        length = next((e.value for e in tensor.external_data if e.key == "length"), "") if is_outside else ""
        total += int(length) if length.isdecimal() else _stored_bytes(tensor)
    return total


def message_bytes(model: ModelLike) -> int:
    """The same of initializers that lie in the model itself, and not elsewhere in memory."""
    return weight_bytes(model) - (references.referred_bytes(model) if isinstance(model, onnx.ModelProto) else 0)


def _stored_bytes(tensor: onnx.TensorProto) -> int:
    """The size of a tensor's contents; protobuf would make a copy to tell it."""
    known = external.tensor_bytes(tensor.dims, tensor.data_type) if tensor.HasField("raw_data") else None
    return tensor.ByteSize() if known is None else known


class Runnable(Protocol):
    """A model that can be run.

    Attributes:
        overrun: That a run took longer than it may: none is tried again.
    """

    overrun: str

    def run(self, feeds: Feeds) -> Outputs | str:
        """Outputs by name, or one line saying why there are none."""


@dataclass
class Session:
    """An open ORT session: the names and types of its interface, and ``run``."""

    handle: ort.InferenceSession
    inputs: list[str]
    outputs: list[str]
    types: dict[str, str]
    seconds: float | None = None
    """The time limit of one run."""
    keep: object = field(default=None, repr=False)
    """What has to live as long as the session: weights, or the folder that they lie in."""
    overrun: str = ""
    """That a run took longer: none is tried again."""
    refused: str = ""
    """The reason not to run it on empty inputs; empty if there is none."""

    def close(self) -> None:
        """Free what it holds, whoever holds it."""
        for name in ("handle", "keep"):
            vars(self).pop(name, None)

    @cached_property
    def fed(self) -> frozenset[str]:
        """The names of the inputs, and of the initializers that can be fed instead."""
        return frozenset((*self.inputs, *(each.name for each in self.handle.get_overridable_initializers())))

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None) -> Outputs | str:
        """Outputs by name, or one line saying why there are none.  Feeds that are no inputs are ignored."""
        if self.overrun:
            return self.overrun
        names = list(outputs) if outputs is not None else self.outputs
        given = {name: value for name, value in feeds.items() if name in self.fed}
        if self.refused and any(map(_is_empty, given.values())):
            return self.refused
        try:
            if self._needs_ortvalues(given):
                values = self._run_ortvalues(given, names)
            else:
                values = native.run(self.handle, names, given, seconds=self.seconds)
        except Overrun as error:
            self.overrun = str(error)
            return self.overrun
        except Exception as error:  # ORT raises a dozen classes, one a status code
            return one_line(error)
        return self._named(names, values)

    def run_each(self, feeds: Sequence[Feeds]) -> list[Outputs | str]:
        """The same of several runs."""
        given = [{name: value for name, value in each.items() if name in self.fed} for each in feeds]
        if self.overrun or self.refused or any(map(self._needs_ortvalues, given)):
            return [self.run(each) for each in feeds]
        try:
            found = native.run_each(self.handle, self.outputs, given, seconds=self.seconds)
        except MemoryError as error:
            return [one_line(error)] * len(given)
        self.overrun = next((str(each) for each in found if isinstance(each, Overrun)), "")
        return [one_line(each) if isinstance(each, Exception) else self._named(self.outputs, each) for each in found]

    @staticmethod
    def _named(names: Sequence[str], values: Sequence[Held]) -> Outputs:
        return dict(zip(names, map(without_maps, values), strict=True))

    def _needs_ortvalues(self, feeds: Feeds) -> bool:
        narrow = any(getattr(v, "dtype", None) in _NARROW.values() for v in feeds.values())
        return narrow or any("bfloat16" in t or "float8" in t for t in self.types.values())

    def _run_ortvalues(self, feeds: Feeds, names: Sequence[str]) -> list[Held]:
        wrapped = {name: to_ortvalue(value) for name, value in feeds.items()}
        made = native.run_values(self.handle, list(names), wrapped, seconds=self.seconds)
        return [from_ortvalue(v) for v in made]


def _is_empty(value: Held) -> bool:
    return is_tensor(value) and value.size == 0


def _fatal(model: ModelLike) -> str:
    """The reason not to run a model on empty inputs, of which a kernel dies by SIGFPE; empty if there is none."""
    if isinstance(model, onnx.ModelProto | ir.Model):
        nodes = model.graph.node if isinstance(model, onnx.ModelProto) else model.graph
        for node in nodes:
            if node.op_type in _FATAL_OF_NOTHING:
                return f"ONNX Runtime dies of {node.op_type} of empty operands"
    return ""


def without_maps(value: Held) -> Held:
    """A value with each map as the sequence of its keys and its values, in the order of the keys; ONNX Runtime computes
    fractions in float32."""
    if isinstance(value, Mapping):
        items = sorted(value.items())
        held = np.array([each for _, each in items])
        return [np.array([key for key, _ in items]), held.astype(np.float32) if held.dtype.kind == "f" else held]
    return [*map(without_maps, value)] if isinstance(value, list) else value


def to_ortvalue(value: Held) -> ort.OrtValue:
    """An OrtValue of a numpy array, of the narrow floats too."""
    array = np.ascontiguousarray(value).reshape(np.asarray(value).shape)  # which makes a scalar one of a dimension
    for code, dtype in _NARROW.items():
        if getattr(value, "dtype", None) == dtype:
            bits = array.view(np.uint8 if dtype.itemsize == 1 else np.uint16)
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, code)
    return ort.OrtValue.ortvalue_from_numpy(array)


def from_ortvalue(value: ort.OrtValue) -> Array:
    """A numpy array of an OrtValue, of the narrow floats too."""
    for code, dtype in _NARROW.items():
        name = onnx.TensorProto.DataType.Name(code).lower()
        if value.is_tensor() and value.data_type() == f"tensor({name})":
            raw = (ctypes.c_char * value.tensor_size_in_bytes()).from_address(value.data_ptr())
            return np.frombuffer(bytes(raw), dtype=dtype).reshape(value.shape())
    found: Array = value.numpy()
    return found


def is_short_of_memory(refusal: str) -> bool:
    """True if a model was not run for lack of memory, by the message of ``Session.run``."""
    return _NO_MEMORY.search(refusal) is not None


@contextmanager
def at_most_threads(count: int) -> Iterator[None]:
    """Within, sessions of checks that leave it open get so many threads; 0: ONNX Runtime's choice.

    It starts as many as there are processors, whatever else runs there.
    """
    before = _MOST_THREADS.set(count)
    try:
        yield
    finally:
        _MOST_THREADS.reset(before)


def session_options(threads: int = 0) -> ort.SessionOptions:
    """The options of every check: optimizations off, nothing on stderr, ``threads`` (0: ORT's choice).

    A check opens many sessions and runs each a few times.  So no time is spent on a plan of which values share memory,
    which is quadratic in the number of nodes (11 s for a float64 copy of 9000) and changes no result, nor the memory
    that a run needs, for values are freed after their last use all the same; and threads that wait do not spin.
    """
    options = custom.equip(ort.SessionOptions())
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_reuse = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    options.intra_op_num_threads = threads or _MOST_THREADS.get()
    options.inter_op_num_threads = 1
    return options


def open_session(
    model: ModelLike, *, threads: int = 0, pooled: bool = True, provider: str = native.CPU
) -> Session | str:
    """An ORT session, or one line saying why ORT refuses the model.

    Args:
        model: The model.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        pooled: True if it keeps the memory of a run for the next one.
        provider: The execution provider; the CPU runs what it has no kernel for.
    """
    options = session_options(threads)
    options.enable_cpu_mem_arena = pooled
    try:
        seconds = seconds_for(weight_bytes(model))
        handle, keep = _prototype(model, threads) if provider == native.CPU else None, None
        if handle is None:
            is_copied = provider != native.CPU  # no other one takes weights where they lie
            source, keep = source_of(model, options, timed=is_copied)
            handle = native.opened(source, options, seconds=seconds, provider=(provider, EXACT.get(provider, {})))
    except Exception as error:  # see Session.run
        return one_line(error)
    if provider not in handle.get_providers():  # ONNX Runtime says nothing and takes the CPU
        return f"{provider} does not start on this machine"
    interface = [*handle.get_inputs(), *handle.get_outputs()]
    return Session(
        handle,
        [i.name for i in handle.get_inputs()],
        [o.name for o in handle.get_outputs()],
        {i.name: i.type for i in interface},
        seconds,
        keep,
        refused=_fatal(model),
    )


@contextmanager
def passing_session(model: onnx.ModelProto, *, threads: int = 0) -> Iterator[Session | str]:
    """The same, closed at the end; of a model that refers to many weights it keeps no memory between runs."""
    session = open_session(model, threads=threads, pooled=references.referred_bytes(model) <= references.POOLED)
    try:
        yield session
    finally:
        if isinstance(session, Session):
            session.close()


def _prototype(model: ModelLike, threads: int) -> ort.InferenceSession | None:
    """A session in which kernels in Python run; None where there are none, or they do not take these dtypes."""
    if not any(op.kernel for op in custom.every()) or isinstance(model, str | Path):
        return None
    from onnxrewrite.runtime import prototypes

    changed = prototypes.in_python(as_proto(model))
    if changed is None:
        return None
    options = prototypes.equipped(session_options(threads))
    try:
        source, keep = references.source(changed, options, timed=False)
        return None if keep is not None else native.opened(source, options, seconds=seconds_for(0))
    except Exception:  # see Session.run
        return None


def source_of(
    model: ModelLike, options: ort.SessionOptions, *, timed: bool = False, packed: bool = False
) -> tuple[bytes | str, object]:
    """The bytes or the path that ONNX Runtime opens with these options, and an object to keep with the session, or
    None; ``timed`` and ``packed`` as for ``references.source``."""
    if isinstance(model, (str, Path)):
        return os.fspath(model), None
    if isinstance(model, ir.Model) and not timed and weight_bytes(model) > COPIED and _is_message(model):
        with references.by_reference(model) as proto:
            return references.source(proto, options, timed=timed)
    if isinstance(model, ir.Model) and weight_bytes(model) > PROTO_LIMIT:
        keep = contextlib.ExitStack()  # which leaves the folder when it is collected
        path = keep.enter_context(temporary.folder()) / "model.onnx"
        io.save(model, path, external_data=True)
        return os.fspath(path), keep
    return references.source(as_proto(model), options, timed=timed, packed=packed)


def _is_message(model: ir.Model) -> bool:
    """True if a message holds a model whose weights it refers to."""
    with preserved.completed(model):
        is_old = model.ir_version < preserved.OVERRIDABLE_SINCE  # which ``by_reference`` leaves whole
        return not is_old and references.inner_bytes(model) <= PROTO_LIMIT


@contextmanager
def referred(model: ir.Model) -> Iterator[onnx.ModelProto | str]:
    """A model in a form that ORT opens: a message that refers to its weights; or, if what it holds all the same is
    beyond 2 GB, a file that is gone afterwards.  It is not for timing: weights may stay unpacked.
    """
    if _is_message(model):
        with references.by_reference(model) as proto:
            yield proto
    else:
        with openable(model) as opened:
            yield opened


@contextmanager
def openable(model: ir.Model) -> Iterator[onnx.ModelProto | str]:
    """A model in a form that ORT opens: a message, or, beyond 2 GB, a file that is gone afterwards."""
    if not io.needs_external_data(model):
        yield io.to_proto(model)
        return
    with temporary.folder() as folder:
        path = folder / "model.onnx"
        io.save(model.clone(), path)
        yield os.fspath(path)
