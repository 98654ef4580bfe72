"""Sums in one spelling: Add for Sum, Sub for the sum with an opposite, and a bias next to the product it belongs to.

Why: rules about linear layers and residual connections then see one form, and ONNX Runtime's kernels for Add and Sub
are its fastest; Sum broadcasts its operands one after the other.
"""

from __future__ import annotations

import functools

from onnxrewrite.rules import *

terms = Each[Value]("terms")
total = op.Sum(terms)

UNFUSED = frozenset({"add-before-norm", "add-before-gelu"})
"""The rules that write Sum, for ONNX Runtime to leave it alone."""


@rule(
    "sum-of-terms",
    RAISE,
    total,
    examples=(
        Rewrites("y = Sum(a, b)", to="y = Add(a, b)"),
        Rewrites("y = Sum(a, b, c)", to="s = Add(a, b)  y = Add(s, c)"),
        Rejects("y = Sum(a)", because="one term"),
    ),
)
def added(m: Match, build: Builder) -> Value:
    """Sum(a, b, c) ⟶ (a + b) + c."""
    m.require(len(m[terms]) > 1, "it has one term")
    m.require(UNFUSED.isdisjoint(written_by(m.node(total))), "it is the result of lowering")
    made: Value = functools.reduce(build.Add, m[terms])
    return made


a, b = Var("a"), Var("b")
opposite = op.Neg(b)
less = op.Add(a, opposite)


@rule(
    "plus-opposite",
    RAISE,
    less,
    examples=(
        Rewrites("float a; float b; n = Neg(b)  y = Add(n, a)", to="float a; float b; y = Sub(a, b)"),
        Rejects("float a; float b; n = Neg(b)  y = Sub(a, n)", because="expected Add"),
        Rejects("float b; n = Neg(b)  y = Add(n, n)", because="the opposite is the other term, too"),
    ),
)
def plus_opposite(m: Match, build: Builder) -> Value:
    """A + (-b) ⟶ a - b."""
    m.require(m[a] is not m[opposite], "the opposite is the other term, too", at=a)
    return build.Sub(m[a], m[b])


x, rest = Var("x", dtype=FLOATS), Var("rest")
weight, bias = Const("weight"), Const("bias")
product = op.MatMul(x, weight)
outside, inside = op.Add(op.Add(product, rest), bias), op.Add(product, op.Add(rest, bias))
biased = any_of(outside, inside)

_LAYER = "float[n,s,2] x; float[n,s,2] r; p = MatMul(x, float[2,2] {1.0, 2.0, 3.0, 4.0})"
_RESULT = f"{_LAYER} b = Add(p, {{5.0, 6.0}})  y = Add(b, r)"


@rule(
    "bias-of-product",
    RAISE,
    biased,
    assumes=(Assumption.IN_RANGE,),
    examples=(
        Rewrites(f"{_LAYER} s = Add(r, p)  y = Add({{5.0, 6.0}}, s)", to=_RESULT),
        Rewrites(f"{_LAYER} s = Add(r, {{5.0, 6.0}})  y = Add(s, p)", to=_RESULT),
        Rejects(f"{_LAYER} s = Add(r, p)  y = Add(s, 5.0)", because="no bias of the product"),
        Rejects(f"{_LAYER} s = Add({{7.0, 8.0}}, p)  y = Add(s, {{5.0, 6.0}})", because="is constant, too"),
        Rejects(
            f"{_LAYER} q = MatMul(r, float[2,2] {{1.0, 0.0, 0.0, 1.0}})  s = Add(q, {{5.0, 6.0}})  y = Add(p, s)",
            because="the bias of another product already",
        ),
    ),
)
def bias_of_product(m: Match, build: Builder) -> Value:
    """(x·w + rest) + bias ⟶ (x·w + bias) + rest, and likewise x·w + (rest + bias)."""
    m.require(m.shape(bias) == (m.shape(weight) or ())[-1:], "it is no bias of the product", at=m.anchor)
    m.require(m.facts.constant(resolve(m[rest])) is None, "what else is added is constant, too", at=rest)
    other = made_by(m[rest], "MatMul") if inside in m else None
    is_biased = other is not None and m.facts.constant(m.operand(other, 1)) is not None
    m.require(not is_biased, "it is the bias of another product already", at=rest)
    with_bias = build.Add(m[product], m.value(bias))
    made: Value = build.Add(with_bias, m[rest])
    return made


# -- between views -------------------------------------------------------------------------------------------

whole, first, second = Var("x"), Var("first"), Var("second")
split = op.Reshape(whole, Var("sizes"))
summed = any_of(op.Add(op.Add(split, first), second), op.Add(split, first))
merged = op.Reshape(summed, Var("shape of x"))

_SPLIT = "float[n,6,4] x; v = Reshape(x, {0, 2, 3, 2, 2})"


@rule(
    "sum-between-views",
    RAISE,
    merged,
    assumes=(Assumption.IN_RANGE,),
    examples=(
        Rewrites(
            f"{_SPLIT} float[n,2,3,2,1] h; float[n,2,3,1,2] w; s = Add(v, h)  t = Add(w, s)"
            "  y = Reshape(t, {0, 6, 4})",
            to="float[n,6,4] x; float[n,2,3,2,1] h; float[n,2,3,1,2] w; s = Add(h, w)  r = Reshape(s, {0, 6, 4})"
            "y = Add(x, r)",
        ),
        Rewrites(
            f"{_SPLIT} float[n,2,3,2,2] h; s = Add(v, h)  y = Reshape(s, {{0, 6, 4}})",
            to="float[n,6,4] x; float[n,2,3,2,2] h; r = Reshape(h, {0, 6, 4})  y = Add(x, r)",
        ),
        Rejects(
            "float[b,3,2] z; float[b,3,2] h; x = Reshape(z, {-1, 2})  v = Reshape(x, {-1, 3, 2})  s = Add(v, h)"
            "  y = Reshape(s, {0, 3, 2})",
            because="not known to undo",
        ),
        Rejects(
            f"{_SPLIT} float[n,2,3,2,1] h; s = Add(v, h)  y = Reshape(s, {{0, 6, 4}})",
            because="not of the shape it is added in",
        ),
        Rejects(
            f"{_SPLIT} float[n,2,3,2,2] h; s = Add(v, h)  y = Reshape(s, {{0, 4, 6}})",
            because="not known to undo",
        ),
        Rejects(
            "float x; float[2,3] h; v = Reshape(x, {2, 3})  s = Add(v, h)  y = Reshape(s, {2, 3, 1})",
            because="not known to undo",
        ),
    ),
)
def sum_between_views(m: Match, build: Builder) -> Value:
    """Reshape(Reshape(x) + first + second) ⟶ x + Reshape(first + second), of the shape of x."""
    m.node(split), m.node(merged)  # their results count, whatever their attributes
    added = build.Add(m[first], m[second]) if second in m else m[first]
    is_full = same_shape(m.shape(added), m.shape(split))
    m.require(is_full, "what is added is not of the shape it is added in", at=split)
    m.require(same_shape(m.shape(whole), m.shape(merged)), "the views are not known to undo each other", at=whole)
    made: Value = build.Add(m[whole], reshaped_as(m, build, added, m[merged]))
    return made
