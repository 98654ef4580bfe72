"""Operators of ONNX Runtime by their parts: what the body of one says, written on a builder's tape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
from onnx import helper

from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.bodies.emitter import Emit, Unsupported
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.match import Refused

if TYPE_CHECKING:
    from onnxrewrite.rewrite.build import Builder


def parts(build: Builder, facts: Facts, node: ir.Node) -> list[ir.Value | None]:
    """Build what ``node`` computes by operators of the standard: its outputs, None for one that nothing computes."""
    body = BODIES.get((node.domain, node.op_type))
    if body is None:
        raise Refused(f"{node.op_type} has no body of operators of the standard")
    if any(each.is_ref() for each in node.attributes.values()):
        raise Refused(f"{node.op_type} refers to an attribute of the function that it is in")
    values = {v.name: v for v in node.inputs if v is not None and v.name}
    emit = Emit(
        build.opset, node.op_type, {n: _sizes(s) for n, v in values.items() if (s := facts.shape(v)) is not None}
    )
    try:
        written = emit.define(body, ir.to_proto(node))
    except Unsupported as reason:
        raise Refused(f"{node.op_type} with {reason}") from None
    own = next((d for v in values.values() if (d := facts.dtype(v)) is not None and d.is_floating_point()), None)
    results = {o.name for o in node.outputs}
    for each in written:
        if results.isdisjoint(each.output):
            values.update(zip(each.output, _built(build, each, values, own), strict=True))
        else:  # an Identity, which gives a result its name
            values[each.output[0]] = values[each.input[0]]
    return [values.get(o.name or "") for o in node.outputs]


def _built(
    build: Builder, node: onnx.NodeProto, values: Mapping[str, ir.Value], own: ir.DataType | None
) -> tuple[ir.Value, ...]:
    """The outputs of one node; floating-point constants, which bodies give in double, get the dtype of the operands."""
    attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Constant":
        data = onnx.numpy_helper.to_array(attributes["value"])
        return (build.const(data, like=own if data.dtype.kind == "f" else None),)
    known = {name: v.decode() if isinstance(v, bytes) else v for name, v in attributes.items()}
    inputs = [values.get(name) for name in node.input]
    return build.domain(node.domain).node(node.op_type, inputs, known, len(node.output))


def _sizes(shape: tuple[Dim, ...]) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in shape)
