"""Root mean square normalization from its parts: x/√(mean(x²) + ε), the mean taken along the last axes, or others.

Why: five passes over memory become one kernel.   Zhang & Sennrich, 2019, arXiv:1910.07467.  Along other axes, with the
Transposes that turn them to the end and back, these become three: 0.56 to 0.94 of the time of the parts.

What is normalized is raised with a scale of ones; ``norm_affine.py`` then takes in the scale and the Casts around it.
Of a value less its own mean, this is a LayerNormalization (``layernorm.py``), unless that mean is needed elsewhere, or
there is no epsilon: what rounding leaves of equal numbers is then normalized as it is.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.norm_parts import Axes, common_axes, last_axes, last_sizes, require_epsilon
from onnxrewrite_patterns.transpose_frames import inverse, is_identity

x = Var("x", dtype=FLOATS)
eps = Scalar("epsilon", default=0.0)
axes = Attr[Axes]("axes", default=None)


def root(source: Term) -> Term:
    """√(mean(x²) + ε)."""
    return op.Sqrt(op.ReduceMean(source**2, axes=axes) + eps)


widened = op.Cast(x, to=Attr[int]("to"))
narrowed = op.Cast(1 / root(widened), to=Attr[int]("back"))
"""In half precision all but the last product is often float32."""


def _is_centred(m: Match, value: Value) -> bool:
    """True if a value is the difference of another value and its mean, nothing but this norm needs either, and there is
    an epsilon."""
    difference = made_by(value, "Sub")
    if difference is None or not m[eps]:
        return False
    minuend, mean = inputs_of(difference)
    of_mean = path(mean, "ReduceMean")
    centred = of_mean is not None and of_mean.source is resolve(minuend)
    return centred and not need_outside(mean, {difference}) and not need_outside(value, set(m.nodes))


_ROOT = "p = Pow(x, 2.0)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-6)  r = Sqrt(a)"
_ROOT_18 = "p = Mul(x, x)  v = ReduceMean(p, {-1})  a = Add(v, 1e-6)  r = Sqrt(a)"
_RESULT = "float[b,s,4] x; y = RMSNormalization<axis=-1, epsilon=1e-6>(x, {1.0, 1.0, 1.0, 1.0})"


@rule(
    "rms-norm",
    RAISE,
    any_of(x / root(x), x * narrowed),
    examples=(
        Rewrites(f"float[b,s,4] x; {_ROOT_18} y = Div(x, r)", to=_RESULT, opset=23),
        Rewrites(f"float[b,s,4] x; {_ROOT_18} i = Div(1.0, r)  y = Mul(x, i)", to=_RESULT, opset=23),
        Rewrites(
            "float[b,s,4] x; p = Pow(x, 2.0)  v = ReduceMean(p, {2})  a = Add(v, 1e-6)  r = Pow(a, -0.5)y = Mul(r, x)",
            to=_RESULT,
            opset=23,
        ),
        Rewrites(
            "float16[b,s,4] x; w = Cast<to=1>(x)  p = Mul(w, w)  v = ReduceMean(p, {-1})  a = Add(v, 1e-6)"
            "r = Sqrt(a)  i = Reciprocal(r)  n = Cast<to=10>(i)  y = Mul(x, n)",
            to="float16[b,s,4] x; y = RMSNormalization<axis=-1, epsilon=1e-6>(x, float16[4] {1.0, 1.0, 1.0, 1.0})",
            opset=23,
        ),
        Rewrites(
            f"float[b,s,4] z; m = ReduceMean(z, {{-1}})  x = Sub(z, m)  {_ROOT_18} y = Div(x, r)  o = Relu(m)",
            to="float[b,s,4] z; m = ReduceMean(z, {-1})  x = Sub(z, m)"
            "  y = RMSNormalization<axis=-1, epsilon=1e-6>(x, {1.0, 1.0, 1.0, 1.0})  o = Relu(m)",
            opset=23,
        ),
        Rewrites(
            "float[b,s,4] z; m = ReduceMean(z, {-1})  x = Sub(z, m)  p = Mul(x, x)  v = ReduceMean(p, {-1})"
            "r = Sqrt(v)  y = Div(x, r)",
            to="float[b,s,4] z; m = ReduceMean(z, {-1})  x = Sub(z, m)"
            "  y = RMSNormalization<axis=-1, epsilon=0.0>(x, {1.0, 1.0, 1.0, 1.0})",
            opset=23,
        ),
        Rejects(f"float[b,s,4] x; {_ROOT} y = Div(x, r)", because="RMSNormalization needs opset 23"),
        Rejects(f"float[b,s,4] x; {_ROOT_18} y = Div(z, r)", because="same value in both places", opset=23),
        Rejects(
            "float[b,s,4] x; p = Mul(x, x)  v = ReduceMean(p, {1})  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="the mean runs along the axes [-2], not the last ones",
            opset=23,
        ),
        Rejects(
            "float[2,4] x; p = Mul(x, x)  v = ReduceMean(p)  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="the mean is one of everything",
            opset=23,
        ),
        Rejects(
            "float[b,s,n] x; p = Mul(x, x)  v = ReduceMean(p, {-1})  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="the sizes of the normalized axes are not known",
            opset=23,
        ),
        Rejects(
            "float[b,s,4] z; m = ReduceMean(z, {-1})  x = Sub(z, m)  p = Mul(x, x)  v = ReduceMean(p, {-1})"
            "a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="that is a LayerNormalization",
            opset=23,
        ),
        Rejects(
            "float[b,s,4] x; p = Mul(x, x)  v = ReduceMean(p, {-1})  r = Sqrt(v)  a = Add(r, 1e-6)  y = Div(x, a)",
            because="expected",
            opset=23,
        ),
    ),
)
def rms_norm(m: Match, build: Builder) -> Value:
    """x/√(mean(x²) + ε) ⟶ RMSNormalization(x, 1), where the mean is that of the last axes."""
    require_epsilon(m, eps)
    m.require(not _is_centred(m, m[x]), "x is less its own mean: that is a LayerNormalization", at=x)
    count = last_axes(m, x, m[axes])
    ones = build.const(np.ones(last_sizes(m, x, count)), like=x)
    return build.RMSNormalization(m[x], ones, axis=-count, epsilon=m[eps])


@rule(
    "rms-norm-along-axes",
    RAISE,
    x / root(x),
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[n,2,h,w] x; p = Mul(x, x)  v = ReduceMean(p, {1})  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            to="float[n,2,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)"
            "l = RMSNormalization<axis=-1, epsilon=1e-6>(t, {1.0, 1.0})  y = Transpose<perm=[0,3,1,2]>(l)",
            opset=23,
        ),
        Rewrites(
            "float[2,3,s] x; p = Pow(x, 2.0)  v = ReduceMean(p, {-2, 0})  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            to="float[2,3,s] x; w = float[2,3] {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}  t = Transpose<perm=[2,0,1]>(x)"
            "l = RMSNormalization<axis=-2, epsilon=1e-6>(t, w)  y = Transpose<perm=[1,2,0]>(l)",
            opset=23,
        ),
        Rejects(f"float[b,s,4] x; {_ROOT_18} y = Div(x, r)", because="runs along the last axes", opset=23),
        Rejects(
            "float[n,c,h,w] x; p = Mul(x, x)  v = ReduceMean(p, {1})  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="the sizes of the normalized axes are not known",
            opset=23,
        ),
        Rejects(
            "x = Relu(z)  p = Mul(x, x)  v = ReduceMean(p, {-2})  a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="the rank is not known",
            opset=23,
        ),
        Rejects(
            "float[n,2,s] x; p = Mul(x, x)  v = ReduceMean(p, {1})  a = Add(v, -1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="what is added to the variance is",
            opset=23,
        ),
        Rejects(
            "float[n,2,s] z; m = ReduceMean(z, {1})  x = Sub(z, m)  p = Mul(x, x)  v = ReduceMean(p, {1})"
            "a = Add(v, 1e-6)  r = Sqrt(a)  y = Div(x, r)",
            because="that is a LayerNormalization",
            opset=23,
        ),
    ),
)
def rms_norm_along_axes(m: Match, build: Builder) -> Value:
    """x/√(mean(x²) + ε) ⟶ Transpose(RMSNormalization(Transpose(x), 1)), where the mean is that of other axes."""
    require_epsilon(m, eps)
    m.require(not _is_centred(m, m[x]), "x is less its own mean: that is a LayerNormalization", at=x)
    rank = m.known(m.rank(x), "the rank is not known", at=x)
    along = tuple(axis + rank for axis in common_axes(m, x, m[axes]))
    perm = (*(axis for axis in range(rank) if axis not in along), *along)
    m.require(not is_identity(perm), "the mean runs along the last axes", at=x)
    shape = m.shape(x) or ()
    sizes = [d for d in (shape[axis] for axis in along) if isinstance(d, int)]
    m.require(len(sizes) == len(along), "the sizes of the normalized axes are not known", at=x)
    ones, turned = build.const(np.ones(sizes), like=x), build.Transpose(m[x], perm=perm)
    normalized = build.RMSNormalization(turned, ones, axis=-len(along), epsilon=m[eps])
    return build.Transpose(normalized, perm=inverse(perm))
