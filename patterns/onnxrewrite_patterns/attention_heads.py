"""Heads: how [B, H, S, D] was made of [B, S, H·D], or became [B·H, S, D], and how to get there.

What a kernel needs is mostly there already, some views and a Transpose earlier.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

HEADS = (0, 2, 1, 3)
"""The permutation between [B, S, H, D] and [B, H, S, D], either way."""

PACKED = (2, 0, 3, 1, 4)
"""The permutation of [B, S, 3, H, D], q, k and v in one, to [3, B, H, S, D]."""


def made_by(x: Value | None, *op_types: str) -> ir.Node | None:
    """The node that computes x, behind Identities, if it is of one of these standard operators."""
    node = resolve(x).producer() if x is not None else None
    return node if node is not None and node.op_type in op_types and not node.domain else None


def head_size(m: Match, x: Value) -> int:
    """D of [B, H, S, D]."""
    width = m.dim(x, -1)
    if not isinstance(width, int) or width == 0:
        m.refuse("the size of a head is not known", at=x)
    return width


def swapped(rank: int) -> tuple[int, ...]:
    """The permutation that swaps the last two of so many dimensions."""
    return (*range(rank - 2), rank - 1, rank - 2)


# -- [B, S, H·D] ---------------------------------------------------------------------------------------------


def merged(m: Match, build: Builder, x: Value) -> Value:
    """[B, H, S, D] as [B, S, H·D]: as it was before heads were split, or split again."""
    found, cast = before_split(m, x), made_by(x, "Cast")
    if found is not None:
        m.cover(*found[1])
        return found[0]
    if cast is not None and cast.inputs[0] is not None and is_merged_before(m, cast.inputs[0]):
        m.cover(cast)
        return build.Cast(merged(m, build, cast.inputs[0]), to=parameter(m.facts, cast, "to"))
    packed = _piece(m, build, x)
    if packed is not None:
        return packed
    heads, turned = m.dim(x, 1), _turned(m, x)
    if not isinstance(heads, int):
        m.refuse("the number of heads is not known", at=x)
    m.cover(*([] if turned is None else [turned]))
    by_token = build.Transpose(x, perm=HEADS) if turned is None else turned.inputs[0]
    return build.Reshape(by_token, np.array([0, 0, heads * head_size(m, x)]))


def is_merged_before(m: Match, x: Value) -> bool:
    """True if x, of shape [B, H, S, D], was [B, S, H·D], so that ``merged`` builds no Transpose."""
    cast = made_by(x, "Cast")
    source = x if cast is None or cast.inputs[0] is None else cast.inputs[0]
    return any(found(m, source) is not None for found in (_turned, _packed, _one_token))


def _turned(m: Match, x: Value) -> ir.Node | None:
    """The Transpose that made x, of shape [B, H, S, D], of [B, S, H, D]."""
    node = made_by(x, "Transpose")
    return node if node is not None and m.rank(x) == 4 and parameter(m.facts, node, "perm") == HEADS else None


def _one_token(m: Match, x: Value) -> tuple[Value, tuple[ir.Node, ...]] | None:
    """The [B, 1, H·D] that x, of shape [B, H, 1, D], is a view of, and the node that made it: the Transpose is none."""
    node = made_by(x, "Reshape")
    source, shape = node.inputs[0] if node is not None else None, m.shape(x)
    before = m.shape(source) if source is not None else None
    if node is None or source is None or shape is None or len(shape) != 4 or shape[2] != 1:
        return None
    return (source, (node,)) if same_shape(before, (shape[0], 1, shape[1] * shape[3])) else None


def before_split(m: Match, x: Value) -> tuple[Value, tuple[ir.Node, ...]] | None:
    """The [B, S, H·D] that was split into x, of shape [B, H, S, D], and the nodes that did it; None if none did."""
    one_token = _one_token(m, x)
    if one_token is not None:
        return one_token
    transposed = _turned(m, x)
    reshaped = made_by(transposed.inputs[0], "Reshape") if transposed is not None else None
    if transposed is None or reshaped is None:
        return None
    source = reshaped.inputs[0]
    before, shape = None if source is None else m.shape(source), m.shape(x)
    if source is None or before is None or shape is None or len(before) != 3 or len(shape) != 4:
        return None
    after: list[Dim] = [shape[0], shape[2], shape[1] * shape[3]]
    same = all(same_dim(a, b) for a, b in zip(before, after, strict=True))
    return (source, (transposed, reshaped)) if same else None


def _piece(m: Match, build: Builder, x: Value) -> Value | None:
    """The same for one of q, k and v that are computed together, as [B, S, 3·H·D]: the part of it that is x."""
    found = _packed(m, x)
    if found is None:
        return None
    source, index, nodes = found
    width = (m.dim(x, 1) or 0) * head_size(m, x)
    m.cover(*nodes)
    return build.Slice(source, np.array([index * width]), np.array([(index + 1) * width]), np.array([2]))


def _packed(m: Match, x: Value) -> tuple[Value, int, tuple[ir.Node, ...]] | None:
    """The [B, S, 3·H·D] behind x, which part of it x is, and the nodes in between."""
    node = made_by(x, "Gather", "Squeeze")
    if node is None:
        return None
    split = made_by(node.inputs[0], "Split") if node.op_type == "Squeeze" else None
    transposed = made_by((split or node).inputs[0], "Transpose")
    reshaped = made_by(transposed.inputs[0], "Reshape") if transposed is not None else None
    index = _index(m, node, split)
    if transposed is None or reshaped is None or index is None or parameter(m.facts, transposed, "perm") != PACKED:
        return None
    source, shape = reshaped.inputs[0], m.shape(reshaped.outputs[0]) or ()
    if source is None or m.rank(source) != 3 or m.rank(x) != 4 or not all(isinstance(d, int) for d in shape[2:]):
        return None
    three, heads, width = shape[2:]
    if not same_shape(m.shape(source), (*shape[:2], three * heads * width)) or not 0 <= index < three:  # type: ignore[operator]
        return None
    return source, index, tuple(n for n in (node, split, transposed, reshaped) if n is not None)


def _index(m: Match, node: ir.Node, split: ir.Node | None) -> int | None:
    """The index along the first axis that a Gather takes, or a Squeeze of an output of a Split into single elements."""
    if parameter(m.facts, split or node, "axis") not in (0, None):
        return None
    if split is None:
        index = parameter(m.facts, node, "indices") if node.op_type == "Gather" else None
        return index if isinstance(index, int) else None
    source = resolve(node.inputs[0]) if node.inputs[0] is not None else None
    single = all(m.dim(o, 0) == 1 for o in split.outputs) and parameter(m.facts, node, "axes") == (0,)
    return source.index() if source is not None and single else None


# -- [B·H, S, D] ---------------------------------------------------------------------------------------------


def before_merge(m: Match, x: Value) -> Value | None:
    """The [B, H, S, D] that x of shape [B·H, S, D] is a view of."""
    node = made_by(x, "Reshape")
    source = node.inputs[0] if node is not None else None
    before, after = m.shape(source) if source is not None else None, m.shape(x)
    if before is None or after is None or len(before) != 4 or len(after) != 3:
        return None
    same = same_shape(before[2:], after[1:]) and same_dim(before[0] * before[1], after[0])
    return source if same else None
