"""Gather of a single element, and its axis back again: x[:, 0].unsqueeze(1) is x[:, {0}]; Gather of a range, x[:, 2:5];
indices that count from the other end; an element of an axis that was taken apart, x.reshape(n, 3, k)[:, 1].

Where it comes from: the first token of a sequence, a step of a recurrent network; indices that were computed; queries,
keys and values of one packed weight.

Why: one node, where two read and write the same elements; and rules know a piece of an axis by its Slice.
"""

from __future__ import annotations

import math

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


indices = Const("indices", rank=1)
of_range = op.Gather(x, indices)


@rule(
    "gather-of-range",
    CANONICALIZE,
    of_range,
    examples=(
        Rewrites("float[n,6] x; y = Gather<axis=1>(x, {2, 3, 4})", to="float[n,6] x; y = Slice(x, {2}, {5}, {1})"),
        Rewrites("float[n,6] x; y = Gather<axis=-1>(x, {-2, -1})", to="float[n,6] x; y = Slice(x, {4}, {6}, {1})"),
        Rewrites(
            "float[n,6] x; y = Gather<axis=1>(x, {2, 3})",
            to="float[n,6] x; y = Slice<starts=[2], ends=[4], axes=[1]>(x)",
            opset=9,
        ),
        Rejects("float[n,6] x; y = Gather<axis=1>(x, {2})", because="several"),
        Rejects("float[n,6] x; y = Gather<axis=1>(x, {2, 4})", because="no range"),
        Rejects("float[n,6] x; y = Gather<axis=1>(x, {-1, 0})", because="no range"),
        Rejects("float[n,6] x; y = Gather<axis=1>(x, {5, 6})", because="not among 6"),
        Rejects("float[n,6] x; y = Gather<axis=0>(x, {2, 3})", because="size of the axis is not known"),
    ),
)
def gather_of_range(m: Match, build: Builder) -> Value:
    """Gather(x, {2, 3, 4}) ⟶ x[2:5]."""
    axis = m.axis(m.node(of_range), m.rank(x))
    size, places = m.dim(x, axis), [int(i) for i in m[indices]]
    m.require(isinstance(size, int), "the size of the axis is not known", at=x)
    assert isinstance(size, int)
    m.require(all(-size <= i < size for i in places), f"the indices are not among {size}", at=indices)
    places = [i % size for i in places]
    m.require(len(places) > 1, "there are not several elements", at=indices)
    m.require(places == list(range(places[0], places[0] + len(places))), "the indices are no range", at=indices)
    made: Value = build.Slice(m[x], starts=[places[0]], ends=[places[-1] + 1], axes=[axis])
    return made


places = Const("places")
from_end = op.Gather(x, places)

_MOST = 4096
"""So many indices are read."""


@rule(
    "gather-from-end",
    CANONICALIZE,
    from_end,
    examples=(
        Rewrites("float[n,6] x; y = Gather<axis=1>(x, -1)", to="float[n,6] x; y = Gather<axis=1>(x, 5)"),
        Rewrites("float[n,6] x; y = Gather<axis=-1>(x, {-2, 1})", to="float[n,6] x; y = Gather<axis=-1>(x, {4, 1})"),
        Rejects("float[n,6] x; y = Gather<axis=1>(x, 5)", because="none counts from the end"),
        Rejects("float[n,6] x; y = Gather<axis=1>(x, -7)", because="not among 6"),
        Rejects("float[n,6] x; y = Gather<axis=0>(x, -1)", because="size of the axis is not known"),
        Rejects("float[6] x; y = Gather(x, int64[4097] ~)", because="too many"),
    ),
)
def gather_from_end(m: Match, build: Builder) -> Value:
    """Gather(x, {-1}) ⟶ Gather(x, {n - 1}) along an axis of n elements."""
    axis, count = m.axis(m.node(from_end), m.rank(x)), m.shape(places)  # first, for a large table is not to be read
    m.require(count is not None and math.prod(d for d in count if isinstance(d, int)) <= _MOST, "they are too many")
    size, found = m.dim(x, axis), m[places]
    m.require((found < 0).any(), "none counts from the end", at=places)
    m.require(isinstance(size, int), "the size of the axis is not known", at=x)
    assert isinstance(size, int)
    m.require(((-size <= found) & (found < size)).all(), f"the indices are not among {size}", at=places)
    made = np.where(found < 0, found + size, found)
    return build.Gather(m[x], build.const(made, like=places), axis=m.attr(from_end, "axis"))


data = Var("data", dtype=FLOATS)
slice_ = op.Slice(data, Each("bounds", at_least=0))
without = op[operators("view")](slice_, Each("rest", at_least=0))


