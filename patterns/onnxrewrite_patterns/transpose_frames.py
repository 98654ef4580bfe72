"""Layouts, what they cost, and the frame: which axes the operands of one node share.

A node that does not care about layout has a *frame*: its axes, in the order in which the exporter wrote them.
Every operand that moves with the frame holds some of these axes: all of them, or those that a reduction
leaves.  Laying the frame out in another order permutes each operand accordingly and maps the parameters that
name axes.  A node without a frame (Conv, MatMul of two tensors, most Reshapes, ...) needs its operands as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.rules import *

Shape = Sequence[int | ir.SymbolicDim] | None

Axes = tuple[int, ...]
Perm = tuple[int, ...]
"""As ``Transpose`` has it: axis ``i`` of the result is axis ``perm[i]`` of the operand."""

MOVE = 10**15
"""The price of a Transpose that moves data, beside that of its elements."""

BESIDE = 10**12
"""The price of a place beside a convolution."""

SMALL = 2 * BESIDE
"""The price of one that only moves dimensions of size one, and of a small node that has to be added."""

_MOST = 10**9
"""The price of the elements that are moved: so many, or fewer."""

_NAMED = 64
"""A size that only has a name counts as much."""

Emit = Callable[[Builder, "list[Value | None]", Perm], "tuple[Value, ...]"]


def compose(first: Perm, second: Perm) -> Perm:
    """One permutation for two, the first of which comes first."""
    return tuple(first[i] for i in second)


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes ``perm``."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def is_identity(perm: Perm) -> bool:
    """True if a permutation moves nothing."""
    return perm == tuple(range(len(perm)))


@dataclass(frozen=True, eq=False)
class Frame:
    """The axes of one node.

    Attributes:
        rank: The number of axes.
        inputs: Input to the axes that it holds, in order; such an input is read in the layout of the frame.
        outputs: Output to the axes that it holds, in order; an output that is not here does not move.
        relaid: Inputs that are broadcast against the frame: constants, and what has fewer axes.
        emit: Builds the node for another order of the axes, from inputs in that layout.
        fits: True if the node can be built in that order.
        extra: The price of that order beside the Transposes around it.
    """

    rank: int
    inputs: Mapping[int, Axes]
    outputs: Mapping[int, Axes]
    emit: Emit
    relaid: frozenset[int] = frozenset()
    fits: Callable[[Perm], bool] = field(default=lambda order: True)
    extra: Callable[[Perm], int] = field(default=lambda order: 0)

    def order(self, axes: Axes, layout: Perm) -> Perm:
        """The order that permutes an operand which holds ``axes`` by ``layout``; other axes stay in place."""
        if len(axes) == self.rank:
            return layout
        held = iter([axes[i] for i in layout])
        return tuple(next(held) if a in axes else a for a in range(self.rank))


def layout_of(axes: Axes, order: Perm) -> Perm:
    """The permutation of an operand that holds ``axes`` when the frame has ``order``."""
    if len(axes) == len(order):
        return order
    place = {a: i for i, a in enumerate(axes)}
    return tuple(place[a] for a in order if a in place)


def reshaped(shape: Shape, perm: Perm) -> tuple[int, ...] | None:
    """The target of the Reshape that does the same as a Transpose; None where there is none.

    Either the Transpose moves data, or several dimensions are only known at run time.
    """
    if shape is None or len(shape) != len(perm):
        return None
    kept = [a for a in perm if shape[a] != 1]
    if kept != sorted(kept):
        return None
    new = [shape[a] for a in perm]
    target = []
    for axis, dim in enumerate(new):
        if isinstance(dim, int):
            target.append(dim)
        else:
            target.append(0 if same_shape([dim], [shape[axis]]) else -1)
    if any(d == 0 and new[i] == 0 for i, d in enumerate(target)) or target.count(-1) > 1:
        return None
    return None if -1 in target and 0 in target else tuple(target)


def price(shape: Shape, perm: Perm) -> int:
    """The price of laying out a value of this shape in another way."""
    if is_identity(perm):
        return 0
    if reshaped(shape, perm) is None or shape is None:
        return MOVE + elements(shape)
    return 0 if same_shape([shape[a] for a in perm], shape) else SMALL


def elements(shape: Shape) -> int:
    """About how many elements there are, but ``_MOST`` at most."""
    if shape is None:
        return _MOST
    sizes = (d if isinstance(d, int) else size_where(d, _NAMED) for d in shape)
    return min(math.prod(_NAMED if d is None else d for d in sizes), _MOST)


def operand_layout(own: int, rank: int, order: Perm) -> tuple[Perm, tuple[int, ...]]:
    """The permutation of an operand of ``own`` axes, broadcast against ``rank``, and the axes to insert after it."""
    held = range(rank - own, rank)
    layout = tuple(a - held.start for a in order if a in held)
    first = next((i for i, a in enumerate(order) if a in held), rank)
    return layout, tuple(i - first for i in range(first, rank) if order[i] not in held)


def is_single(shape: Shape) -> bool:
    """True if a value has one element, which no layout changes."""
    return shape is not None and all(d == 1 for d in shape)
