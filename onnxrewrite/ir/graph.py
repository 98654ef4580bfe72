"""Views of a graph: subgraphs, networkx views for order, convexity and isomorphism, and cutting a part out.

Nothing here changes a graph.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.dims import MAX_RANK
from onnxrewrite.ir.skip_identity import passes

if TYPE_CHECKING:
    import networkx as nx

ELEMENTS = "onnxrewrite.elements"
"""Metadata of an integer input of a part that was cut out: its values, a JSON list of ints and expressions
(``"2*batch"``)."""


def use_count(value: ir.Value) -> int:
    """The number of times that nodes read ``value``, in constant time; ``value.uses()`` would copy all of them."""
    return len(value._uses)


def attributes(node: ir.Node) -> Collection[ir.Attr]:
    """The attributes of a node; the mapping that they lie in would look each of them up again."""
    return node.attributes.data.values()


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs directly inside a node: the branches of an If, the body of a Loop or Scan."""
    found: list[ir.Graph] = []
    for attribute in attributes(node):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return found


def scopes(model: ir.Model) -> list[ir.Graph]:
    """Every graph: the main one, the functions' bodies, and the subgraphs of each, outer before inner."""
    return [g for top in (model.graph, *(f.graph for f in model.functions.values())) for g in (top, *_inside(top))]


def _inside(graph: ir.Graph) -> Iterator[ir.Graph]:
    for node in graph:
        inner = subgraphs(node)
        yield from inner
        for each in inner:
            yield from _inside(each)


