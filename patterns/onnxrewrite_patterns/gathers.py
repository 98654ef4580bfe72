"""Gather of a single element, and its axis back again: x[:, 0].unsqueeze(1) is x[:, {0}].

Where it comes from: the first token of a sequence, a step of a recurrent network.

Why: one node, where two read and write the same elements.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *

x = Var("x")
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
