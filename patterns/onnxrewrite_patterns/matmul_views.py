"""MatMul of views that merge all dimensions but the last two into one, and a view of the result that takes them apart.

Why: exporters that know only a product of batches write [B, H, S, D] as [B·H, S, D] for it and undo that at once,
three nodes a product that move nothing; and what follows, attention say, is not recognized in pieces.  So do those that
write a linear layer as Gemm, with all dimensions but the last in one; where that is faster, the lower stage does it
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *

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
    m.require(same_shape(m.shape(apart), (*of_a[:-1], columns)), "the result is not given the batch again", at=apart)
    if b in m:
        return build.MatMul(m[a], m[b])
    rank = len(of_b)
    return build.MatMul(m[a], build.Transpose(m[bt], perm=(*range(rank - 2), rank - 1, rank - 2)))


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
    again = isinstance(target, tuple) and 0 not in target
    m.require(again, "the result is not given the dimensions of x again, nor constant ones", at=unflat)
    return build.Reshape(made, np.array(target))


def _weight(m: Match, build: Builder) -> Value:
    """The weight as MatMul takes it."""
    weight = m.value(w)
    assert weight is not None
    if gemm not in m:
        return weight
    m.require(m.attr(gemm, "alpha") == m.attr(gemm, "beta") == 1, "there are factors")
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
