"""Heads: how [B, H, S, D] was made of [B, S, H·D], and how to get there; one batch of several.

What a kernel needs is mostly there already, some views and a Transpose earlier.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

HEADS = (0, 2, 1, 3)
"""The permutation between [B, S, H, D] and [B, H, S, D], either way."""

Three = tuple[Value, Value, Value]
"""q, k and v."""

PACKED = (2, 0, 3, 1, 4)
"""The permutation of [B, S, 3, H, D], q, k and v in one, to [3, B, H, S, D]."""


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
    found, cast = before_split(m, x), path(x, "Cast")
    if found is not None:
        m.cover(*found.nodes)
        return found.source
    if cast is not None and is_merged_before(m, cast.source):
        m.cover(*cast.nodes)
        return build.again(cast.nodes[0], merged(m, build, cast.source))[0]
    packed = _piece(m, build, x)
    if packed is not None:
        return packed
    heads, turned = m.dim(x, 1), _turned(m, x)
    if not isinstance(heads, int):
        m.refuse("the number of heads is not known", at=x)
    m.cover(*([] if turned is None else turned.nodes))
    by_token = build.Transpose(x, perm=HEADS) if turned is None else turned.source
    return build.Reshape(by_token, np.array([0, 0, heads * head_size(m, x)]))


def is_merged_before(m: Match, x: Value) -> bool:
    """True if x, of shape [B, H, S, D], was [B, S, H·D], so that ``merged`` builds no Transpose."""
    cast = path(x, "Cast")
    source = x if cast is None else cast.source
    return any(found(m, source) is not None for found in (_turned, _packed, _one_token))


def _turned(m: Match, x: Value) -> NodePath | None:
    """The Transpose that made x, of shape [B, H, S, D], of [B, S, H, D]."""
    found = path(x, "Transpose")
    return found if found is not None and m.rank(x) == 4 and permutation(m.facts, found.nodes[0]) == HEADS else None


def _one_token(m: Match, x: Value) -> NodePath | None:
    """The Reshape that made x, of shape [B, H, 1, D], of [B, 1, H·D]: there is no Transpose."""
    found, shape = path(x, "Reshape"), m.shape(x) or ()
    if found is None or len(shape) != 4 or shape[2] != 1:
        return None
    return found if same_shape(m.shape(found.source), (shape[0], 1, shape[1] * shape[3])) else None


def before_split(m: Match, x: Value) -> NodePath | None:
    """The nodes that split [B, S, H·D] into x, of shape [B, H, S, D]; None if none did."""
    one_token, found = _one_token(m, x), path(x, "Transpose", "Reshape")
    if one_token is not None or found is None or _turned(m, x) is None:
        return one_token
    batch, heads, tokens, width = m.shape(x) or ()
    return found if same_shape(m.shape(found.source), (batch, tokens, heads * width)) else None


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
    picked = path(x, "Gather") or path(x, "Squeeze", "Split")
    whole = path(picked.source, "Transpose", "Reshape") if picked is not None else None
    index = _index(m, picked) if picked is not None else None
    if picked is None or whole is None or index is None or permutation(m.facts, whole.nodes[0]) != PACKED:
        return None
    *batch, three, heads, width = m.shape(whole.values[1]) or (0, 0, 0)
    if m.rank(whole.source) != 3 or m.rank(x) != 4 or not all(isinstance(d, int) for d in (three, heads, width)):
        return None
    if not same_shape(m.shape(whole.source), (*batch, three * heads * width)) or not 0 <= index < three:  # type: ignore[operator]
        return None
    return whole.source, index, (*picked.nodes, *whole.nodes)


def _index(m: Match, picked: NodePath) -> int | None:
    """The index along the first axis that a Gather takes, or a Squeeze of an output of a Split into single elements."""
    if len(picked.nodes) == 1:
        gather = gather_of(m.facts, picked.nodes[0])
        return None if isinstance(gather, str) or gather.axis or gather.indices.ndim else int(gather.indices)
    piece = piece_of(m.facts, resolve(picked.values[1]))
    single = not isinstance(piece, str) and piece.axis == 0 and len(piece.elements) == 1
    return piece.elements.start if single and unit_axes(m.facts, picked.nodes[0]) == (0,) else None  # type: ignore[union-attr]


# -- [..., H, S, D] ------------------------------------------------------------------------------------------


def with_one_batch(m: Match, build: Builder, parts: Three) -> tuple[Three, Value]:
    """q, k and v of a batch and windows in it, [..., H, S, D], as [B, H, S, D], and the shape of the result."""
    one, two, three = (_of_rank_4(m, build, x) for x in parts)
    wanted = m.known(m.shape(m.anchor), "the rank of the result is not known", at=m.anchor)
    back = reshape_target((*(m.shape(one) or ())[:-1], -1), wanted, None)
    sizes = m.known(back, "no constant target takes the batch apart", at=m.anchor)
    return (one, two, three), build.const(np.array(sizes, np.int64))


def _of_rank_4(m: Match, build: Builder, x: Value) -> Value:
    """A value with all that is before its last three dimensions in one."""
    shape = m.shape(x) or ()
    sizes = reshape_target(shape, (math.prod(shape[:-3]), *shape[-3:]), None)
    return build.Reshape(x, np.array(m.known(sizes, "no constant target merges the batch", at=x), np.int64))


def has_past(node: ir.Node) -> bool:
    """True for an Attention that joins its keys and values to earlier ones, or gives them for later."""
    return input_of(node, 4) is not None or len(node.outputs) > 1
