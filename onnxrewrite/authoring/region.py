"""The part of a graph between named values: what belongs to it, what it reads, and why it cannot be a pattern.

Shape arithmetic stays outside: a rule is to match however the sizes are computed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import outer_values, scopes, subgraphs
from onnxrewrite.ir.skip_identity import passes, resolve

MOST = 150
"""A region has so many operators at the most: more is no pattern that anybody reads."""


@dataclass(frozen=True)
class Region:
    """Nodes of one graph that a rule could take as one.

    Attributes:
        graph: The graph that they are in.
        nodes: Producers before readers; Identities are not among them.
        inputs: The values at the border that were named.
        further: Other values that the nodes read and that are neither constant nor a size.
        sizes: The values of shape arithmetic that they read.
        outputs: The values that a rewrite replaces.
        watched: Inner values whose shapes are asked for outside, so that they have to be computed anyway.
    """

    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    further: tuple[ir.Value, ...]
    sizes: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    watched: tuple[ir.Value, ...] = ()

    @property
    def border(self) -> tuple[ir.Value, ...]:
        """The values that the nodes read from outside and that are neither constant nor sizes."""
        return (*self.inputs, *self.further)


def reads(node: ir.Node) -> list[ir.Value | None]:
    """The values that a node reads, seen through Identities."""
    return [None if v is None else resolve(v) for v in node.inputs]


def readers(value: ir.Value) -> Iterator[ir.Node | None]:
    """The nodes that read a value, as it is or through Identities; None for the caller of the graph."""
    stack = [value]
    while stack:
        value = stack.pop()
        if value.is_graph_output():
            yield None
        for node in value.consumers():
            if node.outputs and passes(node.outputs[0]):
                stack.append(node.outputs[0])
            else:
                yield node


def sizes(graph: ir.Graph, facts: Facts) -> set[ir.Value]:
    """The values of a graph that are shape arithmetic: integers of rank 0 or 1 that follow from shapes alone."""
    found: set[ir.Value] = set()
    for node in graph:
        if node.op_type in ("Shape", "Size") and not node.domain:
            found.update(node.outputs)
            continue
        varying = [v for v in node.inputs if v is not None and facts.tensor(resolve(v)) is None]
        if varying and all(v in found for v in varying) and all(_is_index(v, facts) for v in node.outputs):
            found.update(node.outputs)
    return found


def _is_index(value: ir.Value, facts: Facts) -> bool:
    dtype, rank = facts.dtype(value), facts.rank(value)
    return dtype is not None and (dtype.is_integer() or dtype == ir.DataType.BOOL) and rank is not None and rank <= 1


# -------------------------------------------------------------------------------------------------- what is named


def candidates(model: ir.Model, name: str) -> list[ir.Value] | list[ir.Node]:
    """The values, or else the nodes, of a name: several where several graphs have one."""
    values: list[ir.Value] = []
    nodes: list[ir.Node] = []
    for graph in scopes(model):
        values += [v for v in (*graph.inputs, *(o for n in graph for o in n.outputs)) if v.name == name]
        nodes += [n for n in graph if n.name == name]
    return values or nodes


def with_all(model: ir.Model, names: Iterable[str]) -> list[ir.Graph]:
    """The graphs that have something of each of these names."""
    found = [{c.graph for c in candidates(model, name)} for name in names]
    return [graph for graph in scopes(model) if all(graph in graphs for graphs in found)]


def named(model: ir.Model, name: str, option: str, graphs: Container[object] = ()) -> ir.Value | ir.Node:
    """The value, or else the node, of a name.

    Args:
        model: The model.
        name: The name.
        option: Begins the error.
        graphs: Those to choose from if several graphs have one.

    Raises:
        UsageError: There is none, or several graphs have one.
    """
    found = candidates(model, name)
    if not found:
        raise UsageError(f"{option} {name}: no value and no node is called so")
    chosen = [c for c in found if c.graph in graphs] if len(found) > 1 else found
    if len(chosen) != 1:
        raise UsageError(f"{option} {name}: {len(found)} graphs of the model have a value of this name")
    return chosen[0]


def starting_at(named: ir.Value | ir.Node, graph: ir.Graph, facts: Facts) -> list[ir.Value]:
    """The values at which a region begins: a value itself, or what a node reads that is neither constant nor a size."""
    if isinstance(named, ir.Value):
        return [resolve(named)]
    of_shapes = sizes(graph, facts)
    return [v for v in reads(named) if v is not None and facts.tensor(v) is None and v not in of_shapes]


def ending_at(named: ir.Value | ir.Node) -> list[ir.Value]:
    """The values at which a region ends: a value itself, or what a node computes and somebody reads."""
    if isinstance(named, ir.Value):
        return [resolve(named)]
    return [o for o in named.outputs if o.is_graph_output() or o.uses()]


# ------------------------------------------------------------------------------------------------------ between


def between(graph: ir.Graph, facts: Facts, starts: Sequence[ir.Value], ends: Sequence[ir.Value]) -> Region:
    """The nodes on the way from some values to others.

    Args:
        graph: The graph that computes ``ends``; its nodes are in order.
        facts: The facts about it.
        starts: The values at which the region begins.
        ends: The values that it computes, the first of which is the rule's anchor.

    Raises:
        UsageError: They cannot be one pattern; the reason names the value that is in the way.
    """
    return _Search(graph, facts, starts, ends).region()


class _Search:
    """Finds one region and says what is wrong with it."""

    def __init__(self, graph: ir.Graph, facts: Facts, starts: Sequence[ir.Value], ends: Sequence[ir.Value]):
        self.graph = graph
        self.facts = facts
        self.starts = tuple(dict.fromkeys(starts))
        self.ends = tuple(dict.fromkeys(ends))
        self.sizes = sizes(graph, facts)

    def region(self) -> Region:
        both = next((v for v in self.ends if v in self.starts), None)
        if both is not None:
            raise UsageError(f"`{both.name}` is named as a beginning and as an end")
        nodes = self._nodes()
        border = list(dict.fromkeys(v for n in nodes for v in self._border(n, set(nodes))))
        self._check(nodes)
        outside = [v for v in border if v not in self.sizes or v in self.starts]
        self._refuse_loops(set(nodes), outside)
        self._refuse_leaks(nodes)
        unread = next((v for v in self.starts if v not in border), None)
        if unread is not None:
            raise UsageError(f"--from {unread.name}: nothing on the way to {_quoted(self.ends)} reads it")
        further = [v for v in border if v not in self.starts and v not in self.sizes]
        return Region(
            graph=self.graph,
            nodes=nodes,
            inputs=self.starts,
            further=tuple(further),
            sizes=tuple(v for v in border if v in self.sizes and v not in self.starts),
            outputs=self.ends,
            watched=watched(nodes, self.ends, self.sizes),
        )

    def _nodes(self) -> tuple[ir.Node, ...]:
        """The nodes that depend on a start and that an end depends on, in the graph's order."""
        varying = self._varying()
        found: set[ir.Node] = set()
        stack = list(self.ends)
        while stack:
            value = stack.pop()
            node = value.producer()
            if node is None or value in self.starts or value not in varying or node in found:
                continue
            found.add(node)
            stack += [v for v in _all_reads(node) if v not in self.sizes]
        for end in self.ends:
            if end.producer() not in found:
                what = "a size, which a rule captures as it is" if end in self.sizes else "not computed from it"
                raise UsageError(f"--to {end.name}: is {what}: nothing lies between {_quoted(self.starts)} and that")
        return tuple(n for n in self.graph if n in found)

    def _varying(self) -> set[ir.Value]:
        """The values that depend on a start by more than its shape."""
        found = set(self.starts)
        for node in self.graph:
            if any(v in found for v in _all_reads(node)):
                found.update(o for o in node.outputs if o not in self.sizes)
        return found

    def _border(self, node: ir.Node, inside: Container[ir.Node]) -> Iterator[ir.Value]:
        """The values that a node of the region reads from outside and that are not constant."""
        for value in reads(node):
            if value is not None and self.facts.tensor(value) is None:
                producer = value.producer()
                if value in self.starts or value in self.sizes or producer not in inside:
                    yield value

    def _check(self, nodes: Sequence[ir.Node]) -> None:
        if len(nodes) > MOST:
            raise UsageError(f"{len(nodes)} operators lie between, and a pattern has {MOST} at the most: come nearer")
        holder = next((n for n in nodes if subgraphs(n)), None)
        if holder is not None:
            what = f"{holder.op_type} `{holder.name}`"
            raise UsageError(f"{what} lies between and holds a graph, which no pattern can spell")

    def _refuse_leaks(self, nodes: Sequence[ir.Node]) -> None:
        """Refuse a region of which an inner value is needed outside."""
        reader = leak(nodes, self.ends, self.sizes)
        if reader is not None:
            value, node = reader
            told = "is an output of the graph" if node is None else f"is also read by {node.op_type} `{node.name}`"
            raise UsageError(f"`{value.name}` lies between and {told}: name it with --to as well, or begin behind it")

    def _refuse_loops(self, inside: Container[ir.Node], border: Iterable[ir.Value]) -> None:
        """Refuse a border value that is computed from the inside, since the replacement would need itself."""
        for start in border:
            stack, seen = [start], {start}
            while stack:
                producer = stack.pop().producer()
                if producer is None:
                    continue
                if producer in inside:
                    within = producer.outputs[0].name
                    raise UsageError(
                        f"`{start.name}` is read between and computed from `{within}`, which lies between, too: "
                        "the region cannot be replaced as one"
                    )
                above = [v for v in _all_reads(producer) if v not in seen and v not in self.sizes]
                seen.update(above)
                stack += above


