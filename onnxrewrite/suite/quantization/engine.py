"""onnxruntime.quantization: called quietly, on files of a folder that goes away, its errors as one line."""

from __future__ import annotations

import contextlib
import io as text
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxrewrite.errors import ModelError, OnnxRewriteError
from onnxrewrite.runtime.session import one_line
from onnxrewrite.suite.quality.data import Sample
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.weight_format import WeightFormat
from onnxrewrite.system.arrays import Feeds


class Reader:
    """Samples in the form that onnxruntime.quantization takes them."""

    def __init__(self, samples: Iterable[Sample]):
        self._samples = list(samples)
        self._following = iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def has_one_shape(self) -> bool:
        """True if all samples have the same shapes."""
        return len({tuple(np.asarray(s.inputs[name]).shape for name in sorted(s.inputs)) for s in self._samples}) < 2

    def set_range(self, start_index: int, end_index: int) -> None:
        """Go on with these samples, and end after them."""
        self._following = iter(self._samples[start_index:end_index])

    def get_next(self) -> Feeds | None:
        """The inputs of the next sample; None after the last."""
        sample = next(self._following, None)
        return None if sample is None else sample.inputs


def dynamic(source: Path, target: Path, settings: QuantizeSettings, nodes: Mapping[str, str], *, large: bool) -> None:
    """Quantize the weights of these nodes, and their activations as they come."""
    from onnxruntime.quantization import quantize_dynamic

    with _quiet():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=sorted(set(nodes.values())),
            nodes_to_quantize=list(nodes),
            per_channel=settings.per_channel,
            reduce_range=settings.reduce_range,
            weight_type=_type(settings.weights),
            use_external_data_format=large,
            extra_options=_symmetry(settings),
        )


def static(
    source: Path,
    target: Path,
    settings: QuantizeSettings,
    nodes: Mapping[str, str],
    samples: Iterable[Sample],
    *,
    large: bool,
) -> None:
    """Quantize weights and activations of these nodes, by the ranges that are seen on samples."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static

    methods = {m.name.lower(): m for m in CalibrationMethod}
    formats = {"qdq": QuantFormat.QDQ, "qoperator": QuantFormat.QOperator}
    more: dict[str, Any] = {"CalibTensorRangeSymmetric": settings.symmetric_activations}
    if settings.calibration == "percentile":
        more["CalibPercentile"] = settings.percentile
    if settings.moving_average is not None:
        more |= {"CalibMovingAverage": True, "CalibMovingAverageConstant": settings.moving_average}
    reader = Reader(samples)
    if settings.calibration != "minmax" and not reader.has_one_shape:
        more["CalibStridedMinMax"] = 1  # histograms of all samples at once need arrays of one shape
    with _quiet():
        quantize_static(
            source,
            target,
            reader,
            quant_format=formats[settings.format],
            op_types_to_quantize=sorted(set(nodes.values())),
            nodes_to_quantize=list(nodes),
            per_channel=settings.per_channel,
            reduce_range=settings.reduce_range,
            activation_type=_type(settings.activations),
            weight_type=_type(settings.weights),
            calibrate_method=methods[settings.calibration],
            use_external_data_format=large,
            extra_options={**_symmetry(settings), **more},
        )


def plain(source: Path, target: Path, mode: str, samples: Iterable[Sample], *, large: bool) -> None:
    """Quantize all that ``onnxruntime.quantization`` takes, with its defaults; ``mode`` is dynamic or static."""
    from onnxruntime.quantization import quantize_dynamic, quantize_static

    with _quiet():
        if mode == "dynamic":
            quantize_dynamic(source, target, use_external_data_format=large)
        else:
            quantize_static(source, target, Reader(samples), use_external_data_format=large)


def weights(source: Path, target: Path, formats: Mapping[str, tuple[str, WeightFormat]], *, large: bool) -> None:
    """Quantize the weights of nodes in blocks; their activations stay float.

    ``formats``: names of nodes to their operators, MatMul or Gather, and the forms of their weights.
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    with _quiet():
        model = onnx.load(source)
        for each in sorted({form for _, form in formats.values()}):
            nodes = {name: operator for name, (operator, form) in formats.items() if form == each}
            quantizer = MatMulNBitsQuantizer(
                model,
                block_size=each.block,
                is_symmetric=each.symmetric,
                accuracy_level=each.level,
                nodes_to_exclude=[n.name for n in model.graph.node if n.name not in nodes],
                algo_config=_algorithm(each, nodes),
            )
            quantizer.process()
            model = quantizer.model.model
        ONNXModel(model).save_model_to_file(str(target), large)


def _algorithm(form: WeightFormat, nodes: Mapping[str, str]) -> Any:
    from onnxruntime.quantization import matmul_nbits_quantizer as theirs

    operators = tuple(sorted(set(nodes.values())))
    if form.algorithm == "k-quant":
        return theirs.KQuantWeightOnlyQuantConfig(op_types_to_quantize=operators)
    return theirs.DefaultWeightOnlyQuantConfig(
        block_size=form.block,
        is_symmetric=form.symmetric,
        accuracy_level=form.level,
        op_types_to_quantize=operators,
        quant_axes=(("MatMul", 0), ("Gather", 1)),
        bits=form.bits,
    )


def _type(name: str) -> Any:
    from onnxruntime.quantization import QuantType

    return QuantType[f"Q{name.replace('u', 'U').replace('int', 'Int')}"]


def _symmetry(settings: QuantizeSettings) -> dict[str, Any]:
    return {
        "ActivationSymmetric": settings.symmetric_activations,
        "WeightSymmetric": settings.symmetric_weights,
        "DefaultTensorType": onnx.TensorProto.FLOAT,
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is printed or logged; what is raised becomes one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(text.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OnnxRewriteError:
        raise
    except Exception as error:  # whatever onnxruntime.quantization, onnx and numpy raise
        raise ModelError(f"onnxruntime.quantization fails on the model: {one_line(error)}") from error
    finally:
        logging.disable(before)
