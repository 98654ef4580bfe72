"""Views around linear layers: the rows that a layer is written for, and the heads that its result is taken apart into.

Why: exporters that know a linear layer only as Gemm merge all dimensions but the last for it and undo that at once;
where that is faster, the lower stage does it again.  And a bias that is added to heads is one of the layer, in one
piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.transpose_frames import inverse

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
