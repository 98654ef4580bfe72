"""The weights of a decoder in few bits, judged by the tokens that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import UsageError
from onnxrewrite.io.statistics import stored_bytes
from onnxrewrite.suite.quality.data import Given
from onnxrewrite.suite.quality.gate import Gate, Quality
from onnxrewrite.suite.quantization.made_model import check
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.workbench import Work


@dataclass(frozen=True, kw_only=True)
class WeightSettings:
    """The settings of weights in few bits.

    Attributes:
        quantize: Of mode ``weights``.
        data: Texts, see ``quality.data.load_data``; token ids alone are enough, see ``text_data``.  None: made up.
        gate: The required quality; None takes whatever comes of it.
        threads: With which products are timed; 0: ONNX Runtime's choice.
    """

    quantize: QuantizeSettings = field(default_factory=lambda: QuantizeSettings(mode="weights", weights="int4", rows=1))
    data: Given = None
    gate: Gate | None = field(default_factory=Gate)
    threads: int = 0

    def __post_init__(self) -> None:
        if self.quantize.mode != "weights":
            raise UsageError(f"the weights of a decoder are quantized by mode weights, not {self.quantize.mode}")


@dataclass(frozen=True)
class FewBits:
    """A decoder with weights in few bits.

    Attributes:
        model: It; nothing of it is fused yet.
        name: Of the settings.
        quality: Beside the given model.
        size: Bytes before and after.
        notes: Remarks, a line each.
    """

    model: ir.Model
    name: str
    quality: Quality
    size: tuple[int, int]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the model."""
        before, after = self.size
        return {
            "name": self.name,
            "quality": self.quality.to_json(),
            "size": {"before": before, "after": after},
            "notes": list(self.notes),
        }


def in_few_bits(model: ir.Model, settings: WeightSettings, seed: int, progress: Progress | None) -> FewBits:
    """A decoder with its weights in few bits.

    Args:
        model: The decoder; it is not changed.
        settings: What is asked for.
        seed: Of data that are made up.
        progress: Called with (phase, done, to do).

    Raises:
        UsageError: Bad settings or data; there is nothing to quantize.
        ModelError: onnxruntime.quantization fails.
        CheckError: It is not good enough.
    """
    asked = settings.quantize
    with Work(model, settings.data, threads=settings.threads, seed=seed, progress=progress) as work:
        work.read_data([asked])
        made = work.unfused(asked)
        quality = work.quality(made)
        if settings.gate is not None:
            check(made, quality, settings.gate)
        notes = [*made.notes, *work.notes_of_data()]
        return FewBits(made.model, asked.name, quality, (stored_bytes(model), made.size), notes)
