"""The standard's Attention as exporters spell it: the least that it takes, which is what a kernel has to beat.

The function body that the standard gives it serves every rank, head count and dtype by Reshapes, Transposes and Casts,
and takes up to twice as long as what an exporter wrote.  Measured against it, any kernel looks fast.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper

_READ = frozenset({"scale"})
"""The attributes that are spelled; whoever has others is left to the function body."""


class _Known(NamedTuple):
    """The element type of a value and its sizes, None for each that is not known."""

    dtype: int
    shape: tuple[int | None, ...]


def spell_attention(model: onnx.ModelProto) -> None:
    """Spell out what Attention there is of queries, keys and values by head, in place; the rest stays.

    It becomes softmax(scale·q·kᵀ + mask)·v, of which ONNX Runtime fuses the Transpose and the scale into the product.
    """
    if not any(node.op_type == "Attention" and not node.domain for node in model.graph.node):
        return
    known = _known(onnx.shape_inference.infer_shapes(model).graph)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        scale = _scale(node, known) if node.op_type == "Attention" and not node.domain else None
        nodes += [node] if scale is None else _spelled(node, scale, known, model.graph)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _known(graph: onnx.GraphProto) -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        found[value.name] = _Known(kind.elem_type, tuple(d.dim_value or None for d in kind.shape.dim))
    found.update({t.name: _Known(t.data_type, tuple(t.dims)) for t in graph.initializer})
    return found


def _scale(node: onnx.NodeProto, known: dict[str, _Known]) -> float | None:
    """The factor of an Attention's scores; None if the node is not to be spelled here."""
    attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    q, k, v = (known.get(name, _Known(0, ())) for name in node.input[:3])
    plain = attributes.keys() <= _READ and len(node.input) <= 4 and len(node.output) == 1
    by_head = len(q.shape) == len(k.shape) == len(v.shape) == 4 and q.shape[1] is not None
    if not plain or not by_head or not q.shape[1] == k.shape[1] == v.shape[1] or q.dtype != TensorProto.FLOAT:
        return None
    width = q.shape[3]
    return attributes.get("scale", 1 / math.sqrt(width) if width else None)


def _spelled(
    node: onnx.NodeProto, scale: float, known: dict[str, _Known], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """The nodes that stand for one Attention; their constants become initializers of ``graph``."""
    q, k, v, mask = (*node.input, "")[:4]
    prefix = f"{node.output[0]}/spelled/"

    def constant(name: str, number: float) -> str:
        graph.initializer.append(helper.make_tensor(prefix + name, TensorProto.FLOAT, [], [number]))
        return prefix + name

    made = [
        helper.make_node("Transpose", [k], [f"{prefix}kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", [q, f"{prefix}kt"], [f"{prefix}product"]),
        helper.make_node("Mul", [f"{prefix}product", constant("scale", scale)], [f"{prefix}scores"]),
    ]
    scores = f"{prefix}scores"
    if mask and known.get(mask, _Known(0, ())).dtype == TensorProto.BOOL:
        inputs = [mask, scores, constant("masked", -math.inf)]
        made.append(helper.make_node("Where", inputs, [f"{prefix}masked scores"]))
        scores = f"{prefix}masked scores"
    elif mask:
        made.append(helper.make_node("Add", [scores, mask], [f"{prefix}masked scores"]))
        scores = f"{prefix}masked scores"
    return [
        *made,
        helper.make_node("Softmax", [scores], [f"{prefix}weights"], axis=-1),
        helper.make_node("MatMul", [f"{prefix}weights", v], [node.output[0]]),
    ]
