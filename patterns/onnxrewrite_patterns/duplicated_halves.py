"""Values that repeat themselves along their last axis: all of it twice in a row, or each element twice.

Cosines and sines of a rotary embedding do, in the spellings that turn whole heads.  That is shown by the way such a
value is computed: down from a Concat of one value with itself, or from a constant.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

_ELEMENTWISE = frozenset(operators("pointwise broadcast"))
"""Computed for each element by itself."""

_LARGE = 2**20
"""A constant of more elements is not copied in part, for every reader would get its own."""


def once(m: Match, build: Builder, value: Value, interleaved: bool) -> Value:
    """The part that repeats itself along the last axis of ``value``; refuses where that is not shown.

    The nodes looked through are taken into the match, for by themselves they need not show it.

    Args:
        m: The match.
        build: Its tape.
        value: The value that may repeat itself.
        interleaved: True if each element comes twice, False if all of them come twice in a row.
    """
    value = _seen(m, value)
    source = _row_source(m, value)
    table = m.facts.constant(source)
    if table is not None:
        m.require(_repeats(table, interleaved), "a table does not repeat itself along its last axis", at=source)
        return _part(m, build, value, interleaved)
    node = value.producer()
    if node is None or node.domain:
        m.refuse("it is not shown to repeat itself along its last axis", at=value)
    repeated = _unstacked(m, build, node) if interleaved else _doubled(m, node)
    if repeated is not None:
        m.cover(node)
        return repeated
    return _recomputed(m, build, node, interleaved)


def _recomputed(m: Match, build: Builder, node: ir.Node, interleaved: bool) -> Value:
    """The node's result, from operands that repeat themselves and others that are the same all along the last axis."""
    by_element = node.op_type in _ELEMENTWISE
    if not by_element and not _keeps_last(m, node):
        m.refuse(f"{node.op_type} is not shown to repeat itself along its last axis", at=node.outputs[0])
    inputs: list[Value | None] = list(node.inputs)
    for place, operand in enumerate(node.inputs if by_element else node.inputs[:1]):
        if operand is not None and not _is_even(m, operand):
            inputs[place] = once(m, build, operand, interleaved)
    if node.op_type == "Reshape":
        inputs[1] = build.const(_narrower(m, node))
    m.cover(node)
    made: Value = build.node(node.op_type, inputs, {a.name: a.value for a in node.attributes.values()})[0]
    return made


def _narrower(m: Match, node: ir.Node) -> Array:
    """The target of a Reshape for rows of half the size."""
    source, given = node.inputs[0], node.inputs[1]
    target = None if given is None else m.facts.constant(resolve(given))
    if source is None or target is None or (target[-1] == 0 and len(target) != m.rank(source)):
        m.refuse("the target of Reshape does not say the size of its last axis", at=node.outputs[0])
    return np.array([*target[:-1], target[-1] // 2 if target[-1] > 0 else target[-1]], np.int64)


def _is_even(m: Match, value: Value) -> bool:
    """True if a value is the same all along the last axis, because it has none, or one of size 1."""
    shape = m.shape(value)
    return shape is not None and (not shape or shape[-1] == 1)


def _seen(m: Match, value: Value) -> Value:
    """The value behind Identities, which are taken into the match."""
    m.cover(*passed(value))
    return resolve(value)


def _row_source(m: Match, value: Value) -> Value:
    """The source of the rows of a value, through nodes that leave each row as it is."""
    nodes = []
    while (node := value.producer()) is not None and _keeps_last(m, node):
        nodes.append(node)
        assert node.inputs[0] is not None
        value = resolve(node.inputs[0])
    if m.facts.tensor(value) is not None:
        m.cover(*nodes)
    return value


def _keeps_last(m: Match, node: ir.Node) -> bool:
    """True if a node picks rows or moves them: a row, along the last axis, stays what it is."""
    source, result = next(iter(node.inputs), None), node.outputs[0]
    before, after = (None if v is None else m.shape(v) for v in (source, result))
    if node.domain or not before or not after or not same_dim(before[-1], after[-1]) or before[-1] == 1:
        return False
    if node.op_type == "Gather":
        return m.axis(node, len(before)) != len(before) - 1
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        return perm is not None and perm.as_ints()[-1] == len(before) - 1
    if node.op_type == "Slice":
        axes = parameter(m.facts, node, "axes")
        return isinstance(axes, tuple) and all((a - len(before) + 1) % len(before) for a in axes)
    return node.op_type in operators("view")


def _repeats(table: Array, interleaved: bool) -> bool:
    return table.ndim > 0 and table.shape[-1] % 2 == 0 and bool(np.array_equal(*_halves(table, interleaved)))


def _halves(table: Array, interleaved: bool) -> tuple[Array, Array]:
    if interleaved:
        return table[..., 0::2], table[..., 1::2]
    return table[..., : table.shape[-1] // 2], table[..., table.shape[-1] // 2 :]


def _part(m: Match, build: Builder, value: Value, interleaved: bool) -> Value:
    """One of the two halves of a value.  What is picked from a table is cut, not the table: all layers share that."""
    table = m.facts.constant(value)
    if table is not None:
        m.require(table.size <= _LARGE, f"a table of {table.size} elements would be copied", at=value)
        return build.const(_halves(table, interleaved)[0], like=value)
    size = m.dim(value, -1)
    assert isinstance(size, int)
    end, step = (size, 2) if interleaved else (size // 2, 1)
    bounds = {"starts": [0], "ends": [end], "axes": [-1], "steps": [step]}
    return build.node("Slice", [value], {name: np.array(b, np.int64) for name, b in bounds.items()})[0]


def _doubled(m: Match, node: ir.Node) -> Value | None:
    """The operand of Concat(f, f) along the last axis."""
    if node.op_type != "Concat" or len(node.inputs) != 2 or None in node.inputs:
        return None
    rank = m.rank(node.outputs[0])
    one, other = (resolve(v) for v in node.inputs if v is not None)
    return one if one is other and rank and m.axis(node, rank) == rank - 1 else None


def _unstacked(m: Match, build: Builder, node: ir.Node) -> Value | None:
    """The operand f of Reshape(f spread over a new last axis of size 2), by Concat, Expand or Tile."""
    spread = resolve(node.inputs[0]) if node.op_type == "Reshape" and node.inputs[0] is not None else None
    maker = None if spread is None else spread.producer()
    if spread is None or maker is None or maker.domain or maker.op_type not in ("Concat", "Expand", "Tile"):
        return None
    sources = {resolve(v) for v in (maker.inputs if maker.op_type == "Concat" else maker.inputs[:1]) if v is not None}
    source = sources.pop()
    before = m.shape(source)
    if sources or before is None or len(before) < 2 or before[-1] != 1:
        return None
    twice = same_shape(m.shape(spread), (*before[:-1], 2))
    if not twice or not same_shape(m.shape(node.outputs[0]), (*before[:-2], before[-2] * 2)):
        return None
    m.cover(maker)
    return build.Squeeze(source, axes=(len(before) - 1,))
