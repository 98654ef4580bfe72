"""``CachedSession``: a session that remembers the outputs of inputs that it has seen.

A model without random operators is a function, so the same inputs have the same outputs.  Inputs are told apart by a
BLAKE2b hash of 256 bits over their names, dtypes, shapes and bytes; that two which differ have the same one is too
unlikely for any run to meet.  What is least recently used goes first.
"""

from __future__ import annotations

import copy
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from cachetools import LRUCache

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.ir.random_operators import stochastic_ops
from onnxrewrite.runtime.opening import session as open_best
from onnxrewrite.runtime.session import Session, from_ortvalue, skeleton
from onnxrewrite.system.arrays import Feeds, Held

Key: TypeAlias = bytes

ENTRIES = 128
BYTES = 256 * 2**20


@dataclass(frozen=True)
class CacheInfo:
    """Statistics of a cache: hits and misses so far, and the ``bytes`` of arrays in its ``entries``."""

    hits: int
    misses: int
    entries: int
    bytes: int

    @property
    def hit_rate(self) -> float:
        """Hits of all runs; 0 before the first."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0

    def to_json(self) -> dict[str, float]:
        """Plain data."""
        return {**asdict(self), "hit_rate": self.hit_rate}


class CachedSession:
    """An ONNX Runtime session that runs the model only for inputs that it does not remember.

    Args:
        model: A model file, opened by ``session`` with the options that are stored in it, or an open session.
        maxsize: Runs that are remembered at the most.
        max_bytes: Bytes of output arrays that are remembered at the most; a larger result is computed each time.
        options: For ``session``, where ``model`` is a file.

    It may be used by several threads.  Outputs are read-only views of what is remembered: copy what you want to change.
    Custom operators are taken for functions.

    Raises:
        ModelError: The model cannot be opened.
        UsageError: It has random operators, or a size is negative.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | ort.InferenceSession,
        maxsize: int = ENTRIES,
        max_bytes: int = BYTES,
        **options: Any,
    ):
        if maxsize < 0 or max_bytes < 0:
            raise UsageError("maxsize and max_bytes of a cached session must not be negative")
        if isinstance(model, ort.InferenceSession):
            if options:
                raise UsageError("an open session takes no options")
            opened, source = model, _source_of(model)
        else:
            opened, source = open_best(model, **options), skeleton(os.fspath(model))
        _must_be_a_function(source)
        self.session = opened
        self.maxsize = maxsize
        self.max_bytes = max_bytes
        ends = [*opened.get_inputs(), *opened.get_outputs()]
        self._inputs = [i.name for i in opened.get_inputs()]
        self._outputs = [o.name for o in opened.get_outputs()]
        self._overridable = {i.name for i in opened.get_overridable_initializers()}
        self._session = Session(opened, self._inputs, self._outputs, {e.name: e.type for e in ends})
        self._cache: LRUCache[Key, _Kept] = LRUCache(max_bytes, getsizeof=lambda kept: kept.size)
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Held | ort.OrtValue],
        run_options: ort.RunOptions | None = None,
    ) -> list[Any]:
        """The outputs, as ``onnxruntime.InferenceSession.run`` gives them, but read-only.

        Args:
            output_names: The outputs to compute; None or an empty list means all.
            input_feed: Arrays by name of the input; bfloat16 and float8 are those of ``ml_dtypes``.
            run_options: With them nothing is remembered, for they may change what comes out.

        Raises:
            UsageError: There is no such input or output.
            ModelError: The model does not run on these inputs.
        """
        names = list(output_names or self._outputs)
        self._must_know(names, input_feed)
        if run_options is not None:
            found: list[Any] = self.session.run(names, dict(input_feed), run_options)
            return found
        feeds = {name: self._array(name, value) for name, value in input_feed.items()}
        key = fingerprint(names, feeds)
        with self._lock:
            kept = self._cache.get(key)
            self._hits += kept is not None
            self._misses += kept is None
        if kept is None:
            kept = self._computed(names, feeds)
            self._remember(key, kept)
        return [_view(value) for value in kept.values]

    @property
    def info(self) -> CacheInfo:
        """The statistics of the cache: hits and misses so far, and its current size."""
        with self._lock:
            return CacheInfo(self._hits, self._misses, len(self._cache), int(self._cache.currsize))

    @property
    def hits(self) -> int:
        """Runs whose outputs were remembered."""
        return self.info.hits

    @property
    def misses(self) -> int:
        """Runs that had to be computed."""
        return self.info.misses

    @property
    def hit_rate(self) -> float:
        """Hits of all runs."""
        return self.info.hit_rate

    def clear(self) -> None:
        """Forget all outputs, and count from zero."""
        with self._lock:
            self._cache.clear()
            self._hits = self._misses = 0

    def get_inputs(self) -> Sequence[ort.NodeArg]:
        """As of the session."""
        found: Sequence[ort.NodeArg] = self.session.get_inputs()
        return found

    def get_outputs(self) -> Sequence[ort.NodeArg]:
        """As of the session."""
        found: Sequence[ort.NodeArg] = self.session.get_outputs()
        return found

    def get_providers(self) -> Sequence[str]:
        """As of the session."""
        found: Sequence[str] = self.session.get_providers()
        return found

    def _must_know(self, names: Sequence[str], feeds: Iterable[str]) -> None:
        for kind, asked, known in (
            ("output", names, self._outputs),
            ("input", feeds, [*self._inputs, *sorted(self._overridable)]),
        ):
            unknown = next((name for name in asked if name not in known), None)
            if unknown is not None:
                raise UsageError(f"the model has no {kind} {unknown!r}; it has {', '.join(known)}")

    def _array(self, name: str, value: Held | ort.OrtValue) -> Held:
        """An input as it is hashed and run: of a tensor an array; sequences, maps and optionals as they are."""
        if isinstance(value, ort.OrtValue):
            return from_ortvalue(value)
        is_tensor = self._session.types.get(name, "tensor").startswith("tensor")
        return np.asarray(value) if is_tensor else value

    def _computed(self, names: Sequence[str], feeds: Feeds) -> _Kept:
        found = self._session.run(feeds, names)
        if isinstance(found, str):
            raise ModelError(f"the model does not run: {found}")
        values = [_sealed(found[name]) for name in names]
        return _Kept(values, sum(map(_bytes_of, values)))

    def _remember(self, key: Key, kept: _Kept) -> None:
        if self.maxsize == 0 or kept.size > self.max_bytes:
            return
        with self._lock:
            if key not in self._cache:  # else another thread computed the same
                while len(self._cache) >= self.maxsize:
                    self._cache.popitem()
                self._cache[key] = kept


