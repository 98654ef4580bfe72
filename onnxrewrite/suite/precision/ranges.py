"""The ranges of a model's values, and whether they fit a half precision: measured by running the model on data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.reference.tolerance import finite
from onnxrewrite.report.plain_reports import RangeRow
from onnxrewrite.suite.precision.formats import Format
from onnxrewrite.suite.precision.intermediate_values import activations
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.system.arrays import Array

ROUNDINGS = 4.0
"""A value fits if rounding it changes it, in the root mean square, by no more than so many epsilons: rounding normal
numbers changes them by half of one at the most, so more than that are those below the least normal number."""


@dataclass(frozen=True)
class Range:
    """The observed range of a value, and the error of rounding it to half precision.

    Attributes:
        largest: Of the absolute values that are finite.
        error: |x - rounded(x)| / |x| over all elements, in the Euclidean norm; infinite where any became infinite.
        small: Fraction of the elements other than 0 that lie below the least normal number.
    """

    largest: float
    error: float
    small: float

    def misfit(self, form: Format, headroom: float) -> str:
        """The reason why the value does not fit; empty if it does."""
        if self.largest * headroom > form.largest:
            beside = f" (with headroom {headroom:g})" if self.largest <= form.largest else ""
            return f"reaches {self.largest:.3g}{beside}, and {form.name} ends at {form.largest:.5g}"
        if self.error > ROUNDINGS * form.epsilon:
            return f"lies below {form.least:.3g}, the least normal number of {form.name}, in {self.small:.0%} of it"
        return ""

    def to_json(self) -> RangeRow:
        """Plain data; None for what is infinite."""
        return {"largest": self.largest, "error": finite(self.error), "small": self.small}


class _Gauge:
    """Takes in one value, sample by sample."""

    def __init__(self, form: Format):
        self._form = form
        self._largest = self._signal = self._noise = 0.0
        self._small = self._count = 0

    def add(self, array: Array) -> None:
        known = array[np.isfinite(array)].astype(np.float64)
        sizes = np.abs(known)
        with np.errstate(invalid="ignore"):
            apart = self._form.rounded(known.astype(np.float32)).astype(np.float64) - known
        self._largest = max(self._largest, float(sizes.max(initial=0.0)))
        scale = 1.0 / self._form.least  # squares of the smallest numbers would vanish
        self._signal += float(np.sum((sizes * scale) ** 2))
        self._noise += float(np.sum((apart * scale) ** 2))
        self._small += int(np.count_nonzero((sizes < self._form.least) & (sizes > 0)))
        self._count += int(np.count_nonzero(sizes))

    @property
    def range(self) -> Range:
        error = math.sqrt(self._noise / self._signal) if self._signal and math.isfinite(self._noise) else 0.0
        if not math.isfinite(self._noise):
            error = math.inf
        return Range(self._largest, error, self._small / max(self._count, 1))


def ranges(model: ir.Model, names: Sequence[str], data: Data, form: Format) -> dict[str, Range]:
    """The ranges of the values of these names on the data."""
    gauges = {name: _Gauge(form) for name in names}
    for found in activations(model, names, data):
        for name, array in found.items():
            if isinstance(array, np.ndarray):
                gauges[name].add(array)
    return {name: gauge.range for name, gauge in gauges.items()}


def weight_range(array: Array, form: Format) -> Range:
    """The same of a weight."""
    gauge = _Gauge(form)
    gauge.add(array)
    return gauge.range


def misfits(found: Mapping[str, Range], form: Format, headroom: float) -> dict[str, str]:
    """The values that do not fit, and why."""
    return {name: why for name, each in found.items() if (why := each.misfit(form, headroom))}
