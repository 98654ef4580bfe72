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
