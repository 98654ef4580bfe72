"""The matcher that is used: the tree tells which patterns can match at a value, and only of those the ways are found.

It finds what ``RecursiveMatcher`` finds pattern by pattern, which is its oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.assign import AssignedChain
from onnxrewrite.pattern.chain import is_optional
from onnxrewrite.pattern.conditions import Conditions
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.questions import Probe
from onnxrewrite.pattern.recursive import RecursiveMatcher, values_of
from onnxrewrite.pattern.terms import AnyOf, Product, Sum, Term, children
from onnxrewrite.pattern.tree import Tree

P = TypeVar("P")


class Patterns(Generic[P]):
    """Many patterns, to be looked for at once.

    Args:
        patterns: The first terms of patterns, each with what stands for it, in the order in which they are tried.
    """

    def __init__(self, patterns: Iterable[tuple[Term, P]]):
        self._payloads: list[P] = []
        self._tree: Tree[int] = Tree()
        conditions = Conditions()
        for rank, (anchor, payload) in enumerate(patterns):
            self._payloads.append(payload)
            for alternative in alternatives(anchor):
                self._tree.add(conditions.of(alternative), rank)

    def at(self, facts: Facts, graph: ir.Graph | None, value: ir.Value) -> list[P]:
        """What stands for the patterns that can match at ``value``, in their order."""
        ranks = self._tree.walk(Probe(facts, graph, value))
        return [self._payloads[rank] for rank in sorted(set(ranks))]


def alternatives(item: Term) -> Iterator[Term]:
    """The terms of an ``any_of``, and of those inside it; any other term itself."""
    if isinstance(item, AnyOf):
        for each in item.alternatives:
            yield from alternatives(each)
    else:
        yield item


class Matcher(RecursiveMatcher):
    """The ways in which one pattern matches at one value, without detours through long chains and wide fan-outs."""

    def _chain(self, item: Sum | Product, value: ir.Value, binding: Binding, root: bool) -> Iterator[Binding]:
        yield from AssignedChain(self, item, value, root).run(binding)

    def _starts(self, item: Term, binding: Binding) -> Iterable[ir.Value]:
        """Of the bound parts that every match of ``item`` has, the one that fewest nodes read: all that it could stand
        for is computed from each of them."""
        parts = [p for p in necessary(item) if values_of(binding.bound.get(p))]
        if not parts:
            return super()._starts(item, binding)
        choices = [values_of(binding.bound[p]) for p in parts]
        return min(choices, key=lambda values: sum(len(v.consumers()) for v in values))


def necessary(item: Term) -> Iterator[Term]:
    """``item`` and the terms below it without which it does not match."""
    yield item
    if not isinstance(item, AnyOf):
        for child in children(item):
            if not is_optional(child):
                yield from necessary(child)
