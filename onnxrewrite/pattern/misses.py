"""Reasons why patterns do not match: that of the attempt that got furthest, and the words for what stands there."""

from __future__ import annotations

import enum

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern import numbers
from onnxrewrite.pattern.look import called, resolve
from onnxrewrite.pattern.match import Binding


class Stands(enum.IntEnum):
    """The kind of value that stands where another must, the nearer the larger: any graph ends with an input."""

    INPUT = 0
    CONSTANT = 1
    NODE = 2


class Misses:
    """The reason why a pattern did not match, from the attempt that had bound most.

    Attributes:
        progress: The number of bound terms, -1 if nothing was tried; and the kind of value found.
        reason: The words for what was expected and what is there.
        item: The part of the pattern that was not met; None if it is not a single one.
        binding: The terms bound by then.
    """

    def __init__(self) -> None:
        self.progress = (-1, Stands.INPUT)
        self.reason = ""
        self.item: object = None
        self.binding = Binding()

    def add(self, bound: int, reason: str, item: object, binding: Binding, stands: Stands = Stands.NODE) -> None:
        """Keep ``reason`` if this attempt got further than those before."""
        if (bound, stands) > self.progress:
            self.progress, self.reason, self.item, self.binding = (bound, stands), reason, item, binding


_ELEMENTS = 8
"""Constants of no more elements are shown."""


def described(facts: Facts, graph: ir.Graph | None, value: ir.Value) -> str:
    """A value in words, as the matcher of ``graph`` sees it: the node that computes it, a constant, an input."""
    source, passed = resolve(value), value.producer()
    node = source.producer()
    if facts.tensor(value) is not None:
        return f"constant {numbers.describe(facts, value)}"
    behind = f" behind {passed.op_type} `{passed.name}`" if passed is not None and passed is not node else ""
    if node is None:
        return f"{'graph ' if source.is_graph_input() else ''}input `{source.name}`{behind}"
    if node.graph is not graph:
        return f"`{source.name}` from outside the subgraph{behind}"
    return f"{called(node)}{behind}"


def read_by(graph: ir.Graph | None, value: ir.Value, binding: Binding) -> str:
    """The place of a value in words: the last matched node that reads it, or the only one that does."""
    matched = [n.name for n in reversed(binding.nodes) if n.name and value in n.inputs]
    names = matched[:1] or [n.name for n in value.consumers() if n.graph is graph and n.name]
    return f" (at `{names[0]}`)" if len(names) == 1 else ""


def shown(node: ir.Node, facts: Facts, depth: int = 1) -> str:
    """A node with its operands and attributes: ``Gather `g`(Relu `r`, 2, axis=1)``; ``depth`` nodes of it deep."""
    operands = [_operand(v, facts, depth - 1) for v in node.inputs]
    attributes = [f"{a.name}={_attribute(a)}" for a in node.attributes.values() if not a.is_ref()]
    version = facts.version(node)
    known = schema.schema(node.domain, node.op_type, version)
    more = known is not None and len(node.inputs) > known.max_inputs
    told = f", of which opset {version} knows {known.max_inputs} inputs" if known is not None and more else ""
    return f"{called(node)}({', '.join(operands + attributes)}){told}"


def _operand(value: ir.Value | None, facts: Facts, depth: int) -> str:
    tensor = None if value is None else facts.tensor(value)
    if value is None:
        return "none"
    if tensor is None or tensor.size > _ELEMENTS or tensor.dtype.is_string():
        node = None if tensor is not None else resolve(value).producer()
        if node is None:
            return f"`{value.name}`"
        return shown(node, facts, depth) if depth else called(node)
    elements = [_number(e) for e in tensor.numpy().ravel().tolist()]
    return elements[0] if tensor.shape.rank() == 0 else f"{{{', '.join(elements)}}}"


def _number(element: object) -> str:
    return f"{element:.6g}" if isinstance(element, float) else str(element).lower()


def _attribute(attribute: ir.Attr) -> str:
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "…"
    if attribute.type is ir.AttributeType.TENSOR:
        return f"a tensor of shape {list(attribute.value.shape)}"
    if isinstance(attribute.value, str):
        return repr(attribute.value)
    many = isinstance(attribute.value, list | tuple)
    return f"[{', '.join(map(_number, attribute.value))}]" if many else _number(attribute.value)
