"""The ranges that a static quantization has fixed, and how often the values of other data leave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxrewrite.suite.precision.intermediate_values import activations
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.system.arrays import Array, DType

OFTEN = 0.05
"""The share of a value's elements beyond its range from which on that is told."""


@dataclass(frozen=True)
class Span:
    """The numbers that a value can have: those beyond are cut off.

    Attributes:
        low: The least one.
        high: The largest one.
    """

    low: float
    high: float

    def left_by(self, array: Array) -> int:
        """The number of elements beyond it; below only where it has negative numbers, for a Relu that was taken in
        ends at 0."""
        step = (self.high - self.low) / 256
        below = np.count_nonzero(array < self.low - step) if self.low < -step else 0
        return int(below + np.count_nonzero(array > self.high + step))


def spans(model: ir.Model) -> dict[str, Span]:
    """The range of each value that a model quantizes with one scale, by name."""
    found = {}
    for node in model.graph:
        if node.op_type != "QuantizeLinear" or node.inputs[0] is None or node.inputs[0].const_value is not None:
            continue
        scale, zero = (v.const_value if v is not None else None for v in (*node.inputs[1:], None, None)[:2])
        if scale is None or zero is None or scale.size != 1:
            continue
        (least, most), factor, middle = _limits(zero.numpy().dtype), scale.numpy().item(), int(zero.numpy().item())
        found[node.inputs[0].name or ""] = Span((least - middle) * factor, (most - middle) * factor)
    return found


def _limits(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    found: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(found.min), int(found.max)


def often_left(ranges: Mapping[str, Span], model: ir.Model, data: Data) -> str:
    """The value of the float model that leaves its range most often on the data, in one line; empty if none does often.

    Raises:
        ModelError: The model does not open or run.
    """
    made = {v.name for v in (*model.graph.inputs, *(o for node in model.graph for o in node.outputs))}
    names = [name for name in ranges if name in made]
    left, count = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for values in activations(model, names, data) if names else ():
        for name, value in values.items():
            array = np.asarray(value)
            left[name] += ranges[name].left_by(array)
            count[name] += array.size
    shares = {name: left[name] / count[name] for name in names if count[name] and left[name] > OFTEN * count[name]}
    if not shares:
        return ""
    name = max(shares, key=lambda each: shares[each])
    more = f", and {len(shares) - 1} more values often leave theirs" if len(shares) > 1 else ""
    span = f"{ranges[name].low:.3g} to {ranges[name].high:.3g}"
    return f"{shares[name]:.0%} of {name} leave the range that it was calibrated to, {span}{more}"
