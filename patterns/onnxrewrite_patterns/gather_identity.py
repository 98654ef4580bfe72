"""Gathering everything in its order, by constant indices: x[{0, 1, 2, ...}] is x in another shape.

Where it comes from: masks of transformers are indexed by ranges (``range_gathers``); where sizes are known, an exporter
or ``fold-constants`` makes numbers of these.

Why: a gather one by one is a view of what is there.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

gather = AnyNode(op_types=("Gather", "GatherND"))


def _indexed(m: Match, node: ir.Node, x: Value, index: np.ndarray) -> tuple[int, ...]:
    """The sizes of the axes that are indexed, zero for one that is not known."""
    if node.op_type == "Gather":
        axis = m.axis(node, m.rank(x))
        axes = range(axis, axis + 1) if axis is not None else range(0)
    else:
        m.require(node.attributes.get_int("batch_dims", 0) == 0, "it has batch_dims")
        axes = range(index.shape[-1])
    sizes = [m.dim(x, axis) for axis in axes]
    return tuple(size if isinstance(size, int) else 0 for size in sizes)


@rule(
    "gather-in-order",
    CANONICALIZE,
    gather,
    benefit=45,
    examples=(
        Rewrites("float[n,3] x; a = Gather<axis=1>(x, {0, 1, -1})  y = Relu(a)", to="float[n,3] x; y = Relu(x)"),
        Rewrites(
            "float[6] x; y = Gather(x, int64[3,2] {0, 1, 2, 3, 4, 5})",
            to="float[6] x; y = Reshape(x, {3, 2})",
        ),
        Rewrites(
            "bool[2,2,n] x; y = GatherND(x, int64[2,1,2,2] {0, 0, 0, 1, 1, 0, 1, 1})",
            to="bool[2,2,n] x; y = Reshape(x, {2, 1, 2, -1})",
        ),
        Rejects("float[n,3] x; y = Gather<axis=1>(x, {0, 2, 1})", because="in its order"),
        Rejects("float[n,4] x; y = Gather<axis=1>(x, {0, 1, 2})", because="not all is gathered"),
        Rejects("float[n,3] x; y = Gather<axis=1>(x, {0, 1, 3})", because="out of range"),
        Rejects("float[n,3] x; y = Gather(x, {0})", because="a size that is not known"),
        Rejects("float[n,3] x; int64[3] i; y = Gather<axis=1>(x, i)", because="not constant"),
        Rejects(
            "bool[2,2] x; y = GatherND<batch_dims=1>(x, int64[2,2,1] {0, 1, 0, 1})",
            because="batch_dims",
        ),
    ),
)
def gather_in_order(m: Match, build: Builder) -> Value:
    """Gather(x, {0, 1, 2, ...}) ⟶ Reshape(x) where that is every index in its order, and likewise GatherND."""
    node = m.node(gather)
    x, indices = m.operand(node), m.operand(node, 1)
    index = m.facts.constant(indices)
    m.require(index is not None, "the indices are not constant", at=indices)
    assert index is not None
    sizes = _indexed(m, node, x, index)
    m.require(bool(sizes) and all(sizes), "what is indexed has a size that is not known, or zero", at=x)
    columns = np.moveaxis(index, -1, 0) if node.op_type == "GatherND" else index[np.newaxis]
    places = tuple(c.ravel() + np.where(c.ravel() < 0, size, 0) for c, size in zip(columns, sizes, strict=True))
    inside = all(((p >= 0) & (p < size)).all() for p, size in zip(places, sizes, strict=True))
    m.require(inside, "an index is out of range", at=indices)
    order = np.ravel_multi_index(places, sizes)
    m.require(np.array_equal(order, np.arange(np.prod(sizes))), "not all is gathered in its order", at=indices)
    return x if same_shape(m.shape(x), m.shape(gather)) else reshaped_as(m, build, x, m[gather])
