"""GatherND by a single index, which is Gather: x[:, i] as PyTorch's newer exporter writes it, between two Transposes.

Why: Gather runs faster, it takes any axis, and it is what other rules know.
"""

from __future__ import annotations

from onnxrewrite.rules import *

x, places = Var("x"), Var("places")
rows = op.GatherND(x, places, batch_dims=0)


@rule(
    "rows-by-gather",
    CANONICALIZE,
    rows,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[4,s] x; y = GatherND(x, int64[3,1] {0, 3, -1})",
            to="float[4,s] x; i = Squeeze(int64[3,1] {0, 3, -1}, {-1})  y = Gather<axis=0>(x, i)",
        ),
        Rewrites(
            "float[r,s] x; int64[n,m,1] i; y = GatherND(x, i)",
            to="float[r,s] x; int64[n,m,1] i; j = Squeeze(i, {-1})  y = Gather<axis=0>(x, j)",
        ),
        Rejects("float[4,s] x; int64[n,2] i; y = GatherND(x, i)", because="are of more than one number"),
        Rejects("float[4,s] x; int64[4,1] i; y = GatherND<batch_dims=1>(x, i)", because="expected batch_dims=0"),
    ),
)
def rows_by_gather(m: Match, build: Builder) -> Value:
    """GatherND(x, i) ⟶ Gather(x, Squeeze(i), axis=0) where the last dimension of i is 1."""
    m.require(m.dim(places, -1) == 1, "indices are of more than one number", at=places)
    return build.Gather(m[x], build.Squeeze(m[places], axes=(-1,)), axis=0)
