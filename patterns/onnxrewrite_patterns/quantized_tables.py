"""Functions of one tensor of 8-bit integers that give 8-bit integers again, as the tables of 256 entries that they are.

Where it comes from: static quantization writes QuantizeLinear and DequantizeLinear between all steps of an activation
that an exporter spelled out.  Each of them rounds, so that it is no Gelu or HardSwish any more; but what is computed
element by element is known when it is known for 256 numbers.

Why: five steps of a Gelu, each dequantized and quantized, are one look-up.  The very nodes are run to make the table,
so that rounding and saturation are theirs, and an entry is what they make of its number.
Gather copies every entry by a call of its own; GatherElements is a loop over numbers, which takes a third of that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.qdq import EIGHT_BITS

ELEMENTWISE_OPERATORS = frozenset(operators("pointwise broadcast", but="bits"))
PASSING = frozenset((*operators("quantize", marks="rounding"), "Cast", "Identity"))
"""Operators that are no function by themselves."""

ELEMENTWISE = {"": ELEMENTWISE_OPERATORS | PASSING, "com.microsoft": frozenset({"FastGelu", "Gelu", "QuickGelu"})}

KERNELS = frozenset(operators("pointwise broadcast", marks="qlinear"))
"""Operators that have a kernel of integers, which is faster than any look-up."""

_LARGE = 64
"""No function is looked for beyond so many nodes."""


class Function(NamedTuple):
    """Nodes, producers first, that compute ``result`` from ``operand`` alone, element by element."""

    operand: Value
    nodes: tuple[ir.Node, ...]
    result: Value


# -- finding ---------------------------------------------------------------------------------------------------


def _is_fixed(facts: Facts, value: Value) -> bool:
    """True if a value is constant, or a constant that is dequantized."""
    return facts.tensor(value) is not None or _constant_maker(facts, value) is not None


def _constant_maker(facts: Facts, value: Value) -> ir.Node | None:
    """The DequantizeLinear that computes a value of constants alone."""
    node = value.producer()
    of_constants = node is not None and node.op_type == "DequantizeLinear" and not _variable(facts, node)
    return node if of_constants else None


def _variable(facts: Facts, node: ir.Node) -> list[Value]:
    """The inputs of a node that are not constant tensors."""
    return [v for v in inputs_of(node) if facts.tensor(v) is None]


def _computed(facts: Facts, node: ir.Node) -> list[Value]:
    """The inputs of a node that are not fixed."""
    return [v for v in inputs_of(node) if not _is_fixed(facts, v)]


def _obstacle(facts: Facts, node: ir.Node) -> str:
    """The reason why a node does not compute element by element, with single numbers as other operands, or empty."""
    if node.op_type not in ELEMENTWISE.get(node.domain, ()):
        return f"{node.op_type} is not known to compute element by element"
    if node.attributes.get_int("block_size", 0):
        return "it is scaled by blocks"
    shapes = [facts.shape(v) for v in inputs_of(node) if _is_fixed(facts, v)]
    if any(shape is None or any(d != 1 for d in shape) for shape in shapes):
        return f"{node.op_type} has an operand of several numbers"
    return ""


def _above(facts: Facts, root: ir.Node) -> tuple[list[ir.Node], list[str]]:
    """The nodes that compute element by element up from a root, consumers first; and what ends them."""
    met = upstream(root, lambda n: () if _obstacle(facts, n) else _computed(facts, n))
    obstacles = {n: _obstacle(facts, n) for n in met}
    return [*reversed(topological([n for n in met if not obstacles[n]]))], [o for o in obstacles.values() if o]


def functions(facts: Facts, root: ir.Node) -> Iterator[Function]:
    """The result of a root as functions of one 8-bit tensor each, the smallest first."""
    nodes, _ = _above(facts, root)
    covered, read = list[ir.Node](), set[Value]()
    for node in nodes:
        makers = (_constant_maker(facts, v) for v in inputs_of(node))
        covered += [node, *(n for n in makers if n is not None)]
        read = read.difference(node.outputs).union(_computed(facts, node))
        if len(read) == 1 and facts.dtype(operand := next(iter(read))) in EIGHT_BITS:
            yield Function(operand, tuple(dict.fromkeys(reversed(covered))), root.outputs[0])


def _leak(facts: Facts, found: Function) -> str:
    """An inner value of a function that others need, but dequantized operands, which cost as much as they are; as a
    reason, empty where there is none."""

    def is_copied(node: ir.Node) -> bool:
        return node.op_type == "DequantizeLinear" and set(_variable(facts, node)) <= {found.operand}

    needs = leaks((n for n in found.nodes if not is_copied(n)), found.nodes)
    return next((f"`{value.name}` inside is {need}" for value, need in needs if value is not found.result), "")


def _fits(facts: Facts, found: Function) -> str:
    """The reason why a table cannot replace a function, or would not pay; empty if there is none."""
    rank = facts.rank(found.operand) or 0
    steps = [n for n in found.nodes if n.op_type not in PASSING]
    if any(_is_fixed(facts, v) and (facts.rank(v) or 0) > rank for n in steps for v in inputs_of(n)):
        return "a constant may raise the rank"
    if len(steps) < 2:
        return "it is one operator at most"
    if all(_has_kernel(facts, n) for n in steps):
        return "all its operators have kernels of integers"
    return _leak(facts, found)


def _has_kernel(facts: Facts, node: ir.Node) -> bool:
    """True if a node reads and gives quantized integers, and has a kernel for them."""
    reads = all(made_by(v, "DequantizeLinear") for v in _variable(facts, node))
    gives = all(n.op_type == "QuantizeLinear" for n in readers(node, within=1))
    return node.op_type in KERNELS and reads and gives


def _below(facts: Facts, first: ir.Node) -> list[ir.Node]:
    """The QuantizeLinears that could end a function that a first one is part of, itself among them, the last first."""

    def goes_on(node: ir.Node) -> bool:
        return node.graph is first.graph and not _obstacle(facts, node)

    met = itertools.islice(readers(first, through=goes_on), _LARGE)
    return [n for n in reversed([first, *filter(goes_on, met)]) if n.op_type == "QuantizeLinear"]


def _largest(m: Match) -> Function:
    """The largest function that a QuantizeLinear is part of; refuses where there is none."""
    first = m.node(quantized)
    best: Function | None = None
    reasons: list[str] = []
    for root in _below(m.facts, first):
        if m.dtype(root.outputs[0]) not in EIGHT_BITS:
            continue
        for found in functions(m.facts, root):
            reason = _fits(m.facts, found)
            if root is first and reason:
                reasons.append(reason)
            if not reason and first in found.nodes and (best is None or len(found.nodes) > len(best.nodes)):
                best = found
    if best is None:
        m.require(m.dtype(quantized) in EIGHT_BITS, "the result is not of 8 bits", at=quantized)
        reasons += [*_above(m.facts, first)[1], "it is not computed of one tensor of 8-bit integers alone"]
        m.refuse(reasons[0], at=quantized)
    return best


# -- building --------------------------------------------------------------------------------------------------

quantized = AnyNode(op_types=("QuantizeLinear",))


def _constant(entries: Iterable[int], dtype: str) -> str:
    return f"{dtype}[256] {{{', '.join(map(str, entries))}}}"


_TENT = _constant((max(0, 200 - 2 * abs(i - 100)) for i in range(256)), "uint8")
_PEAK = _constant((90 - min(127, abs(i)) for i in (*range(128), *range(-128, 0))), "int8")
_DISTANCE = "x = DequantizeLinear(q, 1.0, uint8 100)  a = Abs(x)  "


@rule(
    "quantized-table",
    LOWER,
    quantized,
    benefit=40,
    allow_shared=True,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"uint8[n,3] q; {_DISTANCE} b = Mul(a, -2.0)  y = QuantizeLinear(b, 1.0, uint8 200)",
            to=f"uint8[n,3] q; i = Cast<to=6>(q)  f = Reshape(i, {{-1}})  e = GatherElements({_TENT}, f)"
            "s = Shape(q)  y = Reshape(e, s)",
        ),
        Rewrites(
            "int8[n] q; x = DequantizeLinear(q, 0.5)  a = Abs(x)  p = QuantizeLinear(a, 0.5, int8 0)"
            "b = DequantizeLinear(p, 0.5, int8 0)  c = Neg(b)  y = QuantizeLinear(c, 0.5, int8 90)",
            to=f"int8[n] q; i = Cast<to=6>(q)  y = GatherElements({_PEAK}, i)",
        ),
        Rejects(
            f"uint8[n,3] q; {_DISTANCE} b = Mul(a, {{1.0, 2.0, 3.0}})  y = QuantizeLinear(b, 1.0, uint8 200)",
            because="Mul has an operand of several numbers",
        ),
        Rejects(
            f"uint8[n] q; {_DISTANCE} b = Mul(a, float[1,1] {{2.0}})  y = QuantizeLinear(b, 1.0, uint8 200)",
            because="may raise the rank",
        ),
        Rejects(
            f"uint8[n] q; uint8[n] p; {_DISTANCE} b = DequantizeLinear(p, 1.0)  c = Sub(a, b)"
            "y = QuantizeLinear(c, 1.0, uint8 200)",
            because="not computed of one tensor",
        ),
        Rejects(
            f"uint8[n] q; {_DISTANCE} r = RandomNormalLike(a)  b = Mul(a, r)  y = QuantizeLinear(b, 1.0, uint8 200)",
            because="RandomNormalLike is not known to compute element by element",
        ),
        Rejects(f"uint8[n] q; {_DISTANCE} y = QuantizeLinear(a, 1.0, uint8 200)", because="it is one operator at most"),
        Rejects(
            "uint8[n] q; x = DequantizeLinear(q, 0.5)  a = Sigmoid(x)  p = QuantizeLinear(a, 0.00390625)"
            "b = DequantizeLinear(p, 0.00390625)  c = Mul(b, x)  y = QuantizeLinear(c, 0.5)",
            because="all its operators have kernels of integers",
        ),
        Rejects(
            f"uint8[n] q; {_DISTANCE} b = Neg(a)  y = QuantizeLinear(b, 1.0, uint8 200)  z = Relu(a)",
            because="inside is also used by Relu",
        ),
        Rejects(
            "uint16[n] q; x = DequantizeLinear(q, 1.0)  a = Abs(x)  b = Neg(a)  y = QuantizeLinear(b, 1.0, uint8 200)",
            because="not computed of one tensor of 8-bit integers",
            opset=21,
        ),
        Rejects(
            f"uint8[n] q; {_DISTANCE} b = Neg(a)  y = QuantizeLinear(b, 1.0, uint16 200)",
            because="the result is not of 8 bits",
            opset=21,
        ),
    ),
)
def quantized_table(m: Match, build: Builder) -> Value:
    """QuantizeLinear(f(DequantizeLinear(q))) ⟶ GatherElements(table of f, q), for an f of several steps.

    The table is of one dimension, and so q is seen as one, too.  A negative integer counts from the end of the table.
    """
    found = _largest(m)
    m.widen([n for n in found.nodes if n.graph is m.node(quantized).graph], [found.result])
    every = np.arange(256, dtype=np.uint8)
    every = every.view(np.int8) if m.dtype(found.operand) == ir.DataType.INT8 else every
    entries = build.tabulate(found.nodes, found.operand, every, found.result)
    m.require(entries.size == every.size, "it does not compute element by element", at=quantized)
    table, indices = build.const(entries.ravel()), build.Cast(found.operand, to=int(ir.DataType.INT32))
    if m.rank(found.operand) == 1:
        return build.GatherElements(table, indices)
    flat = build.GatherElements(table, build.Reshape(indices, np.array([-1])))
    return build.Reshape(flat, build.Shape(found.operand))
