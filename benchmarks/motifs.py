"""Motifs: the parts of a model that could be fused, counted by structure, and those of them that are fused.

A motif is counted where exporters spell it out and where it is one operator already, so that the fused ones are a
share of one total.  Nothing here knows of our rules: neither may decide what the other is measured by.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.io import statistics
from onnxrewrite.ir.graph import dense_tensor, scopes

PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "Einsum", "FusedMatMul", "MatMulNBits"})
PRODUCTS |= {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "FusedGemm"}
SCORES = frozenset("Add Sub Sum Mul Div Where Reshape Transpose Cast Clip Expand Identity Squeeze Unsqueeze".split())
SCORES |= {"QuantizeLinear", "DequantizeLinear"}
WEIGHTS = SCORES | {"Dropout", "DynamicQuantizeLinear", "IsNaN", "Slice"}
_FAR = 8
"""So many nodes may lie between a Softmax and the product before or after it."""


def opened(path: str | os.PathLike[str]) -> ir.Model:
    """A model with its local functions inlined, so that what is called twice counts twice."""
    model = io.load(path)
    if not model.functions:
        return model
    return io.load(onnx.inliner.inline_local_functions(io.to_proto(model)))


def node_count(path: str | os.PathLike[str]) -> int:
    """The number of nodes, constants left out."""
    return statistics.node_count(opened(path))


@dataclass(frozen=True)
class Motif:
    """Something that can be fused.

    Attributes:
        name: The name in tables.
        fused: The operators that are it, in any domain, to how many of it each is; or what FusedConv has as activation.
        spelled: True for the node by which a spelled-out motif is counted.
    """

    name: str
    fused: dict[str, int]
    spelled: Callable[[ir.Node], bool]

    def one_operator(self, model: ir.Model) -> int:
        """The number of motifs that are one operator."""
        return sum(self._worth(n) for n in _nodes(model))

    def all(self, model: ir.Model) -> int:
        """The number of motifs, of one operator or several."""
        return self.one_operator(model) + sum(self.spelled(n) for n in _nodes(model) if n.op_type not in self.fused)

    def _worth(self, node: ir.Node) -> int:
        worth = self.fused.get(node.op_type, 0) or self.fused.get(node.attributes.get_string("activation", ""), 0)
        if node.op_type == "GroupQueryAttention" and self.name == "rotary":
            return worth if node.attributes.get_int("do_rotary", 0) else 0
        return worth or int(self.name == "activation" and is_table(node))


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    return (n for g in scopes(model) for n in g)


def _above(value: ir.Value | None, through: frozenset[str], steps: int) -> Iterator[ir.Node]:
    """The nodes that a value is made by, through operators that only pass it on, so far."""
    node = value.producer() if value is not None else None
    if node is None or steps == 0:
        return
    yield node
    if node.op_type in through:
        for operand in node.inputs:
            yield from _above(operand, through, steps - 1)


def _below(value: ir.Value, through: frozenset[str], steps: int) -> Iterator[ir.Node]:
    """The nodes that read a value, through operators that only pass it on, so far."""
    for node in value.consumers():
        yield node
        if node.op_type in through and steps > 1:
            for output in node.outputs:
                yield from _below(output, through, steps - 1)


def is_attention(node: ir.Node) -> bool:
    """A Softmax between two matrix products."""
    return (
        node.op_type == "Softmax"
        and any(n.op_type in PRODUCTS for n in _above(node.inputs[0], SCORES, _FAR))
        and any(n.op_type in PRODUCTS for n in _below(node.outputs[0], WEIGHTS, _FAR))
    )


def is_normalization(node: ir.Node) -> bool:
    """The root of a mean of squares, on the way to a division."""
    half = node.op_type == "Pow" and _number(node.inputs[1]) in (0.5, -0.5)
    if node.op_type != "Sqrt" and not half:
        return False
    means = [
        n for n in _above(node.inputs[0], frozenset({"Add", "Cast", "Clip", "Max"}), 3) if n.op_type == "ReduceMean"
    ]
    squares = (n for m in means for n in _above(m.inputs[0], frozenset({"Cast"}), 2))
    return any(_is_square(n) for n in squares)


def _is_square(node: ir.Node) -> bool:
    if node.op_type == "Pow":
        return _number(node.inputs[1]) == 2
    return node.op_type == "Mul" and node.inputs[0] is node.inputs[1]


def is_activation(node: ir.Node) -> bool:
    """GELU by its Erf or its 1 + tanh, x·sigmoid(βx), x·clip(x + 3, 0, 6), x·tanh(softplus(x))."""
    if node.op_type == "Erf":
        return True
    if node.op_type not in ("Tanh", "Sigmoid", "HardSigmoid", "Clip"):
        return False
    above = node.inputs[0].producer() if node.inputs[0] is not None else None
    operands = above.inputs if above is not None else ()
    kind = above.op_type if above is not None else ""
    if node.op_type == "Tanh":
        one_plus = any(n.op_type == "Add" and 1 in map(_number, n.inputs) for n in node.outputs[0].consumers())
        return one_plus or (kind == "Softplus" and _multiplies(node, *operands))
    if node.op_type == "Clip":
        return kind == "Add" and 3 in map(_number, operands) and _multiplies(node, *operands)
    return _multiplies(node, node.inputs[0], *(operands if kind == "Mul" else ()))


def _multiplies(node: ir.Node, *values: ir.Value | None) -> bool:
    """True if the result of a node is multiplied with one of the values, scaled or not."""
    products = (n for n in _below(node.outputs[0], frozenset({"Div", "Mul"}), 2) if n.op_type == "Mul")
    variable = [v for v in values if v is not None and _number(v) is None]
    return any(operand is v for n in products for operand in n.inputs for v in variable)


def is_table(node: ir.Node) -> bool:
    """A look-up of each of a tensor of 8-bit integers in a constant table of all that there are: what an activation is
    between quantized tensors, with all its steps."""
    if node.op_type not in ("Gather", "GatherElements") or node.inputs[0] is None:
        return False
    table = dense_tensor(node.inputs[0])
    return table is not None and list(table.shape) == [256] and table.dtype in (ir.DataType.INT8, ir.DataType.UINT8)


def is_rotation(node: ir.Node) -> bool:
    """Half of a vector negated and put before the other half."""
    if node.op_type != "Concat" or len(node.inputs) != 2:
        return False
    first = node.inputs[0].producer() if node.inputs[0] is not None else None
    whole = _whole(first.inputs[0]) if first is not None and first.op_type == "Neg" else None
    return whole is not None and whole is _whole(node.inputs[1])


def _whole(piece: ir.Value | None) -> ir.Value | None:
    """The value that a value is cut out of; None if it is not cut out."""
    node = piece.producer() if piece is not None else None
    return node.inputs[0] if node is not None and node.op_type in ("Slice", "Split", "Gather") else None


def _number(value: ir.Value | None) -> float | None:
    """The number that a constant of one element is."""
    tensor = dense_tensor(value) if value is not None else None
    if tensor is None or tensor.size != 1 or tensor.dtype == ir.DataType.STRING:
        return None
    return round(float(np.asarray(tensor.numpy()).ravel()[0]), 4)


_ATTENTIONS = "Attention MultiHeadAttention GroupQueryAttention QAttention PackedMultiHeadAttention SparseAttention"
_NORMS = "LayerNormalization RMSNormalization SimplifiedLayerNormalization GroupNormalization InstanceNormalization"
_SKIPS = "GroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization SkipGroupNorm"
_ACTIVATIONS = "Gelu FastGelu BiasGelu QuickGelu Swish HardSwish Mish"

MOTIFS = (
    Motif("attention", dict.fromkeys(_ATTENTIONS.split(), 1), is_attention),
    Motif("norm", dict.fromkeys(f"{_NORMS} {_SKIPS}".split(), 1), is_normalization),
    Motif("activation", dict.fromkeys(_ACTIVATIONS.split(), 1), is_activation),
    Motif("rotary", {"RotaryEmbedding": 1, "GroupQueryAttention": 2}, is_rotation),
)


def found(model: ir.Model) -> Counter[str]:
    """The number of each motif that is one operator."""
    return Counter({m.name: m.one_operator(model) for m in MOTIFS})


def total(model: ir.Model) -> Counter[str]:
    """The number of each motif."""
    return Counter({m.name: m.all(model) for m in MOTIFS})
