"""The data that a model is calibrated and judged on: the user's own, or generated where there is none.

Four forms are read: a ``.npz`` file, a folder of ``.npz`` or ``.npy`` files, a function that yields samples, and
samples as they are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from onnxrewrite.errors import UsageError, foreign
from onnxrewrite.inputs.bindings import InputSpec, input_specs
from onnxrewrite.inputs.sample import Sampler
from onnxrewrite.inputs.workload import workload
from onnxrewrite.runtime.session import ModelLike, one_line, skeleton
from onnxrewrite.suite.quality.functions import function, is_function
from onnxrewrite.system import files
from onnxrewrite.system.arrays import Array, Feeds, Held

Given: TypeAlias = "Data | str | os.PathLike[str] | Callable[[], Iterable[object]] | Iterable[object] | None"
"""The forms in which a caller may give data; see :func:`load_data`."""

LABELS = ("label", "labels")
"""The names of an array that is the expected result, not an input."""

GENERATED = 16
"""Samples that are made up where none are given."""


@dataclass(frozen=True)
class Sample:
    """One run of the model.

    Attributes:
        inputs: Arrays by input name.
        label: The expected result, for a metric of the user's own; None if it is not given.
    """

    inputs: Feeds
    label: object = None


@dataclass(frozen=True)
class Data(Sequence[Sample]):
    """Samples, and where they come from.

    Attributes:
        samples: In their order; one at least.
        source: A description of them, in a few words.
        generated: True if they were made up: figures that rest on them say nothing about real data.
    """

    samples: Sequence[Sample] = field(repr=False)
    source: str
    generated: bool = False

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        """A sample, or the data of a slice."""
        if isinstance(index, slice):
            return Data(self.samples[index], self.source, self.generated)
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all arrays: names, dtypes, shapes, values and labels."""
        made = hashlib.sha256()
        for sample in self.samples:
            for name, value in sorted(sample.inputs.items()):
                array = np.asarray(value)
                made.update(f"{name}:{array.dtype.str}:{array.shape}:".encode())
                made.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
            made.update(repr(sample.label).encode())
        return made.hexdigest()


def load_data(
    given: Given,
    model: ModelLike,
    *,
    most: int | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    option: str = "--data",
) -> Data:
    """Samples for a model.

    Args:
        given: A ``.npz`` file: arrays by input name, each one sample, or with one axis more in front, one sample a
            row (or as many rows as the model takes one of); ``label`` or ``labels`` is what is expected.  A folder:
            its ``.npz`` files, or for a model of one input its ``.npy`` files, in the order of their names.
            ``module:function``, ``file.py:function`` or a function: called without arguments, it yields samples.
            Samples: dicts of arrays, pairs of such a dict and a label, or ``Sample``.  None: made up.
        model: The model that they are for.
        most: So many are taken at most; of generated ones there are ``GENERATED`` without it.
        dims: Sizes of named dimensions of generated samples; the others are typical ones.
        seed: Of generated samples.
        option: The option by which the user gave it, for messages.

    Raises:
        UsageError: There is no such thing, it holds no samples, or they do not fit the model.
        ModelError: None are given, and none can be made up.
    """
    if isinstance(given, Data):
        return given[:most] if most is not None else given
    if given is None:
        return _generated(model, most or GENERATED, dims or {}, seed)
    reader = _Reader([s for s in input_specs(skeleton(model)) if not s.default], option)
    source, samples = reader.read(given)
    try:
        with foreign():
            found = [reader.fitted(s, number) for number, s in enumerate(islice(samples, most))]
    except UsageError:
        raise
    except Exception as error:  # whatever somebody else's generator raises
        raise UsageError(f"{option} {source}: {one_line(error)}") from error
    if not found:
        raise UsageError(f"{option} {source}: holds no samples")
    return Data(found, source)


def _generated(model: ModelLike, count: int, dims: Mapping[str, int], seed: int) -> Data:
    """Samples at one typical size, of different values."""
    binding = workload(model, dims=dims, seed=seed).binding
    sampler = Sampler(skeleton(model), dims=dims, seed=seed)
    return Data([Sample(sampler.feeds(binding, number)) for number in range(count)], "generated", generated=True)


