"""Function bodies in another opset: the same computation, spelled as that opset has it.

A node whose schema is another one there stays as it is where that says the same of it: operators mostly gain dtypes and
attributes.  What takes its parameters in another way is brought over by the standard's own converter.  Whether all of
that is right is not taken on trust: whatever rewrite emits the body is run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import onnx
import onnx.inliner
import onnx.version_converter
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import TRAITS
from onnxrewrite.ir.protos import nested
from onnxrewrite.ir.schema import normal_domain

_LIKE = 15
"""The opset that has CastLike."""

_FLOAT = onnx.TensorProto.FLOAT

_SENTINELS = {onnx.AttributeProto.FLOAT: ("f", 0.8125), onnx.AttributeProto.INT: ("i", 715)}
"""Placeholders for attributes of a function while its body is converted: values that no converter would make."""


class CannotConvert(Exception):
    """A body says something that an opset has no words for; the message is a reason."""


def in_opset(function: onnx.FunctionProto, opset: int, dtypes: tuple[int, ...] = ()) -> onnx.FunctionProto:
    """A function in another opset of the standard operators.

    Args:
        function: It stays as it is.
        opset: The version of the standard operators.
        dtypes: Those of the operands, as far as they are known: an opset without CastLike needs them.

    Raises:
        CannotConvert: There is no telling how to.
    """
    made = onnx.FunctionProto()
    made.ParseFromString(_in_opset(function.SerializeToString(deterministic=True), opset, dtypes))
    return made


def same(a: onnx.FunctionProto, b: onnx.FunctionProto) -> bool:
    """True if two functions compute the same by the same nodes, whatever the names of values and the order of nodes;
    those in different opsets are compared in the newer one, if both can be converted to it."""
    newest = max(_opset(a), _opset(b))
    try:
        return _told(in_opset(a, newest)) == _told(in_opset(b, newest))
    except CannotConvert:
        return False


def _opset(function: onnx.FunctionProto) -> int:
    return next((int(o.version) for o in function.opset_import if not normal_domain(o.domain)), 1)


def _told(function: onnx.FunctionProto) -> tuple[object, ...]:
    """Each result by the operators that lead to it, and the attributes with their defaults."""
    known: dict[str, object] = {name: place for place, name in enumerate(function.input)}
    for node in function.node:
        attributes = tuple(sorted(_plainly(a) for a in node.attribute))
        operands = tuple(known.get(name, name) for name in node.input)
        key = hash((normal_domain(node.domain), node.op_type, attributes, operands))
        known |= {name: (key, place) for place, name in enumerate(node.output)}
    defaults = (*sorted(function.attribute), *sorted(_plainly(a) for a in function.attribute_proto))
    return len(function.input), defaults, *(known.get(name) for name in function.output)


def _plainly(attribute: onnx.AttributeProto) -> bytes:
    """An attribute without the words around it."""
    plain = onnx.AttributeProto()
    plain.CopyFrom(attribute)
    plain.ClearField("doc_string")
    if plain.HasField("t"):
        plain.t.ClearField("name")
    content: bytes = plain.SerializeToString(deterministic=True)
    return content


@functools.lru_cache(maxsize=256)
def _in_opset(serialized: bytes, opset: int, dtypes: tuple[int, ...]) -> bytes:
    made = onnx.FunctionProto()
    made.ParseFromString(serialized)
    own = _opset(made)
    if opset < _LIKE <= own:
        _without_cast_like(made, dtypes)
    made = _spelled_out(made, own, opset, dtypes)
    others = sorted({n.op_type for n in _standard(made) if not _says_the_same(n, own, opset)})
    if others:
        made = _converted(made, own, opset, f"has {', '.join(others)} of opset {own}, model has {opset}")
    wrong = sorted({n.op_type for n in _standard(made) if not _fits(n, schema.schema("", n.op_type, opset))})
    if wrong:
        raise CannotConvert(f"has {', '.join(wrong)} of opset {own}, model has {opset}")
    for each in made.opset_import:
        if not normal_domain(each.domain):
            each.version = opset
    content: bytes = made.SerializeToString()
    return content


def _spelled_out(function: onnx.FunctionProto, own: int, opset: int, dtypes: tuple[int, ...]) -> onnx.FunctionProto:
    """A function whose operators that an opset does not know are written by the bodies that the standard gives them."""
    unknown = {n.op_type for n in _standard(function) if schema.schema("", n.op_type, opset) is None}
    referring = any(a.ref_attr_name for n in _standard(function) if n.op_type in unknown for a in n.attribute)
    if not unknown or referring:
        return function
    made = onnx.FunctionProto()
    made.CopyFrom(function)
    for node in (n for n in _standard(made) if n.op_type in unknown):
        schema.state_defaults(node, own)
    model = _as_model(made, own, dtypes)
    names = [("", name) for name in sorted(unknown)]
    try:
        inlined = onnx.inliner.inline_selected_functions(model, names, inline_schema_functions=True)
    except Exception:  # the inliner raises whatever its C++ code does; what is unknown is told by the caller
        return function
    del made.node[:]
    made.node.extend(inlined.graph.node)
    return made


def _as_model(function: onnx.FunctionProto, own: int, dtypes: tuple[int, ...] = ()) -> onnx.ModelProto:
    """A model of a function's nodes; operands of dtypes that are not known are of float32."""
    known = dict(zip(function.input, dtypes, strict=False))
    infos = [onnx.helper.make_tensor_value_info(n, known.get(n) or _FLOAT, None) for n in function.input]
    results = [onnx.helper.make_tensor_value_info(n, _FLOAT, None) for n in function.output]
    graph = onnx.helper.make_graph(list(function.node), "body", infos, results)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", own)], ir_version=8)


