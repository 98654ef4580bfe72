"""A pattern laid over a graph: what of it is there, and each thing that is not as it must be; pure data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.explanation.near_miss import OPERATORS
from onnxrewrite.pattern import numbers
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.terms import AnyNode, AnyOf, Call, Capture, Output, Product, Sum

WHOLE, MOST, PART = 1.0, 0.75, 0.5
"""The costs of an operator that is not as it must be, of an operand that is another value, and of a number, a parameter
or a dtype that is not as it must be."""


@dataclass(frozen=True)
class Fault:
    """One thing that is not as it must be.

    Attributes:
        reason: The expected and the actual state.
        item: The part of the pattern that is not met.
        lacking: The number of the pattern's operators that are missing.
        cost: The weight of the fault.
    """

    reason: str
    item: object
    lacking: int = 0
    cost: float = PART


@dataclass(frozen=True)
class Cover:
    """A pattern, or a part of it, laid over a graph.

    Attributes:
        bound: The parts of it that are there: captures and operators, to their values and nodes.
        faults: The parts that are not as they must be, by what they are reported on.
        cost: The weight of all faults.
    """

    bound: Mapping[Hashable, object] = field(default_factory=dict)
    faults: Mapping[Hashable, Fault] = field(default_factory=dict)
    cost: float = 0.0

    @property
    def there(self) -> int:
        """The number of the pattern's operators that are there."""
        return sum(isinstance(item, OPERATORS) for item in self.bound)

    @property
    def operators(self) -> int:
        """The number of the pattern's operators that must be there."""
        return self.there + sum(f.lacking for f in self.faults.values() if f.item not in self.bound)

    def nodes(self) -> set[ir.Node]:
        """The nodes of what is there."""
        found = set[ir.Node]()
        for item, to in self.bound.items():
            node = resolve(to).producer() if isinstance(to, ir.Value) else to
            if isinstance(item, OPERATORS) and isinstance(node, ir.Node):
                found.add(node)
        return found

    def having(self, bound: Mapping[Hashable, object], *faults: Fault) -> Cover:
        """With more that is there, and more faults."""
        return joined([self, Cover(bound, {_key(f): f for f in faults})])


def _key(fault: Fault) -> Hashable:
    return fault.item, fault.lacking > 0, "" if fault.lacking else fault.reason


def joined(covers: Iterable[Cover]) -> Cover:
    """Several parts of one pattern; what they share must be one value in all of them."""
    bound, faults = dict[Hashable, object](), dict[Hashable, Fault]()
    for cover in covers:
        faults |= cover.faults
        for item, to in cover.bound.items():
            if item not in bound or _same(bound[item], to):
                bound.setdefault(item, to)
            elif isinstance(to, ir.Value | ir.Node):
                cost = MOST if isinstance(item, Capture) else WHOLE
                fault = Fault(_twice(item, bound[item], to), item, cost=cost)
                faults[_key(fault)] = fault
    return Cover(bound, faults, sum(f.cost for f in faults.values()))


def _same(a: object, b: object) -> bool:
    if isinstance(a, ir.Value) and isinstance(b, ir.Value):
        return resolve(a) is resolve(b) or _constant(a, b)
    return a is b or (not isinstance(a, ir.Value | ir.Node) and bool(numbers.same_parameter(a, b)))


def _constant(a: ir.Value, b: ir.Value) -> bool:
    first, second = resolve(a).const_value, resolve(b).const_value
    if first is None or second is None or first.dtype != second.dtype or first.shape != second.shape:
        return False
    return bool((first.numpy() == second.numpy()).all())


def _twice(item: object, first: object, other: object) -> str:
    name = item.name if isinstance(item, Capture | AnyNode) else head(item)
    here, there = (_named(v) for v in (other, first))
    return f"{name} must be the same value in both places, here it is {here}, there {there}"


def _named(to: object) -> str:
    name = to.outputs[0].name if isinstance(to, ir.Node) else getattr(to, "name", None)
    return f"`{name}`" if name else str(to)


def head(item: object) -> str:
    """The head of a part of a pattern, in a word."""
    match item:
        case Call(op_types=op_types):
            return "|".join(op_types)
        case Output(call=call, index=index):
            return f"output {index} of {head(call)}" if index else head(call)
        case Product():
            return "a product"
        case Sum():
            return "a sum"
        case AnyOf(alternatives=alternatives):
            return " or ".join(dict.fromkeys(map(head, alternatives)))
        case _:
            return repr(item)


def only(fault: Fault) -> dict[Hashable, Fault]:
    """One fault, by what it is told of."""
    return {_key(fault): fault}


def rank(cover: Cover) -> tuple[float, int, int]:
    """The less is wrong the better; of equals what has more of the pattern."""
    return cover.cost, -cover.there, len(cover.faults)
