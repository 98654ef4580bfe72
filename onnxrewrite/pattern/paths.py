"""Paths and readers: the nodes above a value and below it, as far as a question goes.

A question says through which nodes it goes, and is answered with the nodes that were met.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.graph import use_count
from onnxrewrite.ir.skip_identity import passed, resolve
from onnxrewrite.ir.views import input_of

_FAR = 64
"""A question about a region ends after so many nodes."""

Operator: TypeAlias = str | Collection[str]
"""A standard operator, or one of several."""


@dataclass(frozen=True)
class NodePath:
    """Nodes in a row, from a value up.

    Attributes:
        source: The value that the last node reads, behind Identities.
        nodes: The nodes, the one that computes the value first.
        idle: The nodes in between that change nothing.
        values: The results of the nodes, and the source, as they are read: an Identity may stand in between.
    """

    source: ir.Value
    nodes: tuple[ir.Node, ...]
    idle: tuple[ir.Node, ...]
    values: tuple[ir.Value, ...]


# -- above ---------------------------------------------------------------------------------------------------


def made_by(value: ir.Value | None, *op_types: str, domain: str = "") -> ir.Node | None:
    """The node that computes a value, behind Identities, if it is of one of these operators."""
    node = resolve(value).producer() if value is not None else None
    return node if node is not None and node.op_type in op_types and node.domain == domain else None


def path_through(value: ir.Value, through: Callable[[ir.Node], ir.Value | bool | None], most: int = _FAR) -> NodePath:
    """The path from a value up, as long as ``through`` lets a node pass: True goes on along the node's first operand, a
    value along that one."""
    nodes, idle, values = list[ir.Node](), list[ir.Node](), [value]
    while True:
        idle += passed(value)
        value = resolve(value)
        node = value.producer()
        passes = through(node) if node is not None and len(nodes) < most else None
        above = input_of(node) if node is not None and passes is True else passes
        if node is None or not isinstance(above, ir.Value):
            return NodePath(value, tuple(nodes), tuple(idle), tuple(values))
        nodes.append(node)
        value = above
        values.append(value)


def path(value: ir.Value | None, *operators: Operator) -> NodePath | None:
    """The path along first operands through one node of each of these operators, the lowest first; None for others."""
    if value is None:
        return None
    wanted = [(each,) if isinstance(each, str) else each for each in operators]
    steps = iter(wanted)

    def through(node: ir.Node) -> bool:
        return not node.domain and node.op_type in next(steps, ())

    found = path_through(value, through, most=len(wanted))
    return found if len(found.nodes) == len(wanted) else None


def upstream(root: ir.Node, along: Callable[[ir.Node], Iterable[ir.Value | None]], most: int = _FAR) -> list[ir.Node]:
    """The nodes of the root's graph that it is computed by, itself first: of each, ``along`` names the operands above
    which to look."""
    found, queue = {root: None}, deque([root])
    while queue and len(found) < most:
        makers = dict.fromkeys(v.producer() for v in along(queue.popleft()) if v is not None)
        new = [n for n in makers if n is not None and n not in found and n.graph is root.graph]
        found.update(dict.fromkeys(new))
        queue += new
    return list(found)


def needed_for(root: ir.Node, most: int = _FAR) -> list[ir.Node]:
    """The nodes that go with a node: itself, and those that compute something for it alone."""
    found, queue = {root: None}, deque([root])
    while queue and len(found) < most:
        for value in queue.popleft().inputs:
            node = value.producer() if value is not None else None
            if node is None or node in found or node.graph is not root.graph or node.op_type == "Constant":
                continue
            if not any(leaks([node], found)):
                found[node] = None
                queue.append(node)
    return list(found)


# -- below ---------------------------------------------------------------------------------------------------


def readers(
    of: ir.Value | ir.Node, through: Callable[[ir.Node], object] | Container[str] = (), within: int = _FAR
) -> Iterator[ir.Node]:
    """The nodes that read a value, or a node's results, directly or below others that it is passed ``through``, the
    nearest first; at most ``within`` steps below."""
    goes_on = through if callable(through) else lambda node: node.op_type in through
    met, layer = dict[ir.Node, None](), [of] if isinstance(of, ir.Value) else list(of.outputs)
    for left in reversed(range(within)):
        new = dict.fromkeys(n for v in layer for n in v.consumers() if n not in met)
        yield from new
        if not left:
            return
        met.update(new)
        layer = [o for n in new if goes_on(n) for o in n.outputs]
        if not layer:
            return


def only_reader(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The standard node of one of these operators, or of any, that alone reads a value, and reads it once."""
    if use_count(value) != 1 or value.is_graph_output():
        return None
    (reader,) = value.consumers()
    return reader if not op_types or (reader.op_type in op_types and not reader.domain) else None


def siblings(value: ir.Value) -> list[ir.Value]:
    """The results of the node that computes a value that are read, itself among them."""
    node = resolve(value).producer()
    return [o for o in node.outputs if o.uses() or o.is_graph_output()] if node is not None else []


def is_read_once(value: ir.Value | None) -> bool:
    """True if a value, and each value that Identities pass on to it, has one reader and is not a graph output."""
    if value is None:
        return False
    values = [value, *(n.inputs[0] for n in passed(value))]
    return all(v is not None and use_count(v) == 1 and not v.is_graph_output() for v in values)


def need_outside(value: ir.Value, inside: Container[ir.Node]) -> str:
    """The need for a value beside the nodes ``inside``, in words; empty where there is none."""
    if value.is_graph_output():
        return "a graph output"
    other = next((n for n in value.consumers() if n not in inside), None)
    return "" if other is None else f"also used by {other.op_type} `{other.name}`"


def leaks(nodes: Iterable[ir.Node], inside: Container[ir.Node]) -> Iterator[tuple[ir.Value, str]]:
    """The results of nodes that are needed beside the nodes ``inside``, each with the need in words."""
    needs = ((value, need_outside(value, inside)) for node in nodes for value in node.outputs)
    return ((value, need) for value, need in needs if need)
