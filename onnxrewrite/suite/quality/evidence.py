"""Reasons to doubt figures that rest on data: too few, all alike, or of an unlikely scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from onnxrewrite.inputs.bindings import InputSpec
from onnxrewrite.inputs.classes import is_data
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.system.arrays import Array, Held, Outputs

FEWEST = 4
"""Samples; figures of fewer ones say little."""

ALIKE = 0.01
"""The part of an output that differs between samples, below which it is the same for all."""

SCALES = 0.1, 20.0
"""The largest number of normalized images, or of those from 0 to 1, lies between these."""

_COLORS = (1, 3, 4)
"""Channels of an image."""

_ROWS = 8
"""Rows of scores from which on they should not all be of one class."""


def doubts(data: Data, outputs: Sequence[Outputs], specs: Iterable[InputSpec], classes: Sequence[str]) -> list[str]:
    """The doubts, a line each; none of data that were made up, which are no evidence anyway.

    Args:
        data: The samples.
        outputs: What the float model makes of each.
        specs: The inputs of the model.
        classes: The outputs that hold scores of classes.
    """
    if data.generated:
        return []
    found = [data.doubt] if data.doubt else []
    if len(data) * data.batch < FEWEST:
        found.append(f"judged on {_samples(len(data) * data.batch)} only, which says little; give more")
    found += [line for spec in specs if is_data(spec) and spec.name in data[0].inputs for line in _of_input(spec, data)]
    if len(data) > 1 and all(_equal(data, spec) for spec in data[0].inputs):
        return [*found, f"all {_samples(len(data))} are equal"]
    for name in outputs[0]:
        found += _of_output(name, [each.get(name) for each in outputs], scores=name in classes)
    return found


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def _of_input(spec: InputSpec, data: Data) -> Iterator[str]:
    arrays = [np.asarray(sample.inputs[spec.name]) for sample in data]
    low = min((float(a.min()) for a in arrays if a.size), default=math.nan)
    high = max((float(a.max()) for a in arrays if a.size), default=math.nan)
    largest = max(abs(low), abs(high))
    if low == high:
        yield f"input {spec.name} is {low:g} throughout"
    elif _is_image(spec) and largest < SCALES[0]:
        yield f"input {spec.name} lies within ±{largest:.2g}, which is little for images: were they scaled twice?"
    elif _is_image(spec) and largest > SCALES[1] and not all(np.array_equal(a, np.rint(a)) for a in arrays):
        yield f"input {spec.name} reaches {largest:.3g}, which is much for normalized images: were they normalized?"


def _is_image(spec: InputSpec) -> bool:
    dims = spec.dims or ()
    return len(dims) == 4 and (dims[1] in _COLORS or dims[3] in _COLORS)


def _equal(data: Data, name: str) -> bool:
    first = np.asarray(data[0].inputs[name])
    return all(np.array_equal(first, np.asarray(sample.inputs[name])) for sample in data)


def _of_output(name: str, values: Sequence[Held], *, scores: bool) -> Iterator[str]:
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    if len(arrays) < 2 or len(arrays) != len(values) or not arrays[0].size:
        return
    if len({a.shape for a in arrays}) == 1:
        share = _varying(np.stack(arrays).astype(np.float64))
        if share < ALIKE:
            yield f"output {name} hardly differs between samples ({share:.1%} of it), so closeness says little"
    if scores and arrays[0].shape[-1] > 1:
        first = np.concatenate([a.reshape(-1, a.shape[-1]).argmax(axis=-1) for a in arrays if a.ndim])
        if len(first) >= _ROWS and len(set(first.tolist())) == 1:
            yield f"all {len(first)} rows of {name} have the same first class, {first[0]}: give data of every class"


def _varying(stacked: Array) -> float:
    """The size of what differs from the mean of the samples, relative to all of it."""
    finite = np.where(np.isfinite(stacked), stacked, 0.0)
    whole = float(np.linalg.norm(finite))
    return float(np.linalg.norm(finite - finite.mean(axis=0))) / whole if whole else 1.0
