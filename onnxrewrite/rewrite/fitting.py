"""Operands that fit each other: a replacement may not ask more of them than the original does.

That two sizes can be broadcast against each other, or multiplied along, is known where they are equal, where one is 1,
and where the original could not run otherwise.  A shape that is inferred for a replacement says nothing here: it holds
only if the replacement runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.dims import Dim, same_dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import topological
from onnxrewrite.ir.operators import operators

Group: TypeAlias = tuple[Dim, ...]
"""Sizes each of which fits any other one: those that meet along one axis."""

_BROADCAST, _POINTWISE = frozenset(operators("broadcast")), frozenset(operators("pointwise"))


def misfit(covered: Iterable[ir.Node], built: Sequence[ir.Node], facts: Facts) -> str | None:
    """The reason why a node of a replacement may fail where what it replaces runs, or None: operands whose sizes are
    not shown to fit."""
    meetings = [(node, group) for node, group in _Meetings(facts).of(built) if not _fits(group, ())]
    if not meetings:
        return None
    old = topological([*covered])
    if any(_asks_on_its_own(node, facts) for node in old):
        return None
    known = [group for _, group in _Meetings(facts, results=True).of(old)]
    for node, group in meetings:
        if not _fits(group, known):
            sizes = " and ".join(dict.fromkeys(map(str, group)))
            return f"{node.op_type} takes sizes that are not shown to fit: {sizes}"
    return None


def _fits(group: Group, known: Sequence[Group]) -> bool:
    return all(
        a == 1 or b == 1 or same_dim(a, b) or any(_holds(each, a) and _holds(each, b) for each in known)
        for a, b in itertools.combinations(group, 2)
    )


def _holds(group: Group, dim: Dim) -> bool:
    return any(same_dim(dim, each) for each in group)


def _asks_on_its_own(node: ir.Node, facts: Facts) -> bool:
    """True if a node asks of its operands what is not told here: it has several that are neither constants nor sizes,
    indices or the like."""
    if not node.domain and (node.op_type in _BROADCAST or node.op_type == "MatMul"):
        return False
    return sum(v is not None and facts.tensor(v) is None and not _is_list(v, facts) for v in node.inputs) > 1


def _is_list(value: ir.Value, facts: Facts) -> bool:
    return facts.dtype(value) == ir.DataType.INT64 and facts.rank(value) in (0, 1)


@dataclass
class _Meetings:
    """The sizes that meet in nodes, those that met in their operands among them.

    Attributes:
        facts: The facts about the values.
        results: True if the size that comes of a meeting counts, too.
    """

    facts: Facts
    results: bool = False
    _met: dict[ir.Value, Mapping[int, Group]] = field(default_factory=dict)
    """Result of a broadcast to its axis, counted from the end, to what met there."""

    def of(self, nodes: Iterable[ir.Node]) -> Iterator[tuple[ir.Node, Group]]:
        """Each node of some, producers first, with the sizes along each axis where operands meet."""
        for node in nodes:
            operands = [v for v in node.inputs if v is not None]
            if node.domain:
                continue
            if node.op_type in _POINTWISE and operands[0] in self._met:
                self._met[node.outputs[0]] = self._met[operands[0]]
            elif node.op_type in _BROADCAST:
                yield from self._broadcast(node, operands, last=0)
            elif node.op_type == "MatMul" and len(operands) == 2:  # no other is legal, and a rule may build it
                yield from self._multiplied(node, operands)

    def _multiplied(self, node: ir.Node, operands: Sequence[ir.Value]) -> Iterator[tuple[ir.Node, Group]]:
        left, right = map(self.facts.shape, operands)
        if left and right:
            yield node, (left[-1], right[-2 if len(right) > 1 else -1])
            yield from self._broadcast(node, operands, last=2)

    def _broadcast(self, node: ir.Node, operands: Sequence[ir.Value], last: int) -> Iterator[tuple[ir.Node, Group]]:
        """The sizes that meet along each axis but the ``last`` ones."""
        shapes = [self.facts.shape(v) for v in operands]
        ranks = [len(shape) for shape in shapes if shape is not None]
        result = node.outputs[0]
        met: dict[int, Group] = {}
        for axis in range(last + 1, max(ranks, default=0) + 1):
            there = [(v, s[-axis]) for v, s in zip(operands, shapes, strict=True) if s is not None and len(s) >= axis]
            found = [size for v, dim in there for size in self._met.get(v, {}).get(axis, (dim,))]
            shape = self.facts.shape(result)
            found += [shape[-axis]] if self.results and shape is not None and len(shape) >= axis else []
            met[axis] = tuple(dict.fromkeys(found))
            if len(met[axis]) > 1:
                yield node, met[axis]
        if not last:
            self._met[result] = met
