"""One thing changed in the part that a match covers: a constant, an attribute, an operator, an operand, a shape, a use.

Each function makes one random change and says what it was; None where there is nothing of its kind to change.  Whether
the changed graph is valid, and means something else, is found out by running it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.system.arrays import Array

Mistake: TypeAlias = Callable[[Draft, Sequence[ir.Node], random.Random], str | None]

ALIKE: tuple[tuple[str, ...], ...] = (
    ("Relu", "Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Identity"),
    ("Erf", "Tanh", "Sigmoid", "Exp", "Softplus", "Relu", "Softsign", "HardSwish", "Mish", "Gelu", "Swish"),
    ("Sqrt", "Exp", "Reciprocal", "Log", "Neg", "Abs", "Identity"),
    ("HardSigmoid", "Elu", "LeakyRelu", "Celu", "Selu", "Sigmoid"),
    ("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow"),
    ("Sum", "Mean", "Max", "Min"),
    ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"),
    ("And", "Or", "Xor"),
    ("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    ("Not", "Identity"),
    ("IsNaN", "IsInf"),
    ("Softmax", "LogSoftmax", "Hardmax"),
    ("Squeeze", "Unsqueeze"),
    ("Reshape", "Expand", "Tile"),
    ("Conv", "ConvTranspose"),
    ("MaxPool", "AveragePool", "LpPool"),
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
)
"""Operators that take one another's operands."""

PARTIAL = frozenset(operators(marks="partial"))
"""Operators that are NaN for ordinary inputs, and so none to put in place of others."""

