"""Everything that turns a model into one to ship: quantization, precision, pipelines, PyTorch modules, whole zoos; and
``bench``, which compares what came of it."""

from __future__ import annotations

from onnxrewrite.suite.bench.benchmark import bench
from onnxrewrite.suite.decoders.decoder_weights import WeightSettings
from onnxrewrite.suite.decoders.genai_config import Special
from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings, genai
from onnxrewrite.suite.decoders.grouped_query import Padding
from onnxrewrite.suite.deploy import Artifact, Context, NothingToDo, Outcome, Pipeline, Stage
from onnxrewrite.suite.frameworks.torch import export
from onnxrewrite.suite.precision.exclude import exclusion, within_latency
from onnxrewrite.suite.precision.half_precision import to_half
from onnxrewrite.suite.precision.mixed import mixed_precision
from onnxrewrite.suite.precision.node_sensitivity import sensitivity
from onnxrewrite.suite.precision.search import search_precision
from onnxrewrite.suite.quality.data import Sample
from onnxrewrite.suite.quality.gate import Gate
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, excluding
from onnxrewrite.suite.quantization.quantizer import quantize
from onnxrewrite.suite.sweeping.tasks import Apply
from onnxrewrite.suite.sweeping.zoo import sweep

__all__ = [
    "Apply",
    "Artifact",
    "Context",
    "Gate",
    "GenaiSettings",
    "NothingToDo",
    "Outcome",
    "Padding",
    "Pipeline",
    "QuantizeSettings",
    "Sample",
    "Special",
    "Stage",
    "WeightSettings",
    "bench",
    "excluding",
    "exclusion",
    "export",
    "genai",
    "mixed_precision",
    "quantize",
    "search_precision",
    "sensitivity",
    "sweep",
    "to_half",
    "within_latency",
]
