"""The reports of tools as plain data: the types of what ``to_json`` gives, and JSON files hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from onnxrewrite.measure.timing import Span, TimingRow
from onnxrewrite.system.plain import Json


class ClosenessRow(TypedDict):
    """The closeness of an output, see ``suite.quality.closeness.Closeness``; None for what is infinite."""

    cosine: float | None
    snr: float | None
    largest: float | None
    mean: float | None
    agreement: float | None
    top1: float | None
    topk: float | None
    divergence: float | None
    broken: int


class TextRow(TypedDict):
    """The quality of a decoder on texts, see ``suite.quality.texts.TextQuality``."""

    agreement: float
    perplexity: float | None
    baseline: float | None
    tokens: int


class QualityReport(TypedDict):
    """The quality of a model, see ``suite.quality.gate.Quality``; ``worst`` names an output."""

    outputs: dict[str, ClosenessRow]
    worst: str | None
    drop: float | None
    metric: float | None
    baseline: float | None
    text: TextRow | None
    data: str
    generated: bool
    doubts: list[str]


class LeftRow(TypedDict):
    """A node that stays in float."""

    name: str
    operator: str
    reason: str


class CandidateRow(TypedDict):
    """One way to quantize, see ``suite.quantization.modes.Candidate``."""

    settings: Mapping[str, Json]
    name: str
    quality: QualityReport | None
    size: int
    ratio: Span | None
    failure: str


class QuantizedReport(TypedDict):
    """A quantized model, see ``suite.quantization.quantized.Quantized``; ``candidates``: all, if several were tried."""

    model: NotRequired[str]
    candidates: NotRequired[list[CandidateRow]]
    output: str | None
    settings: Mapping[str, Json]
    name: str
    quantized: dict[str, str]
    operators: dict[str, int]
    left: list[LeftRow]
    floats: dict[str, int]
    notes: list[str]
    forms: dict[str, str]
    quality: QualityReport | None
    ratio: Span | None
    size: dict[str, int]


class ErrorRow(TypedDict):
    """The error of a variant, see ``suite.bench.benchmark.Error``."""

    largest: float | None
    failure: str


class VariantRow(TypedDict):
    """A variant of a model, see ``suite.bench.benchmark.Variant``: seconds, bytes, samples a second."""

    name: str
    kind: str
    level: str
    version: str
    optimization: float | None
    nodes: int | None
    size: int | None
    memory: int | None
    failure: str
    timing: TimingRow | None
    ratio: Span | None
    creation: Span | None
    error: ErrorRow | None
    throughput: dict[str, Span]


class BenchReport(TypedDict):
    """The variants of one model side by side, see ``suite.bench.benchmark.Bench``."""

    model: str
    reference: str
    provider: str
    threads: int
    binding: dict[str, int]
    variants: list[VariantRow]
    notes: list[str]


class RangeRow(TypedDict):
    """The range of a value, see ``suite.precision.ranges.Range``; None for what is infinite."""

    largest: float
    error: float | None
    small: float


class HalfReport(TypedDict):
    """A model in half precision, see ``suite.precision.half_precision.Halved``."""

    model: NotRequired[str]
    output: NotRequired[str]
    dtype: str
    converted: list[str]
    kept: dict[str, str]
    ranges: dict[str, RangeRow]
    quality: QualityReport | None
    size: dict[str, int]
    notes: list[str]


class SensitiveRow(TypedDict):
    """A node, see ``suite.precision.node_sensitivity.Sensitive``; None for an infinite ratio."""

    name: str
    operator: str
    snr: float | None
    drop: float
    scope: str
    bytes: int


class SensitivityReport(TypedDict):
    """The ranking of nodes, see ``suite.precision.node_sensitivity.Sensitivity``, and what was written after it."""

    model: NotRequired[str]
    excluded: NotRequired[list[str]]
    output: NotRequired[str | None]
    result: NotRequired[QualityReport | None]
    method: str
    settings: Mapping[str, Json]
    name: str
    quality: QualityReport
    explained: float | None
    nodes: list[SensitiveRow]
    order: list[str]


class MetricsRow(TypedDict):
    """The measurements of an artifact, see ``suite.deploy.artifact.Metrics``: seconds, bytes, samples a second."""

    latency: Span
    ratio: Span
    step: Span | None
    throughput: float
    creation: Span
    size: int
    memory: int | None
    quality: QualityReport


class ModelRow(TypedDict):
    """A model of a sweep, see ``suite.sweeping.journal.Row``."""

    model: str
    output: str
    status: str
    error: str
    reason: str
    attempts: int
    nodes: dict[str, int] | None
    size: dict[str, int] | None
    ratio: float | None
    seconds: float
    cpu: float
    finished: float
    machine: str
    resumed: bool
    key: str
    source: str
    files: dict[str, str]
    origin: dict[str, str]
    stored: dict[str, str]
    notes: list[str]


class LeftOutRow(TypedDict):
    """A file or folder that was left out."""

    path: str
    reason: str


class SweepReport(TypedDict):
    """The result of ``sweep`` as plain data: bytes, seconds, SHA-256 of the files that were written."""

    out: str
    models: list[ModelRow]
    others: list[ModelRow]
    left_out: list[LeftOutRow]
    notes: list[str]
    seconds: float


VersionRow = TypedDict(
    "VersionRow",
    {
        "name": str,
        "failure": str,
        "difference": str,
        "error": float | None,
        "unoptimized": str,
        "creation": Span | None,
        "latency": Span | None,
        "ratio": Span | None,
        "memory": int | None,
        "operators": dict[str, int],
        "culprit": list[str] | None,
        "with": list[str],
    },
)
"""A version of ONNX Runtime, see ``suite.canary.version_comparison.Version``: seconds, bytes."""


class CanaryReport(TypedDict):
    """A model in several versions, see ``suite.canary.version_comparison.Canary``."""

    model: str
    binding: dict[str, int]
    threads: int
    versions: list[VersionRow]
    regressions: list[str]
    notes: list[str]


class FigureRow(TypedDict):
    """A figure of a deployed model, see ``suite.deploy.regression_check.Figure``."""

    name: str
    recorded: float
    now: float | None
    unit: str
    regression: str
    note: str


class DriftRow(TypedDict):
    """A version that has changed."""

    name: str
    recorded: str
    now: str


class RecheckReport(TypedDict):
    """A deployed model against its recorded figures, see ``suite.deploy.regression_check.Recheck``."""

    folder: str
    figures: list[FigureRow]
    drift: list[DriftRow]
    regressions: list[str]
    notes: list[str]


class StructureRow(TypedDict):
    """The structure of a weight, see ``suite.weights.weight_structure.Structure``: summed over, outputs."""

    name: str
    operator: str
    shape: list[int]
    zeros: float
    pattern: str
    empty_outputs: int
    empty_inputs: int
    rank: int | None
    shares: list[str]


class GainRow(TypedDict):
    """The gain of a structure, see ``suite.weights.weight_gains.Gain``."""

    of: str
    what: str
    ratio: Span


class WeightsReport(TypedDict):
    """The structure of a model's weights, and what it brings."""

    model: str
    weights: int
    structures: list[StructureRow]
    gains: list[GainRow]


class DecoderRow(TypedDict):
    """Figures of a decoder, see ``suite.decoders.generation_times.DecoderTimes``."""

    name: str
    has_past: bool
    shared_buffer: bool
    prompt: TimingRow
    prompt_ratio: Span
    step: TimingRow
    step_ratio: Span
    tokens_a_second: float
    memory: int | None


class GenerationReport(TypedDict):
    """Decoders timed at generation, see ``suite.decoders.generation_times.GenerationTimes``."""

    prompt: int
    tokens: int
    provider: str
    threads: int
    decoders: list[DecoderRow]
