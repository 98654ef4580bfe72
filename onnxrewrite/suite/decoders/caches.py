"""The caches of a decoder: pairs of inputs and outputs for the keys and values of each layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.suite.decoders.attention_operators import ATTENTIONS, PRODUCTS
from onnxrewrite.suite.decoders.cones import above, below, passed_on


@dataclass(frozen=True)
class Cache:
    """The names of a layer's past and present keys and values, of shape [batch, heads, tokens, size].

    Attributes:
        heads: The number of heads of keys.
        size: The size of one.
    """

    past_key: str
    past_value: str
    present_key: str
    present_value: str
    heads: int
    size: int


@dataclass(frozen=True)
class _Joined:
    """A past, what it becomes, and where that is read: at which attention, as its keys (0) or its values (1)."""

    past: ir.Value
    present: str | None
    attention: ir.Node
    role: int


def caches_of(graph: ir.Graph) -> tuple[Cache, ...]:
    """The caches of a decoder, one a layer, the first layer first; none for one without past.

    Raises:
        ModelError: One has no present, or keys without values or the reverse.
    """
    joined = [found for value in graph.inputs if (found := _joined(value)) is not None]
    untied = [each.past.name or "" for each in joined if each.present is None]
    if untied:
        raise ModelError(f"the past {untied[0]} has no present: no output gives it with the new keys or values")
    layers = defaultdict[ir.Node, list[_Joined]](list)
    for each in joined:
        layers[each.attention].append(each)
    order = {node: place for place, node in enumerate(graph)}
    return tuple(_cache(layers[node]) for node in sorted(layers, key=order.__getitem__))


def is_shareable(graph: ir.Graph, caches: Sequence[Cache]) -> bool:
    """True if past and present can be one buffer: nothing but attention that writes in place reads a past."""
    past = {name for cache in caches for name in (cache.past_key, cache.past_value)}
    uses = [node for value in graph.inputs if value.name in past for node, _ in value.uses()]
    return bool(past) and all(node.op_type == "GroupQueryAttention" for node in uses)


def _cache(parts: list[_Joined]) -> Cache:
    by_role = {each.role: each for each in parts}
    names = ", ".join(each.past.name or "" for each in parts)
    if len(parts) != 2 or len(by_role) != 2:
        raise ModelError(f"a layer has not one past of keys and one of values, but {names}")
    key, value = by_role[0], by_role[1]
    shapes = [each.past.shape for each in (key, value)]
    sizes = {(shape[1], shape[3]) if shape is not None and len(shape) == 4 else None for shape in shapes}
    (size, *more) = sizes
    if more or size is None or not all(isinstance(d, int) for d in size):
        raise ModelError(f"past keys and values must be of one shape [batch, heads, tokens, size]: {names}")
    heads, width = (int(d) for d in size)  # type: ignore[arg-type]
    assert key.present is not None
    assert value.present is not None
    return Cache(key.past.name or "", value.past.name or "", key.present, value.present, heads=heads, size=width)


def _joined(past: ir.Value) -> _Joined | None:
    """The present that an input becomes if it is a past; None for others."""
    if past.dtype is None or not past.dtype.is_floating_point() or past.const_value is not None:
        return None
    for value in passed_on(past):
        for node, index in value.uses():
            inside = ATTENTIONS.get(node.op_type)
            if inside is not None and index in inside.pasts:
                role = inside.pasts.index(index)
                present = node.outputs[1 + role] if len(node.outputs) > 2 else None
                return _Joined(past, _output(present), node, role)
            if index == 0 and len(node.inputs) > 1 and node.op_type in ("Concat", "TensorScatter"):
                found = _attention(node.outputs[0])
                if found is not None:
                    return _Joined(past, _output(node.outputs[0]), *found)
    return None


def _output(value: ir.Value | None) -> str | None:
    """The name of the graph output that a value is, or that an Identity makes of it."""
    outputs = (each for each in passed_on(value) if each.is_graph_output()) if value is not None else iter(())
    found = next(outputs, None)
    return None if found is None else found.name


def _attention(value: ir.Value) -> tuple[ir.Node, int] | None:
    """The attention, or the Softmax of one, that all keys (0) or values (1) go into."""

    def stops(node: ir.Node, index: int) -> bool:
        return node.op_type in PRODUCTS or node.op_type in ATTENTIONS

    for node, index in below(value, stops):
        inside = ATTENTIONS.get(node.op_type)
        if inside is not None and index in inside.parts:
            return node, inside.parts.index(index)
        if node.op_type in PRODUCTS and index < 2:
            return _of_product(node, index)
    return None


def _of_product(product: ir.Node, index: int) -> tuple[ir.Node, int] | None:
    """The Softmax before a product with values, or behind one with keys."""
    other = product.inputs[1 - index]
    before = _softmaxes(above(other, lambda n: n.op_type in PRODUCTS or n.op_type == "Softmax")) if other else iter(())
    found = next(before, None)
    if found is not None:
        return found, 1
    nodes = (n for n, _ in below(product.outputs[0], lambda n, _: n.op_type in PRODUCTS or n.op_type == "Softmax"))
    found = next(_softmaxes(nodes), None)
    return None if found is None else (found, 0)


def _softmaxes(nodes: Iterator[ir.Node]) -> Iterator[ir.Node]:
    return (node for node in nodes if node.op_type == "Softmax")
