"""Masks as kernels take them: the last two dimensions those of the scores, and no number that means more than it is.

ONNX Runtime's kernel for the standard's Attention (1.31) makes a row zero of which every entry is masked by the
lowest float, or by -inf.  With any other number it computes what the formula says; -1e30 hides every score as well.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxrewrite import Builder, Match, Value, resolve, same_dim
from onnxrewrite_patterns.attention_masks import NEVER_AT_ALL

Size = Value | npt.NDArray[np.int64]


def size_of(m: Match, build: Builder, x: Value, axis: int) -> Size:
    """One dimension of x, as a tensor of one element."""
    size = m.dim(x, axis)
    if isinstance(size, int):
        return np.array([size])
    return build.Gather(build.Shape(x), np.array([axis % (m.rank(x) or 1)]))


def full(m: Match, build: Builder, mask: Value, query: Value, key: Value) -> Value:
    """A mask whose last two dimensions are as many queries and keys; those are the second last dimension of theirs."""
    shape = m.shape(mask)
    if shape is None:
        m.refuse("the rank of the mask is unknown", at=mask)
    if len(shape) < 2:
        mask = build.Unsqueeze(mask, axes=tuple(range(2 - len(shape))))
        shape = (*[1] * (2 - len(shape)), *shape)
    queries, keys = m.dim(query, -2), m.dim(key, -2)
    if queries is None or keys is None:
        m.refuse("the rank of q or k is unknown", at=query)
    rows, columns = same_dim(shape[-2], queries), same_dim(shape[-1], keys)
    if rows and columns:
        return mask
    m.require((rows or shape[-2] == 1) and (columns or shape[-1] == 1), "the mask does not fit", at=mask)
    # Where there are as many queries as keys, and one mask serves all layers, so does what it is expanded to.
    source, axis = (mask, -1) if columns and same_dim(queries, keys) else (query, -2)
    height = np.array([1]) if rows else size_of(m, build, source, axis)
    width = np.array([1]) if columns else size_of(m, build, key, -2)
    ones = np.ones(len(shape) - 2, np.int64)
    return build.Expand(mask, build.Concat(ones, height, width, axis=0))


MODERATE = 1e20
"""What is less than this is nothing beside ``NEVER_AT_ALL``."""


def countable(m: Match, build: Builder, mask: Value, beside: Value | None = None) -> Value:
    """A mask for the standard's kernel that masks rows throughout as the formula does, if that can be told.

    ``beside`` is added to it: where a score is hidden, that makes no difference.
    """

    def whole(part: Value) -> Value:
        return part if beside is None else build.Add(beside, part)

    if m.dtype(mask) == ir.DataType.BOOL or magnitude(m, mask) <= -NEVER_AT_ALL or _leaves_some(m, mask):
        return whole(mask)
    node = mask.producer()
    if node is not None and node.op_type == "Add" and not node.domain:
        a, b = sorted((x for x in node.inputs if x is not None), key=lambda x: magnitude(m, x))
        m.require(magnitude(m, a) <= MODERATE, "several masks may hide a score", at=mask)
        return countable(m, build, b, whole(a))
    if node is None or node.op_type != "Where" or node.domain or node.inputs[0] is None:
        m.refuse("the mask may be the lowest number throughout a row", at=mask)
    choices = [(x, _number(m, x)) for x in node.inputs[1:]]
    hidden = [n is not None and -math.inf < n <= NEVER_AT_ALL for _, n in choices]
    kept, number = choices[0] if hidden[1] else choices[1]
    moderate = any(hidden) and magnitude(m, kept) <= MODERATE
    m.require(moderate, "the mask may be the lowest number throughout a row", at=mask)
    assert kept is not None
    shown = beside if beside is not None and number == 0 else whole(kept)
    never = build.const(NEVER_AT_ALL, like=mask)
    return build.Where(node.inputs[0], shown, never) if hidden[1] else build.Where(node.inputs[0], never, shown)


def _leaves_some(m: Match, mask: Value) -> bool:
    """Whether a constant mask hides no row throughout."""
    fixed = m.facts.constant(mask)
    return fixed is not None and fixed.ndim > 0 and fixed.size > 0 and bool((fixed.max(axis=-1) > NEVER_AT_ALL).all())


_SAME = ("Identity Transpose Reshape Unsqueeze Squeeze Expand Flatten Slice Gather Tile Neg Abs Cast").split()
"""What computes no larger numbers than its first input has."""


def magnitude(m: Match, x: Value | None, depth: int = 24) -> float:
    """A bound of the magnitude of every element; infinite where none is known."""
    value = resolve(x) if x is not None else None
    array = m.facts.constant(value) if value is not None else None
    if array is not None:
        return float(np.abs(array.astype(np.float64)).max(initial=0.0))
    dtype, node = m.dtype(value) if value is not None else None, value.producer() if value is not None else None
    if dtype == ir.DataType.BOOL:
        return 1.0
    if dtype is not None and dtype.is_integer():
        return 2.0**dtype.bitwidth
    if node is None or node.domain or not depth:
        return math.inf
    if node.op_type in _SAME:
        return magnitude(m, node.inputs[0], depth - 1)
    if node.op_type == "ConstantOfShape":
        given = node.attributes.get("value")
        return abs(float(given.as_tensor().numpy().reshape(()))) if given is not None else 0.0
    if node.op_type in ("Where", "Add", "Sub", "Mul", "Concat"):
        parts = [magnitude(m, i, depth - 1) for i in node.inputs[node.op_type == "Where" :]]
        return math.prod(parts) if node.op_type == "Mul" else sum(parts)
    return math.inf


def _number(m: Match, x: Value | None) -> float | None:
    array = m.facts.constant(x) if x is not None else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None
