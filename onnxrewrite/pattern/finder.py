"""The matcher that is used: the tree tells which patterns can match at a value, and only of those the ways are found.

It finds what ``RecursiveMatcher`` finds pattern by pattern, which is its oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.among import Expected
from onnxrewrite.pattern.assign import AssignedChain
from onnxrewrite.pattern.chain import SIGNS, Piece, grow, is_optional
from onnxrewrite.pattern.conditions import Conditions
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.questions import Probe
from onnxrewrite.pattern.recursive import RecursiveMatcher, values_of
from onnxrewrite.pattern.terms import AnyOf, Product, Sum, Term, children

P = TypeVar("P")

_FEW = 64
"""So many sums and products are remembered."""

_SHORT = 8
"""In chains of so many pieces a match that is expected is found at once."""

Found: TypeAlias = tuple[list[int], dict[int, int]]
"""The findings at a value: the ranks of patterns, in order, and the numbers of terms with their signs."""


class Patterns(Generic[P]):
    """Many patterns, to be looked for at once.

    Args:
        patterns: The first terms of patterns, each with what stands for it, in the order in which they are tried.
    """

    def __init__(self, patterns: Iterable[tuple[Term, P]]):
        self.payloads: list[P] = []
        conditions = Conditions()
        for rank, (anchor, payload) in enumerate(patterns):
            self.payloads.append(payload)
            conditions.add(anchor, rank)
        self.tree = conditions.tree
        self.operands = conditions.operands

    def view(self, facts: Facts, graph: ir.Graph | None) -> View[P]:
        """The values of one graph as these patterns see them."""
        return View(self, facts, graph)


class View(Generic[P]):
    """The findings of patterns at the values of one graph, remembered until ``forget``."""

    def __init__(self, patterns: Patterns[P], facts: Facts, graph: ir.Graph | None):
        self.facts = facts
        self.graph = graph
        self._payloads = patterns.payloads
        self._tree = patterns.tree
        self._operands = patterns.operands
        self._found: dict[ir.Value, Found] = {}
        self._chains: dict[Expected, dict[ir.Value, set[Hashable]]] = {}
        self._grown: dict[tuple[ir.Value, bool], list[Piece]] = {}

    def at(self, value: ir.Value) -> list[P]:
        """The payloads of the patterns that can match at ``value``, in their order."""
        return [self._payloads[rank] for rank in self._look(value)[0]]

    def forget(self, values: Sequence[ir.Value]) -> None:
        """Look at ``values`` anew the next time."""
        self._grown.clear()
        for value in values:
            self._found.pop(value, None)
        for known in filter(None, self._chains.values()):
            for value in values:
                known.pop(value, None)

    def fits(self, operand: tuple[Term, int], is_product: bool, piece: Piece) -> bool:
        """True if an operand of a sum or a product could take a piece of a chain, by all that is known so far."""
        number = self._operands.get((*operand, is_product))
        if number is None or piece.value is None:
            return True
        return bool(self.terms(piece.value).get(number, 0) & SIGNS[piece.sign])

    def grown(self, value: ir.Value, is_product: bool) -> list[Piece]:
        """The sum or product above ``value``; several patterns ask for one in a row, so that a few are remembered."""
        key = value, is_product
        pieces = self._grown.get(key)
        if pieces is None:
            pieces = grow(self.facts, self.producer, value, is_product)
            if len(self._grown) >= _FEW:
                self._grown.clear()
            if value.graph is self.graph:
                self._grown[key] = pieces
        return pieces

    def producer(self, value: ir.Value) -> ir.Node | None:
        """The node of this graph that computes ``value``."""
        node = value.producer()
        return node if node is not None and (node.graph is self.graph or node.graph is None) else None

    def terms(self, value: ir.Value) -> dict[int, int]:
        """The numbers of the terms that match ``value``, each with the signs under which it does."""
        return self._look(value)[1]

    def chain(self, value: ir.Value, expected: Expected) -> set[Hashable]:
        """The answers for the sum or product above ``value``."""
        known = self._chains.setdefault(expected, {})
        found = known.get(value)
        if found is None:
            found = expected.found(self, value)
            if value.graph is self.graph:
                known[value] = found
        return found

    def _look(self, value: ir.Value) -> Found:
        """The findings at ``value``, after those at all that it is computed from; no recursion, for deep graphs."""
        stack = [value]
        while True:
            current = stack[-1]
            found = self._found.get(current)
            missing = self._unknown(current) if found is None else []
            if missing:
                stack += missing
                continue
            if found is None:
                found = self._walk(current)
            stack.pop()
            if not stack:
                return found

    def _unknown(self, value: ir.Value) -> list[ir.Value]:
        """The computed values that ``value`` is computed from, as far as nothing is known of them yet."""
        node = value.producer()
        if node is None or node.graph is not self.graph:
            return []
        return [
            i
            for i in node.inputs
            if i is not None and i not in self._found and (p := i.producer()) is not None and p.graph is self.graph
        ]

    def _walk(self, value: ir.Value) -> Found:
        ranks, terms = set[int](), dict[int, int]()
        for accepted in self._tree.walk(Probe(self, value)):
            if isinstance(accepted, int):
                ranks.add(accepted)
            else:
                number, signs = accepted
                terms[number] = terms.get(number, 0) | signs
        found = sorted(ranks), terms
        if value.graph is self.graph:  # of others only those who own them know when they change
            self._found[value] = found
        return found


class Matcher(RecursiveMatcher):
    """The ways in which one pattern matches at one value, without detours through long chains and wide fan-outs.

    Args:
        view: The graph.
        is_expected: True if the pattern is known to match, most likely: what could stand above is not found out first.
    """

    def __init__(self, view: View[Any], *, is_expected: bool = False):
        super().__init__(view.facts, view.graph)
        self.view = view
        self._is_expected = is_expected

    def fitting(self, operand: tuple[Term, int], is_product: bool, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces of a chain that an operand of a sum or a product could take."""
        found = [piece for piece in pieces if piece.value is not None]
        if self._is_expected and len(found) <= _SHORT:
            return found
        return [piece for piece in found if self.view.fits(operand, is_product, piece)]

    def grown(self, value: ir.Value, is_product: bool) -> list[Piece]:
        """The chain above ``value``, which the view may know."""
        return self.view.grown(value, is_product)

    def _chain(self, item: Sum | Product, value: ir.Value, binding: Binding, root: bool) -> Iterator[Binding]:
        yield from AssignedChain(self, item, value, root).run(binding)

    def _starts(self, item: Term, binding: Binding) -> Iterable[ir.Value]:
        """Of the bound parts that every match of ``item`` has, the one that fewest nodes read: all that it could stand
        for is computed from each of them."""
        parts = [p for p in necessary(item) if values_of(binding.bound.get(p))]
        if not parts:
            return super()._starts(item, binding)
        choices = [[resolve(v) for v in values_of(binding.bound[p])] for p in parts]
        return min(choices, key=lambda values: sum(len(v.consumers()) for v in values))


def necessary(item: Term) -> Iterator[Term]:
    """``item`` and the terms below it without which it does not match."""
    yield item
    if not isinstance(item, AnyOf):
        for child in children(item):
            if not is_optional(child):
                yield from necessary(child)
