"""Smaller operands for a region: what it computes of 1500 rows it computes of 18."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.authoring.region import Region
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators

LARGE = 32
"""Larger sizes are made smaller."""

_SMALLEST = 17
"""The first of the smaller sizes: larger than most that stay."""


@dataclass(frozen=True)
class Smaller:
    """Sizes by those that they stand for; all others stay."""

    sizes: Mapping[int, int]

    def size(self, size: int) -> int:
        """The size that stands for one of an operand."""
        return self.sizes.get(size, size)

    def constant(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """A constant of a region with these sizes in place of its own, as in the shape that a Reshape gives."""
        array = tensor.numpy()
        if tensor.dtype not in _COUNTS or self.sizes.keys().isdisjoint(array.ravel().tolist()):
            return tensor
        made = np.asarray([self.size(n) for n in array.ravel().tolist()], array.dtype)
        return ir.tensor(made.reshape(array.shape))


def smaller_sizes(region: Region, facts: Facts, fed: Iterable[ir.Value], named: Iterable[int]) -> Iterator[Smaller]:
    """Smaller sizes to try: for all that are large, for those that constants speak of, for each alone, for none.

    They are different ones, in the same order, even for even, but what is joined has the sum of their sizes.  A size
    stays where a node has an attribute that divides it, as the groups of a convolution or the window of a pool may, and
    where a constant counts to another number that is no larger, as a slice may.  Where a view does not go with the
    sizes, it does not run.

    Args:
        region: The region.
        facts: The facts about its graph.
        fed: The operands that are to have smaller sizes.
        named: The sizes of those axes of theirs that have names.
    """
    sizes = {*named, *(d for v in fed for d in facts.shape(v) or () if isinstance(d, int))}
    counted = {n for node in region.nodes for n in _constants(node, facts)}
    places = {n for node in region.nodes if node.op_type not in _VIEWS for n in _constants(node, facts)}
    most = min((n for n in places - sizes if n > LARGE // 2), default=None)
    divisors = {n for n in _attributes(region, facts) if n > LARGE // 2}
    large = [s for s in sorted(sizes) if s > LARGE and not any(s % n == 0 for n in divisors)]
    large = [s for s in large if most is None or s < most]
    free = sorted({*range(_SMALLEST, LARGE + 1)}.difference(sizes))
    sums = list(_sums(region, facts))
    told = [Smaller({})]
    for those in (large, [s for s in large if s in counted], *([s] for s in reversed(large))):
        made = Smaller(_added(_assigned(those, free), sums))
        if made not in told:
            told.append(made)
            yield made
    yield told[0]


def _assigned(large: Iterable[int], free: Iterable[int]) -> dict[int, int]:
    """The first small size of the same parity that is larger than the last one, for each large one."""
    made: dict[int, int] = {}
    for size in large:
        found = next((s for s in free if s > max(made.values(), default=0) and s % 2 == size % 2), None)
        if found is not None:
            made[size] = found
    return made


def _sums(region: Region, facts: Facts) -> Iterator[tuple[int, list[int]]]:
    """Of each node that joins operands, the size of the result along its axis, and those that it is the sum of."""
    for node in region.nodes:
        whole = facts.shape(node.outputs[0])
        axis = schema.attribute(node, "axis", facts.version(node)) if node.op_type in _JOINS else None
        if isinstance(axis, int) and whole is not None:
            shapes = [facts.shape(v) for v in node.inputs if v is not None]
            joined = [s[axis] for s in shapes if s is not None and len(s) == len(whole)]
            parts = [d for d in joined if isinstance(d, int)]
            if isinstance(whole[axis], int) and sum(parts) == whole[axis]:
                yield sum(parts), parts


def _added(sizes: dict[int, int], sums: Iterable[tuple[int, list[int]]]) -> dict[int, int]:
    """Sizes by those that they stand for, with what is joined of them, first what is joined first."""
    made = dict(sizes)
    for whole, parts in sums:
        if any(part in made for part in parts):
            made[whole] = sum(made.get(part, part) for part in parts)
    return made


def _attributes(region: Region, facts: Facts) -> Iterator[int]:
    """The numbers in the attributes of a region's nodes."""
    for node in region.nodes:
        for name in node.attributes:
            value = schema.attribute(node, name, facts.version(node))
            yield from (n for n in (value if isinstance(value, tuple) else (value,)) if isinstance(n, int))


def _constants(node: ir.Node, facts: Facts) -> Iterator[int]:
    """The numbers in the constants that a node counts with, but those that stand for the end of an axis."""
    for tensor in (facts.tensor(v) for v in node.inputs if v is not None):
        if tensor is not None and tensor.dtype in _COUNTS and tensor.size <= LARGE:
            yield from (abs(int(n)) for n in tensor.numpy().ravel() if abs(int(n)) < _ENDLESS)


_VIEWS = frozenset(operators("view"))
_JOINS = frozenset(operators("join"))

_COUNTS = (ir.DataType.INT32, ir.DataType.INT64)
"""The dtypes of shapes and places."""

_ENDLESS = 2**31 - 1
"""Ends of slices that are as large are no sizes."""
