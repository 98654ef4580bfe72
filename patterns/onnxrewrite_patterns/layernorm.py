"""Layer normalization from its parts: (x - mean)/√(var + ε), means taken along the last axes.

Why: six passes over memory become one kernel.   Ba, Kiros & Hinton, 2016, arXiv:1607.06450.

What is normalized is raised with a scale of ones; ``norm_affine.py`` then takes in the scale, the bias and the Casts
around it, however they are spelled.  Only the form that multiplies out, x·g + (β - mean·g) with g = γ/√(var + ε), as
Keras writes it, has scale and bias inside.

The variance is mean((x - mean)²), or mean(x²) - mean², as Flax has it: ONNX Runtime's kernel computes the second from
the first on.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.norm_parts import Axes, constant, last_axes, last_sizes, require_epsilon, spread

x = Var("x", dtype=FLOATS)
eps = Scalar("epsilon", default=0.0)
mean_axes, var_axes = Attr[Axes]("axes", default=None), Attr[Axes]("axes of the variance", default=None)

mean = op.ReduceMean(x, axes=mean_axes)
centred = x - mean
wide = any_of(centred, op.Cast(centred, to=Attr[int]("to")))
"""Half precision may end here: what is squared is a float32."""

mean_of_squares = op.ReduceMean(x**2, axes=var_axes) - mean**2
variance = any_of(
    op.ReduceMean(wide**2, axes=var_axes),
    mean_of_squares,
    op.Max(mean_of_squares, 0.0),
    op.Relu(mean_of_squares),
)
deviation = op.Sqrt(variance + eps)
normalized = wide / deviation

_CENTRED = "float[b,s,4] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)"
_CENTRED_18 = "float[b,s,4] x; m = ReduceMean(x, {-1})  d = Sub(x, m)"
_DEVIATION = "p = Pow(d, 2.0)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)"
_RESULT = "float[b,s,4] x; y = LayerNormalization<axis=-1, epsilon=1e-5>(x, {1.0, 1.0, 1.0, 1.0})"


@rule(
    "layer-norm",
    RAISE,
    normalized,
    benefit=20,
    examples=(
        Rewrites(f"{_CENTRED} {_DEVIATION} y = Div(d, r)", to=_RESULT),
        Rewrites(
            "float[b,s,4] x; m = ReduceMean(x, {2})  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean(q, {-1})"
            "a = Add(1e-5, v)  r = Sqrt(a)  i = Reciprocal(r)  y = Mul(d, i)",
            to=_RESULT,
            opset=18,
        ),
        Rewrites(f"{_CENTRED} {_DEVIATION} i = Div(1.0, r)  y = Mul(i, d)", to=_RESULT),
        Rewrites(
            "float[b,3,4] x; m = ReduceMean<axes=[1,2]>(x)  d = Sub(x, m)  p = Pow(d, 2.0)"
            "v = ReduceMean<axes=[-2,-1]>(p)  a = Add(v, 1e-5)  r = Pow(a, -0.5)  y = Mul(d, r)",
            to="float[b,3,4] x; w = float[3,4] {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}"
            "y = LayerNormalization<axis=-2, epsilon=1e-5>(x, w)",
        ),
        Rewrites(
            "float[b,s,4] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  q = Mul(x, x)  s = ReduceMean<axes=[-1]>(q)"
            "n = Mul(m, m)  u = Sub(s, n)  v = Max(u, 0.0)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
            to=_RESULT,
        ),
        Rewrites(
            "float16[b,s,4] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  w = Cast<to=1>(d)  p = Mul(w, w)"
            "v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(w, r)",
            to="float16[b,s,4] x; c = Cast<to=1>(x)"
            "y = LayerNormalization<axis=-1, epsilon=1e-5>(c, {1.0, 1.0, 1.0, 1.0})",
        ),
        Rejects(f"{_CENTRED} {_DEVIATION} y = Div(d, r)", because="LayerNormalization needs opset 17", opset=13),
        Rejects(
            "float[b,s,4] x; m = ReduceMean<axes=[1]>(x)  d = Sub(x, m)  p = Pow(d, 2.0)"
            "v = ReduceMean<axes=[1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
            because="the mean runs along the axes [-2], not the last ones",
        ),
        Rejects(
            "float[b,4,4] x; m = ReduceMean<axes=[1,2]>(x)  d = Sub(x, m)  p = Pow(d, 2.0)"
            "v = ReduceMean<axes=[2]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
            because="the means run along different axes",
        ),
        Rejects(
            "float[2,4] x; m = ReduceMean(x)  d = Sub(x, m)  p = Pow(d, 2.0)  v = ReduceMean(p)  a = Add(v, 1e-5)"
            "r = Sqrt(a)  y = Div(d, r)",
            because="the mean is one of everything",
        ),
        Rejects(
            "float[b,s,n] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  p = Pow(d, 2.0)"
            "v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
            because="the sizes of the normalized axes are not known",
        ),
        Rejects(
            "float[b,s,4] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  p = Pow(d, 2.0)"
            "v = ReduceMean<axes=[-1]>(p)  u = Mul(v, 1.3333334)  a = Add(u, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
            because="expected",
        ),
        Rejects(
            f"{_CENTRED} p = Pow(d, 2.0)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, -1e-5)  r = Sqrt(a)  y = Div(d, r)",
            because="what is added to the variance is -1e-05",
        ),
        Rejects(
            "float[b,s,4] x; m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)  q = Mul(x, x)  s = ReduceMean<axes=[-1]>(q)"
            "n = Mul(m, m)  v = Sub(s, n)  r = Sqrt(v)  y = Div(d, r)",
            because="what rounding makes of it",
        ),
        Rejects(
            f"{_CENTRED} p = Pow(d, 2.0)  v = ReduceMean<axes=[-1]>(p)  r = Sqrt(v)  y = Div(d, r)",
            because="without epsilon",
        ),
        Rejects(
            f"{_CENTRED} {_DEVIATION} y = Div(d, r)  z = Relu(r)",
            because="is also used by Relu",
        ),
    ),
)
def layer_norm(m: Match, build: Builder) -> Value:
    """(x - mean)/√(var + ε) ⟶ LayerNormalization(x, 1), where mean and var are those of the last axes."""
    require_epsilon(m, eps, above_zero=True)
    count = last_axes(m, x, m[mean_axes], m[var_axes])
    ones = build.const(np.ones(last_sizes(m, x, count)), like=m.anchor)
    source = m[x] if m.dtype(x) == m.dtype(m.anchor) else build.Cast(m[x], to=int(m.dtype(m.anchor) or 0))
    return build.LayerNormalization(source, ones, axis=-count, epsilon=m[eps])


gamma, beta = Var("scale", default=None), Var("bias", default=None)
multiplied_out = x * gamma / deviation - mean * gamma / deviation + beta


def _parameter(m: Match, build: Builder, term: Var, sizes: tuple[int, ...]) -> Value:
    """Scale or bias in the shape of the normalized axes."""
    if same_shape(m.shape(term), sizes):
        return m[term]
    array = constant(m, m[term])
    full = None if array is None else spread(array, sizes)
    if full is None:
        m.refuse(f"the {term.name} is not of the shape of the normalized axes", at=term)
    return build.const(full, like=term)


_MULTIPLIED_OUT = f"{_CENTRED} {_DEVIATION} i = Reciprocal(r)  g = Mul(i, w)  k = Mul(x, g)  n = Mul(m, g)"


@rule(
    "layer-norm-multiplied-out",
    RAISE,
    multiplied_out,
    benefit=20,
    assumes=(Assumption.FINITE,),
    examples=(
        Rewrites(
            f"float[4] w; float[4] c; {_MULTIPLIED_OUT} o = Sub(c, n)  y = Add(k, o)",
            to="float[4] w; float[4] c; float[b,s,4] x; y = LayerNormalization<axis=-1, epsilon=1e-5>(x, w, c)",
        ),
        Rewrites(
            f"float[4] w; {_MULTIPLIED_OUT} y = Sub(k, n)",
            to="float[4] w; float[b,s,4] x; y = LayerNormalization<axis=-1, epsilon=1e-5>(x, w)",
        ),
        Rejects(
            f"{_CENTRED} p = Pow(d, 2.0)  v = ReduceMean<axes=[-1]>(p)  r = Sqrt(v)  i = Reciprocal(r)"
            "k = Mul(x, i)  n = Mul(m, i)  y = Sub(k, n)",
            because="without epsilon",
        ),
        Rejects(
            f"float[s,4] w; {_MULTIPLIED_OUT} y = Sub(k, n)",
            because="the scale is not of the shape of the normalized axes",
        ),
        Rejects(
            "float[b,s,4] x; m = ReduceMean<axes=[0]>(x)  d = Sub(x, m)  p = Mul(d, d)  v = ReduceMean<axes=[0]>(p)"
            "a = Add(v, 1e-5)  r = Sqrt(a)  i = Reciprocal(r)  k = Mul(x, i)  n = Mul(m, i)  y = Sub(k, n)",
            because="not the last ones",
        ),
    ),
)
def layer_norm_multiplied_out(m: Match, build: Builder) -> Value:
    """x·g + (β - mean·g) ⟶ LayerNormalization(x, γ, β), where g = γ/√(var + ε)."""
    require_epsilon(m, eps, above_zero=True)
    count = last_axes(m, x, m[mean_axes], m[var_axes])
    sizes = last_sizes(m, x, count)
    scale = _parameter(m, build, gamma, sizes) if gamma in m else build.const(np.ones(sizes), like=x)
    bias = _parameter(m, build, beta, sizes) if beta in m else None
    return build.LayerNormalization(m[x], scale, bias, axis=-count, epsilon=m[eps])


weight = Var("weight", dtype=FLOATS)
of_centred = op.RMSNormalization(centred, weight)


@rule(
    "rms-norm-of-centred",
    RAISE,
    of_centred,
    examples=(
        Rewrites(
            f"float[4] w; {_CENTRED_18} y = RMSNormalization<axis=-1, epsilon=1e-5>(d, w)",
            to="float[4] w; float[b,s,4] x; y = LayerNormalization<axis=-1, epsilon=1e-5>(x, w)",
            opset=23,
        ),
        Rewrites(
            "float[3,4] w; float[b,3,4] x; m = ReduceMean(x, {1, 2})  d = Sub(x, m)"
            "  y = RMSNormalization<axis=1, epsilon=1e-5>(d, w)",
            to="float[3,4] w; float[b,3,4] x; y = LayerNormalization<axis=1, epsilon=1e-5>(x, w)",
            opset=23,
        ),
        Rejects(
            f"float[4] w; {_CENTRED_18} y = RMSNormalization<axis=-2, epsilon=1e-5>(d, w)",
            because="the means run along different axes",
            opset=23,
        ),
        Rejects(
            "float[4] w; float[b,4,4] x; m = ReduceMean(x, {1})  d = Sub(x, m)"
            "  y = RMSNormalization<axis=-1, epsilon=1e-5>(d, w)",
            because="the means run along different axes",
            opset=23,
        ),
        Rejects(
            f"float[4] w; {_CENTRED_18} y = RMSNormalization<axis=-1, epsilon=0.0>(d, w)",
            because="without epsilon",
            opset=23,
        ),
        Rejects(
            f"float[1] w; {_CENTRED_18} y = RMSNormalization<axis=-1, epsilon=1e-5>(d, w)",
            because="the weight is not of the shape of the normalized axes",
            opset=23,
        ),
        Rejects(
            f"float[4] w; {_CENTRED_18} y = RMSNormalization<axis=-1, epsilon=1e-5>(d, w)  z = Relu(m)",
            because="is also used by Relu",
            opset=23,
        ),
    ),
)
def rms_norm_of_centred(m: Match, build: Builder) -> Value:
    """RMSNormalization(x - mean, w) ⟶ LayerNormalization(x, w), where the mean is that of the same axes."""
    axis, shape = m.attr(of_centred, "axis"), m.shape(x)
    m.require(m.attr(of_centred, "epsilon") > 0, "without epsilon, equal numbers are what rounding leaves of them")
    rank = m.known(shape, "the shape is unknown", at=x) and len(shape or ())
    count = last_axes(m, x, m[mean_axes], tuple(range(axis - rank if axis >= 0 else axis, 0)))
    fits = m.dtype(weight) == m.dtype(x) and same_shape(m.shape(weight), (shape or ())[-count:])
    m.require(fits, "the weight is not of the shape of the normalized axes", at=weight)
    return build.node("LayerNormalization", [m[x], m[weight]], m.attrs(of_centred))[0]
