"""``quantize``: prepare a model, quantize it, rewrite what came of it, judge it, write it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from onnxrewrite import io
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.compiler.request import Lowering
from onnxrewrite.suite.quality.data import Given
from onnxrewrite.suite.quality.gate import Gate, Metric
from onnxrewrite.suite.quantization.made_model import check
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantized import Quantized
from onnxrewrite.suite.quantization.workbench import Augment, Work


def quantize(
    source: io.Source,
    settings: QuantizeSettings = QuantizeSettings(),  # noqa: B008
    *,
    data: Given = None,
    out: str | os.PathLike[str] | None = None,
    prepare: bool = True,
    gate: Gate | None = Gate(),  # noqa: B008
    metric: Metric | None = None,
    augment: Augment | None = None,
    samples: int | None = None,
    batch: int = 1,
    lower: Lowering | None = None,
    threads: int = 0,
    dims: Mapping[str, int] | None = None,
    calibration: Given = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Quantized:
    """Quantize a model.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model`` in float; it is not changed.
        settings: The quantization settings.
        data: The data for calibration and for judging the result, see ``quality.data.load_data``: of 8 samples or more,
            every fourth is kept from calibration and judged on.  None: made up, which says little about real data.
        out: The file for the model; None leaves it in memory, which takes less than 2 GB.
        prepare: Rewrite before and after; without it, the model is quantized as it is.
        gate: The required closeness to the original; None does not judge it.
        metric: The measure by which it is judged in place of closeness; larger is better.
        augment: Called on each sample that is calibrated on; yields what it is replaced by.
        samples: So many of the data at most.
        batch: Rows of a file of data that make one sample, and the batch that is timed.
        lower: The way in which the rewrite afterwards chooses kernels; see ``onnxrewrite.apply``.
        threads: Within an operator, where that rewrite measures.
        dims: Sizes of named dimensions, of data that are made up and where that rewrite measures.
        calibration: The data for calibration; the result is then judged on all of ``data``.
        seed: Of what is made up.
        progress: Called with (phase, done, to do).

    Raises:
        UsageError: Bad settings or data; a model that is quantized already, or has nothing to quantize.
        ModelError: The model cannot be read, or onnxruntime.quantization fails on it.
        CheckError: The result is not as close as the gate asks; nothing was written.
    """
    with Work(
        source,
        data,
        samples,
        prepare,
        lower,
        threads=threads,
        batch=batch,
        dims=dims or {},
        calibration=calibration,
        metric=metric,
        augment=augment,
        seed=seed,
        progress=progress,
    ) as work:
        work.read_data([settings])
        made = work.make(settings)
        quality = None if gate is None else work.quality(made)
        if gate is not None and quality is not None:
            check(made, quality, gate)
        return work.finish(made, settings, quality, out)
