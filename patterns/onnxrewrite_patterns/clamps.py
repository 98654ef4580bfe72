"""Relu, Clip, Min and Max in a row.

Why: each is a pass over memory; two of them are one.  Exactly so: ONNX Runtime's Clip lets NaN through, keeps
the sign of zero, gives the upper bound where the bounds are crossed, and takes an absent bound for the
largest finite number, so that a Clip without bounds still changes infinity.  Max and Min make NaN of NaN on
either side.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")

# -- twice the same ------------------------------------------------------------------------------------------

IDEMPOTENT = operators(marks="idempotent", but="Clip Identity")
again = op[IDEMPOTENT](before := op[IDEMPOTENT](x))


@rule(
    "idempotent-twice",
    CANONICALIZE,
    again,
    benefit=70,
    allow_shared=True,
    examples=(
        Rewrites("a = Relu(x)  y = Relu(a)", to="y = Relu(x)"),
        Rejects("a = Abs(x)  y = Sign(a)", because="Sign of Abs"),
    ),
)
def idempotent_twice(m: Match, build: Builder) -> Value:
    """f(f(x)) ⟶ f(x) for Relu, Abs, Ceil, Floor, Round and Sign."""
    kinds = m.node(again).op_type, m.node(before).op_type
    m.require(kinds[0] == kinds[1], f"{kinds[0]} of {kinds[1]}")
    return m[before]


NONNEGATIVE = operators("pointwise softmax reduce", marks="nonnegative", but="Relu")
rectified = op["Relu", "Abs"](above := op[NONNEGATIVE](x, Each("parameters", at_least=0)))


@rule(
    "relu-of-nonnegative",
    CANONICALIZE,
    rectified,
    benefit=70,
    allow_shared=True,
    examples=(
        Rewrites("a = Sigmoid(x)  y = Relu(a)", to="y = Sigmoid(x)"),
        Rewrites("a = ReduceL2<axes=[0]>(x)  y = Abs(a)", to="y = ReduceL2<axes=[0]>(x)"),
        Rejects("a = Tanh(x)  y = Relu(a)", because="found Tanh"),
        Rejects("a = ReduceSumSquare<noop_with_empty_axes=1>(x)  y = Relu(a)", because="may reduce nothing", opset=18),
        Rejects("int32[n] x; a = Abs(x)  y = Relu(a)", because="the least integer has no absolute value", opset=14),
    ),
)
def relu_of_nonnegative(m: Match, build: Builder) -> Value:
    """Relu(f(x)) ⟶ f(x) for an f that is never negative, such as Exp, Sigmoid, Softmax or a norm, and likewise Abs."""
    m.node(above)
    dtype = m.dtype(above)
    m.require(dtype is not None and dtype.is_floating_point(), "the least integer has no absolute value", at=above)
    idle = m.node(above).attributes.get_int("noop_with_empty_axes", 0)
    m.require(not idle, "it may reduce nothing, and hand on what it is given", at=above)
    return m[above]


# -- one interval after another ------------------------------------------------------------------------------

CLAMPS = ("Clip", "Relu")
inner = op[CLAMPS](x, Each("inner_bounds", at_least=0))
outer = op[CLAMPS](inner, Each("outer_bounds", at_least=0))

Interval = tuple[float, float]


def limits(dtype: ir.DataType) -> Interval:
    """The least and the largest finite number of a dtype: what an absent bound of Clip stands for."""
    if dtype.is_floating_point():
        info = ml_dtypes.finfo(dtype.numpy())  # type: ignore[no-untyped-call]
        return float(info.min), float(info.max)
    whole = np.iinfo(dtype.numpy())
    return int(whole.min), int(whole.max)


def interval(m: Match, clamp: Call, dtype: ir.DataType) -> Interval:
    """The interval that a clamp limits its input to; crossed bounds give the upper one."""
    node = m.node(clamp)
    if node.op_type == "Relu":
        return 0.0, math.inf if dtype.is_floating_point() else limits(dtype)[1]
    bounds = []
    for name, absent in zip(("min", "max"), limits(dtype), strict=True):
        bound = parameter(m.facts, node, name)
        m.require(bound is None or isinstance(bound, int | float), f"the {name} of a Clip is not constant", at=clamp)
        m.require(bound is None or bound == bound, f"the {name} of a Clip is NaN", at=clamp)
        bounds.append(absent if bound is None else bound)
    low, high = bounds
    return min(low, high), high


def clamped(value: float, to: Interval) -> float:
    """``value`` clamped as ONNX Runtime does it: what equals a bound stays, so that zero keeps its sign."""
    value = to[0] if value < to[0] else value
    return to[1] if value > to[1] else value


@rule(
    "clamp-of-clamp",
    CANONICALIZE,
    outer,
    benefit=60,
    allow_shared=True,
    examples=(
        Rewrites("float x; a = Clip(x, -1.0, 6.0)  y = Relu(a)", to="float x; y = Clip(x, 0.0, 6.0)"),
        Rewrites("float x; a = Relu(x)  y = Clip(a, -1.0, 6.0)", to="float x; y = Clip(x, 0.0, 6.0)"),
        Rewrites("float x; a = Clip(x, 0.0, 1.0)  y = Clip(a, 2.0, 3.0)", to="float x; y = Clip(x, 2.0, 2.0)"),
        Rewrites("float x; a = Clip(x, 0.0, 6.0)  y = Relu(a)", to="float x; y = Clip(x, 0.0, 6.0)"),
        Rewrites("float x; a = Relu(x)  y = Clip<max=6.0>(a)", to="float x; y = Clip<min=0.0,max=6.0>(x)", opset=10),
        Rejects("float x; a = Clip(x, -5.0, -2.0)  y = Relu(a)", because="sign of zero"),
        Rejects("float x; float b; a = Clip(x, 0.0, b)  y = Relu(a)", because="the max of a Clip is not constant"),
        Rejects("a = Tanh(x)  y = Relu(a)", because="found Tanh"),
    ),
)
def clamp_of_clamp(m: Match, build: Builder) -> Value:
    """Clip(Clip(x, a, b), c, d) ⟶ Clip(x, a in [c, d], b in [c, d]), where Relu is Clip to [0, ∞)."""
    dtype = m.dtype(x)
    m.require(
        dtype is not None and (dtype.is_floating_point() or dtype.is_integer()),
        "the dtype is not known",
        at=x,
    )
    assert dtype is not None
    first, second = interval(m, inner, dtype), interval(m, outer, dtype)
    low, high = clamped(first[0], second), clamped(first[1], second)
    # A zero of the input would pass with its sign where a bound used to stand in for it.
    m.require(first[0] <= 0 <= first[1] or not low <= 0 <= high, "the sign of zero might change", at=inner)
    if repr((low, high)) == repr(first):
        return m[inner]
    lowest, highest = limits(dtype)
    return build.Clip(m[x], min=None if low == lowest else low, max=None if high == highest else high)


# -- extrema -------------------------------------------------------------------------------------------------

EXTREMA = ("Max", "Min")
c, d = Const("c"), Const("d")
low_first = op[EXTREMA](x, c)
extremum = op[EXTREMA](low_first, d)


@rule(
    "extremum-of-extremum",
    CANONICALIZE,
    extremum,
    examples=(
        Rewrites("float x; a = Max(x, 1.0)  y = Max(2.0, a)", to="float x; y = Max(x, 2.0)"),
        Rewrites("float x; a = Min(x, {3.0, 1.0})  y = Min(a, 2.0)", to="float x; y = Min(x, {2.0, 1.0})"),
        Rejects("float x; a = Max(x, 1.0)  y = Min(a, 2.0)", because="Min of Max"),
        Rejects("float x; a = Max(x, 0.0)  y = Max(a, {-1.0, -2.0})", because="sign of zero"),
    ),
)
def extremum_of_extremum(m: Match, build: Builder) -> Value:
    """max(max(x, c), d) ⟶ max(x, max(c, d)), and likewise min; NaN in a constant stays NaN."""
    kind = m.node(extremum).op_type
    m.require(kind == m.node(low_first).op_type, f"{kind} of {m.node(low_first).op_type}")
    combine = np.maximum if kind == "Max" else np.minimum
    merged = combine(m[c], m[d])
    m.require(merged.nbytes <= max(m[c].nbytes, m[d].nbytes, 4096), "the constant would be larger than both")
    zeros = merged.dtype.kind == "f" and bool((merged == 0).any())
    ambiguous = m[c].shape != m[d].shape or bool(((m[c] == 0) & (m[d] == 0)).any())
    m.require(not zeros or not ambiguous, "the sign of zero might change")
    made: Value = getattr(build, kind)(m[x], build.const(merged, like=x))
    return made


# -- an interval of extrema ----------------------------------------------------------------------------------

low, high = Scalar("low"), Scalar("high")
between = any_of(
    op.Min(op.Max(x, low), high), op.Max(op.Min(x, high), low), op.Min(op.Relu(x), high), op.Relu(op.Min(x, high))
)


@rule(
    "clip-of-extrema",
    RAISE,
    between,
    examples=(
        Rewrites("float x; a = Max(x, -1.0)  y = Min(a, 6.0)", to="float x; y = Clip(x, -1.0, 6.0)"),
        Rewrites("float[n,4] x; a = Min(x, {6.0})  y = Max({1.0}, a)", to="float[n,4] x; y = Clip(x, 1.0, 6.0)"),
        Rewrites("float x; a = Relu(x)  y = Min(a, 6.0)", to="float x; y = Clip(x, 0.0, 6.0)"),
        Rewrites("float x; a = Min(x, 6.0)  y = Relu(a)", to="float x; y = Clip(x, 0.0, 6.0)"),
        Rejects("float x; a = Max(x, 6.0)  y = Min(a, -1.0)", because="the bounds are crossed"),
        Rejects("float[n] x; a = Max(x, 1.0)  y = Min(a, float[1,1] {6.0})", because="more dimensions"),
        Rejects("float x; a = Max(x, 0.0)  y = Min(a, 6.0)", because="the sign of zero"),
        Rejects("float[4] x; a = Max(x, {0.0, 1.0, 2.0, 3.0})  y = Min(a, 6.0)", because="one element"),
    ),
)
def clip_of_extrema(m: Match, build: Builder) -> Value:
    """Min(Max(x, low), high) ⟶ Clip(x, low, high), which lets a zero keep its sign, as Relu does."""
    m.require(m.dtype(x) in FLOATS, "the dtype is no float", at=x)
    start, end = (m[low], m[high]) if low in m else (0.0, m[high])
    m.require(start <= end, "the bounds are crossed")
    m.require(m.rank(m.anchor) == m.rank(x), "a bound has more dimensions than x", at=x)
    m.require(end != 0 and (start != 0 or low not in m), "Max and Min change the sign of zero, which Clip keeps")
    return build.Clip(m[x], min=start, max=end)
