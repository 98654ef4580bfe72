"""Walks over protobuf messages: graphs inside nodes, nodes with all that is inside of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    for attr in node.attribute:
        if attr.HasField("g"):
            yield attr.g
        yield from attr.graphs


def nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of all their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from nested(graph.node)


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model: of its graph, of bodies inside nodes, of its functions."""
    yield from nested(model.graph.node)
    for function in model.functions:
        yield from nested(function.node)


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """The names of the values that a node reads, its subgraphs included, without what these compute themselves."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        own = {each.name for each in (*graph.input, *graph.initializer)}
        own.update(name for inner in graph.node for name in inner.output)
        read = (name for inner in graph.node for name in names_read(inner))
        yield from (name for name in (*read, *(each.name for each in graph.output)) if name not in own)
