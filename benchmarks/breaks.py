"""Breaks of a graph that the framework's own generator of mistakes does not make: what a model's author or another
exporter would have written instead.  ``why_not`` asks whether ``explain`` names them.

Each takes a draft, the nodes to which the rule applies and a source of chance, and says what it did, with the names of
what it touched in backticks; None where there is nothing to break in that way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ruletest.fuzz.variations import loosened
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.mutations import become

Breaker: TypeAlias = Callable[[Draft, Sequence[ir.Node], random.Random], str | None]

_UNARY = ("Abs", "Neg", "Sin", "Cos", "Exp", "Floor", "Softplus", "Tanh", "Sigmoid", "Relu", "HardSwish", "Atan")
"""Operators of one float operand, without attributes and of the operand's shape."""

_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow")

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


def cast(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An operand that is cast to another float dtype and back."""
    node, index, value = _operand(nodes, rng, inner=True) or (None, 0, None)
    if node is None or value is None or value.dtype is None:
        return None
    other = next(d for d in rng.sample(_FLOATS, 3) if d != value.dtype)
    there = draft.insert(node, "Cast", [value], {"to": int(other)})
    back = draft.insert(node, "Cast", [there], {"to": int(value.dtype)}, like=value)
    node.replace_input_with(index, back)
    return f"two Casts, `{_maker(there)}` and `{_maker(back)}`, before operand {index} of `{node.name}`"


def between(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A node between two that belong together."""
    node, index, value = _operand(nodes, rng, inner=True) or (None, 0, None)
    if node is None or value is None:
        return None
    new = draft.insert(node, rng.choice(_UNARY), [value], like=value)
    node.replace_input_with(index, new)
    return f"`{_maker(new)}` before operand {index} of `{node.name}`"


def root(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Another operator of one operand: another root, say."""
    return _replaced(draft, [n for n in nodes if len(n.inputs) == 1 and not n.domain], rng)


def top(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Another operator at the anchor, or right above it."""
    last = [n for n in nodes if not any(c in nodes for o in n.outputs for c in o.consumers())]
    above = [n for n in nodes if any(c in last for o in n.outputs for c in o.consumers())]
    return _replaced(draft, [n for n in (*last, *above) if not n.domain], rng)


def _replaced(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    found = [n for n in nodes if len(n.inputs) in (1, 2) and len(n.outputs) == 1 and _is_float(n.outputs[0])]
    if not found:
        return None
    node = rng.choice(found)
    old = node.op_type
    kinds = [o for o in (_UNARY if len(node.inputs) == 1 else _BINARY) if o != old]
    become(node, rng.choice(kinds), draft.opset)
    return f"{node.op_type} for {old} `{node.name}`"


def consumers(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An inner value that two more nodes read, one below the other."""
    inner = [o for n in nodes for o in n.outputs if any(c in nodes for c in o.consumers()) and not o.is_graph_output()]
    if not inner:
        return None
    value = rng.choice(inner)
    node = ir.Node("", "Shape", [value], name=draft.fresh("outside"))
    more = ir.Node("", "Size", [value], name=draft.fresh("outside"))
    for each in (node, more):
        each.outputs[0].name = draft.fresh("size")
        draft.graph.append(each)
        draft.graph.outputs.append(each.outputs[0])
    return f"`{value.name}` is read by `{node.name}` and `{more.name}`"


def fed(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A graph input in place of a constant."""
    edges = [(n, i, v) for n in nodes for i, v in enumerate(n.inputs) if v is not None and draft.array(v) is not None]
    if not edges:
        return None
    node, index, value = rng.choice(edges)
    given = draft.add_input("fed", value)
    node.replace_input_with(index, given)
    return f"operand {index} of `{node.name}` is the input `{given.name}`"


def other(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A computed value of the same type in place of an operand: one that nothing else has to do with."""
    node, index, value = _operand(nodes, rng) or (None, 0, None)
    if node is None or value is None or value.dtype is None:
        return None
    given = draft.insert(node, rng.choice(_UNARY), [draft.add_input("other", value)], like=value)
    node.replace_input_with(index, given)
    return f"operand {index} of `{node.name}` is `{given.name}`, of `{_maker(given)}`"


def permutation(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Another permutation of a Transpose."""
    found = [n for n in nodes if n.op_type == "Transpose" and len(n.attributes.get_ints("perm", ())) > 1]
    if not found:
        return None
    node = rng.choice(found)
    perm = list(node.attributes.get_ints("perm", ()))
    new = rng.sample(perm, len(perm))
    if new == perm:
        new = [*perm[1:], perm[0]]
    (node.attributes["perm"],) = ir.convenience.convert_attributes({"perm": new})
    return f"perm of `{node.name}` is {new}, was {perm}"


def dropped(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An attribute that is not given any more."""
    found = [(n, a) for n in nodes for a in n.attributes if not _is_required(draft, n, a)]
    if not found:
        return None
    node, name = rng.choice(found)
    del node.attributes[name]
    return f"{name} of `{node.name}` is left out"


def _is_required(draft: Draft, node: ir.Node, name: str) -> bool:
    known = schema.schema(node.domain, node.op_type, draft.opset if not node.domain else 1)
    return known is None or name not in known.attributes or known.attributes[name].required


def lower(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A lower opset, any that has the operators of the graph."""
    older = [v for v in range(7, draft.opset) if all(_has(n, v) for n in draft.graph)]
    if not older:
        return None
    draft.model.opset_imports[""] = rng.choice(older)
    return f"the opset is {draft.opset}"


def _has(node: ir.Node, version: int) -> bool:
    if node.domain:
        return True
    known = schema.schema("", node.op_type, version)
    return known is not None and len(node.inputs) <= known.max_inputs and set(node.attributes) <= set(known.attributes)


def scaled(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A constant that is twice as large, or has an element more that does the same."""
    edges = [(n, i) for n in nodes for i, v in enumerate(n.inputs) if (a := draft.array(v)) is not None and a.size]
    if not edges:
        return None
    node, index = rng.choice(edges)
    value = node.inputs[index]
    array = draft.array(value)
    if value is None or array is None or value.dtype is None or array.dtype == bool or not array.any():
        return None
    node.replace_input_with(index, draft.constant(np.asarray(array * array.dtype.type(2)), value.dtype))
    return f"operand {index} of `{node.name}` is twice as large"


def _operand(
    nodes: Sequence[ir.Node], rng: random.Random, *, inner: bool = False
) -> tuple[ir.Node, int, ir.Value] | None:
    """A float operand of one of the nodes, which another of them computes if ``inner``."""
    edges = [(n, i, v) for n in nodes for i, v in enumerate(n.inputs) if v is not None and _is_float(v)]
    edges = [e for e in edges if not inner or e[2].producer() in nodes]
    return rng.choice(edges) if edges else None


def _is_float(value: ir.Value) -> bool:
    return value.dtype in _FLOATS


def _maker(value: ir.Value) -> Any:
    node = value.producer()
    return node.name if node is not None else None


KINDS: dict[str, tuple[Breaker, str]] = {
    "cast inserted": (cast, ""),
    "node inserted": (between, ""),
    "other root": (root, ""),
    "operator near the top": (top, ""),
    "two more consumers": (consumers, "used by"),
    "input for a constant": (fed, ""),
    "other value": (other, ""),
    "permutation": (permutation, ""),
    "attribute left out": (dropped, ""),
    "dynamic sizes": (loosened, "shapes?|ranks?|dimensions?|sizes?|axis|axes|known"),
    "lower opset": (lower, "opset"),
    "twice as large": (scaled, ""),
}
"""The kinds of breaks, each to the function that makes it and to words that name it."""
