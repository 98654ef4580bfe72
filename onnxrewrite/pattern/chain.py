"""Chains: the trees of Add, Sub, Neg, or of Mul, Div, Neg, Reciprocal, that compute a sum or a product.

The leaves of a chain carry a sign: +1 for what is added or multiplied, -1 for what is subtracted or divided by.  How
patterns match them is in ``nary.py``; this module says what a chain is, and what an n-ary term asks of one.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators
from onnxrewrite.pattern import numbers
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.terms import (
    AnyOf,
    Call,
    Capture,
    Const,
    Literal,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    walk,
)

SUM_OPS = frozenset(operators(marks="sum"))
PRODUCT_OPS = frozenset(operators(marks="product"))

SIGNS = {1: 1, -1: 2, 0: 3}
"""Sign to its bit, where several are meant; 0 stands for either."""

MAX_NODES = 24
"""A chain has so many nodes, those nearest to its end; what lies above them is taken as leaves."""


@dataclass(eq=False, slots=True)
class Piece:
    """A part of a chain: a value with its sign, and the node and parts it is made of unless it is a leaf.

    ``value`` is None for the number -1 that a Neg multiplies by; ``number`` is that of a leaf, if it is one.
    ``leaves`` has a bit for every leaf of the chain that is a part of it.
    """

    value: ir.Value | None
    sign: int
    node: ir.Node | None = None
    parts: tuple[Piece, ...] = ()
    leaves: int = 0
    number: float | int | None = None

    def walk(self) -> Iterator[Piece]:
        """The piece and all below it, parents first."""
        yield self
        for part in self.parts:
            yield from part.walk()


def grow(
    facts: Facts, producer: Callable[[ir.Value], ir.Node | None], value: ir.Value, is_product: bool
) -> list[Piece]:
    """The chain above ``value``, level by level; ``producer`` gives the node that computes a value, if that counts.

    Returns:
        All its pieces, the whole first, each before its parts.
    """
    dtype = facts.dtype(value)
    divides = dtype is not None and dtype.is_floating_point()
    pieces = [Piece(value, 1)]
    queue, budget = deque(pieces), MAX_NODES
    while queue and budget:
        piece = queue.popleft()
        node = producer(resolve(piece.value)) if piece.value is not None else None
        above = None if node is None else operands(facts, node, is_product, divides)
        if above is not None:
            budget -= 1
            piece.node = node
            piece.parts = tuple(Piece(v, piece.sign * s) for v, s in above)
            queue.extend(piece.parts)
            pieces.extend(piece.parts)
    for number, piece in enumerate(reversed(pieces)):
        if piece.parts:
            piece.leaves = leaves_of(piece.parts)
        else:
            piece.leaves = 1 << number
            piece.number = -1 if piece.value is None else numbers.scalar(facts, piece.value)
    return pieces


def operands(facts: Facts, node: ir.Node, is_product: bool, divides: bool) -> list[tuple[ir.Value | None, int]] | None:
    """The signed operands of a node of a sum or a product; None for any other node.

    ``divides`` says whether dividing by c is multiplying by 1/c, which it is for floating-point numbers.
    """
    if node.op_type not in (PRODUCT_OPS if is_product else SUM_OPS) or node.domain or node.attributes:
        return None  # an attribute is that of an opset before 7, which broadcasts in another way
    inputs = node.inputs
    if any(i is None for i in inputs) or not _is_complete(node):
        return None
    match node.op_type:
        case "Add" | "Sum":
            return [(i, 1) for i in inputs]
        case "Sub":
            return [(inputs[0], 1), (inputs[1], -1)]
        case "Neg":
            return [(None, 1), (inputs[0], 1)] if is_product else [(inputs[0], -1)]
        case "Mul":
            return [(inputs[0], 1), (inputs[1], 1)]
        case "Div" if divides:
            return [(inputs[0], 1), (inputs[1], -1)]
        case "Reciprocal" if divides:
            return [(inputs[0], -1)]
        case "Pow" if inputs[1] is not None:
            return _repeated(inputs[0], numbers.scalar(facts, inputs[1]), divides)
    return None


def _is_complete(node: ir.Node) -> bool:
    """True if a node has as many operands as its operator needs, which nothing has checked before."""
    return len(node.inputs) == (1 if node.op_type in ("Neg", "Reciprocal") else 2) or (
        node.op_type == "Sum" and len(node.inputs) > 0
    )


def _repeated(base: ir.Value | None, exponent: float | None, divides: bool) -> list[tuple[ir.Value | None, int]] | None:
    """A small integer power as a product."""
    if exponent not in (2, 3, 4) and not (divides and exponent in (-1, -2, -3, -4)):
        return None
    times = int(exponent)
    return [(base, 1 if times > 0 else -1)] * abs(times)


def leaves_of(pieces: Iterable[Piece]) -> int:
    """The leaves below some pieces."""
    leaves = 0
    for piece in pieces:
        leaves |= piece.leaves
    return leaves


class Plan(NamedTuple):
    """The signed operands of an n-ary term by what they are.

    Attributes:
        operands: Those that are no numbers, the ones that few values match first.
        needs_numbers: True if the literals together are not neutral, so that the chain must have numbers.
        required: The minimum number of leaves of a chain.
    """

    literals: list[tuple[float, int]]
    scalars: list[tuple[Scalar, int]]
    operands: list[tuple[Term, int]]
    needs_numbers: bool
    required: int


@functools.cache
def plan(item: Sum | Product) -> Plan:
    """The requirements of an n-ary term on a chain."""
    literals = [(i.value, s) for i, s in item.operands if isinstance(i, Literal)]
    scalars = [(i, s) for i, s in item.operands if isinstance(i, Scalar)]
    others = [(i, s) for i, s in item.operands if not isinstance(i, Literal | Scalar)]
    ordered = sorted(others, key=lambda o: _specific(o[0]))
    neutral = numbers.product(literals) == 1 if isinstance(item, Product) else numbers.total(literals) == 0
    values, constants = (sum(not is_optional(i) for i, _ in of) for of in (ordered, scalars))
    return Plan(literals, scalars, ordered, not neutral, values + max(constants, not neutral))


def _specific(item: Term) -> tuple[int, int]:
    """Operands that few values match come first; constants wait until the shape of the chain is clear."""
    match item:
        case Call() | Output() | Power():
            return 0, 0
        case Sum() | Product() | AnyOf():
            return 1, -sum(isinstance(t, Call | Power) for t in walk(item))
        case Const():
            return 2, 0
        case _:
            return 3, 0


def is_optional(item: object) -> bool:
    """True if a term may be absent."""
    return isinstance(item, Capture) and item.optional
