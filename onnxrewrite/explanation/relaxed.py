"""Matchers that let one requirement of a pattern go: for the question what would be if it did not stand there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.nary import ChainMatch
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.pattern.terms import Attr, Capture, Const, Literal, Product, Scalar, Sum, Term


class _AnyNumbers(ChainMatch):
    """A sum or product whose numbers may be any."""

    def _equal(self, found: list[tuple[float, int]]) -> bool:
        return True


class Forgiving(RecursiveMatcher):
    """Matches patterns that are all there but for one part.

    Args:
        facts: The facts about the graph's values.
        graph: Only nodes of this graph are matched.
        item: The part that need not hold: a capture takes any value, a number or a parameter may be another one.
    """

    def __init__(self, facts: Facts, graph: ir.Graph, item: object):
        super().__init__(facts, graph)
        self.item = item

    def term(self, item: Term, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        """The matches of a term, or one where nothing is asked of it."""
        found = list(super().term(item, value, binding))
        if not found and item is self.item and self._can_go(item, value):
            found = [binding if isinstance(item, Literal) else binding.bind(item, resolve(value))]
        yield from found

    def _can_go(self, item: Term, value: ir.Value) -> bool:
        """True if a rule can do without the requirement of ``item``: not where it computes with the constant."""
        if isinstance(item, Const):
            return self.facts.tensor(resolve(value)) is not None
        return isinstance(item, Literal) or (isinstance(item, Capture) and not isinstance(item, Scalar))

    def _attribute(
        self, name: str, expected: Attr[Any] | Capture, actual: object, node: ir.Node, binding: Binding
    ) -> Iterator[Binding]:
        found = list(super()._attribute(name, expected, actual, node, binding))
        if not found and expected is self.item and actual is not None:
            found = [binding.bind(expected, actual)]
        yield from found

    def _chain(self, item: Sum | Product, value: ir.Value, binding: Binding, root: bool) -> Iterator[Binding]:
        kind = _AnyNumbers if item is self.item else ChainMatch
        yield from kind(self, item, value, root).run(binding)
