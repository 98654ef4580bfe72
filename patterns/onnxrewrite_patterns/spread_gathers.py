"""Gathers from an axis along which a value was written out: x spread over a new axis, and indexed along it.

Where it comes from: PyTorch's ``repeat_interleave``, which TorchScript exports as an index into [n, r, ...], r times
for each of the n elements.

Why: along an axis of equal elements any index finds the same one, so that neither the axis nor its elements are needed.
"""

from __future__ import annotations

from onnxrewrite.rules import *

x, index = Var("x"), Const("index", rank=2)
new_axes_, target = Attr[tuple[int, ...]]("axes"), Var("target")
lifted = op.Unsqueeze(x, axes=new_axes_)
spread = op.Expand(lifted, target)
gathered = op.GatherND(spread, index, batch_dims=0)

_SPREAD = "float[4,s] x; u = Unsqueeze(x, {1})  e = Expand(u, {4, 2, 1})"


@rule(
    "gather-from-spread",
    CANONICALIZE,
    gathered,
    benefit=50,
    examples=(
        Rewrites(
            f"{_SPREAD} y = GatherND(e, int64[8,2] {{0, 0, 0, 1, 1, 0, 1, 1, 2, 0, 2, 1, 3, 0, 3, 1}})",
            to="float[4,s] x; y = Gather<axis=0>(x, {0, 0, 1, 1, 2, 2, 3, 3})",
        ),
        Rewrites(
            "float[4,s] x; u = Unsqueeze(x, {0})  e = Expand(u, {3, 1, 1})"
            "y = GatherND(e, int64[3,2] {0, -1, -1, 3, 2, 0})",
            to="float[4,s] x; y = Gather<axis=0>(x, {-1, 3, 0})",
        ),
        Rejects(f"{_SPREAD} y = GatherND(e, int64[2,3] {{0, 0, 0, 1, 1, 0}})", because="indices of one axis more"),
        Rejects(f"{_SPREAD} y = GatherND(e, int64[2,2] {{0, 0, 1, 2}})", because="beyond its axis"),
        Rejects(
            "float[1,s] x; u = Unsqueeze(x, {0})  e = Expand(u, {3, 1, 1})  y = GatherND(e, int64[1,2] {0, 3})",
            because="beyond its axis",
        ),
        Rejects(
            "float[4,s] x; u = Unsqueeze(x, {2})  e = Expand(u, {4, 1, 2})  y = GatherND(e, int64[2,2] {0, 0, 1, 0})",
            because="another axis is indexed",
        ),
        Rejects(
            "float[1,s] x; u = Unsqueeze(x, {1})  e = Expand(u, {4, 2, 1})  y = GatherND(e, int64[2,2] {0, 0, 1, 1})",
            because="another axis is spread",
        ),
    ),
)
def gather_from_spread(m: Match, build: Builder) -> Value:
    """GatherND(Expand(Unsqueeze(x)), {(i, j), ...}) ⟶ Gather(x, {i, ...}) where x is spread along the axis of j."""
    rows, rank = m[index], m.rank(lifted)
    m.require(rows.shape[1] == 2, "they are not indices of one axis more than is spread", at=index)
    m.require(rank is not None and len(m[new_axes_]) == 1, "several axes are added, or the rank is not known", at=x)
    axis = m[new_axes_][0] % (rank or 1)
    m.require(axis < 2, "another axis is indexed", at=index)
    before, after = list(m.shape(lifted) or ()), list(m.shape(spread) or ())
    times = after.pop(axis) if len(after) == rank else None
    before.pop(axis)
    m.require(times is not None and same_shape(before, after), "another axis is spread, too", at=spread)
    size, along, kept = m.dim(x, 0), rows[:, axis], rows[:, 1 - axis]
    m.require(
        _are_within(along, times) and _are_within(kept, size), "an index is, or may be, beyond its axis", at=index
    )
    return build.Gather(m[x], kept, axis=0)


def _are_within(places: Array, size: Dim | None) -> bool:
    """True if indices, from either end, are known to be those of an axis."""
    return isinstance(size, int) and bool(((-size <= places) & (places < size)).all())
