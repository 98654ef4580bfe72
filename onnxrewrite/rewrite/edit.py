"""Changes to a graph that onnx_ir leaves to its users: fresh names, redirected values, nodes taken out whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import onnx_ir as ir

from onnxrewrite.ir import names
from onnxrewrite.ir.graph import scopes, subgraphs, use_count
from onnxrewrite.ir.value_numbering import Constants


class Names(names.Names):
    """All names of a model, so that new ones are fresh in every scope."""

    def __init__(self, model: ir.Model):
        super().__init__(name for graph in scopes(model) for name in _names(graph) if name)


def _names(graph: ir.Graph) -> Iterator[str | None]:
    yield from (value.name for value in graph.inputs)
    yield from graph.initializers
    for node in graph:
        yield node.name
        yield from (output.name for output in node.outputs)


def redirect(old: ir.Value, new: ir.Value) -> list[ir.Node]:
    """Let everything that reads ``old`` read ``new``, graph outputs included; the nodes that did."""
    users = list(old.consumers())
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    return users


def detach(node: ir.Node) -> list[ir.Value]:
    """Let a node, and everything inside its subgraphs, use nothing any more; the values it used."""
    used: dict[ir.Value, None] = {}
    for user in (node, *_inner_nodes(node)):
        for index, value in enumerate(user.inputs):
            if value is not None:
                used[value] = None
                user.replace_input_with(index, None)
    return list(used)


def is_dead(node: ir.Node) -> bool:
    """True if nothing reads any output of ``node``."""
    return not any(map(is_read, node.outputs))


def is_read(value: ir.Value) -> bool:
    """True if a node or the caller reads ``value``."""
    return use_count(value) > 0 or value.is_graph_output()


def sweep(nodes: Iterable[ir.Node]) -> tuple[list[ir.Node], list[ir.Value]]:
    """Remove those of ``nodes`` that are dead, and then whatever only they needed.

    Returns:
        The removed nodes, and the values they used that are still alive.
    """
    queue = list(nodes)
    removed: dict[ir.Node, None] = {}
    touched: dict[ir.Value, None] = {}
    while queue:
        node = queue.pop()
        if node in removed or node.graph is None or not is_dead(node):
            continue
        used = detach(node)
        node.graph.remove(node)
        removed[node] = None
        for value in used:
            touched[value] = None
            producer = value.producer()
            if producer is not None:
                queue.append(producer)
    return list(removed), [v for v in touched if v.producer() not in removed]


def _inner_nodes(node: ir.Node) -> Iterable[ir.Node]:
    for graph in subgraphs(node):
        yield from list(graph.all_nodes())


def drop_unused_initializers(graph: ir.Graph) -> None:
    """Remove constants that nothing reads and that are no part of the interface."""
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_input() and not value.is_graph_output():
            del graph.initializers[name]


def share_constants(graph: ir.Graph) -> None:
    """Let all that reads equal constants of a graph read the first of them, and remove the others.

    What is part of the interface stays: an initializer that is an input can be overridden.
    """
    first: dict[Hashable, ir.Value] = {}
    constants = Constants()
    for value in [*graph.initializers.values(), *(n.outputs[0] for n in graph if n.op_type == "Constant")]:
        if value.const_value is None or value.is_graph_input() or value.is_graph_output():
            continue
        same = first.setdefault(constants.key(value.const_value), value)
        if same is not value:
            redirect(value, same)
            sweep([node for node in (value.producer(),) if node is not None])
    drop_unused_initializers(graph)
