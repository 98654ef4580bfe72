"""Lineage: the nodes of a model that a kernel stands for, and the nodes of the original that those stand for.

ONNX Runtime merges and renames nodes before it runs them.  What it keeps are the names of most values, and in the names
of new nodes that of a node, or a value, that they replace.  A kernel so named is tied to the value that it computes; to
it belong the nodes between that value and those that other kernels compute.  Kernels that ONNX Runtime adds, such as
those that reorder the layout, stand for no node.  Rewrites of ours say in a node's metadata what it stands for.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from onnxrewrite.ir.graph import constant_tensor, scopes
from onnxrewrite.rewrite.trace import FROM_KEY, RULE_KEY, Trace

_LAYOUT = re.compile(r"_(?:nchwc|nhwc|NhwcFusedConv)$")
_ADDED = frozenset("ReorderInput ReorderOutput MemcpyFromHost MemcpyToHost".split())


def covered(model: ir.Model, optimized: onnx.ModelProto) -> dict[str, tuple[ir.Node, ...]]:
    """For each kernel of what ONNX Runtime made of ``model``, by name, the nodes that it stands for.

    A node that several kernels compute belongs to the first.  What depends on no input was computed when the model was
    opened, and belongs to none.
    """
    nodes = {n.name: n for graph in scopes(model) for n in graph if n.name}
    values = {o.name: o for graph in scopes(model) for n in graph for o in n.outputs if o.name}
    kernels = list(_all_nodes(optimized.graph))
    tied = [(kernel, _computed(kernel, nodes, values)) for kernel in kernels]
    known = {v for _, computed in tied for v in computed}
    varying = _varying(model)
    taken: set[ir.Node] = set()
    found: dict[str, tuple[ir.Node, ...]] = {}
    for kernel, computed in tied:
        own = [n for n in _between(computed, known, varying) if n not in taken]
        taken.update(own)
        found[kernel.name] = (*found.get(kernel.name, ()), *own)
    return found


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_nodes(inner)


def _computed(
    kernel: onnx.NodeProto, nodes: Mapping[str, ir.Node], values: Mapping[str, ir.Value]
) -> tuple[ir.Value, ...]:
    """The values of the model that a kernel computes, as far as names tell."""
    if kernel.op_type in _ADDED:
        return ()
    by_output = tuple(values[name] for name in kernel.output if name in values)
    if by_output:
        return by_output
    value = values.get(_LAYOUT.sub("", kernel.name))
    if value is not None:
        return (value,)
    node = _named_in(kernel.name.removeprefix("fused "), nodes)
    return tuple(node.outputs) if node is not None else ()


def _named_in(name: str, nodes: Mapping[str, ir.Node]) -> ir.Node | None:
    """The node whose name a new name begins with: ``mul/QuickGeluFusion/``, ``mul_token_3``."""
    ends = [m.start() for m in re.finditer(r"[/_]|$", name)]
    return next((nodes[name[:end]] for end in reversed(ends) if name[:end] in nodes), None)


def _varying(model: ir.Model) -> set[ir.Value]:
    """The values that depend on an input of the model, or of an inner graph.  Old models list weights, too."""
    found: dict[ir.Value, None] = {}
    stack = [value for graph in scopes(model) for value in graph.inputs if constant_tensor(value) is None]
    while stack:
        value = stack.pop()
        if value not in found:
            found[value] = None
            stack += [o for reader in value.consumers() for o in reader.outputs]
    return set(found)


def _between(computed: Iterable[ir.Value], known: set[ir.Value], varying: set[ir.Value]) -> list[ir.Node]:
    """The nodes above some values, up to those that are known otherwise or never change."""
    found: dict[ir.Node, None] = {}
    stack = [p for v in computed if (p := v.producer()) is not None]
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found[node] = None
        inputs = (i for i in node.inputs if i is not None and i in varying and i not in known)
        stack += [p for i in inputs if (p := i.producer()) is not None]
    return list(found)


def origins(node: ir.Node) -> tuple[str, ...]:
    """The names of the original nodes that a node of a rewritten model stands for: itself where no rule made it."""
    said = node.metadata_props.get(FROM_KEY)
    return tuple(json.loads(said)) if said else (node.name or "",)


def rules_by_node(original: ir.Model, rewritten: ir.Model, trace: Trace) -> dict[str, tuple[str, ...]]:
    """The rules that an original node went through, by its name, oldest first; none for nodes that stay.

    What was built and rewritten again is found by its name where it had that of an original node, and by the metadata
    of what became of it.  What is gone because nothing reads it any more went with those who read it.
    """
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for applied in trace.applied:
        for name in applied.before:
            found[name][applied.rule] = None
    standing: set[str] = set()
    for node in (n for graph in scopes(rewritten) for n in graph):
        rules = [r for r in node.metadata_props.get(RULE_KEY, "").split(",") if r]
        standing.update(origins(node))
        for name in origins(node) if rules else ():
            found[name] |= dict.fromkeys(rules)
    for node in (n for graph in scopes(original) for n in reversed(graph)):
        if node.name not in standing and not found.get(node.name or ""):
            readers = (c.name or "" for o in node.outputs for c in o.consumers())
            found[node.name or ""] |= {rule: None for name in readers for rule in found.get(name, ())}
    return {name: tuple(rules) for name, rules in found.items() if rules}
