"""Rules return what they want and leave the graph alone: whether one kept to that.

A rule that changes the graph itself cannot be undone, for nobody knows what it did.  So it is caught in the act, and
the whole run is repeated without it.  What is looked at is what a rule has in its hands: the nodes of the match, their
readers and their constants, and the interface and the size of the graph around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir

from onnxrewrite.errors import RuleError


class Tampered(RuleError):
    """A rule changed the graph by itself.  ``rule`` and ``value`` say which and where, ``reason`` what."""

    def __init__(self, rule: str, value: str, reason: str):
        super().__init__(f"{rule}: {reason} (at `{value}`)")
        self.rule = rule
        self.value = value
        self.reason = reason


@contextmanager
def untouched(rule: str, value: ir.Value, nodes: Sequence[ir.Node], graph: ir.Graph | None) -> Iterator[None]:
    """Raise ``Tampered`` if what happens inside changes any of ``nodes``, their readers, or ``graph``."""
    members = list(dict.fromkeys((*nodes, *(c for n in nodes for o in n.outputs for c in o.consumers()))))
    name = value.name or ""
    before = _state(members, graph)
    try:
        yield
    finally:
        after = _state(members, graph)
        changed = next((what for what, state in before.items() if after[what] != state), None)
        if changed is not None:
            raise Tampered(rule, name, f"the rule itself changed {changed}; it was left out")


def _state(nodes: Sequence[ir.Node], graph: ir.Graph | None) -> dict[str, Any]:
    """What must stay as it is, under the name that a report calls it by."""
    state: dict[str, Any] = {
        "an operator": [(n.domain, n.op_type, n.overload, n.version) for n in nodes],
        "the inputs of a node": [list(map(id, n.inputs)) for n in nodes],
        "the outputs of a node": [[(id(o), o.name) for o in n.outputs] for n in nodes],
        "an attribute": [[(name, id(a)) for name, a in n.attributes.items()] for n in nodes],
        "which graph a node is in": [id(n.graph) for n in nodes],
        "a constant": [(i.name, id(i.const_value)) for n in nodes for i in n.inputs if i is not None],
    }
    if graph is not None:
        state["the inputs of the graph"] = [(id(v), v.name) for v in graph.inputs]
        state["the outputs of the graph"] = [(id(v), v.name) for v in graph.outputs]
        state["the nodes of the graph"] = len(graph)
        state["the constants of the graph"] = len(graph.initializers)
    return state
