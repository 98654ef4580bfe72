"""Gather of single elements, which exporters write for every dimension of a shape.

Why: what is gathered one by one and joined again is one Gather.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")
concat = AnyNode(op_types=("Concat",))

index = Const("index", rank=0)
gather = op.Gather(x, index)
unsqueezed = op.Unsqueeze(gather, Each("axes", at_least=0))


@rule(
    "unsqueeze-of-gather",
    CANONICALIZE,
    unsqueezed,
    benefit=50,
    examples=(
        Rewrites(
            "float[n,s] x; h = Shape(x)  g = Gather(h, 1)  y = Unsqueeze(g, {0})",
            to="float[n,s] x; h = Shape(x)  y = Gather<axis=0>(h, {1})",
        ),
        Rewrites(
            "float[n,s] x; g = Gather<axis=1>(x, 1)  y = Unsqueeze(g, {-1})",
            to="float[n,s] x; y = Gather<axis=1>(x, {1})",
        ),
        Rejects("float[n,s] x; g = Gather(x, 1)  y = Unsqueeze(g, {1})", because="another one"),
    ),
)
def unsqueeze_of_gather(m: Match, build: Builder) -> Value:
    """Unsqueeze(Gather(x, i)) ⟶ Gather(x, {i}) where the new axis is the one gathered from."""
    rank = m.rank(x)
    axis, axes = m.axis(m.node(gather), rank), parameter(m.facts, m.node(unsqueezed), "axes")
    axes = (axes,) if isinstance(axes, int) else axes
    m.require(isinstance(axes, tuple) and len(axes) == 1, "more than one axis is added")
    m.require(axes[0] >= 0 or rank is not None, "the rank is not known", at=x)
    m.require(axes[0] % rank == axis if rank is not None else axes[0] == axis, "the new axis is another one")
    return build.Gather(m[x], np.array([int(m[index])], np.int64), axis=axis)


def _gathered(m: Match, value: Value, axis: int, reader: ir.Node) -> tuple[Value | None, list[int]]:
    """The source and the indices of a Gather along ``axis`` by a constant list; None and no indices for others."""
    node = made_by(value, "Gather")
    found = gather_of(m.facts, node) if node is not None and node.graph is reader.graph else ""
    if isinstance(found, str) or found.axis != axis or found.indices.ndim != 1 or not is_read_once(value):
        return None, []
    return resolve(found.source), found.indices.tolist()


@rule(
    "concat-of-gathers",
    CANONICALIZE,
    concat,
    benefit=30,
    examples=(
        Rewrites(
            "int64[4] x; a = Gather(x, {0})  b = Gather(x, {2})  y = Concat<axis=0>(a, b, {7})",
            to="int64[4] x; g = Gather<axis=0>(x, {0, 2})  y = Concat<axis=0>(g, {7})",
        ),
        Rewrites(
            "float[2,3,n] x; a = Gather<axis=1>(x, {2, 0})  b = Gather<axis=-2>(x, {1})  y = Concat<axis=1>(a, b)",
            to="float[2,3,n] x; y = Gather<axis=1>(x, {2, 0, 1})",
        ),
        Rejects(
            "int64[4] x; int64[4] z; a = Gather(x, {0})  b = Gather(z, {2})  y = Concat<axis=0>(a, b)",
            because="no two neighbours",
        ),
    ),
)
def concat_of_gathers(m: Match, build: Builder) -> Value:
    """Concat(Gather(x, {i}), Gather(x, {j})) ⟶ Gather(x, {i, j}) along one axis."""
    node = m.node(concat)
    axis = m.axis(node, m.rank(concat))
    groups: list[tuple[Value | None, list[int], list[Value]]] = []
    for value in inputs_of(node):
        source, indices = _gathered(m, value, axis, node)
        if source is not None and groups and groups[-1][0] is source:
            groups[-1][1].extend(indices)
            groups[-1][2].append(value)
        else:
            groups.append((source, indices, [value]))
    m.require(len(groups) < len(inputs_of(node)), "no two neighbours gather from one value")
    made = [
        values[0] if len(values) == 1 else build.Gather(source, np.array(indices, np.int64), axis=axis)
        for source, indices, values in groups
    ]
    result: Value = made[0] if len(made) == 1 else build.Concat(*made, axis=axis)
    return result