def with_inner(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Nodes, each followed by those of the graphs inside it."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from with_inner(graph)


def outer_values(node: ir.Node) -> list[ir.Value]:
    """The values that the subgraphs of a node read from outside of it."""
    graphs = subgraphs(node)
    if not graphs:
        return []
    inside: set[ir.Value] = set()
    read: dict[ir.Value, None] = {}
    for graph in graphs:
        for scope in (graph, *graph.subgraphs()):
            inside.update(scope.inputs)
            inside.update(scope.initializers.values())
            read.update(dict.fromkeys(scope.outputs))
        for inner in graph.all_nodes():
            inside.update(inner.outputs)
            read.update(dict.fromkeys(i for i in inner.inputs if i is not None))
    return [v for v in read if v not in inside]


def topological(nodes: Sequence[ir.Node]) -> tuple[ir.Node, ...]:
    """Some nodes of a graph, producers first, in the given order otherwise."""
    if len(nodes) < 2:
        return tuple(nodes)
    members = set(nodes)
    done: dict[ir.Node, None] = {}
    stack = list(reversed(nodes))
    while stack:
        node = stack[-1]
        read = (v.producer() for v in (*node.inputs, *outer_values(node)) if v is not None)
        missing = [p for p in read if p in members and p not in done] if node not in done else []
        if missing:
            stack.extend(p for p in reversed(missing) if p is not None)
        else:
            done[stack.pop()] = None
    return tuple(done)


def digraph(nodes: Iterable[ir.Node]) -> nx.DiGraph[ir.Node]:
    """Nodes as vertices, an edge from each to the nodes that read its outputs."""
    import networkx as nx

    graph: nx.DiGraph[ir.Node] = nx.DiGraph()
    members = list(nodes)
    graph.add_nodes_from(members)
    for node in members:
        for value in (*node.inputs, *outer_values(node)):
            producer = value.producer() if value is not None else None
            if producer is not None and producer in graph:
                graph.add_edge(producer, node)
    return graph


def is_convex(part: Iterable[ir.Node], whole: Iterable[ir.Node]) -> bool:
    """True if no path leaves ``part`` and comes back, so that it can be replaced as one."""
    import networkx as nx

    inside = set(part)
    graph = digraph(whole)
    leaving = {s for n in inside for s in graph.successors(n)} - inside
    outside = graph.subgraph(set(graph) - inside)
    reachable = leaving.union(*(nx.descendants(outside, n) for n in leaving)) if leaving else leaving
    return not any(s in inside for n in reachable for s in graph.successors(n))


def is_circular(values: Iterable[ir.Value], replaced: Mapping[ir.Value, ir.Value]) -> bool:
    """True if anything above ``values`` depends on itself once each key of ``replaced`` is replaced by its value."""

    def read(value: ir.Value) -> Iterator[ir.Value]:
        if value in replaced:
            return iter((replaced[value],))
        node = value.producer()
        return iter([v for v in (*node.inputs, *outer_values(node)) if v is not None] if node is not None else [])

    done: set[ir.Value] = set()
    for start in values:
        path = {start: read(start)} if start not in done else {}
        while path:
            value, above = next(reversed(path.items()))
            following = next(above, None)
            if following is None:
                done.add(value)
                path.popitem()
            elif following in path:
                return True
            elif following not in done:
                path[following] = read(following)
    return False


def isomorphic(a: ir.Graph, b: ir.Graph) -> bool:
    """True if two graphs are equal but for the order of nodes and the names of inner values: operators, attributes,
    constants, wiring, bodies, and the names of inputs are equal."""
    import networkx as nx
    from networkx.algorithms.isomorphism import categorical_multiedge_match, categorical_node_match

    same_node = categorical_node_match("label", None)
    same_edge = categorical_multiedge_match("place", None)
    return bool(nx.is_isomorphic(_labelled(a), _labelled(b), node_match=same_node, edge_match=same_edge))


def _labelled(graph: ir.Graph) -> nx.MultiDiGraph[ir.Node | ir.Value]:
    """Nodes, inputs and constants as labelled vertices; edges say which output feeds which input."""
    import networkx as nx

    result: nx.MultiDiGraph[ir.Node | ir.Value] = nx.MultiDiGraph()

    def vertex(value: ir.Value) -> Hashable:
        producer = value.producer()
        if producer is not None:
            return producer
        if value not in result:
            result.add_node(value, label=_value_label(value))
        return value

    for node in with_inner(graph):
        result.add_node(node, label=_node_label(node))
    for node in with_inner(graph):
        for place, value in enumerate(node.inputs):
            if value is not None:
                result.add_edge(vertex(value), node, place=(value.index(), place))
        for name, attribute in node.attributes.items():
            body = attribute.as_graph() if _is_body(attribute) else None
            for place, value in enumerate(body.outputs if body is not None else ()):
                result.add_edge(vertex(value), node, place=(name, value.index(), place))
            for place, value in enumerate(body.inputs if body is not None else ()):
                result.add_node(value, label=("formal", place))
                result.add_edge(value, node, place=(name, "formal", place))
    for place, value in enumerate(graph.outputs):
        result.add_node(("output", place), label=("output", place))
        result.add_edge(vertex(value), ("output", place), place=(value.index(), 0))
    return result


def _value_label(value: ir.Value) -> Hashable:
    tensor = value.const_value
    if tensor is not None:
        return ("constant", *_tensor_label(tensor))
    return ("input", value.name)


def _node_label(node: ir.Node) -> Hashable:
    attributes = sorted((name, _attribute_label(a)) for name, a in node.attributes.items())
    return (node.domain, node.op_type, tuple(attributes), len(node.outputs))


def _is_body(attribute: ir.Attr) -> bool:
    return attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref()


def _attribute_label(attribute: ir.Attr) -> str:
    """An attribute as text, floats as they are stored, in float32."""
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if _is_body(attribute):  # what is in it has labels of its own
        return "graph"
    if attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return str(np.float32(attribute.value).tolist())
    if attribute.type == ir.AttributeType.TENSOR:
        return str(_tensor_label(attribute.as_tensor()))
    return str(attribute.value)


def _tensor_label(tensor: ir.TensorProtocol) -> tuple[Hashable, ...]:
    is_text = tensor.dtype == ir.DataType.STRING
    return tensor.dtype, tuple(tensor.shape), str(tensor.numpy().tolist()) if is_text else tensor.tobytes()


def extract(
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    opset_imports: Mapping[str, int],
    *,
    modernize: bool = True,
    name: str = "part",
) -> ir.Model:
    """Cut ``nodes`` out into a model of their own, which shares the constants' tensors.

    Args:
        nodes: In topological order, with the graphs inside them, which read inputs, constants and what nodes compute.
        inputs: The values that the part may read; constants among the values read become initializers.
        outputs: The computed values; each goes through an Identity, for it may be an input or a constant as well.
        opset_imports: Domain to version.
        name: Of the graph.
        modernize: If True, a node written for a newer version raises its domain's; else it keeps its own version.
    """
    copies = _Copies(modernize)
    graph_inputs = [copies.new(value) for value in dict.fromkeys(inputs)]
    made = copies.of(nodes)
    results = [_as_output(copies.read(v), made, place) for place, v in enumerate(outputs)]
    imports = dict(opset_imports)
    for node in with_inner(nodes):
        imports[node.domain] = max(imports.get(node.domain, 1), (node.version if modernize else None) or 1)
    constants = copies.constants
    graph = ir.Graph(graph_inputs, results, nodes=made, initializers=constants, opset_imports=imports, name=name)
    return ir.Model(graph, ir_version=10)


class _Copies:
    """Copies of nodes with their bodies; constants that they read become initializers outside of all of these.

    Args:
        modernize: True if no node keeps a version of its own.
    """

    def __init__(self, modernize: bool):
        self.constants: list[ir.Value] = []
        self._modernize = modernize
        self._known: dict[ir.Value, ir.Value] = {}
        self._inside: ir.Node | None = None

    def new(self, value: ir.Value) -> ir.Value:
        """A copy of a value that something else gives."""
        self._known[value] = _copy_value(value, f"v{len(self._known)}")
        return self._known[value]

    def read(self, value: ir.Value) -> ir.Value:
        """The copy of a value."""
        if value not in self._known:
            tensor, inside = constant_tensor(value), self._inside
            if tensor is None and inside is not None:
                raise ValueError(f"{inside.op_type} `{inside.name}` has a subgraph that reads from outside")
            made = self.new(value)
            if tensor is not None:
                made.const_value = tensor
                self.constants.append(made)
        return self._known[value]

    def of(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """The copies of nodes in topological order, constants left out."""
        is_constant = (n.op_type == "Constant" and constant_tensor(n.outputs[0]) is not None for n in nodes)
        return [self._node(node) for node, skipped in zip(nodes, is_constant, strict=True) if not skipped]

    def _node(self, node: ir.Node) -> ir.Node:
        read = [None if v is None else self.read(v) for v in node.inputs]
        around, self._inside = self._inside, node if subgraphs(node) else self._inside
        attributes = [self._attribute(each) for each in node.attributes.values()]
        self._inside = around
        version = None if self._modernize else node.version
        made = ir.Node(node.domain, node.op_type, read, attributes, num_outputs=len(node.outputs), version=version)
        for new, old in zip(made.outputs, node.outputs, strict=True):
            new.name, new.type, new.shape = f"v{len(self._known)}", old.type, old.shape
            self._known[old] = new
        return made

    def _attribute(self, attribute: ir.Attr) -> ir.Attr:
        if not _is_body(attribute):
            return attribute
        body = attribute.as_graph()
        given = [self.new(value) for value in body.inputs]
        nodes = self.of(list(body))
        results = [self.read(value) for value in body.outputs]
        return ir.AttrGraph(attribute.name, ir.Graph(given, results, nodes=nodes, name=body.name))


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of an initializer, a Constant, a ConstantOfShape, or what passes one of them on; None for others."""
    producer = value.producer()
    if producer is None or passes(value) or producer.op_type == "ConstantOfShape":
        return value.const_value
    return dense_tensor(value) if producer.op_type == "Constant" else None


_TENSORS = (ir.Tensor, ir.TensorProtoTensor)
"""The usual tensors: to know any other one, onnx_ir looks for each of its methods."""


def dense_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """The constant tensor behind a value, also that of a Constant node; None for a sparse one, where onnx_ir raises."""
    producer = value.producer()
    if value.const_value is None and producer is not None and "sparse_value" in producer.attributes:
        return None
    is_constant = producer is not None and (producer.domain, producer.op_type) == ("", "Constant")
    written = producer.attributes.get("value") if producer is not None and is_constant else None
    if value.const_value is None and written is not None and isinstance(written.value, _TENSORS):
        tensor = written.value
        tensor.name = value.name
        return tensor
    return ir.convenience.get_const_tensor(value)


def filled(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a ConstantOfShape, stored as one element; None if its shape is not constant or far too large."""
    shape = node.inputs[0].const_value if node.inputs and node.inputs[0] is not None else None
    if shape is None or shape.dtype != ir.DataType.INT64 or len(shape.shape) != 1 or shape.size > MAX_RANK:
        return None
    dims = shape.numpy().tolist()
    value = node.attributes.get("value")
    tensor = ir.tensor(np.zeros(1, np.float32)) if value is None else value.as_tensor()
    if math.prod(dims) > _FILLED or min(dims, default=0) < 0 or tensor.size != 1:
        return None
    return ir.tensor(np.broadcast_to(tensor.numpy().reshape(()), dims), dtype=tensor.dtype)


_RANK = 64
"""More dimensions than numpy has."""

_FILLED = 2**24
"""Elements."""


def _copy_value(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)


def _as_output(value: ir.Value, copies: list[ir.Node], place: int) -> ir.Value:
    """An output of its own name, for any value."""
    made = ir.Node("", "Identity", [value])
    result = made.outputs[0]
    result.name, result.type, result.shape = f"y{place}", value.type, value.shape
    copies.append(made)
    return result
