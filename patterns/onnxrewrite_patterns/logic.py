"""Negations that cancel, and choices that are made.

Why: exporters write masks by comparing, negating and selecting, often where the answer is known before the
model runs.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")

INVOLUTIONS = operators(marks="involution")
back = op[INVOLUTIONS](there := op[INVOLUTIONS](x))


@rule(
    "double-negation",
    CANONICALIZE,
    back,
    benefit=70,
    allow_shared=True,
    examples=(
        Rewrites("a = Neg(x)  b = Neg(a)  y = Relu(b)", to="y = Relu(x)"),
        Rejects("int32 x; a = Neg(x)  y = BitwiseNot(a)", because="different", opset=18),
    ),
)
def double_negation(m: Match, build: Builder) -> Value:
    """-(-x) ⟶ x, and likewise for Not and BitwiseNot."""
    m.require(m.node(back).op_type == m.node(there).op_type, "two different operators")
    return m[x]


a, b = Var("a", dtype=INTS), Var("b", dtype=INTS)
negated = op.Not(comparison := op[operators(marks="opposite")](a, b))


@rule(
    "negated-comparison",
    CANONICALIZE,
    negated,
    examples=(
        Rewrites("int64 a; int64 b; c = Less(a, b)  y = Not(c)", to="int64 a; int64 b; y = GreaterOrEqual(a, b)"),
        Rejects("float a; float b; c = Less(a, b)  y = Not(c)", because="has dtype float"),
        Rejects(
            "int64 a; int64 b; c = Less(a, b)  n = Not(c)  y = Where(n, a, b)", because="Where takes the negation in"
        ),
    ),
)
def negated_comparison(m: Match, build: Builder) -> Value:
    """¬(a < b) ⟶ a ≥ b for integers; NaN is neither, so floats stay."""
    reading = list(readers(m[negated], within=1))
    chooses = bool(reading) and all(n.op_type == "Where" and input_of(n) is m[negated] for n in reading)
    m.require(not chooses or m[negated].is_graph_output(), "Where takes the negation in", at=negated)
    made: Value = getattr(build, TRAITS[m.node(comparison).op_type].opposite)(m[a], m[b])
    return made


where = AnyNode(op_types=("Where",))


@rule(
    "where-decided",
    CANONICALIZE,
    where,
    benefit=80,
    examples=(
        Rewrites("float[n] x; w = Where(true, x, 0.0)  y = Relu(w)", to="float[n] x; y = Relu(x)"),
        Rewrites("float[n] x; w = Where({false}, 0.0, x)  y = Relu(w)", to="float[n] x; y = Relu(x)"),
        Rejects("float[n] x; w = Where({true, false}, x, 0.0)  y = Relu(w)", because="same everywhere"),
        Rejects("float[n] x; float[m] z; w = Where(true, x, z)  y = Relu(w)", because="not shown"),
    ),
)
def where_decided(m: Match, build: Builder) -> Value:
    """Where(true, a, b) ⟶ a, Where(false, a, b) ⟶ b, Where(c, a, a) ⟶ a."""
    node = m.node(where)
    first, second = m.operand(node, 1), m.operand(node, 2)
    condition = m.facts.constant(m.operand(node, 0))
    if first is second:
        chosen = first
    else:
        decided = condition is not None and condition.size and bool(condition.all() or not condition.any())
        m.require(decided, "the condition is not known to be the same everywhere", at=m.operand(node, 0))
        assert condition is not None
        chosen = first if condition.all() else second
    m.require_same_shape(m[where], chosen)
    return chosen


condition, chosen, other = Var("condition"), Var("chosen"), Var("other")
negated_where = op.Where(op.Not(condition), chosen, other)

WHERE_NOT = rule(
    "where-not",
    CANONICALIZE,
    negated_where,
    op.Where(condition, other, chosen),
    benefit=20,
    allow_shared=True,
    examples=(
        Rewrites("bool c; n = Not(c)  y = Where(n, x, 0.0)", to="bool c; y = Where(c, 0.0, x)"),
        Rejects("bool c; bool d; n = And(c, d)  y = Where(n, x, 0.0)", because="found And"),
    ),
)

drop, fill = Var("drop", dtype=ir.DataType.BOOL), Scalar("fill")
dropped = op.Cast(drop, to=Attr[int]("to"))
kept = op.Cast(drop, to=Attr[int]("to of kept"))
penalty = any_of(on_keep := (1 - kept) * fill, dropped * fill)


@rule(
    "where-of-penalty",
    CANONICALIZE,
    penalty,
    examples=(
        Rewrites(
            "bool[n] c; f = Cast<to=1>(c)  d = Sub(1.0, f)  y = Mul(d, -1e30)",
            to="bool[n] c; y = Where(c, -0.0, -1e30)",
        ),
        Rewrites("bool[n] c; f = Cast<to=1>(c)  y = Mul(f, -1e30)", to="bool[n] c; y = Where(c, -1e30, -0.0)"),
        Rejects("bool[n] c; f = Cast<to=1>(c)  m = Sub(1.0, f)  y = Div(m, float 0.0)", because="fill is no number"),
        Rejects("int64[n] c; f = Cast<to=1>(c)  y = Mul(f, -1e30)", because="has dtype int64"),
        Rejects("bool[n] c; f = Cast<to=1>(c)  y = Mul(f, float[1,1] {-1e30})", because="more dimensions"),
    ),
)
def where_of_penalty(m: Match, build: Builder) -> Value:
    """(1 - float(keep))·fill ⟶ Where(keep, 0, fill), and likewise float(drop)·fill."""
    m.require(np.isfinite(m[fill]), "nothing times infinity is not a number")
    m.require(m.dtype(m.anchor) in FLOATS, "the mask is no float")
    m.require(m.rank(m.anchor) == m.rank(drop), "the number has more dimensions than the mask")
    nothing, number = build.const(0.0 * m[fill], like=m.anchor), build.const(m[fill], like=m.anchor)
    chosen = (nothing, number) if m.alternative(penalty) is on_keep else (number, nothing)
    made: Value = build.Where(m[drop], *chosen)
    return made


twice = op["And", "Or", "Max", "Min", "BitwiseAnd", "BitwiseOr"](x, x)


@rule(
    "operand-twice",
    CANONICALIZE,
    twice,
    benefit=70,
    examples=(
        Rewrites("bool x; a = And(x, x)  y = Not(a)", to="bool x; y = Not(x)"),
        Rewrites("float x; a = Max(x, x)  y = Relu(a)", to="float x; y = Relu(x)"),
        Rejects("bool x; bool z; y = Or(x, z)", because="the same value"),
    ),
)
def operand_twice(m: Match, build: Builder) -> Value:
    """x∧x ⟶ x, and likewise x∨x, max(x, x), min(x, x)."""
    m.node(twice)
    return m[x]


y = Var("y")
joined = op["And", "Or", "Max", "Min"](x, inside := op["And", "Or", "Max", "Min"](x, y))


@rule(
    "operand-again",
    CANONICALIZE,
    joined,
    allow_shared=True,
    examples=(
        Rewrites(
            "bool x; bool y; a = And(y, x)  b = And(x, a)  z = Not(b)", to="bool x; bool y; a = And(y, x)  z = Not(a)"
        ),
        Rewrites(
            "float[n] x; float[b,n] y; a = Max(x, y)  b = Max(a, x)  z = Relu(b)",
            to="float[n] x; float[b,n] y; a = Max(x, y)  z = Relu(a)",
        ),
        Rewrites(
            "bool[n] x; bool[n] y; a = Or(y, x)  b = And(x, a)  z = Not(b)", to="bool[n] x; bool[n] y; z = Not(x)"
        ),
        Rewrites("int64[n] x; int64[n] y; a = Min(y, x)  z = Max(x, a)", to="int64[n] x; int64[n] y; z = Identity(x)"),
        Rejects("bool[n] x; bool[b,n] y; a = Or(y, x)  z = And(x, a)", because="broadcast"),
        Rejects("float[n] x; float[n] y; a = Min(y, x)  z = Max(x, a)", because="NaN"),
        Rejects("bool x; bool y; bool w; a = And(y, x)  z = And(w, a)", because="the same value"),
    ),
)
def operand_again(m: Match, build: Builder) -> Value:
    """x∧(x∧y) ⟶ x∧y and x∧(x∨y) ⟶ x, and likewise of ∨, and of max and min."""
    if m.node(joined).op_type == m.node(inside).op_type:
        return m[inside]
    m.require(m.dtype(x) not in FLOATS, "the other operand may be NaN", at=x)
    m.require(same_shape(m.shape(x), m.shape(joined)), "x is broadcast", at=x)
    return m[x]


condition = Var("condition")
then, otherwise = Var("then"), Var("otherwise")
chosen_twice = op.Where(condition, op.Where(condition, then, Var("never")), otherwise)
refused_twice = op.Where(condition, then, op.Where(condition, Var("not ever"), otherwise))


@rule(
    "where-of-where",
    CANONICALIZE,
    any_of(chosen_twice, refused_twice),
    allow_shared=True,
    examples=(
        Rewrites(
            "bool[n] c; float[n] a; float[n] b; float[n] d; w = Where(c, a, b)  y = Where(c, w, d)",
            to="bool[n] c; float[n] a; float[n] b; float[n] d; y = Where(c, a, d)",
        ),
        Rewrites(
            "bool[n] c; float[n] a; float[n] b; w = Where(c, b, a)  y = Where(c, a, w)",
            to="bool[n] c; float[n] a; float[n] b; y = Where(c, a, a)",
        ),
        Rejects(
            "bool[n] c; float[n] a; float[b,n] z; float[n] d; w = Where(c, a, z)  y = Where(c, w, d)",
            because="has another shape",
        ),
        Rejects(
            "bool[n] c; bool[n] e; float[n] a; float[n] b; float[n] d; w = Where(e, a, b)  y = Where(c, w, d)",
            because="the same value",
        ),
    ),
)
def where_of_where(m: Match, build: Builder) -> Value:
    """Where(c, Where(c, a, b), d) ⟶ Where(c, a, d), and Where(c, a, Where(c, b, d)) ⟶ Where(c, a, d)."""
    result: Value = build.Where(m[condition], m[then], m[otherwise])
    m.require(same_shape(m.shape(result), m.shape(m.anchor)), "without what is never chosen it has another shape")
    return result


branching = AnyNode(op_types=("If",))


@rule(
    "if-decided",
    CANONICALIZE,
    branching,
    benefit=90,
    examples=(
        Rewrites(
            "float x; y = If<then_branch = () => (b) { a = Relu(x)  b = Mul(a, 2.0) },"
            " else_branch = () => (c) { c = Abs(x) }>(true)",
            to="float x; a = Relu(x)  y = Mul(a, 2.0)",
        ),
        Rejects(
            "float x; bool c; y = If<then_branch = () => (a) { a = Relu(x) }, else_branch = () => (b) { b"
            " = Abs(x) }>(c)",
            because="not constant",
        ),
        Rejects(
            "float x; bool c; y = If<then_branch = () => (b) { b = If<then_branch = () => (d) { d = Relu(x) },"
            " else_branch = () => (e) { e = Abs(x) }>(c) }, else_branch = () => (f) { f = Neg(x) }>(true)",
            because="a subgraph of its own",
        ),
    ),
)
def if_decided(m: Match, build: Builder) -> list[Value]:
    """If(true, then, else) ⟶ then, its nodes in the place of the If."""
    node = m.node(branching)
    condition = m.facts.constant(m.operand(node))
    m.require(condition is not None and condition.size == 1, "the condition is not constant", at=m.operand(node))
    assert condition is not None
    branch = node.attributes["then_branch" if condition.all() else "else_branch"].as_graph()
    m.widen([node])
    copies: dict[Value, Value] = {}
    for name, value in branch.initializers.items():
        m.require(value.const_value is not None, f"`{name}` of the branch has no value")
        assert value.const_value is not None
        copies[value] = build.const(value.const_value.numpy(), like=value.const_value.dtype)
    for inner in branch:
        nested = any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in inner.attributes.values())
        m.require(not nested, f"the branch has a subgraph of its own, in {inner.op_type} `{inner.name}`")
        refers = inner.overload or any(a.is_ref() for a in inner.attributes.values())
        m.require(not refers, f"{inner.op_type} `{inner.name}` refers to an attribute or an overload of a function")
        made = build.again(inner, *(copies.get(v, v) if v is not None else None for v in inner.inputs))
        copies.update(zip(inner.outputs, made, strict=True))
    return [copies.get(o, o) for o in branch.outputs]
