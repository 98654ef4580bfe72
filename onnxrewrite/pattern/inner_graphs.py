"""Matches across the border of a graph: the bodies of nodes, and values that bodies read from around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import onnx_ir as ir

from onnxrewrite.pattern.blocks import Body, Outer
from onnxrewrite.pattern.carried import TermMatcher, all_of
from onnxrewrite.pattern.look import called, resolve
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.terms import Each, Operands, Term


def body(matcher: TermMatcher, name: str, item: Body, node: ir.Node, binding: Binding) -> Iterator[Binding]:
    """The matches of the graph of an attribute.  Its nodes are not covered: they go with the node that has them."""
    attribute = node.attributes.get(name)
    graph = attribute.as_graph() if attribute is not None and not attribute.is_ref() else None
    if graph is None:
        matcher.miss(binding, lambda: f"{called(node)} has no {name}", item)
        return
    places: list[tuple[Term, ir.Value]] = []
    bound = binding
    for terms, values, what in ((item.inputs, graph.inputs, "inputs"), (item.outputs, graph.outputs, "outputs")):
        found = _pairs(terms, values)
        if found is None:
            told = f"the {name} of {called(node)} has {len(values)} {what}"
            matcher.miss(binding, partial(str, told), item)
            return
        places += found[0]
        bound = bound if found[1] is None else bound.bind(*found[1])
    inside = matcher.inside(graph, f", in the {name} of {called(node)}")
    for each in all_of(inside, places, bound):
        yield Binding(each.bound, binding.nodes, binding.remainder)


def _pairs(
    terms: Sequence[Term | Operands], values: Sequence[ir.Value]
) -> tuple[list[tuple[Term, ir.Value]], tuple[Operands, tuple[ir.Value, ...]] | None] | None:
    """Terms with their values, and an ``Each`` with the others; None where there are too few values, or too many."""
    own = [t for t in terms if isinstance(t, Term)]
    rest = next((t for t in terms if isinstance(t, Each)), None)
    more = tuple(values[len(own) :])
    if len(values) < len(own) or (more if rest is None else len(more) < rest.at_least):
        return None
    return list(zip(own, values, strict=False)), None if rest is None else (rest, more)


def outer_value(matcher: TermMatcher, item: Outer, value: ir.Value, binding: Binding) -> Iterator[Binding]:
    """The matches of a value of a graph around; the nodes there are not covered."""
    graph = resolve(value).graph
    if not isinstance(graph, ir.Graph) or graph is matcher.graph:
        matcher.miss(
            binding, lambda: f"expected a value of an outer graph, found {matcher.describe(value, binding)}", item
        )
        return
    for found in matcher.inside(graph).term(item.of, value, binding):
        yield Binding(found.bound, binding.nodes, binding.remainder)
