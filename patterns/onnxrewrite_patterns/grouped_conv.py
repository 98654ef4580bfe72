"""Parallel convolutions whose results are concatenated are one convolution.

Over the parts of one tensor that was split by channels they are its groups, as in AlexNet and ResNeXt; over
one and the same tensor they compute more output channels, as the branches of Inception do.

Why: one large kernel instead of several small ones, and neither Split nor Concat copies.
Krizhevsky et al., 2012, section 3.2; Xie et al., 2017, arXiv:1611.05431, figure 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

ELEMENTWISE = {"": frozenset((*operators("pointwise"), "PRelu")), "com.microsoft": {"FastGelu", "Gelu", "QuickGelu"}}
"""Functions of each element alone, if all inputs but the first are single numbers; by domain."""


@dataclass(frozen=True)
class Branch:
    """One input of Concat: a convolution, and the elementwise functions after it.

    Attributes:
        conv: The convolution.
        tail: The functions, first one first.
        idle: The nodes in between that change nothing.
        source: The value that the convolution reads.
        weight: Its weight, in its own dtype.
        bias: Its bias, or None.
        groups: Its number of groups.
        key: The properties that must be equal for two of them to be one.

    """

    conv: ir.Node
    tail: tuple[ir.Node, ...]
    idle: tuple[ir.Node, ...]
    source: Value
    weight: Array
    bias: Array | None
    groups: int
    key: Hashable


parts = Each[Any]("parts")
axis = Attr[int]("axis")
concat = op.Concat(parts, axis=axis)


def run_of(branches: Sequence[Branch | None]) -> list[Branch]:
    """The branches at the front that could be one convolution."""
    found: list[Branch] = []
    for each in branches:
        if each is None or (found and each.key != found[0].key):
            break
        found.append(each)
    return found


# -- what can be one convolution -----------------------------------------------------------------------------


def over_one_input(run: Sequence[Branch]) -> int:
    """The number of leading branches that read one value and have no groups, which would not stay together."""
    same = itertools.takewhile(lambda b: b.source is run[0].source and b.groups == 1, run)
    return sum(_input_width(b) == _input_width(run[0]) for b in same)


def over_parts(m: Match, run: Sequence[Branch]) -> int:
    """The number of leading branches that read all the equal parts of one value, in order; 0 if they do not."""
    end, whole = 0, None
    for count, each in enumerate(run, start=1):
        found = cut(m, each.source)
        alike = each.groups == run[0].groups and each.weight.shape == run[0].weight.shape
        if found is None or not alike or found.elements.start != end or whole not in (None, resolve(found.source)):
            return 0
        whole, end = resolve(found.source), found.elements.stop
        if end == found.size:
            return count
    return 0


def cut(m: Match, part: Value) -> Piece | None:
    """The channels that ``part`` consists of, if it is taken from another value and read once."""
    found = piece_of(m.facts, part) if is_read_once(part) else ""
    if isinstance(found, str) or found.axis != 1 or not isinstance(found.size, int) or found.elements.step != 1:
        return None
    return found


# -- one branch ----------------------------------------------------------------------------------------------


def branch(m: Match, part: Value) -> Branch | None:
    """The convolution behind an input of Concat; None if it is something else, or is read elsewhere, too."""

    def is_function(node: ir.Node) -> bool:
        return node.op_type in ELEMENTWISE.get(node.domain, ()) and all(_is_number(m, i) for i in inputs_of(node)[1:])

    tail = path_through(part, is_function)
    conv = made_by(tail.source, "Conv", "ConvTranspose")
    if conv is None or conv.graph is not m.node(concat).graph or not all(map(is_read_once, tail.values)):
        return None
    return _with_constants(m, conv, tail)


def _is_number(m: Match, value: Value) -> bool:
    tensor = m.facts.tensor(resolve(value))
    return tensor is not None and tensor.size == 1


def _with_constants(m: Match, conv: ir.Node, tail: NodePath) -> Branch | None:
    array, bias = m.facts.constant(resolve(m.operand(conv, 1))), named_input(m.facts, conv, "B")
    offsets = m.facts.constant(resolve(bias)) if bias is not None else None
    if array is None or (bias is not None and offsets is None):
        return None
    groups: int = parameter(m.facts, conv, "group")
    functions = tail.nodes[::-1]
    key = (conv.op_type, array.dtype, _geometry(m, conv, array), tuple(_function(m, n) for n in functions))
    return Branch(conv, functions, tail.idle, resolve(m.operand(conv)), array, offsets, groups, key)


def _geometry(m: Match, conv: ir.Node, weight: Array) -> Hashable:
    """Kernel, strides, padding: all that is the same for every channel, with the defaults filled in."""
    rank = weight.ndim - 2
    defaults = {
        "auto_pad": "NOTSET",
        "dilations": (1,) * rank,
        "output_padding": (0,) * rank,
        "output_shape": (),
        "pads": (0,) * 2 * rank,
        "strides": (1,) * rank,
    }
    found = [parameter(m.facts, conv, name) or default for name, default in defaults.items()]
    return (weight.shape[2:], *found)


def _function(m: Match, node: ir.Node) -> Hashable:
    attributes = tuple((name, parameter(m.facts, node, name)) for name in sorted(node.attributes))
    numbers = [m.facts.constant(resolve(i)) for i in inputs_of(node)[1:]]
    places = tuple(input_of(node, i) is None for i in range(3))
    return (node.domain, node.op_type, attributes, places, tuple(n.item() for n in numbers if n is not None))


def _input_width(each: Branch) -> int:
    """The size of the weight along the input channels."""
    width: int = each.weight.shape[0 if each.conv.op_type == "ConvTranspose" else 1]
    return width


# -- the one convolution -------------------------------------------------------------------------------------


def one_conv(m: Match, build: Builder, run: Sequence[Branch], *, grouped: bool) -> Value:
    """One convolution that computes what these compute, one after the other along the channels."""
    first = run[0]
    source = first.source
    for each in run:
        m.cover(each.conv, *each.tail, *each.idle)
        found, maker = cut(m, each.source) if grouped else None, made_by(each.source, "Slice", "Split")
        if found is not None and maker is not None:
            m.cover(maker, *passed(m.operand(each.conv)))
            source = resolve(found.source)
    transposed = first.conv.op_type == "ConvTranspose"
    weight = np.concatenate([b.weight for b in run], axis=1 if transposed and not grouped else 0)
    bias = np.concatenate([_bias(b) for b in run]) if any(b.bias is not None for b in run) else None
    like = m.operand(first.conv, 1)
    constants = [build.const(c, like=like) if c is not None else None for c in (weight, bias)]
    groups = {"group": len(run) * first.groups} if grouped else {}
    (result,) = build.again(first.conv, source, *constants, **groups)
    for function in first.tail:
        (result,) = build.again(function, result)
    return result


def _bias(each: Branch) -> Array:
    """The bias by output channel, zero where there is none."""
    if each.bias is not None:
        return each.bias
    transposed = each.conv.op_type == "ConvTranspose"
    channels = each.weight.shape[1] * each.groups if transposed else each.weight.shape[0]
    return np.zeros(channels, each.weight.dtype)


@rule(
    "parallel-convs",
    CANONICALIZE,
    concat,
    examples=(
        Rewrites(
            "float[n,2,h,w] x; a, b = Split(x, {1, 1}, axis=1)  c = Conv(a, float[1,1,1,1] {2})"
            "  d = Conv(b, float[1,1,1,1] {3}, {5.0})  y = Concat(c, d, axis=1)",
            to="float[n,2,h,w] x; y = Conv(x, float[2,1,1,1] {2, 3}, {0.0, 5.0}, group=2)",
        ),
        Rewrites(
            "float[n,2,w] x; a = Slice(x, {0}, {1}, {1})  b = Slice(x, {1}, {2}, {1})"
            "  c = Conv(a, float[1,1,1] {2})  r = Relu(c)"
            "  d = Conv(b, float[1,1,1] {3})  s = Relu(d)  y = Concat(r, s, axis=-2)",
            to="float[n,2,w] x; c = Conv(x, float[2,1,1] {2, 3}, group=2)  y = Relu(c)",
        ),
        Rewrites(
            "a = Conv(x, float[1,2,1] {1, 2})  b = Conv(x, float[2,2,1] {3, 4, 5, 6}, strides=[1])"
            "  p = MaxPool(x, kernel_shape=[1])  y = Concat(p, a, b, axis=1)",
            to="p = MaxPool(x, kernel_shape=[1])  a = Conv(x, float[3,2,1] {1, 2, 3, 4, 5, 6})"
            "  y = Concat(p, a, axis=1)",
        ),
        Rewrites(
            "a = Conv(x, float[1,1,3] {1, 2, 3}, pads=[1, 1], strides=[2])"
            "  b = Conv(x, float[1,1,3] {4, 5, 6}, pads=[1, 1], strides=[2])  y = Concat(a, b, axis=1)",
            to="y = Conv(x, float[2,1,3] {1, 2, 3, 4, 5, 6}, pads=[1, 1], strides=[2])",
        ),
        Rejects(
            "a = Conv(x, float[1,2,1] {1, 2})  b = Conv(x, float[1,2,1] {3, 4}, pads=[1, 1], strides=[2])"
            "  y = Concat(a, b, axis=1)",
            because="no neighbouring inputs",
        ),
        Rejects(
            "a = Conv(x, float[1,2,1] {1, 2})  b = Conv(x, float[1,2,1] {3, 4})  y = Concat(a, b, axis=0)",
            because="not along the channels",
        ),
        Rejects(
            "float[n,3,w] x; a, b = Split(x, {1, 2}, axis=1)  c = Conv(a, float[1,1,1] {2})"
            "  d = Conv(b, float[1,2,1] {3, 4})  y = Concat(c, d, axis=1)",
            because="no neighbouring inputs",
        ),
        Rejects(
            "float[n,2,w] x; a, b = Split(x, {1, 1}, axis=1)  c = Conv(a, float[1,1,1] {2})"
            "  d = Conv(b, float[1,1,1] {3})  y = Concat(c, d, axis=1)  z = Relu(b)",
            because="no neighbouring inputs",
        ),
    ),
)
def parallel_convs(m: Match, build: Builder) -> Value:
    """Concat(conv₁(x₁), conv₂(x₂), ...) ⟶ conv(x)."""
    branches = [branch(m, part) for part in m[parts]]
    ranks = {b.weight.ndim for b in branches if b is not None}
    m.require(ranks, "none of its inputs is a convolution that only it reads")
    m.require(m[axis] in (1, 1 - min(ranks)), f"it concatenates along axis {m[axis]}, not along the channels")
    merged: list[Value] = []
    at = 0
    while at < len(branches):
        run = run_of(branches[at:])
        same, groups = over_one_input(run), over_parts(m, run)
        count = max(same, groups, 1)
        merged.append(m[parts][at] if count == 1 else one_conv(m, build, run[:count], grouped=groups > same))
        at += count
    shared = [f"`{part.name}`" for part in m[parts] if not is_read_once(part)]
    told = f", for others read {' and '.join(shared)}" if shared else ""
    why = f"no neighbouring inputs are convolutions that make one{told}"
    m.require(len(merged) < len(branches), why, at=m[parts][0])
    return merged[0] if len(merged) == 1 else build.Concat(*merged, axis=m[axis])
