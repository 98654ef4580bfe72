"""Changes of a graph under which a correct rule stays correct: by the same functions that make near misses, and by some
that change what is known of a value, not its meaning.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.terms import FLOATS, INTS
from onnxrewrite.rewrite import edit
from onnxrewrite.ruletest.fuzz.coupled import alike, attributes_together, constants_together, resized
from onnxrewrite.ruletest.metamorphic import mutations
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.mutations import Mistake
from onnxrewrite.system.arrays import Array

OLDEST, NEWEST = 9, 23
"""The opsets that graphs are moved to."""

_VEIL = "veil/"

_SHORT = 16
"""An integer constant of more elements is no list of axes, sizes or ends."""


def loosened(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Every dimension of an input symbolic, or its shape unknown."""
    candidates = [v for v in draft.graph.inputs if v.shape is not None and len(v.shape)]
    if not candidates:
        return None
    value = rng.choice(candidates)
    assert value.shape is not None
    value.shape = ir.Shape([f"{value.name}_{axis}" for axis in range(len(value.shape))])
    return f"`{value.name}` has any size"


def tightened(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A symbolic dimension that is a number, everywhere: also zero and one."""
    names = {str(d) for v in draft.graph.inputs if v.shape is not None for d in v.shape if not isinstance(d, int)}
    if not names:
        return None
    name, size = rng.choice(sorted(names)), rng.choice((0, 1, 2, 3, 5))
    for value in draft.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape([size if str(d) == name else d for d in value.shape])
    return f"{name} is {size}"


def raised(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Inputs of one rank more: at the front, at the end, or in between."""
    shaped = [v for v in draft.graph.inputs if v.shape is not None and not v.is_initializer()]
    if not shaped:
        return None
    size, place = rng.choice((1, 2, 3, "more", "more")), rng.choice((0, 0, None, None, 1))
    for value in shaped:
        dims = list(value.shape or ())
        at = len(dims) if place is None else place
        value.shape = ir.Shape([*dims[:at], size, *dims[at:]])
    return f"every input has a dimension of {size} more, {'the last' if place is None else f'at {place}'}"


def unranked(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An operand of unknown rank."""
    edges = [(n, i, v) for n in nodes for i, v in enumerate(n.inputs) if v is not None and draft.array(v) is None]
    edges = [(n, i, v) for n, i, v in edges if v.shape is not None and v.dtype is not None]
    if not edges:
        return None
    node, index, value = rng.choice(edges)
    node.replace_input_with(index, without_rank(draft, node, value))
    return f"the rank of operand {index} of {node.op_type} is unknown"


def without_rank(draft: Draft, before: ir.Node, value: ir.Value) -> ir.Value:
    """A value reshaped to its own shape, of which every element is picked."""
    sizes = _picked(draft, before, _veiled(draft.insert(before, "Shape", [value])), len(value.shape or ()))
    return _veiled(draft.insert(before, "Reshape", [value, sizes], like=value))


def without_sizes(draft: Draft, before: ir.Node, value: ir.Value) -> ir.Value:
    """A value reshaped to its own shape, to which is added what is always nothing: its rank is known, no size is."""
    switch = _switch(draft)
    never = _veiled(draft.insert(before, "And", [switch, _veiled(draft.insert(before, "Not", [switch]))]))
    nothing = _veiled(draft.insert(before, "Cast", [never], {"to": int(ir.DataType.INT64)}))
    sizes = _veiled(draft.insert(before, "Add", [_veiled(draft.insert(before, "Shape", [value])), nothing]))
    return _veiled(draft.insert(before, "Reshape", [value, sizes], like=value))


def hidden(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A list of constant integers, axes, sizes or ends, that is known only when it is run: every element is picked."""
    found = [c for c in _constants(draft, nodes, INTS) if c[2].ndim == 1]
    if not found:
        return None
    node, index, array, _ = rng.choice(found)
    value = node.inputs[index]
    assert value is not None
    node.replace_input_with(index, _picked(draft, node, value, len(array)))
    return f"operand {index} of {node.op_type} is not known before it is run"


def _picked(draft: Draft, before: ir.Node, value: ir.Value, length: int) -> ir.Value:
    """The same list, picked by what is always true, for all that can be known of an input."""
    switch = _switch(draft)
    off = draft.constant(np.zeros(length, np.bool_), ir.DataType.BOOL)
    other = _veiled(draft.insert(before, "Not", [switch]))
    always = _veiled(draft.insert(before, "Or", [_veiled(draft.insert(before, "Or", [switch, other])), off]))
    return _veiled(draft.insert(before, "Compress", [value, always], like=value))


def _switch(draft: Draft) -> ir.Value:
    """A new input that is true or false."""
    switch = ir.Value(name=draft.fresh("switch"), type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    draft.graph.inputs.append(switch)
    return switch


def _veiled(value: ir.Value) -> ir.Value:
    """The output of a node that hides something, and is not to be varied itself."""
    node = value.producer()
    assert node is not None
    node.name = f"{_VEIL}{node.name}"
    return value


def unveiled(model: ir.Model) -> ir.Model:
    """A copy in which nothing is hidden: what can be told of its shapes tells whether it is valid."""
    draft = Draft(model)
    for node in [n for n in draft.graph if is_veil(n) and n.op_type in ("Reshape", "Compress")]:
        source = node.inputs[0]
        if source is not None:
            edit.redirect(node.outputs[0], source)
    return draft.done()


def told(model: ir.Model) -> ir.Model:
    """A copy in which every list of integers that can be told is a constant: the standard's own shape inference reads
    few others."""
    draft = Draft(model)
    schema.date(draft.model)
    facts = Facts(draft.graph, dict(draft.model.opset_imports))
    for value in [v for n in draft.graph if n.op_type != "Constant" for v in n.outputs if not v.is_graph_output()]:
        elements = facts.elements(value)
        if elements and value.dtype and value.shape is not None and all(isinstance(e, int) for e in elements):
            draft.replace(value, draft.constant(np.array(elements).reshape([-1] * len(value.shape)), value.dtype))
    return draft.done()


def is_veil(node: ir.Node) -> bool:
    """True if a node only hides what is known of a value."""
    return str(node.name).startswith(_VEIL)


def repeated(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """One input in the place of another."""
    inputs = [v for v in draft.graph.inputs if v.uses() and not v.is_initializer()]
    pairs = [(a, b) for a in inputs for b in inputs if a is not b and a.dtype == b.dtype and a.shape == b.shape]
    if not pairs:
        return None
    kept, gone = rng.choice(pairs)
    for node, index in tuple(gone.uses()):
        node.replace_input_with(index, kept)
    return f"`{kept.name}` stands for `{gone.name}`, too"


def _constants(
    draft: Draft, nodes: Sequence[ir.Node], dtypes: Collection[ir.DataType], least: int = 1
) -> list[tuple[ir.Node, int, Array, ir.DataType]]:
    """Constant operands of so many elements: the node, which of its inputs, the array and its dtype."""
    found = []
    for node in nodes:
        for index, value in enumerate(node.inputs):
            array = draft.array(value)
            dtype = value.dtype if value is not None else None
            if array is not None and dtype is not None and dtype in dtypes and array.size >= least:
                found.append((node, index, array, dtype))
    return found


def made_input(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A constant that is an input."""
    found = [c for c in _constants(draft, nodes, FLOATS) if c[2].ndim]
    if not found:
        return None
    node, index, _, _ = rng.choice(found)
    old = node.inputs[index]
    assert old is not None
    node.replace_input_with(index, draft.add_input("fed", old))
    return f"operand {index} of {node.op_type} is an input"


def special(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An element of a constant that is zero, negative, or far from the others."""
    found = _constants(draft, nodes, FLOATS)
    if not found:
        return None
    node, index, array, dtype = rng.choice(found)
    changed, number = array.astype(np.float64).ravel(), rng.choice((0.0, -1.5, 100.0, 1.0))
    changed[rng.randrange(changed.size)] = number
    node.replace_input_with(index, draft.constant(changed.reshape(array.shape), dtype))
    return f"an element of operand {index} of {node.op_type} is {number}"


def scattered(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Tensors of constants by any numbers of their size: those of examples are round, and often neutral."""
    found = [c for c in _constants(draft, nodes, FLOATS) if c[2].ndim]
    for node, index, array, dtype in found:
        largest = float(np.abs(array.astype(np.float64)).max(initial=1.0))
        numbers = [rng.uniform(0.2, 1.0) * min(largest, 8.0) for _ in range(array.size)]
        node.replace_input_with(index, draft.constant(np.array(numbers).reshape(array.shape), dtype))
    return "any numbers for constants" if found else None


def opset(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Another opset, in which some operators mean the same and some do not."""
    others = [v for v in range(OLDEST, NEWEST + 1) if v != draft.opset and _has_all(draft, v)]
    if not others:
        return None
    older = [v for v in others if v < draft.opset]
    draft.model.opset_imports[""] = rng.choice(older if older and rng.random() < 0.5 else others)
    return f"opset {draft.opset}"


def _has_all(draft: Draft, opset: int) -> bool:
    """True if an opset has every operator of the model that the model's own opset has."""
    standard = [n.op_type for n in draft.graph if not n.domain]
    return all(schema.schema("", o, opset) or not schema.schema("", o, draft.opset) for o in standard)


def turned(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A constant that varies along another axis."""
    found = _constants(draft, nodes, (*FLOATS, *INTS), least=2)
    if not found:
        return None
    node, index, array, dtype = rng.choice(found)
    spread = array.reshape(*array.shape, *[1] * rng.randint(0, 2)) if array.ndim < 2 else array
    axes = rng.sample(range(spread.ndim), spread.ndim)
    node.replace_input_with(index, draft.constant(spread.transpose(axes), dtype))
    return f"operand {index} of {node.op_type} has its axes in the order {axes}"


def along_others(draft: Draft, nodes: Sequence[ir.Node]) -> list[Callable[[], str]]:
    """Changes: of every constant that varies along one of several axes, along each other one."""

    def change(node: ir.Node, index: int, array: Array, dtype: ir.DataType) -> str:
        node.replace_input_with(index, draft.constant(array, dtype))
        return f"operand {index} of {node.op_type} has shape {list(array.shape)}"

    found = [c for c in _constants(draft, nodes, (*FLOATS, *INTS), least=2) if max(c[2].shape) == c[2].size]
    return [
        partial(change, node, index, np.moveaxis(array, array.shape.index(array.size), other), dtype)
        for node, index, array, dtype in found
        for other in range(array.ndim)
        if array.shape[other] == 1
    ]


def indexed(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Elements of an integer constant, an axis, a size or an end, at the edges of what they may be."""
    found = [c for c in _constants(draft, nodes, INTS) if c[2].size <= _SHORT]
    if not found:
        return None
    node, index, array, dtype = rng.choice(found)
    changed = array.ravel().copy()
    for _ in range(rng.choice((1, 1, 2))):
        changed[rng.randrange(changed.size)] = rng.choice((0, -1, 1, -2, 2, 100, -100))
    node.replace_input_with(index, draft.constant(changed.reshape(array.shape), dtype))
    return f"operand {index} of {node.op_type} is {changed.tolist()}"


def outputs(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """All outputs that a node can have, and an attribute off its default: another mode often has more of them."""
    short = []
    for node in nodes:
        known = schema.schema(node.domain, node.op_type, draft.opset)
        if known is not None and len(node.outputs) < len(known.outputs) and not known.outputs[-1].variadic:
            short.append((node, len(known.outputs)))
    if not short:
        return None
    node, count = rng.choice(short)
    node.resize_outputs(count)
    for output in node.outputs:
        output.name = output.name or draft.fresh("more")
    return f"{node.op_type} has {count} outputs, {mutations.attribute(draft, [node], rng)}"


def plain_default(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """An attribute that is left out."""
    given = [(n, name) for n in nodes for name in n.attributes if n.op_type != "Constant"]
    if not given:
        return None
    node, name = rng.choice(given)
    del node.attributes[name]
    return f"{node.op_type} leaves out {name}"


def fewer(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """One operand less at the end."""
    long = [n for n in nodes if len(n.inputs) > 1]
    if not long:
        return None
    node = rng.choice(long)
    node.resize_inputs(len(node.inputs) - 1)
    return f"{node.op_type} has {len(node.inputs)} operands"


VARIATIONS: tuple[Mistake, ...] = (
    *(mutations.attribute, mutations.attribute, mutations.attribute, mutations.attribute),
    *(mutations.constant, mutations.constant, mutations.operand, mutations.extra, mutations.order),
    *(mutations.shape, mutations.operator, mutations.export, mutations.reader, mutations.overridable),
    *(
        loosened,
        tightened,
        unranked,
        raised,
        repeated,
        made_input,
        special,
        special,
        scattered,
        scattered,
        turned,
        indexed,
    ),
    *(opset, opset, opset, plain_default, fewer, outputs),
    *(attributes_together, attributes_together, constants_together, constants_together, resized, resized, alike),
)