def _standard(function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    return (n for n in nested(function.node) if not normal_domain(n.domain))


def _says_the_same(node: onnx.NodeProto, own: int, opset: int) -> bool:
    """True if a node computes the same in two opsets."""
    then, now = (schema.schema("", node.op_type, version) for version in (own, opset))
    if then is None or now is None:
        return False
    if then.since_version == now.since_version:
        return True
    changed = TRAITS[node.op_type].changed if node.op_type in TRAITS else ()
    older, newer = sorted((then.since_version, now.since_version))
    if any(older < version <= newer for version in changed) or not _fits(node, now):
        return False
    given = {a.name for a in node.attribute}
    shared = then.attributes.keys() & now.attributes.keys() - given
    return all(then.attributes[name].default == now.attributes[name].default for name in shared)


def _fits(node: onnx.NodeProto, found: schema.Schema | None) -> bool:
    """True if a schema has the inputs and attributes of a node."""
    if found is None or not found.min_inputs <= len(node.input) <= found.max_inputs:
        return False
    names = {a.name for a in node.attribute}
    return names <= found.attributes.keys() and all(n in names for n, a in found.attributes.items() if a.required)


def _without_cast_like(function: onnx.FunctionProto, dtypes: tuple[int, ...]) -> None:
    """Casts to the dtypes of the operands, which are then part of the body."""
    known = dict(zip(function.input, dtypes, strict=False))
    for node in function.node:
        if node.op_type != "CastLike" or normal_domain(node.domain):
            continue
        dtype = known.get(node.input[1], 0)
        if not dtype:
            raise CannotConvert(f"has CastLike of opset {_LIKE}, and the dtype of {node.input[1]} is not known")
        node.op_type = "Cast"
        del node.input[1:], node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("to", dtype))


def _converted(function: onnx.FunctionProto, own: int, opset: int, reason: str) -> onnx.FunctionProto:
    """A body as converted by the standard's converter; raises ``CannotConvert`` with ``reason`` where that fails."""
    made = onnx.FunctionProto()
    made.CopyFrom(function)
    stand_ins = dict(_hide_references(made))
    try:
        converted = onnx.version_converter.convert_version(_as_model(made, own), opset)
    except Exception:  # the converter raises whatever its C++ code does
        raise CannotConvert(reason) from None
    proto = ir.to_proto(ir.from_proto(converted))
    del made.node[:]
    for tensor in proto.graph.initializer:
        made.node.append(onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
    made.node.extend(proto.graph.node)
    for node in nested(made.node):
        for attribute in node.attribute:
            _show_reference(attribute, stand_ins)
    if stand_ins:
        raise CannotConvert(reason)
    return made


def _hide_references(function: onnx.FunctionProto) -> Iterator[tuple[float, str]]:
    """Put numbers in place of the function's own attributes, which only a function can have: number to name."""
    for count, (node, attribute) in enumerate((n, a) for n in nested(function.node) for a in n.attribute):
        if not attribute.ref_attr_name:
            continue
        field, number = _SENTINELS.get(attribute.type, ("", 0.0))
        if not field:
            raise CannotConvert(
                f"has the attribute {attribute.ref_attr_name} at {node.op_type}, which does not convert"
            )
        number += count
        yield number, attribute.ref_attr_name
        attribute.ref_attr_name = ""
        setattr(attribute, field, number)


def _show_reference(attribute: onnx.AttributeProto, stand_ins: dict[float, str]) -> None:
    """Put the function's own attribute back in place of a number that stands for it."""
    field, _ = _SENTINELS.get(attribute.type, ("", 0.0))
    name = stand_ins.pop(getattr(attribute, field), None) if field else None
    if name is not None:
        attribute.ClearField(field)
        attribute.ref_attr_name = name
