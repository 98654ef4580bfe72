"""Changes of several things at once that belong together: a guard that asks for two equal ones refuses each alone.

Two attributes of one name and value, or two constants of the same numbers, get another one together; so do a
permutation and its inverse, a number and its negative or reciprocal.  A size changes wherever it stands: in the shapes
of inputs, in weights, in lists of sizes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.ruletest.metamorphic.draft import Draft
from onnxrewrite.ruletest.metamorphic.mutations import change_attribute
from onnxrewrite.system.arrays import Array

_SHORT = 16
"""A list of integers of more elements says no sizes."""

_RELATIONS: tuple[Callable[[float], float], ...] = (lambda n: n, lambda n: -n, lambda n: 1 / n if n else n)
"""Functions by which a number may follow from another."""


class _Place(NamedTuple):
    """A constant operand."""

    node: ir.Node
    operand: int
    array: Array
    dtype: ir.DataType


def attributes_together(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Attributes of one name that have the same value, or are permutations inverse to each other, changed alike."""
    groups = defaultdict[tuple[str, str], list[ir.Node]](list)
    for node in nodes:
        for name, attribute in node.attributes.items():
            if not attribute.is_ref() and attribute.type in _PLAIN:
                value = attribute.value
                inverse = np.argsort(value).tolist() if name == "perm" else value
                groups[name, str(min(list(value), inverse) if name == "perm" else value)].append(node)
    several = [(name, group) for (name, _), group in groups.items() if len(group) > 1]
    if not several:
        return None
    name, (first, *others) = rng.choice(several)
    old = first.attributes[name].value
    what = _turned(first, rng) if name == "perm" else change_attribute(draft, first, name, rng)
    if what is None:
        return None
    new = first.attributes[name].value
    for node in others:
        value = new if list_of(node.attributes[name].value) == list_of(old) else np.argsort(new).tolist()
        (node.attributes[name],) = ir.convenience.convert_attributes({name: value})
    return f"{what}, and so of {len(others)} more"


_PLAIN = (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING, ir.AttributeType.INTS)


def list_of(value: object) -> object:
    """Lists and tuples as lists."""
    return list(value) if isinstance(value, list | tuple) else value


def _turned(node: ir.Node, rng: random.Random) -> str | None:
    """Any other permutation."""
    old = list(node.attributes["perm"].value)
    new = rng.sample(old, len(old))
    if new == old:
        return None
    (node.attributes["perm"],) = ir.convenience.convert_attributes({"perm": new})
    return f"perm of {node.op_type} is {new}, was {old}"


def constants_together(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """Constants of the same numbers, or numbers that are negatives or reciprocals of each other, changed alike."""
    found = _constants(draft, nodes)
    if len(found) < 2:
        return None
    first = rng.choice(found)
    related = [(p, how) for p in found if p[:2] != first[:2] and (how := _relation(first, p)) is not None]
    if not related:
        return None
    new = _changed(first, rng)
    first.node.replace_input_with(first.operand, draft.constant(new, first.dtype))
    for place, how in related:
        with np.errstate(all="ignore"):
            other = np.vectorize(how, otypes=[np.float64])(new.astype(np.float64)) if new.size else new
        other = other.astype(place.array.dtype).reshape(place.array.shape)
        place.node.replace_input_with(place.operand, draft.constant(other, place.dtype))
    told = new.ravel()[:4].tolist()
    return f"operand {first.operand} of {first.node.op_type} is {told}, and {len(related)} more follow from it"


def _constants(draft: Draft, nodes: Sequence[ir.Node]) -> list[_Place]:
    found = []
    for node in nodes:
        for index, value in enumerate(node.inputs):
            array = draft.array(value)
            if array is not None and array.size and value is not None and value.dtype is not None:
                found.append(_Place(node, index, array, value.dtype))
    return found


def _relation(one: _Place, other: _Place) -> Callable[[float], float] | None:
    """The function by which the second constant follows from the first, or None."""
    if one.array.size != other.array.size or one.dtype != other.dtype or one.dtype == ir.DataType.BOOL:
        return None
    a, b = one.array.astype(np.float64).ravel(), other.array.astype(np.float64).ravel()
    for how in _RELATIONS if one.dtype in FLOATS else _RELATIONS[:2]:
        if np.allclose(np.vectorize(how, otypes=[np.float64])(a), b, rtol=1e-6, atol=0):
            return how
    return None


def _changed(place: _Place, rng: random.Random) -> Array:
    """Other numbers: in another order, of another sign, zero, larger."""
    array = place.array
    ways: list[Array] = [array[::-1].copy() if array.ndim else array]
    if array.size > 1:
        ways.append(np.array(rng.sample(array.ravel().tolist(), array.size)).reshape(array.shape))
    if place.dtype in FLOATS:
        wide = array.astype(np.float64)
        ways += [-wide, wide * 0, wide * 1.5, wide * 0 + round(rng.uniform(-3, 3), 2), wide**2]
    elif place.dtype != ir.DataType.BOOL:
        step = rng.choice((1, 2, 3))
        ways += [array + array.dtype.type(step), np.full_like(array, step)]
    return rng.choice(ways).astype(array.dtype)


def resized(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """A size by another one, wherever it stands."""
    found = sorted({d for v in draft.graph.inputs if v.shape is not None for d in v.shape if isinstance(d, int)})
    if not found:
        return None
    old = rng.choice(found)
    new = rng.choice([n for n in (1, 2, 3, 4, 5, 6) if n != old])
    _resize(draft, old, new)
    return f"{old} is {new} everywhere"


def _resize(draft: Draft, old: int, new: int) -> None:
    for value in draft.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape([new if d == old else d for d in value.shape])
    for place in _constants(draft, list(draft.graph)):
        array = _of_size(place, old, new)
        if array is not None:
            place.node.replace_input_with(place.operand, draft.constant(array, place.dtype))


def alike(draft: Draft, nodes: Sequence[ir.Node], rng: random.Random) -> str | None:
    """All sizes but ones made one size: then they say nothing of which axis is which."""
    found = {d for v in draft.graph.inputs if v.shape is not None for d in v.shape if isinstance(d, int) and d > 1}
    if len(found) < 2:
        return None
    size = rng.choice(sorted(found))
    for old in sorted(found - {size}):
        _resize(draft, old, size)
    return f"all sizes are {size}"


def _of_size(place: _Place, old: int, new: int) -> Array | None:
    """A constant with axes of another size, or a list that says it; None where the size is not in it."""
    array = place.array
    if place.dtype.is_integer() and array.ndim == 1 and array.size <= _SHORT and old in array:
        return np.where(array == old, new, array).astype(array.dtype)
    if old not in array.shape or place.dtype.is_integer():
        return None
    for axis, size in enumerate(array.shape):
        if size == old:
            array = np.take(array, np.arange(new) % old, axis=axis)
    return array
