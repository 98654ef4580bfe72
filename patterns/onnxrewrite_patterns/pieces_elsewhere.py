"""All pieces of one axis, joined along another: the axis is taken apart and moved there.

Where it comes from: heads that stand one behind the other in the batch (Set Transformer), windows of a sequence.

Why: Split and Concat copy everything twice, a Transpose once; and rules for attention know heads by their Transpose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *

pieces = Each[Value]("pieces", at_least=2)
joined = op.Concat(pieces, axis=Attr[int]("axis"))


@rule(
    "pieces-along-another-axis",
    CANONICALIZE,
    joined,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            "float[b,5,6] x; p, q, r = Split<axis=2>(x, {2, 2, 2})  y = Concat<axis=0>(p, q, r)",
            to="float[b,5,6] x; a = Reshape(x, {0, 5, 3, 2})  t = Transpose<perm=[2,0,1,3]>(a)"
            "y = Reshape(t, {-1, 5, 2})",
        ),
        Rewrites(
            "float[6,s,2] x; p = Slice(x, {0}, {3}, {0})  q = Slice(x, {3}, {6}, {0})  y = Concat<axis=-1>(p, q)",
            to="float[6,s,2] x; a = Reshape(x, {2, 3, -1, 2})  t = Transpose<perm=[1,2,0,3]>(a)"
            "y = Reshape(t, {3, 0, 4})",
        ),
        Rejects("float[b,6] x; p, q = Split<axis=1>(x, {2, 4})  y = Concat<axis=0>(p, q)", because="of several sizes"),
        Rejects("float[b,4] x; p, q = Split<axis=1>(x, {2, 2})  y = Concat<axis=0>(q, p)", because="in their order"),
        Rejects(
            "float[b,4] x; p, q = Split<axis=1>(x, {2, 2})  y = Concat<axis=1>(p, q)", because="joined along their axis"
        ),
        Rejects(
            "float[b,4] x; float[b,2] z; p = Slice(x, {0}, {2}, {1})  y = Concat<axis=0>(p, z)",
            because="not all pieces of one axis",
        ),
    ),
)
def pieces_along_another_axis(m: Match, build: Builder) -> Value:
    """Concat(Split(x, axis=i), axis=j) ⟶ Reshape(Transpose(Reshape(x))), where the pieces are of one size."""
    source, axis, width = _cut(m, [resolve(v) for v in m[pieces]])
    shape, count = list(m.known(m.shape(source), "the rank is not known", at=source)), len(m[pieces])
    along = m.axis(m.node(joined), len(shape))
    m.require(along != axis, "they are joined along their axis", at=joined)
    apart = _viewed(m, build, source, (*shape[:axis], count, width, *shape[axis + 1 :]))
    places = [place if place < axis else place + 1 for place in range(len(shape))]
    turned = build.Transpose(apart, perm=(*places[:along], axis, *places[along:]))
    return _viewed(m, build, turned, m.known(m.shape(joined), "the rank is not known", at=joined))


def _cut(m: Match, values: Sequence[Value]) -> tuple[Value, int, int]:
    """The value that all of them are the pieces of, in their order and of one size; the axis, and the size."""
    found = [piece_of(m.facts, v) for v in values]
    known = [p for p in found if not isinstance(p, str)]
    whole = len(known) == len(found) and len({(p.source, p.axis) for p in known}) == 1
    m.require(whole and isinstance(known[0].size, int), "they are not all pieces of one axis", at=joined)
    width = len(known[0].elements)
    m.require(all(len(p.elements) == width for p in known), "the pieces are of several sizes", at=joined)
    ordered = [p.elements for p in known] == [range(k * width, (k + 1) * width) for k in range(len(known))]
    m.require(ordered and known[0].size == width * len(known), "they are not all pieces in their order", at=joined)
    m.cover(*{node for v in values if (node := made_by(v, "Slice", "Split")) is not None})
    return known[0].source, known[0].axis, width


def _viewed(m: Match, build: Builder, x: Value, wanted: Sequence[Dim]) -> Value:
    target = reshape_target(m.shape(x), wanted, [-1] * len(wanted))
    return build.Reshape(x, np.array(m.known(target, "no constant target views it so", at=joined), np.int64))