@dataclass(frozen=True)
class _Kept:
    """Outputs that are remembered, and their size in bytes."""

    values: Sequence[Held]
    size: int


def fingerprint(names: Sequence[str], feeds: Feeds) -> Key:
    """A hash of what a run depends on: names of outputs in order; names, dtypes, shapes and bytes of inputs in any."""
    state = hashlib.blake2b(digest_size=32)
    _add(state, list(names))
    for name in sorted(feeds):
        _add(state, name)
        _add(state, feeds[name])
    return state.digest()


def _add(state: hashlib.blake2b, value: object) -> None:
    """Each part begins with its kind and its length, so that no two sequences of parts have the same bytes."""
    if isinstance(value, str):
        _put(state, b"text", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes):
        _put(state, b"bytes", value)
    elif isinstance(value, list | tuple):
        state.update(b"list %d;" % len(value))
        for each in value:
            _add(state, each)
    elif isinstance(value, Mapping):
        state.update(b"map %d;" % len(value))
        for key, each in value.items():
            _add(state, key)
            _add(state, each)
    elif isinstance(value, np.ndarray):
        _put(state, b"array", f"{value.dtype.name} {value.dtype.str} {value.shape}".encode())
        if value.dtype.hasobject:
            _add(state, value.ravel().tolist())
        else:
            state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    else:
        _put(state, type(value).__name__.encode(), repr(value).encode())


def _put(state: hashlib.blake2b, kind: bytes, data: bytes) -> None:
    state.update(b"%s %d;" % (kind, len(data)))
    state.update(data)


def _sealed(value: Held) -> Held:
    """An output of our own that nobody can write to by mistake."""
    if isinstance(value, np.ndarray):
        own = value if value.flags.owndata else value.copy()
        own.flags.writeable = False
        return own
    return copy.deepcopy(value)


def _view(value: Held) -> Held:
    """An output as it is given away: no view of a read-only array can be made writable."""
    return value.view() if isinstance(value, np.ndarray) else copy.deepcopy(value)


def _bytes_of(value: object) -> int:
    """Bytes of an output; of texts those in UTF-8, with 8 for each reference."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + (sum(map(_bytes_of, value.ravel())) if value.dtype.hasobject else 0)
    if isinstance(value, Mapping):
        return sum(_bytes_of(k) + _bytes_of(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_bytes_of, value))
    if isinstance(value, str | bytes):
        return len(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
    return 8


def _source_of(opened: ort.InferenceSession) -> onnx.ModelProto:
    """The model of an open session, without external weights."""
    path, data = getattr(opened, "_model_path", None), getattr(opened, "_model_bytes", None)
    try:
        return skeleton(os.fspath(path)) if path else onnx.load_model_from_string(data or b"")
    except Exception as error:  # a file that is gone, an ORT-format model, another version of ONNX Runtime
        raise UsageError("cannot tell whether this session's model is random; give the path of its file") from error


def _must_be_a_function(model: onnx.ModelProto) -> None:
    random = stochastic_ops(model)
    if random:
        raise UsageError(f"the model is random ({', '.join(random)}), so its outputs cannot be remembered")


__all__ = ["CacheInfo", "CachedSession", "fingerprint"]