@rule(
    "slice-of-one",
    CANONICALIZE,
    without,
    benefit=50,
    examples=(
        Rewrites(
            "float[n,6,s] x; p = Slice(x, {2}, {3}, {1})  y = Squeeze(p, {1})",
            to="float[n,6,s] x; y = Gather<axis=1>(x, 2)",
        ),
        Rewrites(
            "float[n,6,4] x; p = Slice(x, {-1}, {9223372036854775807}, {1})  y = Reshape(p, {-1, 4})",
            to="float[n,6,4] x; y = Gather<axis=1>(x, 5)",
        ),
        Rejects("float[n,6,s] x; p = Slice(x, {2}, {4}, {1})  y = Reshape(p, {0, -1})", because="not one element"),
        Rejects("float[n,6,4] x; p = Slice(x, {2}, {3}, {1})  y = Reshape(p, {-1})", because="another axis goes"),
        Rejects("int64[n,6] x; p = Slice(x, {2}, {3}, {1})  y = Squeeze(p, {1})", because="dtype"),
        Rejects(
            "float[n,6] x; p = Slice(x, {0}, {1}, {1})  q = Slice(x, {1}, {6}, {1})  y = Squeeze(p, {1})",
            because="other pieces",
        ),
    ),
)
def slice_of_one(m: Match, build: Builder) -> Value:
    """Squeeze(x[:, i:i + 1]) ⟶ Gather(x, i), of one element along the axis that goes."""
    node = m.node(slice_)
    found, shape = piece_of(m.facts, m[slice_]), m.shape(data) or ()
    if isinstance(found, str):
        m.refuse(found, at=slice_)
    m.node(without)  # of it the result counts, whatever its attributes
    rest = (*shape[: found.axis], *shape[found.axis + 1 :])
    m.require(len(found.elements) == 1, "it is not one element", at=slice_)
    m.require(same_shape(m.shape(without), rest), "another axis goes than that of the element", at=without)
    others = any(n.op_type in ("Slice", "Split") and n is not node for n in readers(m[data], within=1))
    m.require(not others, "there are other pieces of x", at=data)
    return build.Gather(m[data], np.array(found.elements[0], np.int64), axis=found.axis)


whole, place = Var("whole", dtype=FLOATS), Const("place", rank=0)
taken_apart = op.Reshape(whole, Each("target", at_least=0))
part = op.Gather(taken_apart, place)


@rule(
    "gather-from-split-axis",
    CANONICALIZE,
    part,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[b,s,12] x; r = Reshape(x, {0, 0, 3, 4})  y = Gather<axis=2>(r, 1)",
            to="float[b,s,12] x; y = Slice(x, {4}, {8}, {2})",
        ),
        Rewrites(
            "float[b,s,12] x; r = Reshape(x, {0, 0, 3, 4})  p = Gather<axis=2>(r, 0)  q = Gather<axis=2>(r, 2)"
            "y = Sub(p, q)",
            to="float[b,s,12] x; p = Slice(x, {0}, {4}, {2})  q = Slice(x, {8}, {12}, {2})  y = Sub(p, q)",
        ),
        Rewrites(
            "float[b,12,5] x; r = Reshape(x, {0, 3, 2, 2, 5})  y = Gather<axis=1>(r, 2)",
            to="float[b,12,5] x; p = Slice(x, {8}, {12}, {1})  y = Reshape(p, {0, 2, 2, 5})",
        ),
        Rejects("float[b,s,12] x; r = Reshape(x, {0, 0, 4, 3})  y = Gather<axis=3>(r, 1)", because="not taken apart"),
        Rejects("float[b,3,4] x; r = Reshape(x, {0, 12})  y = Gather<axis=1>(r, 1)", because="not taken apart"),
        Rejects("float[b,s] x; r = Reshape(x, {0, 3, -1})  y = Gather<axis=1>(r, 1)", because="not known"),
        Rejects("float[b,6,s] x; r = Reshape(x, {0, 2, 3, -1})  y = Gather<axis=1>(r, 2)", because="not among 2"),
        Rejects("float[b,8,3] x; r = Reshape(x, {0, 4, 6})  y = Gather<axis=1>(r, 1)", because="not taken apart"),
    ),
)
def gather_from_split_axis(m: Match, build: Builder) -> Value:
    """Gather(Reshape(x), i) ⟶ x[:, i·k:(i + 1)·k], where Reshape takes an axis apart into n·k and i is one of the n."""
    before, after = m.shape(whole), m.shape(taken_apart)
    if before is None or after is None or len(before) >= len(after):
        m.refuse("the axis is not taken apart", at=taken_apart)
    axis, added = m.axis(m.node(part), len(after)), len(after) - len(before)
    inner, count = after[axis + 1 : axis + 1 + added], after[axis]
    kept = axis < len(before) and same_shape(before[:axis], after[:axis])
    kept = kept and same_shape(before[axis + 1 :], after[axis + 1 + added :])
    m.require(kept, "the axis is not taken apart", at=whole)
    if not isinstance(count, int) or not all(isinstance(size, int) for size in (before[axis], *inner)):
        m.refuse("its sizes are not known", at=whole)
    at, width = int(m[place]), math.prod(inner)
    m.require(-count <= at < count, f"the index is not among {count}", at=place)
    start = at % count * width
    piece = build.Slice(m[whole], starts=[start], ends=[start + width], axes=[axis])
    return reshaped_as(m, build, piece, m[part]) if added > 1 else piece
