"""Linear layers that read one value are one wider layer, whose result is split.

So are queries, keys and values, or the two halves of a gated layer; and likewise convolutions of one geometry.

Why: a product with a wider weight uses the cores better than several after one another, and what they read is read
once.  But Split copies what the layers wrote, so it is done only where it was measured to pay.
What is concatenated right away is merged without a Split, by ``grouped_conv.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.linear_layers import feeds_attention

LIMIT = 64 * 2**20
"""Weights of more bytes than this, all together, stay where they are: merging loads them."""

x, w, b = Var("x", dtype=FLOATS), Const("w"), Const("b", default=None)
layer = op["MatMul", "Gemm", "Conv"](x, w, b)

BLOCKED = frozenset(operators(marks="blocked"))
"""Operators that ONNX Runtime computes in blocks of channels between convolutions, unlike Split."""


@dataclass(frozen=True)
class Branch:
    """One of the layers.

    Attributes:
        nodes: The layer, and the Add after it that adds its bias.
        weight: Its weight.
        bias: A number for each channel; None where there is no bias.
        channels: The number of its output channels.
        key: The properties that must be equal for two of them to be one.
    """

    nodes: tuple[ir.Node, ...]
    weight: Value
    bias: Value | None
    channels: int
    key: Hashable

    @property
    def output(self) -> Value:
        """The value that it computes."""
        return self.nodes[-1].outputs[0]


def _in_blocks(each: Branch) -> bool:
    """True if another convolution follows, directly or after one node, which measuring it alone does not show."""
    if each.nodes[0].op_type != "Conv":
        return False
    return any(n.op_type == "Conv" for n in readers(each.output, through=BLOCKED, within=2))


def alongside(m: Match) -> list[Branch]:
    """The layers that read x, each with a weight of its own."""
    found = (branch(m, node) for node in readers(m[x], within=1))
    return [each for each in found if each is not None]


def branch(m: Match, node: ir.Node) -> Branch | None:
    """A node as a layer to merge; None if it is something else."""
    if node.domain or node.op_type not in layer.op_types or node.graph is not m.node(layer).graph:
        return None
    source, weight, bias = (input_of(node, i) for i in range(3))
    if source is not m[x] or weight is None or m.facts.tensor(weight) is None or not is_read_once(weight):
        return None
    shape = tuple(d for d in m.shape(weight) or () if isinstance(d, int))
    axis = output_axis(m, node)
    if (len(shape) != 2 and node.op_type != "Conv") or parameter(m.facts, node, "group") not in (None, 1):
        return None
    nodes: tuple[ir.Node, ...] = (node,)
    if node.op_type == "MatMul":
        add, bias = added(m, node, shape[axis])
        nodes = (node, *add)
    elif bias is not None and not is_by_channel(m, bias, shape[axis]):
        return None
    attributes = tuple((name, parameter(m.facts, node, name)) for name in sorted(node.attributes))
    rest = (*shape[:axis], *shape[axis + 1 :])
    return Branch(nodes, weight, bias, shape[axis], (node.op_type, m.dtype(weight), rest, attributes))


def output_axis(m: Match, node: ir.Node) -> int:
    """The axis of a weight along which the output channels lie."""
    return 0 if node.op_type == "Conv" or parameter(m.facts, node, "transB") else 1


def added(m: Match, node: ir.Node, channels: int) -> tuple[tuple[ir.Node, ...], Value | None]:
    """The Add of a bias that alone reads a product, and the bias."""
    (result,) = node.outputs
    add = only_reader(result, "Add")
    if add is None:
        return (), None
    bias = next((v for v in inputs_of(add) if v is not result and is_by_channel(m, v, channels)), None)
    return ((add,) if bias is not None else (), bias)


def is_by_channel(m: Match, bias: Value, channels: int) -> bool:
    """True if a value is a constant of rank 1 with one element for each channel."""
    return m.facts.tensor(resolve(bias)) is not None and m.shape(bias) == (channels,)


def merged(m: Match, build: Builder, branches: Sequence[Branch]) -> Value:
    """The one layer that computes them all."""
    node = m.node(layer)
    weights = [m.facts.constant(each.weight) for each in branches]
    weight = build.const(np.concatenate([a for a in weights if a is not None], axis=output_axis(m, node)), like=w)
    bias = None
    if any(each.bias is not None for each in branches):
        bias = build.const(np.concatenate([numbers(m, each) for each in branches]), like=w)
    if node.op_type == "MatMul":
        result: Value = build.MatMul(m[x], weight)
        return result if bias is None else build.Add(result, bias)
    return build.node(node.op_type, [m[x], weight, bias], m.attrs(layer))[0]


def numbers(m: Match, each: Branch) -> Array:
    """The bias of a layer, zeros where it has none."""
    array = None if each.bias is None else m.facts.constant(resolve(each.bias))
    return np.zeros(each.channels) if array is None else array


@rule(
    "parallel-layers",
    LOWER,
    layer,
    needs_speedup=True,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[b,s,2] x; p = MatMul(x, float[2,1] {1, 2})  q = MatMul(x, float[2,2] {3, 4, 5, 6})"
            "  g = Sigmoid(p)  y = Mul(g, q)",
            to="float[b,s,2] x; w = MatMul(x, float[2,3] {1, 3, 4, 2, 5, 6})  p, q = Split<axis=2>(w, {1, 2})"
            "  g = Sigmoid(p)  y = Mul(g, q)",
        ),
        Rewrites(
            "float[n,2] x; p = Gemm<transB=1>(x, float[1,2] {1, 2})  q = Gemm<transB=1>(x, float[1,2] {3, 4}, {5.0})"
            "  y = Mul(p, q)",
            to="float[n,2] x; w = Gemm<transB=1>(x, float[2,2] {1, 2, 3, 4}, {0.0, 5.0})"
            "  p, q = Split<axis=1>(w, {1, 1})  y = Mul(p, q)",
        ),
        Rewrites(
            "float[n,1,h] x; p = Conv<pads=[1,1]>(x, float[1,1,3] {1, 2, 3})"
            "  q = Conv<pads=[1,1]>(x, float[1,1,3] {4, 5, 6})  y = Mul(p, q)",
            to="float[n,1,h] x; w = Conv<pads=[1,1]>(x, float[2,1,3] {1, 2, 3, 4, 5, 6})"
            "  p, q = Split<axis=1>(w, {1, 1})  y = Mul(p, q)",
        ),
        Rejects(
            "float[n,1,h] x; p = Conv<pads=[1,1]>(x, float[1,1,3] {1, 2, 3})"
            "  q = Conv<pads=[0,2]>(x, float[1,1,3] {4, 5, 6})  y = Mul(p, q)",
            because="no other layer like it",
        ),
        Rejects(
            "float[n,1,h] x; p = Conv<pads=[1,1]>(x, float[1,1,3] {1, 2, 3})"
            "  q = Conv<pads=[1,1]>(x, float[1,1,3] {4, 5, 6})  r = Relu(q)  c = Conv(r, float[1,1,1] {2})"
            "  y = Mul(p, c)",
            because="blocks of channels",
        ),
        Rejects(
            "float[b,s,2] x; w = float[2,1] {1, 2}  p = MatMul(x, w)  q = MatMul(x, float[2,1] {3, 4})"
            "  r = MatMul(z, w)  u = Mul(p, q)  y = Concat<axis=0>(u, r)",
            because="used elsewhere",
        ),
        Rejects(
            "float[b,s,2] x; q = MatMul(x, float[2,1] {1, 2})  k = MatMul(x, float[2,1] {3, 4})"
            "  y = com.microsoft.MultiHeadAttention<num_heads=1>(q, k, k)",
            because="an attention may take them in",
        ),
    ),
)
def parallel_layers(m: Match, build: Builder) -> Sequence[Value]:
    """layer₁(x), layer₂(x) ⟶ Split(layer(x))."""
    own = branch(m, m.node(layer))
    if own is None:
        m.refuse("its weight is used elsewhere, or its channels are not those of one matrix or one group", at=w)
    branches = [each for each in alongside(m) if each.key == own.key]
    others = [f"{n.op_type} `{n.name}`" for n in readers(m[x], within=1) if n is not m.node(layer)]
    told = f", only {' and '.join(others)}" if others else ""
    m.require(len(branches) > 1, f"no other layer like it reads the same{told}", at=x)
    m.require(not any(feeds_attention(m, each.output) for each in branches), "an attention may take them in")
    undone = any(map(_in_blocks, branches))
    m.require(not undone, "Split would undo the blocks of channels in which convolutions compute", at=layer)
    size = sum(m.facts.nbytes(each.weight) or 0 for each in branches)
    m.require(size <= LIMIT, f"the weights are {size} bytes", at=w)
    rank = m.rank(layer)
    if rank is None:
        m.refuse("the rank of the result is unknown", at=layer)
    m.widen([n for each in branches for n in each.nodes], [each.output for each in branches])
    axis = rank - 1 if m.node(layer).op_type == "MatMul" else 1
    sizes = np.array([each.channels for each in branches])
    return build.Split(merged(m, build, branches), split=sizes, axis=axis, outputs=len(branches))
