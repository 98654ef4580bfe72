"""Which nodes are quantized, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxrewrite.quantize.settings import Settings, names

OPERATORS: Mapping[str, tuple[str, ...]] = {
    "dynamic": ("MatMul", "Gemm", "Conv", "LSTM", "Attention", "Gather", "EmbedLayerNormalization"),
    "weights": ("MatMul", "Gemm", "Gather"),
    "static": ("MatMul", "Gemm", "Conv", "ConvTranspose", "Gather"),
}
"""What is quantized where nothing else is asked for: what multiplies by weights, or looks them up."""

BETWEEN = frozenset(
    """Add Mul Relu Clip LeakyRelu Sigmoid MaxPool AveragePool GlobalAveragePool Concat Resize Pad Split Reshape
    Transpose Squeeze Unsqueeze Flatten Slice""".split()
)
"""What runs on integers too, and need not go back to float, where it stands between operators that are quantized."""

_WEIGHT = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1, "Gather": 0, "LSTM": 1, "Attention": 1}
"""Which input holds the weights."""


@dataclass(frozen=True)
class Left:
    """A node that stays in float.

    Attributes:
        name: Of the node.
        operator: Its type.
        reason: Why, as a person would say.
    """

    name: str
    operator: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "operator": self.operator, "reason": self.reason}


@dataclass
class Selection:
    """What a quantizer is told.

    Attributes:
        chosen: Nodes by name, with their operators, in the order of the graph.
        left: Nodes that could be, and are not.
    """

    chosen: dict[str, str] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


def select(model: ir.Model, settings: Settings) -> Selection:
    """The nodes of a prepared model that are quantized under ``settings``."""
    found = Selection()
    wanted = settings.operators or OPERATORS[settings.mode]
    for node in model.graph.all_nodes():
        if node.op_type not in wanted:
            continue
        assert node.name is not None
        reason = _reason(node, model, settings)
        if reason:
            found.left.append(Left(node.name, node.op_type, reason))
        else:
            found.chosen[node.name] = node.op_type
    return found


def _reason(node: ir.Node, model: ir.Model, settings: Settings) -> str:
    """Why a node of a type that is wanted is left; empty where it is not."""
    name = node.name or ""
    if names(settings.exclude, name, node.op_type):
        return "excluded"
    if settings.include and not names(settings.include, name, node.op_type):
        return "not included"
    if node.graph is not model.graph:
        return "inside the body of a loop or branch"
    if node.op_type not in _WEIGHT:
        return ""
    position = _WEIGHT[node.op_type]
    weight = node.inputs[position] if len(node.inputs) > position else None
    if weight is None or weight.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return "integers already" if node.op_type == "Gather" else "no float weights"
    if weight.const_value is None or weight.is_graph_input():
        return (
            "its second operand is no constant" if node.op_type in ("MatMul", "Gemm") else "its weights are no constant"
        )
    return ""
