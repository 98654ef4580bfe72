"""onnxruntime.quantization: called quietly, on files of a folder that goes away, its errors as one line."""

from __future__ import annotations

import contextlib
import io as text
import logging
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

from onnxrewrite.errors import ModelError, OnnxRewriteError
from onnxrewrite.runtime.session import one_line
from onnxrewrite.suite.quality.data import Sample
from onnxrewrite.suite.quantization import gptq
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.weight_format import WeightFormat
from onnxrewrite.system.arrays import Array, Feeds

_ELEMENTS: Final = 2**22
"""Weights that are quantized at a time."""


class Blocks(NamedTuple):
    """Weights in blocks.

    Attributes:
        packed: Uint8: of a product [outer, blocks, bytes of a block], of a table its bytes, flat.
        scales: Of a product [outer, blocks], of a table its shape with blocks in place of numbers.
        zeros: Zero points likewise, packed as weights are: [outer, bytes], or flat; None where zero is in the middle.
    """

    packed: Array
    scales: Array
    zeros: Array | None


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


def in_blocks(operator: str, weight: Array, form: WeightFormat, read: Sequence[Array] = ()) -> Blocks:
    """The weights of one node in blocks.

    onnxruntime.quantization is given some columns of a product's weights, or rows of a table, at a time: blocks do not
    reach from one to another, and what it computes with is several times as large as what it is given.

    Args:
        operator: MatMul, whose weights are [inner, outer]; or Gather, whose table is [rows, ..., width].
        weight: Float32 or float16.
        form: A form that fits.
        read: Arrays [rows, inner] that the product reads; ``gptq`` needs some.

    Raises:
        ModelError: onnxruntime.quantization fails.
    """
    if form.algorithm == "gptq":
        return _packed(*gptq.rounded(weight, read, form.block), form.block, weight.dtype)
    with _quiet():
        found = [_in_blocks(operator, part, form) for part in _parts(operator, weight)]
    packed, scales = (np.concatenate(arrays) for arrays in zip(*((b.packed, b.scales) for b in found), strict=True))
    zeros = [b.zeros for b in found if b.zeros is not None]
    return Blocks(packed, scales, np.concatenate(zeros) if zeros else None)


def _packed(numbers: Array, scales: Array, zeros: Array, block: int, dtype: np.dtype[Any]) -> Blocks:
    """Numbers of 4 bits [inner, outer], scales and zero points [blocks, outer] as a product has them."""
    blocks, outer = scales.shape
    whole = np.zeros((blocks * block, outer), np.uint8)
    whole[: len(numbers)] = numbers
    pairs = np.ascontiguousarray(whole.T).reshape(outer, blocks, block // 2, 2)
    even = np.pad(zeros.T, ((0, 0), (0, blocks % 2))).reshape(outer, -1, 2)
    both = [each[..., 0] | each[..., 1] << 4 for each in (pairs, even)]
    return Blocks(both[0], np.ascontiguousarray(scales.T).astype(dtype), both[1])


def _parts(operator: str, weight: Array) -> Iterator[Array]:
    """Columns of a product's weights, or rows of a table, about ``_ELEMENTS`` at a time."""
    along = weight.shape[0] if operator == "MatMul" else math.prod(weight.shape[1:])
    alone = operator == "Gather" and along % 2  # a byte holds numbers of two rows
    whole = weight.shape[1] if operator == "MatMul" else weight.shape[0]
    step = whole if alone else max(1, _ELEMENTS // max(along, 1))
    for start in range(0, max(whole, 1), max(step, 1)):
        yield weight[:, start : start + step] if operator == "MatMul" else weight[start : start + step]


def _in_blocks(operator: str, weight: Array, form: WeightFormat) -> Blocks:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        _alone(operator, weight),
        block_size=form.block,
        is_symmetric=form.symmetric,
        accuracy_level=form.level,
        algo_config=_algorithm(form, operator),
    )
    quantizer.process()
    graph = quantizer.model.model.graph
    (node,) = graph.node
    held = {tensor.name: tensor for tensor in graph.initializer}
    if operator == "Gather":
        raw = [np.frombuffer(held[node.input[i]].raw_data, np.uint8) for i in (0, 3) if len(node.input) > i]
        scales = onnx.numpy_helper.to_array(held[node.input[2]])
        return Blocks(raw[0], scales, raw[1] if len(raw) > 1 else None)
    arrays = [onnx.numpy_helper.to_array(held[name]) for name in node.input[1:]]
    outer = len(arrays[0])
    return Blocks(arrays[0], arrays[1].reshape(outer, -1), arrays[2].reshape(outer, -1) if len(arrays) > 2 else None)


def _alone(operator: str, weight: Array) -> onnx.ModelProto:
    """A model of one node, which multiplies by weights, or looks them up."""
    kind, index = onnx.helper.np_dtype_to_tensor_dtype(weight.dtype), onnx.TensorProto.INT64
    names, read = (["x", "w"], kind) if operator == "MatMul" else (["w", "x"], index)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(operator, names, ["y"], name=operator)],
        "alone",
        [onnx.helper.make_tensor_value_info("x", read, None)],
        [onnx.helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(weight), "w")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def _algorithm(form: WeightFormat, operator: str) -> Any:
    from onnxruntime.quantization import matmul_nbits_quantizer as theirs

    if form.algorithm == "k-quant":
        return theirs.KQuantWeightOnlyQuantConfig(op_types_to_quantize=(operator,))
    return theirs.DefaultWeightOnlyQuantConfig(
        block_size=form.block,
        is_symmetric=form.symmetric,
        accuracy_level=form.level,
        op_types_to_quantize=(operator,),
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
