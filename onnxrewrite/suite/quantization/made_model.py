"""A quantized model before it is judged and written, and the gate that decides whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.errors import CheckError
from onnxrewrite.io.statistics import stored_bytes
from onnxrewrite.suite.quality.gate import Gate, Quality
from onnxrewrite.suite.quantization.bit_trials import Formats
from onnxrewrite.suite.quantization.calibrated_ranges import Span
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.select import Selection


@dataclass
class Made:
    """A quantized model that is neither judged nor written.

    Attributes:
        model: It; weights of 2 GB and more lie in the folder of the work.
        settings: What it was made by.
        selection: The nodes that were quantized, and those that were not.
        floats: Operators that have no quantized form, and how many.
        notes: Further remarks.
        forms: The form of each product's weights, where it was chosen.
        ready: The float model as it went to the quantizer.
        ranges: Those that calibration has fixed, by the names of its values.
        left: The value that leaves its range most often where it was judged, in one line; empty if none does often.
    """

    model: ir.Model
    settings: QuantizeSettings
    selection: Selection
    floats: dict[str, int]
    notes: list[str]
    forms: Formats = field(default_factory=dict)
    ready: ir.Model | None = None
    ranges: Mapping[str, Span] = field(default_factory=dict)
    left: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return stored_bytes(self.model)


def check(made: Made, quality: Quality, gate: Gate) -> None:
    """CheckError for a quantized model that is not good enough, with what is known of the cause."""
    reason = gate.refuses(quality)
    if reason:
        told = "; ".join(filter(None, [reason, made.left]))
        raise CheckError(f"the quantized model is not good enough, and nothing was written: {told}")
