"""Cones of a graph: what depends on a value, as far as a kind of node lets it through."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

_MEASURES = frozenset({"Shape", "Size"})
"""Operators whose result does not depend on the elements of what they read."""


def below(value: ir.Value, stops: Callable[[ir.Node, int], bool]) -> Iterator[tuple[ir.Node, int]]:
    """The uses of a value and of what is computed from its elements, each a node and the index of an input.

    Args:
        value: The value.
        stops: True for a use beyond which nothing is looked at.
    """
    met, waiting = set[tuple[ir.Node, int]](), [value]
    while waiting:
        for node, index in waiting.pop().uses():
            if (node, index) in met or node.op_type in _MEASURES:
                continue
            met.add((node, index))
            yield node, index
            if not stops(node, index):
                waiting += node.outputs


def above(value: ir.Value, stops: Callable[[ir.Node], bool]) -> Iterator[ir.Node]:
    """The nodes that compute a value, each once; no further than those that stop, and never through a shape."""
    met, waiting = set[ir.Node](), [value]
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in met or node.op_type in _MEASURES:
            continue
        met.add(node)
        yield node
        if not stops(node):
            waiting += [each for each in node.inputs if each is not None]


def passed_on(value: ir.Value) -> Iterator[ir.Value]:
    """A value, and what Identities make of it, or Concats of nothing else."""
    yield value
    for node, _ in value.uses():
        if node.op_type in ("Identity", "Concat") and len(node.inputs) == 1:
            yield from passed_on(node.outputs[0])
