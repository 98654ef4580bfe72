"""Operands of a pattern to pieces of a chain, without trying what cannot work out.

Which operand could take which piece has been found out already, for each pair by itself (``finder.View``).  An operand
is given a piece only if all that are left can still be given leaves of their own: a matching in the bipartite graph of
operands and leaves, by augmenting paths (Kuhn, 1955); and if they can take what may not be left over, one piece each.
What fails once for the leaves that are taken fails always, and is remembered.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxrewrite.pattern.chain import Piece, is_optional
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
        self._fits = [matcher.fitting(operand, self.is_product, self.pieces) for operand in self.operands]
        self._doomed: dict[tuple[int, int], bool] = {}
        self._numeric = sum(p.leaves for p in self.pieces if p.number is not None)

    def _candidates(self, index: int) -> Sequence[Piece]:
        return self._fits[index]

    def _is_doomed(self, index: int, used: int) -> bool:
        """True if the operands from ``index`` on, and the numbers, cannot all be given an unused leaf of their own, or
        cannot take all that has to be taken."""
        key = (index, used)
        if key not in self._doomed:
            self._doomed[key] = not (self._is_enough(index, used) and self._has_leaves(index, used))
        return self._doomed[key]

    def _is_enough(self, index: int, used: int) -> bool:
        """True if operands from ``index`` on, a piece each, and numbers could take what may not be left over: anything,
        or at the anchor all that lies beside the one part which holds all that is taken."""
        if not self.root:
            return self._untouched(self.tree, used) <= len(self.operands) - index
        is_open = index < len(self.operands) or self._numeric & ~used
        is_whole = used == self.tree.leaves
        return bool(is_open) or is_whole or not any(used & ~part.leaves == 0 for part in self.tree.parts)

    def _untouched(self, piece: Piece, used: int) -> int:
        """The number of the largest parts without a leaf of ``used``, those that are but numbers left aside."""
        if not piece.leaves & used:
            return int(piece.leaves & ~self._numeric != 0)
        return sum(self._untouched(part, used) for part in piece.parts)

    def _has_leaves(self, index: int, used: int) -> bool:
        """True if the operands from ``index`` on, and the numbers, can all be given an unused leaf of their own."""
        options = [
            [piece.leaves for piece in self._fits[i] if not piece.leaves & used]
            for i in range(index, len(self.operands))
            if not is_optional(self.operands[i][0])
        ]
        if self._needs_numbers:
            options.append([p.leaves for p in self.pieces if p.number is not None and not p.leaves & used])
        ways = math.prod(map(len, options))
        return can_be_apart(options) if ways <= _FEW else has_matching(list(map(_all, options)))


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
