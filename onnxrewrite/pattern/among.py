"""Questions about terms that can stand in several places: which of the numbered terms are found, and among what.

A numbered term is an entry of the tree in its own right (``conditions.py``), so that what matches a value is known
already, or found by a walk of its own (``finder.py``): the questions here only collect that.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.pattern import chain, numbers
from onnxrewrite.pattern.chain import SIGNS, Piece
from onnxrewrite.pattern.questions import Probe, Question, Surroundings, positional


class Here(Question):
    """The numbered terms that match the value."""

    cost = 5
    doubt = 0.8

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        return () if value is None else probe.view.terms(value)


@dataclass(frozen=True)
class Either(Question):
    """The numbered terms that match one of the two inputs of a commutative operator."""

    named: frozenset[str] = frozenset()
    cost = 6
    doubt = 0.8

    def answers(self, probe: Probe) -> Collection[Hashable]:
        node = self.position.node(probe)
        if node is None:
            return ()
        inputs = positional(node, probe.view.facts, self.named) if self.named else node.inputs
        return {number for value in inputs if value is not None for number in probe.view.terms(value)}


ANY_NUMBER = "number"
"""The answer for a chain that has a number among its leaves."""


class Expected:
    """The expectations of patterns on sums, or on products, anywhere; and those that a chain meets.

    Beside the numbers of terms the answers are ``ANY_NUMBER``, ``("leaves", n)`` for chains of n and more, and
    ``("total", x)`` for those whose numbers could come to x.
    """

    def __init__(self, is_product: bool):
        self.is_product = is_product
        self._leaves: list[int] = []
        self._totals: list[float] = []
        self._takers = 0

    def leaves(self, count: int) -> Hashable:
        """The answer for a chain of at least ``count`` leaves."""
        if count not in self._leaves:
            bisect.insort(self._leaves, count)
        return ("leaves", count)

    def total(self, literals: Sequence[tuple[float, int]], takers: int) -> Hashable:
        """The answer if numbers could come to what ``literals`` do, with ``takers`` operands that can take others."""
        self._takers = max(self._takers, takers)
        total = float(numbers.product(literals) if self.is_product else numbers.total(literals))
        if total not in self._totals:
            bisect.insort(self._totals, total)
        return ("total", total)

    def found(self, view: Surroundings, value: ir.Value) -> set[Hashable]:
        """The answers for the chain above ``value``."""
        whole, *pieces = view.grown(value, self.is_product)
        ends = [p for p in pieces if not p.parts] or [whole]
        found: set[Hashable] = {("leaves", n) for n in self._leaves[: bisect.bisect_right(self._leaves, len(ends))]}
        for piece in pieces:
            if piece.value is not None:
                bit = SIGNS[piece.sign]
                found.update([number for number, signs in view.terms(piece.value).items() if signs & bit])
        if any(p.number is not None for p in ends):
            found.add(ANY_NUMBER)
            found.update(("total", t) for t in self._near((whole, *pieces), view.facts.dtype(value)))
        return found

    def _near(self, pieces: Sequence[Piece], dtype: ir.DataType | None) -> Iterable[float]:
        """The expected totals that the chain's numbers could come to: all of them but for those in pieces that operands
        take, or one alone."""
        if dtype is None or not self._totals:
            return ()
        numeric = [p for p in pieces if p.number is not None]
        everything = chain.leaves_of(numeric)
        groups = {everything, *(p.leaves for p in numeric)}
        taken = {p.leaves & everything for p in pieces[1:]}
        for _ in range(self._takers if len(numeric) > 2 else 0):
            groups |= {group & ~leaves for group in groups for leaves in taken}
            if len(groups) > _GROUPS:
                return self._totals
        found: set[float] = set()
        for group in groups:
            signed = [(p.number or 0, p.sign) for p in numeric if p.leaves & group]
            total = numbers.product(signed) if self.is_product else numbers.total(signed)
            found.update(self._around(float(total), max((abs(n) for n, _ in signed), default=0), dtype))
        return found

    def _around(self, total: float, largest: float, dtype: ir.DataType) -> Sequence[float]:
        """The expected totals that differ from ``total`` by what rounding could explain."""
        slack = _SLACK * numbers.epsilon(dtype) if dtype.is_floating_point() else 0.0
        size = abs(total) if self.is_product else max(abs(total), largest)
        if not numbers.is_normal(total, dtype):
            return self._totals
        low = bisect.bisect_left(self._totals, total - slack * size)
        return self._totals[low : bisect.bisect_right(self._totals, total + slack * size)]


@dataclass(frozen=True)
class Chain(Question):
    """The composition of a sum or a product: its terms, how many there are, and the totals of its numbers."""

    expected: Expected
    cost = 7
    doubt = 0.8

    def answers(self, probe: Probe) -> Collection[Hashable]:
        value = self.position.value(probe)
        return () if value is None else probe.view.chain(value, self.expected)


_GROUPS = 64
"""With more ways to choose among the numbers of a chain than this, any total is taken for possible."""

_SLACK = 32
"""Numbers that the matcher takes for equal differ by less than so many roundings."""
