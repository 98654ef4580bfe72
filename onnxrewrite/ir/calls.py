"""Model-local functions: what their callers say about the types of their inputs.

A function has no types of its own.  Where all calls agree, its body can be worked on as if it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from onnxrewrite.ir.graph import scopes


def in_order(model: ir.Model) -> list[ir.Graph]:
    """The bodies of the functions, callers before what they call."""
    bodies = {f.identifier(): f.graph for f in model.functions.values()}
    callees_first: dict[ir.Graph, None] = {}
    entered: set[ir.Graph] = set()  # also those that call themselves, which is not allowed but happens

    def called(body: ir.Graph) -> Iterator[ir.Graph]:
        entered.add(body)
        return (b for n in body.all_nodes() if (b := bodies.get(n.op_identifier())) is not None)

    for body in bodies.values():
        stack = [(body, called(body))] if body not in entered else []
        while stack:
            caller, callees = stack[-1]
            callee = next((b for b in callees if b not in entered), None)
            if callee is not None:
                stack.append((callee, called(callee)))
            else:
                callees_first[caller] = None
                stack.pop()
    return list(callees_first)[::-1]


def sites(model: ir.Model) -> dict[ir.Graph, list[ir.Node]]:
    """The bodies of the functions, each with the nodes that call it."""
    bodies = {f.identifier(): f.graph for f in model.functions.values()}
    found: dict[ir.Graph, list[ir.Node]] = {body: [] for body in bodies.values()}
    for node in (n for scope in scopes(model) for n in scope):
        body = bodies.get(node.op_identifier())
        if body is not None:
            found[body].append(node)
    return found


def give_types(body: ir.Graph, model: ir.Model, known: Mapping[ir.Graph, Sequence[ir.Node]] | None = None) -> None:
    """Give the inputs of a function's body the types that all calls of it agree on; the main graph is left alone.

    ``known`` are the ``sites`` of the model, for one who asks about many functions.
    """
    calls = (known if known is not None else sites(model)).get(body)
    if calls is None:
        return
    for index, value in enumerate(body.inputs):
        given = [n.inputs[index] if index < len(n.inputs) else None for n in calls]
        value.type, value.shape = _common_type(given), _common_shape(given)


def forget_types(model: ir.Model) -> None:
    """Take the types away again: the file says nothing about them."""
    for function in model.functions.values():
        for value in function.inputs:
            value.type, value.shape = None, None


def _common_type(values: Sequence[ir.Value | None]) -> ir.TypeProtocol | None:
    types = [v.type if v is not None else None for v in values]
    return types[0] if types and all(t is not None and t == types[0] for t in types) else None


def _common_shape(values: Sequence[ir.Value | None]) -> ir.Shape | None:
    """The shape where all calls have the same one; only its rank where the sizes differ."""
    shapes = [v.shape if v is not None else None for v in values]
    first = shapes[0] if shapes else None
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return None
    return ir.Shape([d if all(s is not None and s[i] == d for s in shapes) else None for i, d in enumerate(first)])
