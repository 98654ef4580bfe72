"""What can be changed in a graph and leave a rule that is right, right: by the same functions that make near misses,
and by some that change what is known of a value, not its meaning.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.verify.respell import mistakes
from onnxrewrite.verify.respell.draft import Draft
from onnxrewrite.verify.respell.mistakes import Mistake

NEWEST = 23
"""The highest opset that graphs are moved to."""


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


def made_input(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A constant that is an input."""
    values = [
        (n, i)
        for n in nodes
        for i, v in enumerate(n.inputs)
        if (array := draft.array(v)) is not None and v is not None and v.dtype in FLOATS and array.ndim
    ]
    if not values:
        return None
    node, index = rng.choice(values)
    old = node.inputs[index]
    assert old is not None
    node.replace_input_with(index, draft.add_input("fed", old))
    return f"operand {index} of {node.op_type} is an input"


def special(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Elements of a constant that are zero, negative, or far apart."""
    edges = [
        (n, i)
        for n in nodes
        for i, v in enumerate(n.inputs)
        if (array := draft.array(v)) is not None and v is not None and v.dtype in FLOATS and array.size > 1
    ]
    if not edges:
        return None
    node, index = rng.choice(edges)
    array, value = draft.array(node.inputs[index]), node.inputs[index]
    assert array is not None
    assert value is not None
    assert value.dtype is not None
    changed = array.astype(np.float64).ravel()
    number = rng.choice((0.0, -1.5, 100.0, 1.0))
    changed[rng.randrange(changed.size)] = number
    node.replace_input_with(index, draft.constant(changed.reshape(array.shape), value.dtype))
    return f"an element of operand {index} of {node.op_type} is {number}"


def scattered(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Tensors of constants by any numbers of their size: those of examples are round, and often neutral."""
    edges = [
        (n, i)
        for n in nodes
        for i, v in enumerate(n.inputs)
        if (array := draft.array(v)) is not None and v is not None and v.dtype in FLOATS and array.ndim
    ]
    for node, index in edges:
        value, array = node.inputs[index], draft.array(node.inputs[index])
        assert array is not None
        assert value is not None
        assert value.dtype is not None
        largest = float(np.abs(array.astype(np.float64)).max(initial=1.0))
        numbers = [rng.uniform(0.2, 1.0) * min(largest, 8.0) for _ in range(array.size)]
        node.replace_input_with(index, draft.constant(np.array(numbers).reshape(array.shape), value.dtype))
    return "any numbers for constants" if edges else None


def opset(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A later opset, in which some operators mean the same and some do not."""
    now = draft.opset
    if now >= NEWEST:
        return None
    draft.model.opset_imports[""] = rng.randint(now + 1, NEWEST)
    return f"opset {draft.opset}"


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
    *(mistakes.attribute, mistakes.attribute, mistakes.constant, mistakes.operand, mistakes.extra, mistakes.order),
    *(mistakes.shape, mistakes.operator, mistakes.export, mistakes.reader, mistakes.overridable),
    *(loosened, tightened, repeated, made_input, special, special, scattered, scattered, opset, plain_default, fewer),
)
