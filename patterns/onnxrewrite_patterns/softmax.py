"""Softmax and LogSoftmax from their parts.

exp(x - max x)/Σ exp(x - max x) along one axis, and its logarithm x - ln Σ exp x.

Why: five passes over memory, two of them reductions, become one kernel that keeps a row in the cache.
Bridle, 1990; Blanchard et al., 2021, on what shifting by the maximum is for.

Without the shift exp overflows above 88, and the parts give NaN where Softmax is right.  Rows with infinities may be
NaN in the one and not in the other.

The logarithm of a Softmax stays: it is -inf where LogSoftmax is a large negative number, and a mask may mean that.

Along another axis than the last ONNX Runtime transposes, and takes three times as long as the parts.
com.microsoft.BiasSoftmax, Softmax(x + bias), has no kernel on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxrewrite.rules import *

x = Var("x", dtype=FLOATS)
axes, axes_of_max = Attr[tuple[int, ...]]("axes"), Attr[tuple[int, ...]]("axes of the maximum")
most = op.ReduceMax(x, axes=axes_of_max, keepdims=1)
shifted = x - most
exponential = any_of(op.Exp(shifted), op.Exp(x))
total = op.ReduceSum(exponential, axes=axes, keepdims=1)


def require_last_axis(m: Match, build: Builder, call: Call) -> None:
    """Refuse a Softmax along another axis than the last one, which may be the default of an older opset."""
    axis = m.attr(call, "axis")
    default = "" if "axis" in m.node(call).attributes else f", the default of opset {build.opset}"
    last = axis in (-1, (m.rank(call) or 0) - 1)
    m.require(last, f"Softmax must run along the last axis, not along {axis}{default}", at=call)


def _axis(m: Match) -> int:
    """The one axis that is reduced."""
    rank = m.rank(x)
    summed = next((n.outputs[0] for n in m.nodes if n.op_type.startswith(("ReduceSum", "ReduceLogSum"))), m.anchor)
    found, others = _counted(m[axes], rank), _counted(m[axes_of_max], rank) if axes_of_max in m else None
    m.require(len(found) == 1, "more than one axis is summed", at=summed)
    m.require(others is None or others == found, "the maximum is not that of the axis that is summed", at=summed)
    m.require(
        found[0] == (-1 if rank is None else rank - 1),
        f"along another axis than the last, {found[0]}, the parts are faster",
        at=x,
    )
    return found[0]


def _counted(given: Sequence[int] | int, rank: int | None) -> list[int]:
    """Axes counted from the front, where the rank is known."""
    listed = [given] if isinstance(given, int) else given
    return sorted(a % rank if rank else a for a in listed)


_MAX = "m = ReduceMax<axes=[-1], keepdims=1>(x)  s = Sub(x, m)"


@rule(
    "softmax",
    RAISE,
    exponential / total,
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            f"float[n,5] x; {_MAX} e = Exp(s)  t = ReduceSum<keepdims=1>(e, {{1}})  y = Div(e, t)",
            to="float[n,5] x; y = Softmax<axis=1>(x)",
        ),
        Rewrites(
            "float[n,5] x; e = Exp(x)  t = ReduceSum<keepdims=1>(e, {-1})  r = Reciprocal(t)  y = Mul(e, r)",
            to="float[n,5] x; y = Softmax<axis=1>(x)",
        ),
        Rewrites(
            "float[n,5] x; m = ReduceMax<axes=[0], keepdims=1>(x)  s = Sub(x, m)  e = Exp(s)"
            "t = ReduceSum<keepdims=1>(e, {1})  y = Div(e, t)",
            to="float[n,5] x; m = ReduceMax<axes=[0], keepdims=1>(x)  s = Sub(x, m)  y = Softmax<axis=1>(s)",
        ),
        Rejects(
            "float[n,5] x; e = Exp(x)  t = ReduceSum<keepdims=1>(e, {0, 1})  y = Div(e, t)",
            because="more than one axis",
        ),
        Rejects(
            "float[n,5] x; e = Exp(x)  t = ReduceSum<keepdims=1>(e, {0})  y = Div(e, t)",
            because="along another axis than the last",
        ),
        Rejects("float[n,n] x; e = Exp(x)  t = ReduceSum<keepdims=0>(e, {0})  y = Div(e, t)", because="keepdims=1"),
    ),
)
def softmax(m: Match, build: Builder) -> Value:
    """exp(x - max x)/Σ exp(x - max x) ⟶ Softmax(x), with the maximum or without."""
    return build.Softmax(m[x], axis=_axis(m))


ln_total = any_of(
    op.ReduceLogSumExp(x, axes=axes, keepdims=1),
    op.Log(op.ReduceSum(op.Exp(x), axes=axes, keepdims=1)),
    op.ReduceLogSum(op.Exp(x), axes=axes, keepdims=1),
)
ln_shifted = op.Log(op.ReduceSum(op.Exp(shifted), axes=axes, keepdims=1))


@rule(
    "log-softmax-parts",
    RAISE,
    any_of(x - most - ln_shifted, x - ln_total),
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            f"float[n,5] x; {_MAX} e = Exp(s)  t = ReduceSum<keepdims=1>(e, {{1}})  l = Log(t)  y = Sub(s, l)",
            to="float[n,5] x; y = LogSoftmax<axis=1>(x)",
        ),
        Rewrites(
            f"float[n,5] x; {_MAX} e = Exp(s)  t = ReduceSum<keepdims=1>(e, {{1}})  l = Log(t)"
            "a = Add(l, m)  y = Sub(x, a)",
            to="float[n,5] x; y = LogSoftmax<axis=1>(x)",
        ),
        Rewrites(
            "float[n,5] x; l = ReduceLogSumExp<axes=[1], keepdims=1>(x)  y = Sub(x, l)",
            to="float[n,5] x; y = LogSoftmax<axis=1>(x)",
        ),
        Rejects(
            "float[5,n] x; l = ReduceLogSumExp<axes=[1], keepdims=1>(x)  y = Sub(x, l)",
            because="along an axis of size 1 all is zero",
        ),
        Rejects("l = ReduceLogSumExp<axes=[0], keepdims=1>(x)  y = Sub(z, l)", because="x must be the same value"),
        Rejects(
            "float[n,5] x; l = ReduceLogSumExp<axes=[0,1], keepdims=1>(x)  y = Sub(x, l)", because="more than one axis"
        ),
    ),
)
def log_softmax_parts(m: Match, build: Builder) -> Value:
    """Sub(x, ln Σ exp(x)) ⟶ LogSoftmax(x), with x shifted by its maximum or not."""
    axis = _axis(m)
    size = m.dim(x, axis)
    several = ln_total not in m or (isinstance(size, int) and size > 1)
    m.require(several, "along an axis of size 1 all is zero, where unshifted logarithms are nearly", at=x)
    return build.LogSoftmax(m[x], axis=axis)


logarithm = op.LogSoftmax(x)


@rule(
    "exp-of-log-softmax",
    CANONICALIZE,
    op.Exp(logarithm),
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites("float[n,5] x; l = LogSoftmax<axis=1>(x)  y = Exp(l)", to="float[n,5] x; y = Softmax<axis=1>(x)"),
        Rewrites("float[n,5] x; l = LogSoftmax(x)  y = Exp(l)", to="float[n,5] x; y = Softmax(x)", opset=11),
        Rejects("float[n,5] x; l = LogSoftmax(x)  e = Exp(l)  y = Mul(e, l)", because="also used by Mul"),
        Rejects("float[n,5] x; l = Softmax(x)  y = Exp(l)", because="expected LogSoftmax"),
    ),
)
def exp_of_log_softmax(m: Match, build: Builder) -> Value:
    """Exp(LogSoftmax(x)) ⟶ Softmax(x)."""
    return build.node("Softmax", [m[x]], m.attrs(logarithm))[0]


# -- other ranks ---------------------------------------------------------------------------------------------

flat = op["Reshape", "Flatten"](x, Each("rows", at_least=0))
of_rows = op["Softmax", "LogSoftmax"](flat, axis=Attr[int | None]("axis", default=None))
back = op.Reshape(of_rows, Var("shape of x"))


@rule(
    "softmax-of-rows",
    RAISE,
    back,
    examples=(
        Rewrites(
            "float[n,3,5] x; f = Reshape(x, {-1, 5})  s = Softmax(f)  y = Reshape(s, {-1, 3, 5})",
            to="float[n,3,5] x; y = Softmax<axis=2>(x)",
        ),
        Rewrites(
            "float[n,3,5] x; f = Flatten<axis=2>(x)  s = Softmax(f)  y = Reshape(s, {-1, 3, 5})",
            to="float[n,3,5] x; y = Softmax<axis=2>(x)",
            opset=11,
        ),
        Rejects(
            "float[n,3,5] x; f = Reshape(x, {-1, 15})  s = Softmax(f)  y = Reshape(s, {-1, 3, 5})",
            because="a row of 15 is not one of 5",
        ),
        Rejects(
            "float[n,3,5] x; f = Reshape(x, {-1, 5})  s = Softmax<axis=0>(f)  y = Reshape(s, {-1, 3, 5})",
            because="must run along the last axis",
        ),
        Rejects(
            "float[n,6,5] x; f = Reshape(x, {-1, 5})  s = Softmax(f)  y = Reshape(s, {-1, 3, 5})",
            because="not shown to be as before",
        ),
    ),
)
def softmax_of_rows(m: Match, build: Builder) -> Value:
    """Reshape(Softmax(Reshape(x, rows)), shape of x) ⟶ Softmax(x, axis=-1), and likewise LogSoftmax."""
    m.node(flat)
    shape, rows = m.shape(x), m.shape(flat)
    if not shape or not rows or not same_shape(m.shape(back), shape):
        m.refuse("the shape is not shown to be as before", at=back)
    m.require(same_dim(rows[-1], shape[-1]), f"a row of {rows[-1]} is not one of {shape[-1]}", at=flat)
    require_last_axis(m, build, of_rows)
    made: Value = build.node(m.node(of_rows).op_type, [m[x]], {"axis": len(shape) - 1})[0]
    return made


# -- shifted twice -------------------------------------------------------------------------------------------

again = op.Softmax(shifted, axis=Attr[int]("axis", default=-1))


@rule(
    "softmax-of-shifted",
    RAISE,
    again,
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            "float[b,l] x; t = ReduceMax<axes=[1]>(x)  s = Sub(x, t)  y = Softmax<axis=-1>(s)",
            to="float[b,l] x; y = Softmax<axis=-1>(x)",
        ),
        Rejects(
            "float[b,l] x; t = ReduceMax<axes=[0]>(x)  s = Sub(x, t)  y = Softmax<axis=-1>(s)",
            because="the maximum is not that of its axis",
        ),
        Rejects(
            "float[b,s,l] x; t = ReduceMax<axes=[1]>(x)  s = Sub(x, t)  y = Softmax<axis=1>(s)",
            because="before opset 13 only the last axis",
            opset=11,
        ),
    ),
)
def softmax_of_shifted(m: Match, build: Builder) -> Value:
    """Softmax(x - max x) ⟶ Softmax(x)."""
    rank, axis = m.rank(x), m.attr(again, "axis")
    m.require(rank, "the rank is not known", at=x)
    m.require(_counted(m[axes_of_max], rank) == _counted(axis, rank), "the maximum is not that of its axis", at=again)
    last = _counted(axis, rank) == [(rank or 0) - 1]
    m.require(build.opset >= 13 or last, "before opset 13 only the last axis stands alone", at=x)
    return build.Softmax(m[x], axis=axis)
