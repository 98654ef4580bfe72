"""Choices spelled by converters: by products with truth values, with what is done to both, and of indices from the end.

Why: where Where is thought to be missing, c·a + ¬c·b takes its place, six nodes for one.  And x < 0 ? x + n : x is what
Gather does with an index by itself.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxrewrite.rules import *

a, b = Var("a", dtype=INTS), Var("b", dtype=INTS)
c = Var("c", dtype=ir.DataType.BOOL)
to, other_to = Attr[int]("to"), Attr[int]("to of the other")
chosen, other = op.Cast(c, to=to), op.Cast(op.Not(c), to=other_to)

SELECT = rule(
    "where-by-products",
    CANONICALIZE,
    chosen * a + other * b,
    op.Where(c, a, b),
    doc="c·a + ¬c·b ⟶ Where(c, a, b) of integers.",
    examples=(
        Rewrites(
            "bool[n] c; int64[n] a; int64[n] b; p = Cast<to=7>(c)  q = Mul(p, a)  o = Not(c)  r = Cast<to=7>(o)"
            "  s = Mul(b, r)  y = Add(q, s)",
            to="bool[n] c; int64[n] a; int64[n] b; y = Where(c, a, b)",
        ),
        Rejects(
            "bool[n] c; float[n] a; float[n] b; p = Cast<to=1>(c)  q = Mul(p, a)  o = Not(c)  r = Cast<to=1>(o)"
            "  s = Mul(b, r)  y = Add(q, s)",
            because="float",
        ),
        Rejects(
            "bool[n] c; bool[n] d; int64[n] a; int64[n] b; p = Cast<to=7>(c)  q = Mul(p, a)  o = Not(d)"
            "  r = Cast<to=7>(o)  s = Mul(b, r)  y = Add(q, s)",
            because="same value in both places",
        ),
    ),
)

compared = op[operators(marks="opposite")](a, b)
larger, smaller = op.Where(compared, a, b), op.Where(compared, b, a)


@rule(
    "extremum-by-choice",
    CANONICALIZE,
    any_of(larger, smaller),
    examples=(
        Rewrites(
            "int64[n] a; int64[n] b; c = Less(a, b)  y = Where(c, a, b)",
            to="int64[n] a; int64[n] b; y = Min(a, b)",
        ),
        Rewrites(
            "int32[n] a; int32[n] b; c = LessOrEqual(a, b)  y = Where(c, b, a)",
            to="int32[n] a; int32[n] b; y = Max(a, b)",
        ),
        Rewrites(
            "int64[n] a; int64[n] b; c = GreaterOrEqual(a, b)  y = Where(c, a, b)",
            to="int64[n] a; int64[n] b; y = Max(a, b)",
        ),
        Rejects("float[n] a; float[n] b; c = Less(a, b)  y = Where(c, a, b)", because="float"),
        Rejects("int64[n] a; int64[n] b; int64[n] d; c = Less(a, b)  y = Where(c, a, d)", because="the same value"),
    ),
)
def extremum_by_choice(m: Match, build: Builder) -> Value:
    """Where(a < b, a, b) ⟶ Min(a, b) of integers, and likewise Max; of floats NaN is neither."""
    is_max = m.node(compared).op_type.startswith("Greater") == (larger in m)
    result: Value = build.Max(m[a], m[b]) if is_max else build.Min(m[a], m[b])
    return result


x, factor, nothing, low = Var("x", dtype=FLOATS), Scalar("factor"), Scalar("nothing"), Scalar("low")
weight = any_of(op.Where(c, factor, 0.0), op.Cast(c, to=to))
kept_part = op.Mul(x, weight)
product_sum = op.Add(kept_part, op.Where(c, nothing, low))


@rule(
    "where-by-float-products",
    CANONICALIZE,
    product_sum,
    allow_shared=True,
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            "float[n,s] x; bool[n,s] c; w = Where(c, 0.5, 0.0)  p = Mul(w, x)  l = Where(c, -0.0, -1e30)"
            "  y = Add(p, l)",
            to="float[n,s] x; bool[n,s] c; p = Mul(x, 0.5)  y = Where(c, p, -1e30)",
        ),
        Rewrites(
            "float[n,s] x; bool[s] c; w = Cast<to=1>(c)  p = Mul(x, w)  l = Where(c, -0.0, -1e30)  y = Add(l, p)",
            to="float[n,s] x; bool[s] c; y = Where(c, x, -1e30)",
        ),
        Rejects(
            "float[n,s] x; bool[n,s] c; bool[n,s] d; w = Where(d, 0.5, 0.0)  p = Mul(w, x)"
            "  l = Where(c, -0.0, -1e30)  y = Add(p, l)",
            because="same value in both places",
        ),
        Rejects(
            "float[n,s] x; bool[n,s] c; w = Where(c, 0.5, 0.0)  p = Mul(w, x)  l = Where(c, 0.0, -1e30)  y = Add(p, l)",
            because="turns -0.0 into 0.0",
        ),
        Rejects(
            "float[n,s] x; bool[n,s] c; w = Where(c, 0.5, 0.0)  p = Mul(w, x)  l = Where(c, -0.0, 0.0)  y = Add(p, l)",
            because="the sign of zero",
        ),
        Rejects(
            "float[n,s] x; bool[n,s] c; w = Where(c, 0.5, 0.0)  p = Mul(w, x)  l = Where(c, -0.0, -1e30)"
            "  y = Add(p, l)  z = Relu(p)",
            because="the product is used elsewhere",
        ),
    ),
)
def where_by_float_products(m: Match, build: Builder) -> Value:
    """x·where(c, s, 0) + where(c, -0, low) ⟶ where(c, x·s, low), where nothing times x is nothing."""
    m.require(is_read_once(m[kept_part]), "the product is used elsewhere, too", at=m[kept_part])
    m.require(m[nothing] == 0 and math.copysign(1, m[nothing]) < 0, "what is added turns -0.0 into 0.0", at=nothing)
    m.require(m[low] != 0, "what is chosen otherwise has the sign of zero of a product", at=low)
    scaled = build.Mul(m[x], build.const(m[factor], like=x)) if factor in m else m[x]
    made: Value = build.Where(m[c], scaled, build.const(m[low], like=x))
    return made


one, two, number = Scalar("one"), Scalar("two"), Scalar("number")
choice = op.Where(c, one, two)
scaled_choice, shifted_choice, rest_of_choice = choice * number, choice + number, number - choice
changed_choice = any_of(scaled_choice, shifted_choice, rest_of_choice)


@rule(
    "arithmetic-of-choice",
    CANONICALIZE,
    changed_choice,
    allow_shared=True,
    examples=(
        Rewrites(
            "bool[n] c; w = Where(c, -1.0, -0.0)  a = Add(w, 1.0)  y = Mul(a, -1e30)",
            to="bool[n] c; y = Where(c, -0.0, -1e30)",
        ),
        Rewrites("bool[n] c; w = Where(c, 0.0, 1.0)  y = Sub(1.0, w)", to="bool[n] c; y = Where(c, 1.0, 0.0)"),
        Rewrites("bool[n] c; w = Where(c, 0.0, {4.0})  y = Div(w, 2.0)", to="bool[n] c; y = Where(c, 0.0, 2.0)"),
        Rewrites(
            "bool[n] c; w = Where(c, 0.0, 1.0)  y = Mul(w, 2.0)  z = Exp(w)",
            to="bool[n] c; w = Where(c, 0.0, 1.0)  y = Where(c, 0.0, 2.0)  z = Exp(w)",
        ),
        Rejects("bool[n] c; w = Where(c, int64 1, int64 2)  y = Mul(w, int64 3)", because="no float"),
        Rejects("bool[n] c; w = Where(c, 0.0, 1.0)  y = Mul(w, z)", because="expected"),
        Rejects("bool[n] c; w = Where(c, 0.0, float[1,1] {1.0})  y = Mul(w, 2.0)", because="more dimensions"),
        Rejects("bool[n] c; w = Where(c, 0.0, 1.0)  y = Mul(w, float[1,1] {2.0})", because="more dimensions"),
        Rejects("bool[n] c; w = Where(c, 0.0, -inf)  y = Mul(w, 2.0)", because="not finite"),
        Rejects("bool[n] c; w = Where(c, 2.0, -3e38)  y = Mul(w, 2.0)", because="does not fit"),
    ),
)
def arithmetic_of_choice(m: Match, build: Builder) -> Value:
    """Where(c, a, b)·k ⟶ Where(c, a·k, b·k) of numbers, and likewise Where(c, a, b) + k and k - Where(c, a, b)."""
    m.require(m.dtype(m.anchor) in FLOATS, "what is chosen is no float")
    m.require(m.rank(m.anchor) == m.rank(c), "the numbers have more dimensions than the condition", at=m[choice])
    how, numbers = m.alternative(changed_choice), (m[one], m[two])
    if how is scaled_choice:
        both = [each * m[number] for each in numbers]
    else:
        both = [m[number] + (each if how is shifted_choice else -each) for each in numbers]
    m.require(all(map(math.isfinite, both)), "what would be chosen is not finite")
    made: Value = build.Where(m[c], *(build.const(each, like=m.anchor) for each in both))
    return made


data, index, size = Var("data"), Var("index", dtype=INTS), Scalar("size")
is_negative = op.Less(any_of(index, op.Cast(index, to=Attr[int]("to of the index"))), 0.0)
gathered = op.Gather(data, op.Where(is_negative, index + size, index), axis=Attr[int]("axis", default=0))


@rule(
    "index-from-the-end",
    CANONICALIZE,
    gathered,
    assumes=(Assumption.NOT_NEGATIVE,),
    examples=(
        Rewrites(
            "int64[n] i; w = float[3,2] {1, 2, 3, 4, 5, 6}  l = Less(i, 0)  s = Add(i, 3)  j = Where(l, s, i)"
            "  y = Gather(w, j)",
            to="int64[n] i; y = Gather(float[3,2] {1, 2, 3, 4, 5, 6}, i)",
        ),
        Rewrites(
            "int32[n] i; float[m,5] w; f = Cast<to=1>(i)  l = Less(f, 0.0)  s = Add(i, int32 5)  j = Where(l, s, i)"
            "  y = Gather<axis=1>(w, j)",
            to="int32[n] i; float[m,5] w; y = Gather<axis=1>(w, i)",
        ),
        Rejects(
            "int64[n] i; float[m,5] w; l = Less(i, 0)  s = Add(i, 4)  j = Where(l, s, i)  y = Gather<axis=1>(w, j)",
            because="4 is added, of 5",
        ),
        Rejects(
            "int64[n] i; float[m,5] w; l = Less(i, 0)  s = Add(i, 5)  j = Where(l, s, i)  y = Gather(w, j)",
            because="5 is added, of m",
        ),
    ),
)
def index_from_the_end(m: Match, build: Builder) -> Value:
    """Gather(x, Where(i < 0, i + n, i)) ⟶ Gather(x, i), for n elements along the axis."""
    place = m.axis(m.node(gathered), m.rank(data))
    there = m.dim(data, place)
    m.require(there == m[size], f"{m[size]:g} is added, of {there}", at=data)
    made: Value = build.Gather(m[data], m[index], **m.attrs(gathered))
    return made
