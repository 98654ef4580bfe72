"""Operands of a pattern to pieces of a chain, without trying what cannot work out.

Which operand could take which piece has been found out already, for each pair by itself (``finder.View``).  An operand
is given a piece only if all that are left can still be given leaves of their own: a matching in the bipartite graph of
operands and leaves, by augmenting paths (Kuhn, 1955).  What fails once for the leaves that are taken fails always, and
is remembered.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxrewrite.pattern.chain import Piece, is_optional, leaves_of
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.nary import ChainMatch
from onnxrewrite.pattern.terms import Product, Sum

if TYPE_CHECKING:
    from onnxrewrite.pattern.finder import Matcher


_FEW = 64
"""With no more ways than this, all are tried; with more, it is only asked whether there are leaves enough."""


class AssignedChain(ChainMatch):
    """One n-ary term against the chain above one value: the same matches, in the same order, in less time."""

    def __init__(self, matcher: Matcher, item: Sum | Product, value: ir.Value, root: bool):
        super().__init__(matcher, item, value, root)
        self._fits = [
            [p for p in self.pieces if p.value is not None and matcher.view.fits(operand, self.is_product, p)]
            for operand in self.operands
        ]
        self._doomed: dict[tuple[int, int], bool] = {}

    def _assign(
        self, index: int, taken: tuple[Piece, ...], binding: Binding
    ) -> Iterator[tuple[tuple[Piece, ...], Binding]]:
        if not self._is_doomed(index, leaves_of(taken)):
            yield from super()._assign(index, taken, binding)

    def _candidates(self, index: int) -> Sequence[Piece]:
        return self._fits[index]

    def _is_doomed(self, index: int, used: int) -> bool:
        """True if the operands from ``index`` on, and the numbers, cannot all be given an unused leaf of their own."""
        key = (index, used)
        if key not in self._doomed:
            options = [
                [piece.leaves for piece in self._fits[i] if not piece.leaves & used]
                for i in range(index, len(self.operands))
                if not is_optional(self.operands[i][0])
            ]
            if self._needs_numbers:
                options.append([p.leaves for p in self.pieces if p.number is not None and not p.leaves & used])
            ways = math.prod(map(len, options))
            self._doomed[key] = not (can_be_apart(options) if ways <= _FEW else has_matching(list(map(_all, options))))
        return self._doomed[key]


def can_be_apart(options: Sequence[Sequence[int]], used: int = 0) -> bool:
    """True if a set of bits can be chosen from each of ``options``, none overlapping another or ``used``; by trying."""
    if not options:
        return True
    first, *rest = options
    return any(not leaves & used and can_be_apart(rest, used | leaves) for leaves in first)


def _all(options: Sequence[int]) -> int:
    return functools.reduce(operator.or_, options, 0)


def has_matching(wanted: Sequence[int]) -> bool:
    """True if each of ``wanted``, a set of bits, can be given one of its bits, and no two the same one."""
    owner: dict[int, int] = {}

    def find(who: int, seen: list[int]) -> bool:
        left = wanted[who] & ~seen[0]
        while left:
            thing = left & -left
            seen[0] |= thing
            if thing not in owner or find(owner[thing], seen):
                owner[thing] = who
                return True
            left = wanted[who] & ~seen[0]
        return False

    return all(find(who, [0]) for who in range(len(wanted)))