def leak(
    nodes: Sequence[ir.Node], outputs: Container[ir.Value], sizes: Container[ir.Value]
) -> tuple[ir.Value, ir.Node | None] | None:
    """An inner value that is needed outside by more than its shape, and who reads it: None for the caller."""
    inside = set(nodes)
    for value in (o for n in nodes for o in n.outputs if o not in outputs):
        for reader in readers(value):
            if reader is None or (reader not in inside and not _asks_a_size(reader, sizes)):
                return value, reader
    return None


def watched(nodes: Sequence[ir.Node], outputs: Container[ir.Value], sizes: Container[ir.Value]) -> tuple[ir.Value, ...]:
    """Inner values of which shape arithmetic outside asks the shape."""
    inside = set(nodes)
    inner = (o for n in nodes for o in n.outputs if o not in outputs)
    return tuple(v for v in inner if any(r is not None and r not in inside for r in readers(v)))


def _asks_a_size(reader: ir.Node, sizes: Container[ir.Value]) -> bool:
    return all(o in sizes for o in reader.outputs)


def _all_reads(node: ir.Node) -> list[ir.Value]:
    return [resolve(v) for v in (*node.inputs, *outer_values(node)) if v is not None]


def _quoted(values: Iterable[ir.Value]) -> str:
    return ", ".join(f"`{v.name}`" for v in values)
