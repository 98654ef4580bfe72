"""Values that repeat themselves along their last axis: all of it twice in a row, or each element twice.

Cosines and sines of a rotary embedding do, in the spellings that turn whole heads; of sines that have the signs of the
rotation the first of the two is the negative of the second.  That is shown by the way such a value is computed: down
from a Concat of one value with itself, a Gather by indices that come twice, or a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

_ELEMENTWISE = frozenset(operators("pointwise broadcast"))
"""Computed for each element by itself."""

_ODD = frozenset((*operators(marks="odd"), "Cast"))
"""Elementwise operators that give the opposite result for the opposite operand, of floats."""

_LARGE = 2**20
"""A constant of more elements is not copied in part, for every reader would get its own."""


@dataclass(frozen=True)
class Twice:
    """The way in which a value repeats itself along its last axis.

    Attributes:
        interleaved: True if each element comes twice, False if all of them come twice in a row.
        opposite: True if what comes first is the negative of what comes second.
    """

    interleaved: bool
    opposite: bool = False

    def halves(self, table: Array) -> tuple[Array, Array]:
        """The first and the second of the two."""
        if self.interleaved:
            return table[..., 0::2], table[..., 1::2]
        return table[..., : table.shape[-1] // 2], table[..., table.shape[-1] // 2 :]

    def is_of(self, table: Array) -> bool:
        """True if a table repeats itself in this way."""
        if table.ndim == 0 or table.shape[-1] % 2:
            return False
        first, second = self.halves(table)
        return bool(np.array_equal(-first if self.opposite else first, second))


def once(m: Match, build: Builder, value: Value, how: Twice) -> Value:
    """The second of the two that ``value`` has along its last axis; refuses where it is not shown to repeat itself.

    The nodes looked through are taken into the match, for by themselves they need not show it.

    Args:
        m: The match.
        build: Its tape.
        value: The value that may repeat itself.
        how: In what way.
    """
    value = _seen(m, value)
    source = _row_source(m, value)
    table = m.facts.constant(source)
    if table is not None:
        m.require(how.is_of(table), "a table does not repeat itself along its last axis", at=source)
        return _part(m, build, value, how)
    node = value.producer()
    if node is None or node.domain:
        m.refuse("it is not shown to repeat itself along its last axis", at=value)
    repeated = _unstacked(m, build, value, how) if how.interleaved else _doubled(m, value, how)
    if repeated is None and not how.opposite:
        repeated = _picked(m, build, value, how.interleaved)
    if repeated is not None:
        m.cover(node)
        return repeated
    if how.interleaved and _joins_rows(m, value):
        m.cover(node)
        return build.again(node, *(once(m, build, v, how) for v in inputs_of(node)))[0]
    m.require(
        _is_elementwise(node) or _keeps_last(m, node),
        f"{node.op_type} is not shown to repeat itself along its last axis",
        at=value,
    )
    return _recomputed(m, build, node, how)


def _is_elementwise(node: ir.Node) -> bool:
    return node.op_type in _ELEMENTWISE and not node.domain


def _recomputed(m: Match, build: Builder, node: ir.Node, how: Twice) -> Value:
    """The node's result, from operands that repeat themselves and others that are the same all along the last axis."""
    data = list(node.inputs) if _is_elementwise(node) else [m.operand(node)]
    ways = _ways(m, node, data, how) if how.opposite and _is_elementwise(node) else [how] * len(data)
    narrow = [v if v is None or _is_even(m, v) else once(m, build, v, way) for v, way in zip(data, ways, strict=True)]
    target = [build.const(_narrower(m, node))] if node.op_type == "Reshape" else []
    m.cover(node)
    return build.again(node, *narrow, *target)[0]


def _ways(m: Match, node: ir.Node, data: Sequence[Value | None], how: Twice) -> list[Twice]:
    """The way in which each operand repeats itself: of a result with both signs one factor has them, or the operand."""
    uneven = {k: v for k, v in enumerate(data) if v is not None and not _is_even(m, v)}
    tables = {k: m.facts.constant(v) for k, v in uneven.items()} if len(uneven) > 1 else {}
    signed = [k for k, table in tables.items() if table is not None and how.is_of(table)] if tables else [*uneven]
    m.require(
        bool(signed) and (node.op_type == "Mul" or (node.op_type in _ODD and len(uneven) == 1)),
        f"{node.op_type} is not shown to give what comes second with the other sign",
    )
    return [how if k == signed[0] else replace(how, opposite=False) for k in range(len(data))]


def _narrower(m: Match, node: ir.Node) -> Array:
    """The target of a Reshape for rows of half the size."""
    source, target = m.operand(node), m.facts.constant(resolve(m.operand(node, 1)))
    if target is None or (target[-1] == 0 and len(target) != m.rank(source)):
        m.refuse("the target of Reshape does not say the size of its last axis", at=source)
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
    rows = path_through(value, lambda node: _keeps_last(m, node))
    if m.facts.tensor(rows.source) is not None:
        m.cover(*rows.nodes)
    return rows.source


