"""The data that a model is calibrated and judged on: the user's own, or generated where there is none.

Four forms are read: a ``.npz`` file, a folder of ``.npz`` or ``.npy`` files, a function that yields samples, and
samples as they are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from onnxrewrite.errors import UsageError, foreign
from onnxrewrite.inputs.bindings import InputSpec, input_specs
from onnxrewrite.inputs.classes import is_data, is_float
from onnxrewrite.inputs.sample import Sampler, Trial, attempt
from onnxrewrite.inputs.workload import batch_dims, workload
from onnxrewrite.runtime.session import ModelLike, one_line, open_session, skeleton
from onnxrewrite.suite.quality.functions import function, is_function
from onnxrewrite.suite.quality.sample_rows import Rows, fits
from onnxrewrite.system import files
from onnxrewrite.system.arrays import Feeds, Held, element_count

Given: TypeAlias = "Data | str | os.PathLike[str] | Callable[[], Iterable[object]] | Iterable[object] | None"
"""The forms in which a caller may give data; see :func:`load_data`."""

LABELS = ("label", "labels")
"""The names of an array that is the expected result, not an input."""

EVERY, PARTED = 4, 8
"""Every so many-th sample is kept from calibration, where there are so many."""

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
        batch: Rows of a sample, where it was made of rows.
        doubt: Why figures that rest on them may be wrong; empty where nothing is known against them.
    """

    samples: Sequence[Sample] = field(repr=False)
    source: str
    generated: bool = False
    batch: int = 1
    doubt: str = ""

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        """A sample, or the data of a slice."""
        if isinstance(index, slice):
            return replace(self, samples=self.samples[index])
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def parted(self) -> tuple[Data, Data]:
        """The samples to calibrate on, and those to judge on: every fourth is kept from calibration.

        Of fewer than ``PARTED`` all are for both, and ``doubt`` says so.
        """
        count = len(self)
        if count < PARTED:
            few = f"calibrated and judged on the same data, of {PARTED - 1} samples or fewer: give more"
            return self, replace(self, doubt=few)
        kept = self.samples[EVERY - 1 :: EVERY]
        others = [sample for number, sample in enumerate(self.samples) if number % EVERY != EVERY - 1]
        source = f"{self.source} ({len(kept)} of {count} samples, kept from calibration)"
        return replace(self, samples=others), replace(self, samples=kept, source=source)

    @cached_property
    def timed(self) -> Sample:
        """The sample that stands for all where models are timed: the first one of the median size."""
        sizes = [element_count(sample.inputs) for sample in self.samples]
        return self.samples[sizes.index(sorted(sizes)[(len(sizes) - 1) // 2])]

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
    batch: int = 1,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    option: str = "--data",
) -> Data:
    """Samples for a model.

    Args:
        given: A ``.npz`` file: arrays by input name, and ``label`` or ``labels``, what is expected.  Where the model
            takes a batch, by a dimension that is open or by 1, each row is a sample; one axis more in front counts runs
            of whatever batch; else all is one sample.  The positions at the end that an attention mask leaves out are
            cut off.  A folder: its ``.npz`` files, or for a model of one input its ``.npy`` files, in the order of
            their names.  ``module:function``, ``file.py:function`` or a function: called without arguments, it yields
            samples.  Samples: dicts of arrays, pairs of such a dict and a label, or ``Sample``, each one run as it is.
            None: made up.
        model: The model that they are for.
        most: So many are taken at most; of generated ones there are ``GENERATED`` without it.
        batch: Rows of a file that make one sample, and the batch of generated ones.
        dims: Sizes of named dimensions of generated samples; the others are typical ones.
        seed: Of generated samples.
        option: The option by which the user gave it, for messages.

    Raises:
        UsageError: There is no such thing, it holds no samples, they do not fit the model, are NaN or infinite, or are
            fewer than a batch.
        ModelError: None are given, and none can be made up.
    """
    if batch < 1:
        raise UsageError(f"batch must be 1 at least, not {batch}")
    if isinstance(given, Data):
        return given[:most] if most is not None else given
    if given is None:
        return _generated(model, most or GENERATED, batched(model, dims or {}, batch), seed)
    reader = _Reader(skeleton(model), option, batch)
    source, samples = reader.read(given)
    where = f"{option} {source}"
    try:
        with foreign():
            found = [reader.fitted(s, f"{where}: sample {number}") for number, s in enumerate(islice(samples, most))]
    except UsageError:
        raise
    except Exception as error:  # whatever somebody else's generator raises
        raise UsageError(f"{where}: {one_line(error)}") from error
    if not found:
        raise UsageError(f"{where}: holds no samples")
    return Data(found, source, batch=batch)


def _generated(model: ModelLike, count: int, dims: Mapping[str, int], seed: int) -> Data:
    """Samples at one typical size, of different values, on which the model runs."""
    opened = open_session(model)
    session = None if isinstance(opened, str) else opened
    binding = workload(model, dims=dims, seed=seed, session=session).binding
    sampler = Sampler(skeleton(model), dims=dims, seed=seed)
    tried = (attempt(sampler, session, binding, number) for number in range(count)) if session is not None else ()
    return Data([Sample(each.feeds) for each in tried if isinstance(each, Trial)], "generated", generated=True)


def must_exist(given: Given, option: str = "--data") -> None:
    """UsageError for a file or folder of data that is not there."""
    if not isinstance(given, (str, os.PathLike)) or is_function(text := os.fspath(given)):
        return
    if not os.path.isdir(text) and not files.is_regular(text):
        raise UsageError(f"{option} {text}: no such file or folder")


def batched(model: ModelLike, dims: Mapping[str, int], batch: int) -> dict[str, int]:
    """Sizes of named dimensions, with those of the batch where it is not 1; ``dims`` come first.

    Raises:
        UsageError: The model takes no batch of a size of one's own.
    """
    names = batch_dims(model) if batch != 1 else []
    if batch != 1 and not names:
        raise UsageError(f"--batch {batch}: the model has no named dimension for a batch")
    return {**dict.fromkeys(names, batch), **dims}


class _Reader:
    """Reads samples for a model."""

    def __init__(self, model: onnx.ModelProto, option: str, batch: int):
        self.specs = [s for s in input_specs(model) if not s.default]
        self.option = option
        self.rows = Rows(self.specs, batch)
        self.takes_nan = any(n.op_type == "IsNaN" or n.domain == "ai.onnx.ml" for n in model.graph.node)

    def read(self, given: Any) -> tuple[str, Iterable[Any]]:
        """The name of the source, and the samples as they come."""
        source, samples, of_files = self._found(given)
        if self.rows.batch != 1 and not of_files:
            raise UsageError(f"{self.option} {source}: gives whole runs; a batch is for rows of files")
        return source, samples

    def _found(self, given: Any) -> tuple[str, Iterable[Any], bool]:
        """The same, and True if they are read from files."""
        if callable(given):
            return getattr(given, "__name__", "a function"), given(), False
        if not isinstance(given, (str, os.PathLike)):
            return "samples", given, False
        must_exist(given, self.option)
        text = os.fspath(given)
        if is_function(text):
            return text, function(text, self.option)(), False
        path = Path(text)
        if os.path.isdir(path):
            return text, self._folder(path), True
        return text, self._file(path), True

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
        yield from (Sample(*run) for run in self.rows.runs(arrays, labels, f"{self.option} {path}"))

    @property
    def _names(self) -> list[str]:
        return [s.name for s in self.specs]

    def _only(self, path: Path) -> str:
        if len(self.specs) != 1:
            raise UsageError(
                f"{self.option} {path}: a .npy file is one input; the model has {', '.join(self._names)}: give .npz"
            )
        return self.specs[0].name

    def fitted(self, given: object, where: str) -> Sample:
        """A sample with the dtypes of the model; UsageError where it does not fit, which tells ``where`` it is."""
        sample = _as_sample(given)
        if sample is None:
            raise UsageError(f"{where} is {type(given).__name__}; give a dict of arrays by name")
        inputs = {}
        for spec in self.specs:
            if spec.name not in sample.inputs:
                has = ", ".join(sample.inputs) or "none"
                raise UsageError(f"{where} lacks input {spec.name}; it has {has}")
            inputs[spec.name] = self._cast(spec, sample.inputs[spec.name], where)
        return Sample(inputs, sample.label)

    def _cast(self, spec: InputSpec, value: Held, sample: str) -> Held:
        if not spec.tensor:
            return value
        where = f"{sample}, input {spec.name}"
        array = np.asarray(value)
        if spec.elem_type == onnx.TensorProto.STRING:
            return array.astype(object)
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type))
        if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "same_kind"):
            raise UsageError(f"{where}: holds {array.dtype}, the model wants {wanted}")
        if spec.dims is not None and not fits(array.shape, spec):
            raise UsageError(
                f"{where}: has shape {list(array.shape)}, the model wants [{', '.join(map(str, spec.dims))}]"
            )
        found = np.ascontiguousarray(array, wanted).reshape(array.shape)
        if is_float(spec) and not self.takes_nan:
            wrong = int(np.count_nonzero(~np.isfinite(found) if is_data(spec) else np.isnan(found)))
            if wrong:
                raise UsageError(f"{where}: {wrong} of {found.size} numbers are NaN or infinite; leave the sample out")
        return found


def _as_sample(given: object) -> Sample | None:
    if isinstance(given, Sample):
        return given
    if isinstance(given, Mapping):
        return Sample(given)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Mapping):
        return Sample(*given)
    return None