WORDS: dict[str, tuple[str, ...]] = {
    "mode": ("constant", "reflect", "edge", "wrap"),
    "Resize.mode": ("nearest", "linear", "cubic"),
    "Upsample.mode": ("nearest", "linear"),
    "DepthToSpace.mode": ("DCR", "CRD"),
    "GridSample.mode": ("linear", "nearest", "cubic"),
    "RoiAlign.mode": ("avg", "max"),
    "padding_mode": ("zeros", "border", "reflection"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "approximate": ("none", "tanh"),
    "direction": ("forward", "reverse", "bidirectional"),
    "BitShift.direction": ("LEFT", "RIGHT"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "NegativeLogLikelihoodLoss.reduction": ("none", "mean", "sum"),
    "SoftmaxCrossEntropyLoss.reduction": ("none", "mean", "sum"),
    "coordinate_transformation_mode": ("half_pixel", "asymmetric", "align_corners", "tf_crop_and_resize"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "case_change_action": ("NONE", "LOWER", "UPPER"),
}
"""String attributes, of all operators or of one, and what they can be."""


def words(op_type: str, name: str) -> tuple[str, ...]:
    """The possible values of a string attribute of an operator; none where they are not known."""
    return WORDS.get(f"{op_type}.{name}") or WORDS.get(name, ())


COUNTS = frozenset(
    "group num_heads q_num_heads kv_num_heads num_groups num_outputs strides dilations kernel_shape blocksize p".split()
)
"""Attributes that count something: runtimes divide by them without asking whether they are zero."""


POSITIVE = frozenset("epsilon momentum".split())
"""Attributes that are never zero or negative."""


def _edges(nodes: Sequence[ir.Node]) -> list[tuple[ir.Node, int]]:
    return [(n, i) for n in nodes for i, v in enumerate(n.inputs) if v is not None]


def constant(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A constant operand by another number, everywhere or in one place."""
    edges = [(n, i) for n, i in _edges(nodes) if (a := draft.array(n.inputs[i])) is not None and a.size]
    if not edges:
        return None
    node, index = rng.choice(edges)
    value = node.inputs[index]
    array = draft.array(value)
    assert value is not None
    assert array is not None
    assert value.dtype is not None
    changed = _wrong(array, value.dtype, rng)
    if array.size > 1 and rng.random() < 0.7:
        place = rng.randrange(array.size)
        flat = array.ravel().copy()
        flat[place] = changed.ravel()[place]
        changed = flat.reshape(array.shape)
    node.replace_input_with(index, draft.constant(changed, value.dtype))
    return f"operand {index} of {node.op_type} is {_shown(changed)}, was {_shown(array)}"


def _wrong(array: Array, dtype: ir.DataType, rng: random.Random) -> Array:
    if dtype == ir.DataType.BOOL:
        return ~array
    if dtype.is_floating_point():
        wide = array.astype(np.float64)
        return rng.choice((wide * 1.07 + 0.03, wide * 1.07 + 0.03, wide * 1.01, wide * 0.99)).astype(array.dtype)
    step = rng.choice((1, -1)) if dtype.is_signed() else 1
    return np.asarray(array + array.dtype.type(step))


def _shown(array: Array) -> str:
    return str(array.ravel()[:8].tolist())


def attribute(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An attribute by another value, also one that was left at its default."""
    found = attributes(draft, nodes)
    rng.shuffle(found)
    changed = (change_attribute(draft, node, name, rng) for node, name in found)
    return next((what for what in changed if what is not None), None)


def attributes(draft: Draft, nodes: Sequence[ir.Node]) -> list[tuple[ir.Node, str]]:
    """The attributes that nodes have, or could have."""
    found = []
    for node in nodes:
        known = schema.schema(node.domain, node.op_type, _version(draft, node))
        names = dict.fromkeys((*node.attributes, *(known.attributes if known is not None else ())))
        found += [(node, name) for name in names]
    return found


def change_attribute(draft: Draft, node: ir.Node, name: str, rng: random.Random) -> str | None:
    """Another value for an attribute; None where there is no telling which could be."""
    given = node.attributes.get(name)
    known = schema.schema(node.domain, node.op_type, _version(draft, node))
    old = given.value if given is not None else _default(node, name, known)
    new = _other(node.op_type, name, old, rng)
    if new is None or new == old:
        return None
    (node.attributes[name],) = ir.convenience.convert_attributes({name: new})
    return f"{name} of {node.op_type} is {new!r}, was {old!r}"


def _default(node: ir.Node, name: str, known: schema.Schema | None) -> AttributeValue:
    """The value that an attribute has by default; None where it has no default."""
    default = known.attributes[name].default if known is not None else None
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if default is not None or shape is None or len(shape) < 3 or "kernel_shape" not in getattr(known, "attributes", ()):
        return default
    spatial = len(shape) - 2
    return {"strides": [1] * spatial, "dilations": [1] * spatial, "pads": [0] * (2 * spatial)}.get(name)


def _version(draft: Draft, node: ir.Node) -> int:
    return node.version if node.version is not None else draft.model.opset_imports.get(node.domain, 1)


def _other(op_type: str, name: str, old: object, rng: random.Random) -> AttributeValue:
    if isinstance(old, float):
        others = (old * 1.07 + 0.03, old * 1.07 + 0.03, *((-old, 0.0, 1.0, 2 * old) if name not in POSITIVE else ()))
        with np.errstate(over="ignore"):
            return float(np.float32(rng.choice(others)))  # as it is stored
    if isinstance(old, int):
        if name in COUNTS:
            return old + 1
        return 1 - old if old in (0, 1) else old + rng.choice((1, -1))
    if isinstance(old, str):
        texts = [w for w in words(op_type, name) if w != old]
        return rng.choice(texts) if texts else None
    if isinstance(old, list | tuple) and old and all(isinstance(e, int | float) for e in old):
        new = list(old)
        if name in COUNTS and rng.random() < 0.5:
            step = rng.choice((1, 2))
            new = [n + step for n in new]
        elif len(set(new)) > 1 and rng.random() < 0.5:
            a, b = rng.sample(range(len(new)), 2)
            new[a], new[b] = new[b], new[a]
        else:
            new[rng.randrange(len(new))] += 1 if name in COUNTS else rng.choice((1, -1))
        return new
    return None


def operator(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An operator by one that takes the same operands; attributes that it does not have go."""
    candidates = [
        (node, other)
        for node in nodes
        if not node.domain
        for group in ALIKE
        if node.op_type in group
        for other in group
        if other != node.op_type and other not in PARTIAL
    ]
    if not candidates:
        return None
    node, other = rng.choice(candidates)
    old = node.op_type
    become(node, other, draft.opset)
    return f"{other} for {old} `{node.name}`"


def become(node: ir.Node, op_type: str, version: int) -> None:
    """Make another operator of a node, in place; attributes that this one does not have go."""
    known = schema.schema(node.domain, op_type, version)
    for name in list(node.attributes):
        if known is None or name not in known.attributes:
            del node.attributes[name]
    node.op_type = op_type


def operand(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An operand by another value of the same dtype and shape: a new input, or one that the graph has."""
    edges = _edges(nodes)
    if not edges:
        return None
    node, index = rng.choice(edges)
    old = node.inputs[index]
    if old is None or old.dtype is None or old.shape is None or not _declarable(draft, old.shape):
        return None
    others = [v for v in draft.graph.inputs if v is not old and v.dtype == old.dtype and v.shape == old.shape]
    new = rng.choice(others) if others and rng.random() < 0.5 else draft.add_input("other", old)
    node.replace_input_with(index, new)
    return f"operand {index} of {node.op_type} is `{new.name}`, was `{old.name}`"


def _declarable(draft: Draft, shape: ir.Shape) -> bool:
    """True if an input can have a shape: its dimensions are numbers or those of other inputs."""
    known = {str(d) for v in draft.graph.inputs if v.shape is not None for d in v.shape if not isinstance(d, int)}
    return all(isinstance(d, int) or str(d) in known for d in shape)


def extra(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """One more operand: of an operator that takes many, or one that was left out."""
    found: list[tuple[ir.Node, ir.Value]] = []
    for node in nodes:
        known = schema.schema(node.domain, node.op_type, _version(draft, node))
        first = node.inputs[0] if node.inputs else None
        if known is None or first is None or len(node.inputs) >= known.max_inputs:
            continue
        formal = known.inputs[min(len(node.inputs), len(known.inputs) - 1)]
        if formal.variadic:
            found.append((node, first))
        elif formal.types == {"tensor(bool)"}:
            found.append((node, draft.constant(np.asarray(True), ir.DataType.BOOL)))
        elif formal.type_var == known.inputs[0].type_var and first.dtype in FLOATS:
            found.append((node, draft.constant(_another(draft, node), first.dtype or ir.DataType.FLOAT)))
    if not found:
        return None
    node, value = rng.choice(found)
    node.resize_inputs(len(node.inputs) + 1)
    node.replace_input_with(len(node.inputs) - 1, value)
    return f"{node.op_type} has one operand more, `{value.name}`"


def _another(draft: Draft, node: ir.Node) -> Array:
    """A number, or of a convolution, which has a bias there, one for each channel."""
    weight = (
        draft.array(node.inputs[1]) if node.op_type in ("Conv", "ConvTranspose") and len(node.inputs) == 2 else None
    )
    if weight is None or weight.ndim < 3:
        return np.asarray(0.53)
    group = node.attributes.get_int("group", 1)
    channels = len(weight) if node.op_type == "Conv" else weight.shape[1] * group
    return 0.53 + np.arange(channels)


def order(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Two operands of one node exchanged."""
    candidates = [n for n in nodes if len({id(v) for v in n.inputs if v is not None}) > 1]
    if not candidates:
        return None
    node = rng.choice(candidates)
    a, b = rng.sample(range(len(node.inputs)), 2)
    first, second = node.inputs[a], node.inputs[b]
    if first is second:
        return None
    node.replace_input_with(a, second)
    node.replace_input_with(b, first)
    return f"operands {a} and {b} of {node.op_type} exchanged"


def shape(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """One dimension of an input: another size, another name, unknown."""
    read = {v for n in nodes for v in n.inputs if v is not None and v.is_graph_input()}
    candidates = [v for v in draft.graph.inputs if v in read and v.shape is not None and len(v.shape)]
    if not candidates:
        return None
    value = rng.choice(candidates)
    assert value.shape is not None
    dims: list[Dim | str | None] = list(value.shape)
    place = rng.randrange(len(dims))
    old = dims[place]
    dims[place] = rng.choice((old + 1, "another", 1)) if isinstance(old, int) else rng.choice(("another", 1, 2))
    value.shape = ir.Shape(dims)
    return f"dimension {place} of `{value.name}` is {dims[place]}, was {old}"


def export(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An inner value that is a result of the graph, too."""
    value = _inner(nodes, rng)
    if value is None:
        return None
    draft.graph.outputs.append(value)
    return f"`{value.name}` is an output"


def reader(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An inner value that is read by another node, too."""
    value = _inner(nodes, rng)
    node = value.producer() if value is not None else None
    if value is None or node is None:
        return None
    new = ir.Node("", "Identity", [value], name=draft.fresh("reader"))
    new.outputs[0].name = draft.fresh("read")
    draft.graph.append(new)
    draft.graph.outputs.append(new.outputs[0])
    return f"`{value.name}` is read by another node"


def _inner(nodes: Sequence[ir.Node], rng: random.Random) -> ir.Value | None:
    """A value that one of these nodes computes for another of them."""
    values = [o for n in nodes for o in n.outputs if any(c in nodes for c in o.consumers()) and not o.is_graph_output()]
    return rng.choice(values) if values else None


def overridable(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A constant that the caller may override."""
    values = [v for n in nodes for v in n.inputs if v is not None and v.is_initializer() and not v.is_graph_input()]
    if not values:
        return None
    value = rng.choice(values)
    draft.graph.inputs.append(value)
    return f"`{value.name}` can be overridden"


MEANING: tuple[Mistake, ...] = (
    *(constant, constant, attribute, attribute, operator, operator),
    *(operand, extra, order, shape),
)
"""Changes after which the graph means something else."""

USE: tuple[Mistake, ...] = (export, reader, overridable)
"""Changes of who may see or set a value: the graph computes what it did, and more is asked of the rewrite."""
