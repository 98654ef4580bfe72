"""Forms of any operand: its place, axes, the form of a constant, an Identity or a Cast that does nothing."""

from __future__ import annotations

import random

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.ir.views import FROM_THE_END, input_of, spellings
from onnxrewrite.pattern.look import COMMUTATIVE
from onnxrewrite.ruletest.metamorphic.draft import Draft

BROADCASTING = frozenset(operators("broadcast"))
"""Operators of which a constant of one element may have any rank that another operand has."""

D = ir.DataType
_CASTABLE = frozenset({D.FLOAT, D.DOUBLE, D.FLOAT16, D.INT32, D.INT64, D.BOOL})


def swap(node: ir.Node, rng: random.Random) -> None:
    """Exchange the operands of a commutative operator."""
    if node.op_type in COMMUTATIVE and not node.domain and len(node.inputs) == 2 and rng.random() < 0.5:
        a, b = node.inputs
        node.replace_input_with(0, b)
        node.replace_input_with(1, a)


def respell_axes(draft: Draft, node: ir.Node, rng: random.Random) -> None:
    """Axes counted from either end."""
    found = schema.schema(node.domain, node.op_type, draft.opset) if draft.opset >= FROM_THE_END else None
    for name in ("axis", "axes") if found is not None else ():
        index, attribute = schema.formal_index(found, name), node.attributes.get(name)
        value = rng.choice(spellings(node, name, schema.plain(attribute.value))) if attribute is not None else None
        if attribute is not None and isinstance(value, int | tuple):
            node.attributes[name] = ir.convenience.convert_attribute(name, value, attribute.type)
        array = draft.array(input_of(node, index)) if index is not None else None
        if index is not None and array is not None:
            listed = schema.plain(array.tolist())
            node.replace_input_with(index, draft.constant(np.array(rng.choice(spellings(node, name, listed))), D.INT64))


def say_nothing(draft: Draft, node: ir.Node) -> None:
    """Write out an operand that may as well be left out: steps of one, a Pad by zero."""
    implied = TRAITS[node.op_type].implied if not node.domain and node.op_type in TRAITS else None
    index = schema.formal_index(schema.schema("", node.op_type, draft.opset), implied[0]) if implied else None
    if implied is None or index is None or input_of(node, index) is not None:
        return
    is_number = implied[0] in TRAITS[node.op_type].numbers
    like = input_of(node, 0 if is_number else 1)
    array = draft.array(like) if not is_number else np.zeros(())
    if array is not None and like is not None and like.dtype is not None:
        node.resize_inputs(max(index + 1, len(node.inputs)))
        node.replace_input_with(index, draft.constant(np.full(array.shape, implied[1]), like.dtype))


def respell_constant(draft: Draft, node: ir.Node, index: int, rng: random.Random, ranked: frozenset[str]) -> None:
    """Another form of a constant operand: a Constant node, an initializer, and of one element any rank that changes
    nothing, unless it is one of those whose rank the pattern says."""
    value = node.inputs[index]
    array = draft.array(value)
    dtype = value.dtype if value is not None else None
    if value is None or array is None or dtype is None:
        return
    may_vary = array.size == 1 and value.name not in ranked
    rank = _other_rank(node, index, rng) if may_vary else None
    if rank is not None:
        value = draft.constant(array.reshape([1] * rank), dtype)
    form = rng.choice(["initializer", "node", "plain", "as it is"])
    if form == "initializer" and rank is None:
        value = draft.constant(array, dtype)
    elif form in ("node", "plain"):
        value = _constant_node(draft, node, value, is_plain=form == "plain")
    node.replace_input_with(index, value)


def _other_rank(node: ir.Node, index: int, rng: random.Random) -> int | None:
    """A rank that changes nothing, for another operand has it, or a larger one."""
    if node.op_type not in BROADCASTING or node.domain or (node.op_type == "PRelu" and index == 0):
        return None
    others = [len(v.shape) for i, v in enumerate(node.inputs) if i != index and v is not None and v.shape is not None]
    return rng.randint(0, max(others)) if others else None


def _constant_node(draft: Draft, reader: ir.Node, value: ir.Value, *, is_plain: bool) -> ir.Value:
    """A Constant node that holds ``value``, ``plain`` by an attribute that is no tensor, where there is one."""
    array, dtype = draft.array(value), value.dtype
    assert array is not None
    assert dtype is not None
    name = {D.FLOAT: "value_float", D.INT64: "value_int"}.get(dtype) if array.ndim <= 1 else None
    if is_plain and name is not None and draft.opset >= 12 and array.size:
        data = array.tolist() if array.ndim else array.item()
        attributes = {name + ("s" if array.ndim else ""): data}
    else:
        attributes = {"value": ir.tensor(array, dtype=dtype)}
    made = draft.insert(reader, "Constant", [], attributes, like=value)
    made.shape = value.shape
    return made


def pass_through(draft: Draft, node: ir.Node, index: int, rng: random.Random) -> None:
    """An Identity, or a Cast to the dtype that is already there, before one operand."""
    value = node.inputs[index]
    if value is None or value.dtype is None or not isinstance(value.type, ir.TensorType):
        return
    if value.dtype in _CASTABLE and draft.opset >= 9 and rng.random() < 0.5:
        made = draft.insert(node, "Cast", [value], {"to": int(value.dtype)}, like=value)
    else:
        made = draft.insert(node, "Identity", [value], like=value)
    made.shape = value.shape
    node.replace_input_with(index, made)