def _keeps_last(m: Match, node: ir.Node) -> bool:
    """True if a node picks rows or moves them: a row, along the last axis, stays what it is."""
    source, result = input_of(node), node.outputs[0]
    before, after = (m.shape(v) if v is not None else None for v in (source, result))
    if node.domain or not before or not after or not same_dim(before[-1], after[-1]) or before[-1] == 1:
        return False
    last = len(before) - 1
    if node.op_type == "Gather":
        return m.axis(node, len(before)) != last
    if node.op_type == "Transpose":
        perm = permutation(m.facts, node)
        return isinstance(perm, tuple) and perm[-1] == last
    if node.op_type == "Slice":
        axes = axes_of(m.facts, node, len(before))
        return isinstance(axes, tuple) and last not in axes
    return node.op_type in operators("view")


def _part(m: Match, build: Builder, value: Value, how: Twice) -> Value:
    """The second of the two in a value.  What is picked from a table is cut, not the table: all layers share that."""
    table = m.facts.constant(value)
    if table is not None:
        m.require(table.size <= _LARGE, f"a table of {table.size} elements would be copied", at=value)
        return build.const(how.halves(table)[1], like=value)
    size = m.dim(value, -1)
    assert isinstance(size, int)
    start = int(how.opposite) * (1 if how.interleaved else size // 2)
    end, step = (size, 2) if how.interleaved else (start + size // 2, 1)
    sliced: Value = build.Slice(value, starts=[start], ends=[end], axes=[-1], steps=[step])
    return sliced


def _joins_rows(m: Match, value: Value) -> bool:
    """True for the result of a Concat along the last axis."""
    node, rank = made_by(value, "Concat"), m.rank(value) or 0
    return node is not None and rank > 0 and m.axis(node, rank) == rank - 1


def _doubled(m: Match, value: Value, how: Twice) -> Value | None:
    """The last operand of Concat(f, f), or Concat(-f, f), along the last axis."""
    node = made_by(value, "Concat")
    if node is None or not _joins_rows(m, value):
        return None
    halves = [resolve(v) for v in inputs_of(node)]
    return halves[1] if len(halves) == 2 and is_twice(m, halves, how) else None


def is_twice(m: Match, values: Sequence[Value], how: Twice) -> bool:
    """True if all values are one, or the two are opposite to each other."""
    if not how.opposite:
        return len(set(values)) == 1
    one, other = (path_through(v, lambda node: node.op_type in ("Neg", "Unsqueeze")) for v in values)
    signs = [sum(node.op_type == "Neg" for node in found.nodes) % 2 for found in (one, other)]
    if one.source is not other.source or signs[0] == signs[1] or not same_shape(*map(m.shape, values)):
        return False
    m.cover(*one.nodes, *other.nodes)
    return True


def _unstacked(m: Match, build: Builder, value: Value, how: Twice) -> Value | None:
    """The operand f of Reshape(f spread over a new last axis of size 2), by Concat, Expand or Tile."""
    found = path(value, ("Reshape", "Flatten"), "Concat" if how.opposite else ("Concat", "Expand", "Tile"))
    before = m.shape(found.source) if found is not None else None
    if found is None or before is None or len(before) < 2 or before[-1] != 1:
        return None
    spread, source = found.nodes[1], found.source
    if spread.op_type == "Concat":
        joined = [resolve(v) for v in inputs_of(spread)]
        if len(joined) != 2 or not is_twice(m, joined, how):
            return None
        source = joined[1]
    if not same_shape(m.shape(found.values[1]), (*before[:-1], 2)):
        return None
    rows, (*wanted, size) = before[:-2], m.shape(value) or (0,)
    if not same_dim(size, before[-2] * 2) or not same_shape(_without_ones(wanted), _without_ones(rows)):
        return None
    m.cover(spread)
    if same_shape(wanted, rows):
        return build.Squeeze(source, axes=(len(before) - 1,))
    target = reshape_target(before, (*wanted, before[-2]), [-1] * (len(wanted) + 1))
    return build.Reshape(source, np.array(target, np.int64)) if target is not None else None


def _without_ones(shape: Sequence[Dim]) -> list[Dim]:
    return [size for size in shape if size != 1]


def _picked(m: Match, build: Builder, value: Value, interleaved: bool) -> Value | None:
    """The operand f of Gather(f, {0, 0, 1, 1, ...}), or {0, 1, ..., 0, 1, ...}, the axis being the last, maybe by a
    Transpose."""
    turn = made_by(value, "Transpose")
    node = made_by(input_of(turn) if turn is not None else value, "Gather")
    perm = permutation(m.facts, turn) if turn is not None else None
    if node is None or isinstance(perm, str):
        return None
    source, places = m.operand(node), m.facts.constant(m.operand(node, 1))
    rank, last = m.rank(source) or 0, perm[-1] if perm else (m.rank(value) or 0) - 1
    size = m.dim(source, last) if rank else None
    if places is None or places.ndim != 1 or m.axis(node, rank) != last or not isinstance(size, int):
        return None
    each = np.arange(size)
    if not np.array_equal(places, np.repeat(each, 2) if interleaved else np.tile(each, 2)):
        return None
    m.cover(node)
    return build.Transpose(source, perm=perm) if perm else source
