"""MatMul of views that merge all dimensions but the last two into one, and a view of the result that takes them apart.

Why: exporters that know only a product of batches write [B, H, S, D] as [B·H, S, D] for it and undo that at once,
three nodes a product that move nothing; and what follows, attention say, is not recognized in pieces.  So do those that
write a linear layer as Gemm, with all dimensions but the last in one; where that is faster, the lower stage does it
again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.transpose_frames import inverse

a, b, bt = (Var(name, dtype=FLOATS) for name in ("a", "b", "bᵀ"))
flat_a, flat_b, flat_bt = (op.Reshape(x, Var(f"shape of {x.name}")) for x in (a, b, bt))
product = op.MatMul(flat_a, any_of(flat_b, op.Transpose(flat_bt, perm=(0, 2, 1))))
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
    """Reshape(MatMul(Reshape(a), Reshape(b))) ⟶ MatMul(a, b), where only the batch is merged and split again."""
    flat, second = (flat_b, b) if b in m else (flat_bt, bt)
    m.node(flat_a), m.node(flat), m.node(apart)  # of all of them the results count, whatever their attributes
    of_a, of_b = (_matrix(m, x, view) for x, view in ((a, flat_a), (second, flat)))
    m.require(same_shape(of_a[:-2], of_b[:-2]), "the factors have different batches", at=product)
    columns = of_b[-1] if b in m else of_b[-2]
    wanted, given = (*of_a[:-1], columns), m.shape(apart)
    same = same_shape(_without_ones(given), _without_ones(wanted))
    m.require(same, "the result is not given the batch again", at=apart)
    rank = len(of_b)
    factor = m[b] if b in m else build.Transpose(m[bt], perm=(*range(rank - 2), rank - 1, rank - 2))
    made = build.MatMul(m[a], factor)
    return made if same_shape(given, wanted) else reshaped_as(m, build, made, m[apart])


def _without_ones(shape: Sequence[Dim] | None) -> list[Dim]:
    """The sizes of the axes that are not of size 1."""
    return [size for size in shape or () if size != 1]


x, w, bias = Var("x", dtype=FLOATS), Const("w", rank=2), Var("bias", default=None)
rows = op.Reshape(x, Var("shape of the rows"))
gemm = op.Gemm(rows, w, bias)
layer = any_of(gemm, op.MatMul(rows, w))
unflat = op[operators("view")](layer, Var("shape of the result", default=None))

LOWERED = frozenset({"matmul-add-flat", "attention-lower"})
"""The rules of the lower stage that write rows."""

_ROWS = "float[n,s,2] x; r = Reshape(x, {-1, 2})"
_AGAIN = "h = Shape(x)  l = Slice(h, {0}, {2}, {0})  t = Concat<axis=0>(l, {1})"


@rule(
    "linear-of-rows",
    RAISE,
    unflat,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_ROWS} g = Gemm(r, float[2,1] {{1, 2}}, {{3.0}})  {_AGAIN} y = Reshape(g, t)",
            to="float[n,s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Add(p, {3.0})",
        ),
        Rewrites(
            "float[4,s,2] x; r = Reshape(x, {-1, 2})  g = Gemm<transB=1>(r, float[1,2] {1, 2})"
            "  y = Reshape(g, {4, -1, 1})",
            to="float[4,s,2] x; y = MatMul(x, float[2,1] {1, 2})",
        ),
        Rewrites(
            f"{_ROWS} g = MatMul(r, float[2,1] {{1, 2}})  {_AGAIN} y = Reshape(g, t)",
            to="float[n,s,2] x; y = MatMul(x, float[2,1] {1, 2})",
        ),
        Rewrites(
            "float[4,s,2] x; r = Reshape(x, {-1, 2})  g = Gemm(r, float[2,1] {1, 2})  y = Reshape(g, {2, -1, 1})",
            to="float[4,s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Reshape(p, {2, -1, 1})",
        ),
        Rewrites(
            "float[2,3,2,2] x; r = Reshape(x, {6, 4})  g = Gemm(r, float[4,1] {1, 2, 3, 4})  y = Reshape(g, {2, 3, 1})",
            to="float[2,3,2,2] x; r = Reshape(x, {2, 3, 4})  y = MatMul(r, float[4,1] {1, 2, 3, 4})",
        ),
        Rejects(
            "float[4,s,2] x; r = Reshape(x, {-1, 2})  g = Gemm(r, float[2,1] {1, 2})  y = Reshape(g, {0, 1, 1})",
            because="not given the dimensions of x again",
        ),
        Rejects(
            "float[4,s,2] x; r = Reshape(x, {-1, 2})  g = Gemm(r, float[2,1] {1, 2})  y = Reshape(g, {4, -1, 1})"
            "  z = Relu(g)",
            because="used elsewhere",
        ),
        Rejects(
            "float[4,s,4] x; r = Reshape(x, {-1, 2})  g = Gemm(r, float[2,2] {1, 2, 3, 4})  y = Reshape(g, {4, -1, 1})",
            because="changes the last dimension",
        ),
        Rejects(f"{_ROWS} g = Gemm<alpha=2.0>(r, float[2,1] {{1, 2}})  {_AGAIN} y = Reshape(g, t)", because="factors"),
        Rejects(
            f"{_ROWS} float[m,1] b; g = Gemm(r, float[2,1] {{1, 2}}, b)  {_AGAIN} y = Reshape(g, t)",
            because="not one for all rows",
        ),
    ),
)
def linear_of_rows(m: Match, build: Builder) -> Value:
    """Reshape(Gemm(Reshape(x, rows), w, b)) ⟶ x·w + b, where all dimensions but the last are merged.

    Where the first view takes others apart or together besides, x gets the dimensions of the result.
    """
    m.node(rows), m.node(unflat)
    m.require(is_read_once(m[layer]), "the product is used elsewhere, too", at=layer)
    written = written_by(m.node(m.call(layer))) | written_by(m.node(rows))
    m.require(written.isdisjoint(LOWERED), "it is the result of lowering")
    weight = _weight(m, build)
    of_weight = m.shape(weight) or ()
    before, after = m.shape(x) or (), m.shape(unflat) or ()
    keeps = len(before) > 2 and same_shape(before[-1:], of_weight[:1])
    source = m[x] if keeps else _with_dimensions_of_result(m, build, of_weight)
    made = build.MatMul(source, weight)
    if bias in m:
        own = m.shape(bias)
        m.require(own is not None and len(own) < 2, "the bias is not one for all rows", at=bias)
        made = build.Add(made, m[bias])
    if not keeps or same_shape(after, (*before[:-1], of_weight[-1])):
        return made
    target = parameter(m.facts, m.node(unflat), "shape")
    if isinstance(target, tuple) and 0 not in target:
        return build.Reshape(made, np.array(target))
    m.require(not isinstance(target, tuple), "the result is not given the dimensions of x again, nor others", at=unflat)
    return reshaped_as(m, build, made, m[unflat])


def _weight(m: Match, build: Builder) -> Value:
    """The weight as MatMul takes it."""
    weight = m.value(w)
    assert weight is not None
    if gemm not in m:
        return weight
    beta = m.attr(gemm, "beta") if bias in m else 1
    m.require(m.attr(gemm, "alpha") == beta == 1, "there are factors")
    m.require(not m.attr(gemm, "transA"), "the rows are transposed")
    if not m.attr(gemm, "transB"):
        return weight
    array = m.facts.constant(resolve(weight))
    assert array is not None
    return build.const(array.T, like=w)


def _with_dimensions_of_result(m: Match, build: Builder, weight: Sequence[Dim]) -> Value:
    """The operand with all the dimensions of the result but the last, for which it has its own."""
    after = m.shape(unflat) or ()
    kept = len(after) > 2 and same_shape(after[-1:], weight[-1:])
    m.require(kept, "the view changes the last dimension, and so does that of the result", at=rows)
    target = reshape_target(m.shape(x), (*after[:-1], weight[0]), None)
    m.require(target is not None, "x is not given the dimensions of the result by a constant target", at=unflat)
    return build.Reshape(m[x], np.array(target))


product_of_layer, shift = op.MatMul(x, w), Const("shift")
perm = Attr[tuple[int, ...]]("perm")
heads = op.Reshape(product_of_layer, Var("shape of the heads"))
turned = op.Transpose(heads, perm=perm)
shifted = any_of(heads, turned) + shift

_HEADS = "float[n,s,2] x; p = MatMul(x, float[2,4] {1, 2, 3, 4, 5, 6, 7, 8})  h = Reshape(p, {0, 0, 2, 2})"


@rule(
    "bias-of-heads",
    CANONICALIZE,
    shifted,
    benefit=10,
    examples=(
        Rewrites(
            f"{_HEADS} y = Add(h, float[2,2] {{1, 2, 3, 4}})",
            to="float[n,s,2] x; p = MatMul(x, float[2,4] {1, 2, 3, 4, 5, 6, 7, 8})  a = Add(p, {1., 2., 3., 4.})"
            "  y = Reshape(a, {0, 0, 2, 2})",
        ),
        Rewrites(
            f"{_HEADS} y = Add(float[1,1,2,1] {{1, 2}}, h)",
            to="float[n,s,2] x; p = MatMul(x, float[2,4] {1, 2, 3, 4, 5, 6, 7, 8})  a = Add(p, {1., 1., 2., 2.})"
            "  y = Reshape(a, {0, 0, 2, 2})",
        ),
        Rewrites(
            f"{_HEADS} t = Transpose<perm=[0,2,3,1]>(h)  y = Add(t, float[2,2,1] {{1, 2, 3, 4}})",
            to="float[n,s,2] x; p = MatMul(x, float[2,4] {1, 2, 3, 4, 5, 6, 7, 8})  a = Add(p, {1., 2., 3., 4.})"
            "  h = Reshape(a, {0, 0, 2, 2})  y = Transpose<perm=[0,2,3,1]>(h)",
        ),
        Rejects(f"{_HEADS} y = Add(h, 1.0)", because="one number"),
        Rejects(
            "float[2,3,2] x; p = MatMul(x, float[2,4] {1, 2, 3, 4, 5, 6, 7, 8})  h = Reshape(p, {2, 3, 2, 2})"
            "  y = Add(h, float[2,1,1,1] {1, 2})",
            because="not the same for all rows",
        ),
        Rejects(
            "float[2,3,2] x; p = MatMul(x, float[2,4] {1, 2, 3, 4, 5, 6, 7, 8})  h = Reshape(p, {3, 2, 2, 2})"
            "  y = Add(h, float[2,2] {1, 2, 3, 4})",
            because="takes more apart than the last dimension",
        ),
    ),
)
def bias_of_heads(m: Match, build: Builder) -> Value:
    """Reshape(x·w) + b ⟶ Reshape(x·w + b), where the view takes the last dimension apart: a bias in one piece."""
    m.node(heads)
    before, after, own = m.shape(product_of_layer) or (), m.shape(heads) or (), m.shape(shift) or ()
    sizes = [size for size in own if isinstance(size, int)]
    apart = [size for size in after[len(before) - 1 :] if isinstance(size, int)]
    is_split = same_shape((*before[:-1], *apart), after) and len(apart) > 1 and math.prod(apart) == before[-1]
    m.require(is_split, "the view takes more apart than the last dimension", at=heads)
    m.require(math.prod(sizes) > 1 and len(sizes) <= len(after), "it adds one number", at=shift)
    order = m[perm] if turned in m else tuple(range(len(after)))
    rows = [1] * (len(after) - len(apart)) + apart
    spread = [1] * (len(rows) - len(sizes)) + sizes
    fits = all(size in (1, rows[axis]) for size, axis in zip(spread, order, strict=True))
    m.require(fits, "what is added is not the same for all rows", at=shift)
    array = m[shift].reshape(spread).transpose(inverse(order))
    bias = build.const(np.broadcast_to(array, rows).reshape(-1), like=shift)
    made = reshaped_as(m, build, build.Add(m[product_of_layer], bias), m[heads])
    return made if turned not in m else build.Transpose(made, perm=order)
