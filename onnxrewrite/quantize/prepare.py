"""What is quantized: the model rewritten to what a quantizer can take in, its nodes named, its types told.

onnxruntime.quantization sees Conv, MatMul, Gemm and Gather with constant weights.  So batch normalization and scales
are folded into weights, constants are folded, and operators of a runtime that hide a multiplication are left to the
rewrite afterwards, which finds them again around what was quantized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from onnxrewrite import pipeline
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import io
from onnxrewrite.ir.convert import to_opset
from onnxrewrite.quantize.settings import Settings
from onnxrewrite.rounds import Progress

QUANTIZED = frozenset(
    """QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger ConvInteger QLinearMatMul QLinearConv
    MatMulNBits QAttention QGemm MatMulIntegerToFloat DynamicQuantizeMatMul GatherBlockQuantized QLinearAdd
    QEmbedLayerNormalization DynamicQuantizeLSTM MatMulBnb4""".split()
)
"""Operators by which a model is known to be quantized already."""

_OPSETS = {"dynamic": 11, "static": 13, "weights": 11}
"""The opset from which on a mode has its operators: DynamicQuantizeLinear, scales by channel."""

_WIDE_OPSET = 21
"""The opset from which on QuantizeLinear has dtypes of 4 and of 16 bits."""


def refuse_quantized(model: ir.Model) -> None:
    """UsageError for a model that is quantized already."""
    for node in _nodes(model):
        if node.op_type in QUANTIZED:
            raise UsageError(
                f"the model is quantized already: node {node.name} is {node.op_type}; give the float model that it "
                "was made of"
            )


def prepared(
    model: ir.Model, settings: Settings, *, seed: int, progress: Progress | None
) -> tuple[ir.Model, list[str]]:
    """The model as it goes to the quantizer, and notes.

    Raises:
        UsageError: Its opset is too old, and cannot be raised.
        CheckError: The rewrite is not equal to the model.
    """
    raised, notes = in_opset(model, settings)
    result = pipeline.apply(raised, lower="portable", check="fast", seed=seed, progress=progress)
    return named(result.model), notes


def in_opset(model: ir.Model, settings: Settings) -> tuple[ir.Model, list[str]]:
    """The model in an opset that has the operators, and what was done for it."""
    before = io.opset(model)
    wide = settings.mode == "static" and (settings.activations.endswith("16") or settings.weights.endswith("4"))
    wanted = _WIDE_OPSET if wide else _OPSETS[settings.mode]
    if before >= wanted:
        return model, []
    why = "4 and 16 bits" if wide else f"{settings.mode} quantization"
    return to_opset(model, wanted), [f"raised from opset {before} to {wanted} for {why}"]


def named(model: ir.Model) -> ir.Model:
    """The model, changed so that every node of it has a name of its own; the same model gets the same names."""
    taken: set[str] = set()
    for node in _nodes(model):
        first = next((o.name for o in node.outputs if o.name), None) or node.op_type
        wanted = node.name or f"{first}/{node.op_type}"
        name = next(n for n in _numbered(wanted) if n not in taken)
        taken.add(name)
        node.name = name
    return model


def typed(model: ir.Model) -> onnx.ModelProto:
    """The model as a message that tells the type of every value: onnx infers none of operators it does not know."""
    proto = io.to_bare_proto(model)
    known = {v.name for v in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)}
    for node in model.graph:
        for value in node.outputs:
            if value.name and value.name not in known and isinstance(value.type, ir.TensorType):
                proto.graph.value_info.append(ir.to_proto(value))
    return proto


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _nodes(model: ir.Model) -> Sequence[ir.Node]:
    """All nodes, also those of inner graphs."""
    return list(model.graph.all_nodes())
