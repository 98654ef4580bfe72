"""``onnxrewrite quantize``: a model in few bits, judged against the float one."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import Progress, progress_bar, say, show
from onnxrewrite.cli.input_arrays import sizes
from onnxrewrite.cli.output import refusal_told, write_json
from onnxrewrite.errors import Rest, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.report.plain_reports import QuantizedReport
    from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
    from onnxrewrite.suite.quantization.quantized import Quantized
    from onnxrewrite.suite.quantization.workbench import Work


class Format(enum.StrEnum):
    """Values of ``--format``; a test compares them, and those below, with those of the library."""

    QDQ = "qdq"
    QOPERATOR = "qoperator"


class Calibration(enum.StrEnum):
    """Values of ``--calibrate``."""

    MINMAX = "minmax"
    ENTROPY = "entropy"
    PERCENTILE = "percentile"
    DISTRIBUTION = "distribution"


class Activations(enum.StrEnum):
    """Values of ``--activations``."""

    UINT8 = "uint8"
    INT8 = "int8"
    UINT16 = "uint16"
    INT16 = "int16"


class Weights(enum.StrEnum):
    """Values of ``--weights``."""

    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    UINT4 = "uint4"
    MIXED = "mixed"


class Axis(enum.StrEnum):
    """Values of ``--vary``."""

    CHANNELS = "channels"
    SYMMETRY = "symmetry"
    RANGE = "range"


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The quantization settings."""

    mode: Annotated[
        options.Mode,
        typer.Option(
            "--mode",
            help="dynamic: weights ahead of time, activations as they come; static: both, by ranges seen on data; "
            "weights: weights only, in blocks.",
        ),
    ] = options.Mode.DYNAMIC
    format_: Annotated[
        Format, typer.Option("--format", help="Of static: pairs around float operators, or operators on integers.")
    ] = Format.QDQ
    calibrate: Annotated[Calibration, typer.Option("--calibrate", help="Of static: how ranges are found.")] = (
        Calibration.MINMAX
    )
    activations: Annotated[Activations, typer.Option("--activations", help="Dtype of activations.")] = Activations.UINT8
    weights: Annotated[
        Weights,
        typer.Option(
            "--weights",
            help="Dtype of weights; mixed, of --mode weights: bits and blocks where they pay, a product each.",
        ),
    ] = Weights.INT8
    per_channel: Annotated[
        bool, typer.Option("--per-channel/--per-tensor", help="A scale for each channel of a weight, or one for all.")
    ] = True
    symmetric_activations: Annotated[
        bool, typer.Option("--symmetric-activations", help="Zero in the middle of the range.")
    ] = False
    asymmetric_weights: Annotated[bool, typer.Option("--asymmetric-weights", help="Zero where the range has it.")] = (
        False
    )
    reduce_range: options.ReduceRange = False
    moving_average: Annotated[
        float | None,
        typer.Option("--moving-average", metavar="W", help="Average the ranges of samples; weight of a new one."),
    ] = None
    percentile: Annotated[
        float, typer.Option("--percentile", metavar="P", help="What --calibrate percentile keeps, in percent.")
    ] = 99.999
    block_size: Annotated[
        int, typer.Option("--block-size", metavar="N", help="Of weights: elements that share a scale.")
    ] = 32
    algorithm: options.Algorithm = options.Rounding.NEAREST
    max_divergence: Annotated[
        float,
        typer.Option(
            "--max-divergence",
            metavar="D",
            help="Of --weights mixed: nats that a row of scores may be off, on average.",
        ),
    ] = 0.01
    min_agreement: Annotated[
        float,
        typer.Option(
            "--min-agreement",
            metavar="A",
            help="Of --weights mixed: rows of scores whose first class must stay, 0 to 1.",
        ),
    ] = 0.98
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", metavar="N", help="Of --weights mixed: rows of a product where it is timed, 1 to decode."
        ),
    ] = None
    smooth: Annotated[
        bool,
        typer.Option("--smooth", help="Of dynamic: move the size of channels to weights, as the data have it."),
    ] = False
    in_blocks: Annotated[
        list[str],
        typer.Option(
            "--in-blocks", metavar="NODE", help="Of dynamic: give these weights in blocks: closer, slower.  Repeatable."
        ),
    ] = field(default_factory=list)
    operator: Annotated[
        list[str], typer.Option("--operator", metavar="TYPE", help="Quantize these only, as in MatMul.  Repeatable.")
    ] = field(default_factory=list)
    include: Annotated[
        list[str],
        typer.Option("--include", metavar="NODE", help="Quantize only these: a name, *, or op:TYPE.  Repeatable."),
    ] = field(default_factory=list)
    exclude: Annotated[
        list[str], typer.Option("--exclude", metavar="NODE", help="Leave these in float, likewise.  Repeatable.")
    ] = field(default_factory=list)

    def settings(self) -> QuantizeSettings:
        """The same as the library has it."""
        from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings

        return QuantizeSettings(
            mode=self.mode.value,
            format=self.format_.value,
            calibration=self.calibrate.value,
            activations=self.activations.value,
            weights=self.weights.value,
            per_channel=self.per_channel,
            symmetric_activations=self.symmetric_activations,
            symmetric_weights=not self.asymmetric_weights,
            reduce_range=self.reduce_range,
            moving_average=self.moving_average,
            percentile=self.percentile,
            operators=tuple(self.operator) or None,
            include=tuple(self.include),
            exclude=tuple(self.exclude),
            block_size=self.block_size,
            algorithm=self.algorithm.value,
            max_divergence=self.max_divergence,
            min_agreement=self.min_agreement,
            rows=self.rows,
            smooth=self.smooth,
            in_blocks=tuple(self.in_blocks),
        )


