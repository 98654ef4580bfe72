"""Rules return what they want and leave the graph alone: whether one kept to that.

A rule that changes the graph itself cannot be undone, for nobody knows what it did.  So it is caught in the act, and
the whole run is repeated without it.  What is looked at is what a rule has in its hands: the nodes of the match, their
readers and their constants, and the interface and the size of the graph around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import onnx_ir as ir

from onnxrewrite.errors import RuleError
from onnxrewrite.ir.graph import use_count

_FEW = 16
"""Of a value with more readers none is looked at, and of a node with more operands or outputs not the others: they are
hardly what the rule was about."""

_NODE = (
    "which graph a node is in", "an operator", "an operator", "an operator", "an operator", "the inputs of a node",
    "an attribute", "the outputs of a node", "the outputs of a node", "a constant",
)  # fmt: skip
"""The names in a report of the items of ``_of_node``."""

_GRAPH = (
    "the inputs of the graph", "the outputs of the graph", "the nodes of the graph", "the constants of the graph",
)  # fmt: skip
"""The names in a report of the items of ``_of_graph``."""


class ImpureRule(RuleError):
    """A rule changed the graph by itself.  ``rule`` and ``value`` say which and where, ``reason`` what."""

    def __init__(self, rule: str, value: str, reason: str):
        super().__init__(rule, value, reason)  # as they are, so that it can be sent to another process
        self.rule = rule
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason} (at `{self.value}`)"


@contextmanager
def pure(rule: str, value: ir.Value, nodes: Sequence[ir.Node], graph: ir.Graph | None) -> Iterator[None]:
    """Raise ``ImpureRule`` if what happens inside changes any of ``nodes``, their readers, or ``graph``."""
    outputs = [o for n in nodes for o in (value, *islice(n.outputs, _FEW)) if use_count(o) <= _FEW]
    members = list(dict.fromkeys((*nodes, *(c for o in outputs for c in o.consumers()))))
    name = value.name or ""
    before, around = list(map(_of_node, members)), _of_graph(graph)
    try:
        yield
    finally:
        pairs = [*zip(before, map(_of_node, members), strict=True), (around, _of_graph(graph))]
        changed = next((_what(old, new) for old, new in pairs if old != new), None)
        if changed is not None:
            raise ImpureRule(rule, name, f"the rule itself changed {changed}")


def _of_node(node: ir.Node) -> tuple[object, ...]:
    inputs = islice(node.inputs, _FEW)
    constants = tuple([(i.name, i.const_value) for i in inputs if i is not None and i.const_value is not None])
    attributes, outputs = tuple(node.attributes.data.items()), node.outputs[:_FEW]
    return (
        node.graph, node.op_type, node.domain, node.overload, node.version, node.inputs,
        attributes, outputs, tuple([(o.name, o.is_graph_output()) for o in outputs]), constants,
    )  # fmt: skip


def _of_graph(graph: ir.Graph | None) -> tuple[object, ...]:
    """The beginnings of lists that may be long, and how long they are."""
    if graph is None:
        return ()
    ends = ((len(of), [(v, v.name) for v in islice(of, _FEW)]) for of in (graph.inputs, graph.outputs))
    return (*ends, len(graph), len(graph.initializers))


def _what(old: tuple[object, ...], new: tuple[object, ...]) -> str:
    names = _NODE if len(old) == len(_NODE) else _GRAPH
    return next(name for name, a, b in zip(names, old, new, strict=True) if a != b)
