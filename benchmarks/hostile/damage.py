"""Models damaged at random: bits and bytes, pieces of other files, and protobuf fields that say something else.

Everything is drawn from the ``random.Random`` that is handed over, so an example is its seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

Change: TypeAlias = Callable[[random.Random, onnx.ModelProto], object]

NUMBERS = (0, 1, 2, 3, 5, 7, 22, 99, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "y", "ai.onnx", "com.microsoft", "own", "../model.bin", "\0", "ä\n", "9**9**9**9", "N", "a" * 3000)
OPERATORS = (
    *("Add", "Mul", "MatMul", "Relu", "Reshape", "Transpose", "Concat", "Split", "Shape", "Gather", "Cast", "Expand"),
    *("Softmax", "Conv", "If", "Loop", "Constant", "Slice", "Squeeze", "Gelu", "Attention", "Nonsense", "Identity"),
)


def damaged(dice: random.Random, models: Sequence[bytes]) -> bytes:
    """One of the models, or its bytes, changed in one to four places."""
    data = dice.choice(models)
    if dice.random() < 0.25:
        for _ in range(dice.randint(1, 4)):
            data = dice.choice(_BYTES)(dice, data, dice.choice(models))
        return data
    model = onnx.ModelProto()
    model.ParseFromString(data)
    other = onnx.ModelProto()
    other.ParseFromString(dice.choice(models))
    for _ in range(dice.randint(1, 4)):
        change: Any = dice.choice((*_CHANGES, splice))
        if change is splice:
            splice(dice, model, other)
        else:
            change(dice, model)
    return bytes(model.SerializeToString())


# -- bytes ---------------------------------------------------------------------------------------------------------


def _flip(dice: random.Random, data: bytes, other: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        if found:
            found[dice.randrange(len(found))] ^= 1 << dice.randrange(8)
    return bytes(found)


def _truncate(dice: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _insert(dice: random.Random, data: bytes, other: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.randbytes(dice.randint(1, 20)) + data[at:]


def _delete(dice: random.Random, data: bytes, other: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + data[at + dice.randint(1, 20) :]


def _transplant(dice: random.Random, data: bytes, other: bytes) -> bytes:
    at, start = dice.randrange(len(data) + 1), dice.randrange(len(other) + 1)
    return data[:at] + other[start : start + dice.randint(1, 400)] + data[at + dice.randint(0, 400) :]


_BYTES = (_flip, _truncate, _insert, _delete, _transplant)


# -- fields --------------------------------------------------------------------------------------------------------


def messages(message: Message) -> list[Any]:
    """A message and all that it holds."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if hasattr(value, "__len__") else [value]:
                found += messages(each)
    return found


def any_field(dice: random.Random, model: onnx.ModelProto) -> None:
    """A field of any message in the model gets another value, is cleared, repeated, shuffled or shortened."""
    message = dice.choice(messages(model))
    fields = [(f, v) for f, v in message.ListFields() if f.name != "raw_data"]
    if not fields:
        return
    field, value = dice.choice(fields)
    if dice.random() < 0.15:
        message.ClearField(field.name)
    elif field.message_type is not None:
        _submessage(dice, value)
    elif hasattr(value, "extend"):
        _elements(dice, value, model)
    else:
        _set(message, field.name, _like(dice, value, model))


def _submessage(dice: random.Random, value: Any) -> None:
    if not hasattr(value, "add"):
        dice.choice(messages(value)).Clear()
        return
    at = dice.randrange(len(value))
    match dice.randrange(3):
        case 0:
            value.add().CopyFrom(value[at])
        case 1:
            del value[at]
        case _:
            value[at].Clear()


def _elements(dice: random.Random, value: Any, model: onnx.ModelProto) -> None:
    items = list(value)
    match dice.randrange(4):
        case 0:
            items.append(dice.choice(items))
        case 1:
            del items[dice.randrange(len(items))]
        case 2:
            dice.shuffle(items)
        case _:
            at = dice.randrange(len(items))
            items[at] = _like(dice, items[at], model)
    before = list(value)
    try:
        value[:] = items
    except (ValueError, TypeError):  # out of the field's range
        value[:] = before


def _like(dice: random.Random, value: Any, model: onnx.ModelProto) -> Any:
    """Another value of the same type."""
    if isinstance(value, str):
        return dice.choice((*TEXTS, *_names(model)))
    if isinstance(value, bytes):
        return dice.choice((b"", b"\xff", dice.randbytes(9), b"constant", b"NOTSET"))
    if isinstance(value, float):
        return dice.choice((0.0, -1.0, float("nan"), float("inf"), 1e-45, 3e38, value * 2))
    return dice.choice((*NUMBERS, value + 1, -value))


def _set(message: Any, name: str, value: Any) -> None:
    try:
        setattr(message, name, value)
    except (ValueError, TypeError):  # out of the field's range, or no such enumerator
        message.ClearField(name)