@dataclass(frozen=True, kw_only=True)
class _Data:
    """The data on which ranges are found and results are judged."""

    data: options.Data = None
    calibration_data: Annotated[
        str | None,
        typer.Option("--calibration-data", metavar="DIR|NPZ|MODULE:FUNCTION", help="To calibrate on, if not --data."),
    ] = None
    samples: options.Samples = None
    batch: options.Batch = None
    augment: Annotated[
        str | None,
        typer.Option(
            "--augment", metavar="MODULE:FUNCTION", help="Called on each sample; yields those to calibrate on."
        ),
    ] = None
    metric: options.Metric = None


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """The choice: what is tried, and what is good enough."""

    max_drop: Annotated[
        float,
        typer.Option("--max-drop", metavar="D", help="Largest loss: of the metric, else of the cosine similarity, 1."),
    ] = 0.02
    min_tokens: Annotated[
        float,
        typer.Option(
            "--min-tokens", metavar="T", help="Of a decoder, with --data: greedy tokens that stay the same, 0 to 1."
        ),
    ] = 0.98
    max_perplexity: Annotated[
        float,
        typer.Option(
            "--max-perplexity", metavar="P", help="Of a decoder, with --data: times the perplexity of the original."
        ),
    ] = 1.01
    until: Annotated[
        float | None,
        typer.Option(
            "--until",
            metavar="C",
            min=0.0,
            max=1.0,
            help="Give the most sensitive nodes a closer form, as few as it takes to a cosine similarity of C.",
        ),
    ] = None
    no_gate: Annotated[bool, typer.Option("--no-gate", help="Write the result, however far off it is.")] = False
    compare: Annotated[
        bool, typer.Option("--compare", help="Try all modes and calibrations, and keep the best that is good enough.")
    ] = False
    vary: Annotated[list[Axis], typer.Option("--vary", help="With --compare: each of them both ways.  Repeatable.")] = (
        field(default_factory=list)
    )


