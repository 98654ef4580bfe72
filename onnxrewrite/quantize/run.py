"""``quantize``: prepare a model, quantize it, rewrite what came of it, judge it, write it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxrewrite import pipeline
from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.ir import io
from onnxrewrite.quality.data import Data, Given, Sample, load_data
from onnxrewrite.quality.gate import Gate, Judge, Metric
from onnxrewrite.quantize import engine
from onnxrewrite.quantize.prepare import named, prepared, refuse_quantized, typed
from onnxrewrite.quantize.result import Quantized
from onnxrewrite.quantize.select import OPERATORS, Left, select
from onnxrewrite.quantize.settings import Settings
from onnxrewrite.rounds import Progress
from onnxrewrite.verify.session import openable

Augment = Callable[[Sample], Iterable[Sample]]
"""Makes samples of one, to calibrate on all of them."""


def quantize(
    source: io.Source,
    settings: Settings = Settings(),  # noqa: B008
    *,
    data: Given = None,
    out: str | os.PathLike[str] | None = None,
    prepare: bool = True,
    gate: Gate | None = Gate(),  # noqa: B008
    metric: Metric | None = None,
    augment: Augment | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Quantized:
    """Quantize a model.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model`` in float; it is not changed.
        settings: How.
        data: What ranges are found on, and what the result is judged on; see ``quality.data.load_data``.  None: made
            up, which says little of real data.
        out: Where to write the model; None leaves it in memory, which takes less than 2 GB.
        prepare: Rewrite before and after; without it, the model is quantized as it is.
        gate: How close to the original it must come; None does not judge it.
        metric: What it is judged by in place of closeness; larger is better.
        augment: Called on each sample that is calibrated on; yields what it is replaced by.
        seed: Of what is made up.
        progress: Called with (phase, done, to do).

    Raises:
        UsageError: Bad settings or data; a model that is quantized already, or has nothing to quantize.
        ModelError: The model cannot be read, or onnxruntime.quantization fails on it.
        CheckError: The result is not as close as the gate asks; nothing was written.
    """
    original = io.load(source)
    refuse_quantized(original)
    with openable(original) as opened, tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        samples = load_data(data, opened, seed=seed) if gate is not None or settings.mode == "static" else None
        ready, notes = prepared(original, settings, seed=seed, progress=progress) if prepare else (named(original), [])
        selection = select(ready, settings)
        if not selection.chosen:
            raise UsageError(f"nothing to quantize: {_nothing(selection.left, settings)}")
        if progress is not None:
            progress("quantize", 0, 0)
        model = _quantized(ready, settings, selection.chosen, samples, augment, Path(folder))
        if prepare:
            model = pipeline.apply(model, check="fast", seed=seed, progress=progress).model
        quality = None
        if gate is not None:
            assert samples is not None
            with openable(model) as result:
                quality = Judge(opened, samples, metric).quality(result)
            refusal = gate.refuses(quality)
            if refusal:
                raise CheckError(f"the quantized model is not good enough, and nothing was written: {refusal}")
        return Quantized(
            model=_kept(model, out),
            settings=settings,
            nodes=selection.chosen,
            left=selection.left,
            notes=[*notes, *_of_data(samples)],
            quality=quality,
        )


def _quantized(
    model: ir.Model,
    settings: Settings,
    nodes: dict[str, str],
    samples: Data | None,
    augment: Augment | None,
    folder: Path,
) -> ir.Model:
    """The model as the quantizer leaves it; its weights may lie in the folder."""
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    large = io.needs_external_data(model)
    if large:
        io.save(model, source)
    else:
        onnx.save(typed(model), source)
    if settings.mode == "dynamic":
        engine.dynamic(source, target, settings, nodes, large=large)
    elif settings.mode == "weights":
        engine.weights(source, target, settings, nodes, large=large)
    else:
        assert samples is not None
        engine.static(source, target, settings, nodes, _augmented(samples, augment), large=large)
    return io.load(target)


def _augmented(samples: Data, augment: Augment | None) -> Iterator[Sample]:
    for sample in samples:
        yield from [sample] if augment is None else augment(sample)


def _kept(model: ir.Model, out: str | os.PathLike[str] | None) -> Path | onnx.ModelProto:
    if out is None:
        if io.needs_external_data(model):
            raise UsageError("the quantized model takes 2 GB or more; give out, the file to write it to")
        return io.to_proto(model)
    io.save(model, out)
    return Path(out)


def _nothing(left: list[Left], settings: Settings) -> str:
    if not left:
        return f"the model has no {', '.join(settings.operators or OPERATORS[settings.mode])}"
    first = left[0]
    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return f"{first.operator} {first.name}: {first.reason}{more}"


def _of_data(samples: Data | None) -> list[str]:
    if samples is None or not samples.generated:
        return []
    return [f"the data are made up ({len(samples)} samples): ranges and closeness say little of real data; give --data"]
