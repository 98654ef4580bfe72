"""Selection of the nodes to quantize, with the reasons why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.report.plain_reports import LeftRow
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, names
from onnxrewrite.suite.quantization.split import is_plain
from onnxrewrite.suite.quantization.stored import chained
from onnxrewrite.suite.quantization.weight_format import BITS

OPERATORS: Mapping[str, tuple[str, ...]] = {
    "dynamic": ("MatMul", "Gemm", "LSTM", "Gather", "Conv"),
    "weights": ("MatMul", "Gemm", "Gather"),
    "static": ("MatMul", "Gemm", "Conv", "ConvTranspose", "Gather"),
}
"""The operators that are quantized by default: those that multiply by weights, or look them up.

Of Conv and Gather as they come, only the weights are: see ``stored``.  Not Attention: the quantizer drops its bias of
scores.
"""

BETWEEN = frozenset(operators(marks="int8"))
"""Operators that run on integers too, and need not go back to float between operators that are quantized.

Not Add: a residual stream that is rounded at every sum loses most.  On a detector of 63 convolutions, without the sums
the time went from 0.57 to 0.61 of the float model's, and the cosine similarity from 0.9794 to 0.9820.
"""

_WEIGHT = {name: traits.weights for name, traits in TRAITS.items() if traits.weights is not None} | {"Attention": 1}
"""The input that holds the weights, by operator."""


@dataclass(frozen=True)
class Left:
    """A node that stays in float.

    Attributes:
        name: Of the node.
        operator: Its type.
        reason: The reason, in plain words.
    """

    name: str
    operator: str
    reason: str

    def to_json(self) -> LeftRow:
        """Plain data."""
        return {"name": self.name, "operator": self.operator, "reason": self.reason}


@dataclass
class Selection:
    """The nodes that a quantizer takes, and those that it leaves.

    Attributes:
        chosen: Nodes by name, with their operators, in the order of the graph.
        left: Nodes that could be, and are not.
    """

    chosen: dict[str, str] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


def select(model: ir.Model, settings: QuantizeSettings) -> Selection:
    """The nodes of a prepared model that are quantized under ``settings``."""
    found = Selection()
    wanted = settings.operators or OPERATORS[settings.mode]
    chains = chained(model.graph) if settings.mode == "dynamic" else set()
    for node in model.graph.all_nodes():
        if node.op_type not in wanted:
            continue
        assert node.name is not None
        reason = _reason(node, model, settings)
        if not reason and node in chains:
            reason = "a chain of convolutions is slower with weights in 8 bits; take static"
        if reason:
            found.left.append(Left(node.name, node.op_type, reason))
        else:
            found.chosen[node.name] = node.op_type
    if settings.mode == "static" and settings.operators is None:
        between = {n.name for n in _between(model, found.chosen, settings)}
        found.chosen = {n.name or "": n.op_type for n in model.graph if n.name in found.chosen or n.name in between}
    return found


def _between(model: ir.Model, chosen: Mapping[str, str], settings: QuantizeSettings) -> list[ir.Node]:
    """The nodes that stand between quantized ones: all that they compute from comes as integers, and integers are
    what somebody wants of them."""
    nodes = {n: None for n in model.graph if n.op_type in BETWEEN and not _reason(n, model, settings)}
    while True:
        kept = {n: None for n in nodes if _is_between(n, nodes, chosen)}
        if len(kept) == len(nodes):
            return list(kept)
        nodes = kept


def _is_between(node: ir.Node, nodes: Container[ir.Node], chosen: Mapping[str, str]) -> bool:
    if node.outputs[0].dtype != ir.DataType.FLOAT or node.outputs[0].is_graph_output():
        return False
    operands = [v for v in node.inputs if v is not None and v.dtype == ir.DataType.FLOAT and v.const_value is None]
    makers = [v.producer() for v in operands]
    users = [use.node for use in node.outputs[0].uses()]
    return (
        bool(makers)
        and all(m is not None and (m in nodes or m.name in chosen) for m in makers)
        and any(u in nodes or u.name in chosen for u in users)
    )


def _reason(node: ir.Node, model: ir.Model, settings: QuantizeSettings) -> str:
    """The reason why a node of a wanted operator is left in float; empty if there is none."""
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
    if settings.mode != "static" and node.op_type == "Gemm" and not is_plain(node):
        return "it has a factor, or its first operand transposed; take static"
    return _reason_in_blocks(node, weight, settings) if settings.mode == "weights" else ""


def _reason_in_blocks(node: ir.Node, weight: ir.Value, settings: QuantizeSettings) -> str:
    """The reason why no operator takes the weights of a node in blocks; empty if one does."""
    assert weight.const_value is not None
    shape = weight.const_value.shape.numpy()
    if node.op_type == "Gather":
        if BITS[settings.weights] != 4:
            return "tables in blocks have 4 bits"
        return "" if len(shape) > 1 else "its table has one dimension"
    return "" if len(shape) > 1 and all(size == 1 for size in shape[:-2]) else "its weights are no matrix"


def reason_for_nothing(left: list[Left], settings: QuantizeSettings) -> str:
    """The reason why nothing of a model is quantized, of which these nodes were left."""
    if not left:
        hint = "; convolutions take static" if settings.mode != "static" and settings.operators is None else ""
        return f"the model has no {', '.join(settings.operators or OPERATORS[settings.mode])}{hint}"
    first = left[0]
    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return f"{first.operator} {first.name}: {first.reason}{more}"


def in_few_bits(selection: Selection, forms: Container[str]) -> Selection:
    """The selection without the nodes for which no form was chosen."""
    why = "few bits lose more there than they save"
    left = [Left(name, operator, why) for name, operator in selection.chosen.items() if name not in forms]
    return Selection({n: o for n, o in selection.chosen.items() if n in forms}, [*selection.left, *left])


def floats_left(model: ir.Model, selection: Selection) -> dict[str, int]:
    """Operators on floats that were no candidates, most frequent first."""
    known = {*selection.chosen, *(left.name for left in selection.left)}
    found = Counter(
        node.op_type
        for node in model.graph
        if node.name not in known and node.op_type != "Constant" and node.outputs[0].dtype == ir.DataType.FLOAT
    )
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