@dataclass(frozen=True, kw_only=True)
class _Rewrite:
    """The rewrites before and after."""

    no_prepare: Annotated[bool, typer.Option("--no-prepare", help="Do not rewrite the model before and after.")] = False
    lower: options.Lower = options.Lowering.FASTEST
    dim: options.Dims = field(default_factory=list)
    threads: options.Threads = 0
    seed: options.Seed = 0


def quantize(
    model: options.Model,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Where to write; else MODEL.quant.onnx.")
    ] = None,
    *,
    asked: _Settings,
    data: _Data,
    choice: _Choice,
    rewrite: _Rewrite,
    told: options.Output,
) -> None:
    """Quantize a model, judge it against the float one, write it.

    The model is rewritten first, so that little is left in float, and again afterwards.  What is less close to the
    original than --max-drop allows is not written.

    Exit status: 0 done; 1 not close enough, and nothing was written; 2 bad arguments, an unreadable model, or one with
    nothing to quantize.
    """
    start = time.perf_counter()
    path = options.writable(options.output_path(model, output, "quant"), "-o" if output is not None else "MODEL")
    report = options.json_path(told.json, model, path)
    if choice.vary and not choice.compare:
        raise UsageError("--vary is for --compare")
    if choice.until is not None and (choice.compare or choice.no_gate or data.metric is not None):
        raise UsageError("--until is a gate of its own: leave out --compare, --no-gate and --metric")

    from onnxrewrite import io

    settings = asked.settings()
    loaded = io.load(model)
    options.keep_weights(loaded, path, "-o")
    options.keep_weights(loaded, report, "--json")
    with progress_bar(wanted=not told.quiet) as progress:
        work = _work(loaded, data, rewrite, progress)
        with refusal_told(model, told.json, report):
            found, made = _found(work, settings, choice, path)
    rest = Rest(f"{path} was written")
    with rest.part("the report"):
        write_json({"model": model, **made}, told.json, report)
    if told.line:
        say(str(path))
    if told.table:
        from onnxrewrite.report.human import size
        from onnxrewrite.report.quantize_report import quantize_report

        show(quantize_report, {"model": model, **made})
        say("")
        say(f"Wrote {path} ({size(found.after)}) in {time.perf_counter() - start:.1f} s")
    rest.end()


def _work(model: ir.Model, data: _Data, rewrite: _Rewrite, progress: Progress | None) -> Work:
    from onnxrewrite.suite.quality.functions import function
    from onnxrewrite.suite.quantization.workbench import Work, augmentation

    return Work(
        model,
        data.data,
        data.samples,
        not rewrite.no_prepare,
        rewrite.lower.value,
        threads=rewrite.threads,
        batch=data.batch or 1,
        dims=sizes(rewrite.dim),
        calibration=data.calibration_data,
        metric=function(data.metric, "--metric") if data.metric is not None else None,
        augment=augmentation(data.augment),
        seed=rewrite.seed,
        progress=progress,
    )


def _found(work: Work, settings: QuantizeSettings, choice: _Choice, path: Path) -> tuple[Quantized, QuantizedReport]:
    """Quantize, or compare; the model that came of it, and all that did as plain data."""
    from onnxrewrite.runtime.settings import Setting
    from onnxrewrite.suite.precision.exclusion_search import settings_until
    from onnxrewrite.suite.quality.gate import Gate
    from onnxrewrite.suite.quantization.modes import candidates, compare, single

    setting = Setting(threads=work.threads)
    limits = {"min_tokens": choice.min_tokens, "max_perplexity": choice.max_perplexity}
    gate = None if choice.no_gate else Gate(max_drop=choice.max_drop, **limits)
    with work:
        if choice.until is not None:
            work.read_data([settings])
            gate = Gate(max_drop=1 - choice.until, **limits)
            settings = settings_until(work, settings, gate)
        if not choice.compare:
            made = single(work, settings, gate=gate, out=path, setting=setting)
            return made, made.to_json()
        tried = candidates(settings, [axis.value for axis in choice.vary])
        compared = compare(work, tried, gate=gate, out=path, setting=setting)
        return compared.best, compared.to_json()
