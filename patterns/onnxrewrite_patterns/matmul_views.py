"""MatMul of views that merge all dimensions but the last two into one, and a view of the result that takes them apart.

Why: exporters that know only a product of batches write [B, H, S, D] as [B·H, S, D] for it and undo that at once,
three nodes a product that move nothing; and what follows, attention say, is not recognized in pieces.  There the first
factor is the Softmax of such a view.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxrewrite.rules import *
from onnxrewrite_patterns.softmax import require_last_axis

a, b, bt = (Var(name, dtype=FLOATS) for name in ("a", "b", "bᵀ"))
flat_a, flat_b, flat_bt = (op.Reshape(x, Var(f"shape of {x.name}")) for x in (a, b, bt))
softmax = op.Softmax(flat_a, axis=Attr[int | None]("axis", default=None))
product = op.MatMul(any_of(softmax, flat_a), any_of(flat_b, op.Transpose(flat_bt, perm=(0, 2, 1))))
apart = op.Reshape(product, Var("shape of the product"))


def _matrix(m: Match, x: Var, view: Call) -> tuple[Dim, ...]:
    """The shape of x, of which the view merges all dimensions but the last two."""
    before, after = m.shape(x) or (), m.shape(view) or ()
    m.require(len(before) > 3 and len(after) == 3, "a view does not merge the batch", at=view)
    m.require(same_shape(before[-2:], after[1:]), "a view changes the matrices", at=view)
    return before


_FLAT = "float[2,3,s,8] a; float[2,3,8,l] b; p = Reshape(a, {6, -1, 8})  q = Reshape(b, {6, 8, -1})  c = MatMul(p, q)"


@rule(
    "matmul-of-views",
    CANONICALIZE,
    apart,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"{_FLAT} h = Shape(a)  n = Gather(h, {{2}})  t = Concat<axis=0>({{2, 3}}, n, {{-1}})  y = Reshape(c, t)",
            to="float[2,3,s,8] a; float[2,3,8,l] b; y = MatMul(a, b)",
        ),
        Rewrites(
            "float[2,3,4,8] a; float[2,3,5,8] b; p = Reshape(a, {6, 4, 8})  q = Reshape(b, {6, 5, 8})"
            "t = Transpose<perm=[0,2,1]>(q)  c = MatMul(p, t)  y = Reshape<allowzero=1>(c, {2, 3, 4, 5})",
            to="float[2,3,4,8] a; float[2,3,5,8] b; t = Transpose<perm=[0,1,3,2]>(b)  y = MatMul(a, t)",
        ),
        Rewrites(
            "float[b,h,s,8] a; float[b,h,8,l] c; k = Shape<end=2>(a)  n = ReduceProd<keepdims=1>(k)"
            "d = Concat<axis=0>(n, {-1, 8})  p = Reshape(a, d)  e = Concat<axis=0>(n, {8, -1})  q = Reshape(c, e)"
            "o = MatMul(p, q)  i = Shape<start=2, end=3>(a)  j = Shape<start=3>(c)"
            "t = Concat<axis=0>(k, i, j, {1})  y = Reshape(o, t)",
            to="float[b,h,s,8] a; float[b,h,8,l] c; p = MatMul(a, c)  y = Reshape(p, {0, 0, 0, 0, 1})",
        ),
        Rewrites(
            "float[2,3,4,8] a; float[2,3,8,5] b; p = Reshape(a, {6, 4, 8})  s = Softmax(p)  q = Reshape(b, {6, 8, 5})"
            "c = MatMul(s, q)  y = Reshape(c, {2, 3, 4, 5})",
            to="float[2,3,4,8] a; float[2,3,8,5] b; s = Softmax<axis=3>(a)  y = MatMul(s, b)",
        ),
        Rewrites(
            "float16[2,3,4,8] a; float16[2,3,8,5] b; p = Reshape(a, {6, 4, 8})  s = Softmax<axis=2>(p)"
            "q = Reshape(b, {6, 8, 5})  c = MatMul(s, q)  y = Reshape(c, {2, 3, 4, 5})",
            to="float16[2,3,4,8] a; float16[2,3,8,5] b; s = Softmax<axis=3>(a)  y = MatMul(s, b)",
        ),
        Rejects(
            "float[2,3,4,8] a; float[2,3,8,5] b; p = Reshape(a, {6, 4, 8})  s = Softmax<axis=1>(p)"
            "q = Reshape(b, {6, 8, 5})  c = MatMul(s, q)  y = Reshape(c, {2, 3, 4, 5})",
            because="must run along the last axis",
        ),
        Rejects(
            "float[2,3,4,8] a; float[3,2,8,5] b; p = Reshape(a, {6, 4, 8})  q = Reshape(b, {6, 8, 5})"
            "c = MatMul(p, q)  y = Reshape(c, {2, 3, 4, 5})",
            because="different batches",
        ),
        Rejects(
            "float[2,3,4,8] a; float[2,3,8,5] b; p = Reshape(a, {6, 8, 4})  q = Reshape(b, {6, 4, 10})"
            "c = MatMul(p, q)  y = Reshape(c, {2, 3, 8, 10})",
            because="changes the matrices",
        ),
        Rejects(
            "float[2,3,4,8] a; float[2,3,8,5] b; p = Reshape(a, {6, 4, 8})  q = Reshape(b, {6, 8, 5})"
            "c = MatMul(p, q)  y = Reshape(c, {3, 2, 4, 5})",
            because="not given the batch again",
        ),
    ),
)
def matmul_of_views(m: Match, build: Builder) -> Value:
    """Reshape(MatMul(Reshape(a), Reshape(b))) ⟶ MatMul(a, b), where only the batch is merged and split again, and
    likewise of softmax(Reshape(a))."""
    flat, second = (flat_b, b) if b in m else (flat_bt, bt)
    m.node(flat_a), m.node(flat), m.node(apart)  # of all of them the results count, whatever their attributes
    of_a, of_b = (_matrix(m, x, view) for x, view in ((a, flat_a), (second, flat)))
    m.require(same_shape(of_a[:-2], of_b[:-2]), "the factors have different batches", at=product)
    columns = of_b[-1] if b in m else of_b[-2]
    wanted, given = (*of_a[:-1], columns), m.shape(apart)
    same = same_shape(_without_ones(given), _without_ones(wanted))
    m.require(same, "the result is not given the batch again", at=apart)
    rank = len(of_b)
    first = m[a]
    if softmax in m:
        require_last_axis(m, build, softmax)
        first = build.Softmax(first, axis=rank - 1)
    factor = m[b] if b in m else build.Transpose(m[bt], perm=(*range(rank - 2), rank - 1, rank - 2))
    made = build.MatMul(first, factor)
    return made if same_shape(given, wanted) else reshaped_as(m, build, made, m[apart])


def _without_ones(shape: Sequence[Dim] | None) -> list[Dim]:
    """The sizes of the axes that are not of size 1."""
    return [size for size in shape or () if size != 1]
