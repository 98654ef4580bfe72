"""The result of a quantization."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnxrewrite.measure.timing import Interval
from onnxrewrite.report.plain_reports import QuantizedReport
from onnxrewrite.suite.quality.gate import Quality
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.select import Left


@dataclass(frozen=True)
class Quantized:
    """A quantized model.

    Attributes:
        model: The file that it was written to, or the model itself if no file was given.
        settings: The quantization settings.
        nodes: Nodes that were quantized: name to operator, by their names in the prepared model.
        left: Nodes that could have been, and why they were not.
        floats: Operators that are left in float for there is no quantized form, and how many.
        notes: Further remarks, a line each.
        forms: The form of the weights of each node for which one was chosen, in words.
        quality: Closeness to the original; None if it was not judged.
        before: Bytes of the original's weights and graph.
        after: The same of the quantized model.
        ratio: Its time to that of the original, both as ONNX Runtime optimizes them; None where it was not timed.
    """

    model: Path | onnx.ModelProto
    settings: QuantizeSettings
    nodes: Mapping[str, str]
    left: Sequence[Left] = ()
    floats: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    quality: Quality | None = None
    before: int = 0
    after: int = 0
    ratio: Interval | None = None

    @property
    def operators(self) -> dict[str, int]:
        """The number of quantized nodes of each operator."""
        return dict(sorted(Counter(self.nodes.values()).items()))

    def to_json(self) -> QuantizedReport:
        """Plain data, without the model."""
        return {
            "output": str(self.model) if isinstance(self.model, Path) else None,
            "settings": self.settings.to_json(),
            "name": self.settings.name,
            "quantized": dict(self.nodes),
            "operators": self.operators,
            "left": [each.to_json() for each in self.left],
            "floats": dict(self.floats),
            "notes": list(self.notes),
            "forms": dict(self.forms),
            "quality": None if self.quality is None else self.quality.to_json(),
            "ratio": None if self.ratio is None else self.ratio.to_json(),
            "size": {"before": self.before, "after": self.after},
        }
