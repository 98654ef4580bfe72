"""Preparation for quantization: the model rewritten to operators that a quantizer takes, with names and types added.

onnxruntime.quantization sees Conv, MatMul, Gemm and Gather with constant weights.  So batch normalization and scales
are folded into weights, constants are folded, and operators of a runtime that hide a multiplication are left to the
rewrite afterwards, which finds them again around what was quantized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.api import application
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import UsageError
from onnxrewrite.io.opset_conversion import to_opset
from onnxrewrite.suite.quantization.quantize_settings import Mode, QuantizeSettings

QUANTIZED = frozenset(
    """QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger ConvInteger QLinearMatMul QLinearConv
    MatMulNBits QAttention QGemm MatMulIntegerToFloat DynamicQuantizeMatMul GatherBlockQuantized QLinearAdd
    QEmbedLayerNormalization DynamicQuantizeLSTM MatMulBnb4""".split()
)
"""Operators by which a model is known to be quantized already."""

_FOLDS = ("scale-before-layer",)
"""Rules that fold scales into weights."""

_OPSETS = {"dynamic": 11, "static": 13, "weights": 11}
"""The opset from which on a mode has its operators: DynamicQuantizeLinear, scales by channel."""

_WIDE_OPSET = 21
"""The opset from which on QuantizeLinear has dtypes of 4 and of 16 bits."""

_RICH_OPSET = 20
"""The opset from which on Gelu and LayerNormalization are operators: below it they are spelled out, the factor of the
former ends in the weights behind it, and nothing recognises it afterwards."""


class QuantizedAlready(UsageError):
    """A model that is quantized already."""


def refuse_quantized(model: ir.Model) -> None:
    """QuantizedAlready for such a model."""
    for node in _nodes(model):
        if node.op_type in QUANTIZED:
            raise QuantizedAlready(
                f"the model is quantized already: node {node.name} is {node.op_type}; give the float model that it "
                "was made of"
            )


def rewritten(model: ir.Model, mode: Mode, *, seed: int, progress: Progress | None) -> ir.Model:
    """The model rewritten to operators of the standard, folded and simplified.

    Scales of normalizations are not folded where only weights are quantized: they cost nothing where they are, and
    folding them makes every weight anew.

    Raises:
        CheckError: The rewrite is not equal to the model.
    """
    without = _FOLDS if mode == "weights" else ()
    return application.apply(model, lower="portable", check="fast", without=without, seed=seed, progress=progress).model


def in_opset(model: ir.Model, settings: QuantizeSettings) -> tuple[ir.Model, list[str]]:
    """The model in an opset that has the operators, and what was done for it.

    Raises:
        UsageError: It cannot be brought to an opset that it must have.
    """
    before = io.opset(model)
    wide = settings.mode == "static" and (settings.activations.endswith("16") or settings.weights.endswith("4"))
    least = (
        _WIDE_OPSET
        if wide or (settings.mode == "weights" and settings.weights in ("int4", "mixed"))
        else _OPSETS[settings.mode]
    )
    if before >= max(least, _RICH_OPSET):
        return model, []
    why = "4 and 16 bits" if least == _WIDE_OPSET else f"{settings.mode} quantization"
    for wanted in sorted({least, max(least, _RICH_OPSET)} - set(range(before + 1)), reverse=True):
        try:
            return to_opset(model, wanted), [f"raised from opset {before} to {wanted} for {why}"]
        except UsageError:
            if wanted == least:
                raise
    return model, []


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
    """The model as one message, weights and all, that tells the type of every value: onnx infers none of operators that
    it does not know."""
    proto = io.to_proto(model)
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