@dataclass(frozen=True)
class _Reader:
    """Reads samples for a model with these inputs."""

    specs: Sequence[InputSpec]
    option: str

    def read(self, given: Any) -> tuple[str, Iterable[Any]]:
        """The name of the source, and the samples as they come."""
        if callable(given):
            return getattr(given, "__name__", "a function"), given()
        if not isinstance(given, (str, os.PathLike)):
            return "samples", given
        text = os.fspath(given)
        if is_function(text):
            return text, function(text, self.option)()
        path = Path(text)
        if os.path.isdir(path):
            return text, self._folder(path)
        if not files.is_regular(path):
            raise UsageError(f"{self.option} {text}: no such file or folder")
        return text, self._file(path)

    def _folder(self, path: Path) -> Iterator[Sample]:
        """The samples of all files of one kind."""
        found = sorted(path.glob("*.npz")) or sorted(path.glob("*.npy"))
        if not found:
            raise UsageError(f"{self.option} {path}: holds no .npz and no .npy files")
        for file in found:
            yield from self._file(file)

    def _file(self, path: Path) -> Iterator[Sample]:
        try:
            with files.open_regular(path) as file:
                loaded = np.load(file, allow_pickle=False)
                arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {self._only(path): loaded}
        except UsageError:
            raise
        except Exception:  # numpy raises half a dozen types, and advises to load what may be malicious
            raise UsageError(f"{self.option} {path}: holds no arrays, or is damaged") from None
        labels = next((arrays.pop(n) for n in LABELS if n in arrays and n not in self._names), None)
        yield from self._rows(arrays, labels)

    @property
    def _names(self) -> list[str]:
        return [s.name for s in self.specs]

    def _only(self, path: Path) -> str:
        if len(self.specs) != 1:
            raise UsageError(
                f"{self.option} {path}: a .npy file is one input; the model has {', '.join(self._names)}: give .npz"
            )
        return self.specs[0].name

    def _rows(self, arrays: Mapping[str, Array], labels: Array | None) -> Iterator[Sample]:
        """One sample, or one a row where every array has rows."""
        known = {n: a for n, a in arrays.items() if n in self._names}
        stacked = [_stacking(s, known[s.name]) for s in self.specs if s.name in known]
        if not stacked or None in stacked:
            yield Sample(arrays, labels)
            return
        width = 0 if all(w == 0 for w in stacked) else 1  # rows of their own, or rows that are batches of one
        for row in range(min(len(a) for a in known.values())):
            chosen = {n: a[row] if width == 0 else a[row : row + 1] for n, a in known.items()}
            yield Sample(chosen, labels[row] if labels is not None and np.ndim(labels) else labels)

    def fitted(self, given: object, number: int) -> Sample:
        """A sample with the dtypes of the model; UsageError where it does not fit."""
        sample = _as_sample(given)
        if sample is None:
            raise UsageError(f"{self.option}: sample {number} is {type(given).__name__}; give a dict of arrays by name")
        inputs = {}
        for spec in self.specs:
            if spec.name not in sample.inputs:
                has = ", ".join(sample.inputs) or "none"
                raise UsageError(f"{self.option}: sample {number} lacks input {spec.name}; it has {has}")
            inputs[spec.name] = self._cast(spec, sample.inputs[spec.name], number)
        return Sample(inputs, sample.label)

    def _cast(self, spec: InputSpec, value: Held, number: int) -> Held:
        if not spec.tensor:
            return value
        where = f"{self.option}: sample {number}, input {spec.name}"
        array = np.asarray(value)
        if spec.elem_type == onnx.TensorProto.STRING:
            return array.astype(object)
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type))
        if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "same_kind"):
            raise UsageError(f"{where}: holds {array.dtype}, the model wants {wanted}")
        if spec.dims is not None and not _shaped(array.shape, spec):
            raise UsageError(
                f"{where}: has shape {list(array.shape)}, the model wants [{', '.join(map(str, spec.dims))}]"
            )
        return np.ascontiguousarray(array, wanted).reshape(array.shape)


def _as_sample(given: object) -> Sample | None:
    if isinstance(given, Sample):
        return given
    if isinstance(given, Mapping):
        return Sample(given)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Mapping):
        return Sample(*given)
    return None


def _shaped(shape: Sequence[int], spec: InputSpec) -> bool:
    assert spec.dims is not None
    same_rank = len(shape) == len(spec.dims)
    return same_rank and all(not isinstance(d, int) or d == size for d, size in zip(spec.dims, shape, strict=True))


def _stacking(spec: InputSpec, array: Array) -> int | None:
    """The meaning of the rows of an array: 0, each is a sample; 1, each is a batch of one; None, it is one sample."""
    if spec.dims is None or _shaped(array.shape, spec) or array.ndim == 0:
        return None
    if _shaped(array.shape[1:], spec):
        return 0
    batches = spec.dims and spec.dims[0] == 1 and array.ndim == len(spec.dims) and _shaped((1, *array.shape[1:]), spec)
    return 1 if batches else None
