"""Spellings of a model as a whole: its opset, its sizes, and parts of it as functions."""

from __future__ import annotations

import random
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.io.opset_conversion import to_opset

OPSETS = range(11, 24)
"""The opsets that a model may be converted to.  In newer ones other operators are raised: Swish, which none before 24
has, and no Attention, for which ONNX Runtime has no kernel of opset 25."""

DOMAIN = "outlined"


def in_another_opset(model: ir.Model, rng: random.Random) -> ir.Model | None:
    """The model in another opset, by the converter of ONNX; None where it cannot bring it there."""
    version = rng.choice([v for v in OPSETS if v != io.opset(model)])
    try:
        made = to_opset(model, version)
        onnx.checker.check_model(io.to_proto(made))
    except (UsageError, onnx.checker.ValidationError):
        return None
    return made


def with_sizes(model: ir.Model, sizes: Mapping[str, int]) -> ir.Model:
    """The model for inputs of these sizes alone."""
    made = io.to_proto(model)
    for value in (*made.graph.input, *made.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    del made.graph.value_info[:]
    return io.load(made)


def outlined(model: ir.Model, rng: random.Random) -> ir.Model | None:
    """The model with a run of nodes as a function of its own, which may be called by another function."""
    made = model.clone()
    for depth in range(rng.choice((1, 1, 2))):
        nodes = [n for n in made.graph if n.op_type != "Constant"]
        length = rng.randint(2, 8)
        start = rng.randrange(max(1, len(nodes) - length))
        part = nodes[start : start + length]
        _outline(made, part, f"part{depth}")
    return made if made.functions else None


def _outline(model: ir.Model, part: list[ir.Node], name: str) -> None:
    """Make a function of some nodes, and call it where they were."""
    inside = set(part)
    read = [v for n in part for v in n.inputs if v is not None and v.producer() not in inside]
    inputs = list(dict.fromkeys(read))
    outputs = [o for n in part for o in n.outputs if o.is_graph_output() or any(c not in inside for c in o.consumers())]
    copies: dict[ir.Value, ir.Value] = {v: ir.Value(name=f"{name}.{i}", type=v.type) for i, v in enumerate(inputs)}
    nodes = []
    for node in part:
        operands = [None if v is None else copies[v] for v in node.inputs]
        copy = ir.Node(
            node.domain, node.op_type, operands, list(node.attributes.values()), num_outputs=len(node.outputs)
        )
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            copies[old], new.name = new, f"{name}.{old.name}"
        nodes.append(copy)
    opsets = dict(model.opset_imports)
    graph = ir.Graph([copies[v] for v in inputs], [copies[v] for v in outputs], nodes=nodes, opset_imports=opsets)
    function = ir.Function(DOMAIN, name, "", graph=graph, attributes=[])
    model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1
    if any(n.domain == DOMAIN for n in nodes):
        function.opset_imports[DOMAIN] = 1
    call = ir.Node(DOMAIN, name, inputs, num_outputs=len(outputs), name=f"call.{name}")
    model.graph.insert_before(part[-1], call)
    for old, new in zip(outputs, call.outputs, strict=True):
        new.type, new.shape, final = old.type, old.shape, old.name
        for user, index in list(old.uses()):
            if user not in inside:
                user.replace_input_with(index, new)
        for index, each in enumerate(model.graph.outputs):
            if each is old:
                model.graph.outputs[index] = new
        old.name, new.name = f"{final}.inside", final
    model.graph.remove(part, safe=False)