def _names(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    given = [v.name for v in (*graph.input, *graph.initializer, *graph.output)]
    return given + [o for n in graph.node for o in n.output]


# -- graphs --------------------------------------------------------------------------------------------------------


def _node(dice: random.Random, model: onnx.ModelProto) -> NodeProto:
    found = [m for m in messages(model) if isinstance(m, NodeProto)]
    return dice.choice(found) if found else NodeProto()


def swap_inputs(dice: random.Random, model: onnx.ModelProto) -> None:
    """The operands of a node in another order."""
    node = _node(dice, model)
    names = list(node.input)
    dice.shuffle(names)
    node.input[:] = names


def rewire(dice: random.Random, model: onnx.ModelProto) -> None:
    """A node reads another value, perhaps one that depends on it."""
    node = _node(dice, model)
    if node.input:
        node.input[dice.randrange(len(node.input))] = dice.choice(("", *_names(model)))


def operator(dice: random.Random, model: onnx.ModelProto) -> None:
    """A node of another operator."""
    node = _node(dice, model)
    node.op_type = dice.choice((*OPERATORS, *(n.op_type for n in model.graph.node)))
    if dice.random() < 0.2:
        node.domain = dice.choice(("", "ai.onnx", "com.microsoft", "own", "ai.onnx.ml"))


def output(dice: random.Random, model: onnx.ModelProto) -> None:
    """A node defines a value that there is already, or one output more."""
    node = _node(dice, model)
    name = dice.choice(("", "more", *_names(model)))
    if node.output and dice.random() < 0.5:
        node.output[dice.randrange(len(node.output))] = name
    else:
        node.output.append(name)


def lie(dice: random.Random, model: onnx.ModelProto) -> None:
    """A value that is said to be of another type or shape."""
    graph = model.graph
    known = [*graph.value_info, *graph.input, *graph.output]
    if known and dice.random() < 0.6:
        info = dice.choice(known)
    else:
        info = graph.value_info.add(name=dice.choice(_names(model) or ["x"]))
    _retype(dice, info)


def _retype(dice: random.Random, info: ValueInfoProto) -> None:
    tensor = info.type.tensor_type
    match dice.randrange(4):
        case 0:
            tensor.elem_type = dice.choice((0, 1, 7, 9, 8, 10, 16, 99, -1))
        case 1:
            shape = [dice.choice((0, 1, 3, -1, 2**40, "n", "", "n*n", "9**9**9**9", None)) for _ in range(3)]
            info.CopyFrom(helper.make_tensor_value_info(info.name, 1, shape[: dice.randint(0, 3)]))
        case 2 if tensor.shape.dim:
            dim = dice.choice(tensor.shape.dim)
            dim.dim_value = dice.choice(NUMBERS)
        case _:
            info.type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))


def attribute(dice: random.Random, model: onnx.ModelProto) -> None:
    """An attribute of another type, a huge one, or one that the operator does not have."""
    node = _node(dice, model)
    names = [a.name for a in node.attribute]
    name = dice.choice((*names, "axis", "perm", "value", "to", "then_branch"))
    for index in [i for i, a in enumerate(node.attribute) if a.name == name][::-1]:
        del node.attribute[index]
    value = dice.choice((1, -1, 2**62, 1.5, "text", [0, 1], [1.0], ["a"], [2**40, 2**40], [-1] * 9))
    node.attribute.append(helper.make_attribute(name, value))
    if dice.random() < 0.2:
        node.attribute[-1].type = dice.choice(AttributeProto.AttributeType.values())


def tensor(dice: random.Random, model: onnx.ModelProto) -> None:
    """A constant of another dtype, shape or place."""
    found = [m for m in messages(model) if isinstance(m, TensorProto)]
    if not found:
        return
    chosen = dice.choice(found)
    match dice.randrange(3):
        case 0:
            chosen.data_type = dice.choice((*range(24), 99, -1))
        case 1:
            chosen.dims[:] = [dice.choice(NUMBERS) for _ in range(dice.randint(0, 3))]
        case _:
            chosen.data_location = TensorProto.EXTERNAL
            for key in ("location", "offset", "length"):
                chosen.external_data.add(key=key, value=dice.choice(("0", "-1", *TEXTS)))


def versions(dice: random.Random, model: onnx.ModelProto) -> None:
    """Another opset or IR version."""
    if dice.random() < 0.3:
        model.ir_version = dice.choice((0, 3, 4, 10, 13, 99, -1))
    elif model.opset_import:
        dice.choice(model.opset_import).version = dice.choice((*range(1, 27), *NUMBERS))


def drop(dice: random.Random, model: onnx.ModelProto) -> None:
    """A node, a weight, an input or an output less."""
    parts = [p for p in (model.graph.node, model.graph.initializer, model.graph.input, model.graph.output) if p]
    if parts:
        chosen = dice.choice(parts)
        del chosen[dice.randrange(len(chosen))]


def nest(dice: random.Random, model: onnx.ModelProto) -> None:
    """A copy of the graph in an attribute of one of its nodes."""
    inner = GraphProto()
    inner.CopyFrom(model.graph)
    node = _node(dice, model)
    node.attribute.append(helper.make_attribute(dice.choice(("then_branch", "else_branch", "body")), inner))


def splice(dice: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Nodes and weights of another model beside or instead of some."""
    graph, more = model.graph, other.graph
    chosen = [n for n in more.node if dice.random() < 0.5]
    if dice.random() < 0.5:
        del graph.node[len(graph.node) // 2 :]
    graph.node.extend(chosen)
    known = {t.name for t in graph.initializer}
    graph.initializer.extend(t for t in more.initializer if t.name not in known or dice.random() < 0.1)


_CHANGES: tuple[Change, ...] = (
    *(any_field, any_field, any_field, swap_inputs, rewire, operator, output, lie),
    *(lie, attribute, tensor, versions, drop, nest),
)


def parsed(data: bytes) -> onnx.ModelProto | None:
    """The model in some bytes, if there is one."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return None
    return model
