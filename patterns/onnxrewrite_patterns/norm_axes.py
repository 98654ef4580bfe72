"""Normalization along other axes than the last, from its parts: along the channels of an image, or by groups of them.

Networks whose channels come last have InstanceNormalization and GroupNormalization so, and those whose channels come
first have LayerNormalization so.  What is normalized is turned until its axes are the last, and turned back after that:
convolutions around it leave such Transposes anyway, which then meet.  A group is a row of channels, [N, ..., G·K] as
[N, ..., G, K]: of channels that come first it is the Reshape and the InstanceNormalization that exporters write
(``instance_norm.py``).

Why: six passes over memory become one, or three.  ONNX Runtime's means along axes that are not neighbours are slow.
Measured with both Transposes, time against the parts: by groups 0.25 to 0.65, by channel 0.3 to 0.7, along the
channels 0.34 to 0.86 and, where neither scale nor bias is multiplied out, once 1.25.
Wu & He, 2018, arXiv:1803.08494.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.layernorm import beta, eps, gamma, mean_axes, multiplied_out, normalized, var_axes, x
from onnxrewrite_patterns.norm_parts import common_axes, constant, require_epsilon
from onnxrewrite_patterns.transpose_frames import Perm, inverse, is_identity


@dataclass(frozen=True)
class Layout:
    """The layout of a value for the kernel that normalizes it.

    Attributes:
        source: What is turned: the value, or that of which it is a view by groups.
        perm: How it is turned.
        axes: The number of axes that are normalized, the last ones then.
        groups: The number of groups and of channels in each, None where ``source`` is no view.
    """

    source: Value
    perm: Perm
    axes: int
    groups: tuple[int, int] | None = None

    def turned(self, build: Builder, value: Value) -> Value:
        """A value in this layout."""
        return value if is_identity(self.perm) else build.Transpose(value, perm=self.perm)

    def restored(self, m: Match, build: Builder, result: Value) -> Value:
        """A result in the layout and the shape of x."""
        back = result if is_identity(self.perm) else build.Transpose(result, perm=inverse(self.perm))
        return back if self.groups is None else reshaped_as(m, build, back, m[x])

    def parameter(self, array: Array) -> Array | None:
        """A constant that is broadcast against x in this layout; None where it is another one for each position."""
        rank = len(self.perm)
        if self.groups is None:
            return array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(self.perm)
        by_channel = array.shape[-2:] == self.groups and array.size == math.prod(self.groups)
        return array.reshape((-1,) + (1,) * (rank - 2)) if by_channel else None


def _layout(m: Match, axes: tuple[int, ...]) -> Layout:
    """The layout for a mean along ``axes``, which are counted from the back; refuses what other rules are for."""
    rank = m.rank(x)
    if rank is None:
        m.refuse("the rank is not known", at=x)
    along = tuple(axis + rank for axis in axes)
    kept = tuple(axis for axis in range(rank) if axis not in along)
    by_groups = _by_groups(m, rank) if kept == (0, rank - 2) and rank > 3 else None
    if by_groups is not None:
        return by_groups
    perm = kept + along
    m.require(not is_identity(perm), "the mean runs along the last axes", at=x)
    return Layout(m[x], perm, len(along))


def _by_groups(m: Match, rank: int) -> Layout | None:
    """The layout of channels that come last and are split in groups, None where it is none of these views."""
    view = made_by(resolve(m[x]), "Reshape")
    source = input_of(view) if view is not None else None
    channels, groups, each = m.dim(source, -1) if source is not None else None, m.dim(x, -2), m.dim(x, -1)
    if source is None or not isinstance(groups, int) or not isinstance(each, int) or groups * each != channels:
        return None
    before, after = m.shape(source) or (), m.shape(x) or ()
    if len(before) != rank - 1 or not same_shape(before[:-1], after[:-2]):
        return None
    return Layout(source, (0, rank - 2, *range(1, rank - 2)), rank - 3, (groups, each))


def _normalized(m: Match, build: Builder, layout: Layout) -> Value:
    """The value, normalized, in its layout: by an InstanceNormalization for each channel, or a LayerNormalization."""
    turned = layout.turned(build, layout.source)
    shape = m.shape(turned) or ()
    sizes = [d for d in shape[-layout.axes :] if isinstance(d, int)]
    by_channel = len(shape) - layout.axes == 2 and m.dtype(x) == m.dtype(m.anchor) == ir.DataType.FLOAT
    channels = layout.groups[0] if layout.groups else shape[1]
    if by_channel and isinstance(channels, int) and (layout.axes > 1 or layout.groups or not sizes):
        ones, zeros = (build.const(np.full(channels, number), like=x) for number in (1.0, 0.0))
        if layout.groups is None or layout.groups[1] == 1:
            return build.InstanceNormalization(turned, ones, zeros, epsilon=m[eps])
        view = build.Reshape(turned, np.array([0, channels, -1]))
        return reshaped_as(m, build, build.InstanceNormalization(view, ones, zeros, epsilon=m[eps]), turned)
    m.require(layout.groups is None, "the kernel takes float32 only", at=x)
    m.require(len(sizes) == layout.axes, "the sizes of the normalized axes are not known", at=x)
    if m.dtype(x) != m.dtype(m.anchor):
        turned = build.Cast(turned, to=int(m.dtype(m.anchor) or 0))
    ones = build.const(np.ones(sizes), like=m.anchor)
    return build.LayerNormalization(turned, ones, axis=-layout.axes, epsilon=m[eps])


def _parts(axes: str, end: str = "d = Sub(x, m)  y = Div(d, r)", eps: str = "1e-5") -> str:
    return (
        f"m = ReduceMean<axes={axes}>(x)  c = Sub(x, m)  q = Mul(c, c)  v = ReduceMean<axes={axes}>(q)"
        f"a = Add(v, {eps})  r = Sqrt(a) {end}"
    )


_CENTRED = "y = Div(c, r)"
_TURNED = "t = Transpose<perm=[0,3,1,2]>(x)"
_BACK = "y = Transpose<perm=[0,2,3,1]>"


@rule(
    "norm-along-axes",
    RAISE,
    normalized,
    benefit=20,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"float[n,2,h,w] x; {_parts('[1]', _CENTRED)}",
            to="float[n,2,h,w] x; t = Transpose<perm=[0,2,3,1]>(x)"
            "l = LayerNormalization<axis=-1, epsilon=1e-5>(t, {1.0, 1.0})  y = Transpose<perm=[0,3,1,2]>(l)",
        ),
        Rewrites(
            f"float[n,h,w,2] x; {_parts('[1,2]', _CENTRED)}",
            to=f"float[n,h,w,2] x; {_TURNED} i = InstanceNormalization<epsilon=1e-5>(t, {{1.0, 1.0}}, {{0.0, 0.0}})"
            f"{_BACK}(i)",
        ),
        Rewrites(
            f"float[n,8,8,4] z; x = Reshape(z, {{0, 8, 8, 2, 2}}) {_parts('[1,2,4]', _CENTRED)}",
            to="float[n,8,8,4] z; t = Transpose<perm=[0,3,1,2]>(z)  g = Reshape(t, {0, 2, -1})"
            "i = InstanceNormalization<epsilon=1e-5>(g, {1.0, 1.0}, {0.0, 0.0})  j = Reshape(i, {0, 4, 8, 8})"
            "k = Transpose<perm=[0,2,3,1]>(j)  y = Reshape(k, {0, 8, 8, 2, 2})",
        ),
        Rewrites(
            "double[2,3,4] x; m = ReduceMean<axes=[-3,1]>(x)  c = Sub(x, m)  q = Mul(c, c)"
            "v = ReduceMean<axes=[0,1]>(q)  a = Add(v, double 0.25)  r = Sqrt(a)  y = Div(c, r)",
            to="double[2,3,4] x; t = Transpose<perm=[2,0,1]>(x)  l = LayerNormalization<axis=-2, epsilon=0.25>(t, "
            "double[2,3] {1.0, 1.0, 1.0, 1.0, 1.0, 1.0})  y = Transpose<perm=[1,2,0]>(l)",
        ),
        Rejects(f"float[n,h,w,2] x; {_parts('[3]', _CENTRED)}", because="runs along the last axes"),
        Rejects(
            f"float[n,c,h,w] x; {_parts('[1]', _CENTRED)}", because="the sizes of the normalized axes are not known"
        ),
        Rejects(f"float[n,h,w,c] x; {_parts('[1,2]', _CENTRED)}", because="sizes of the normalized axes are not known"),
        Rejects(f"float[n,2,h,w] x; {_parts('[1]', _CENTRED, '-1e-5')}", because="what is added to the variance is"),
        Rejects(f"float[n,2,h,w] x; {_parts('[1]', _CENTRED, '0.0')}", because="without epsilon"),
        Rejects(f"x = Relu(z) {_parts('[-2]', _CENTRED)}", because="the rank is not known"),
        Rejects(
            "float[n,2,2,w] x; m = ReduceMean<axes=[1]>(x)  c = Sub(x, m)  q = Mul(c, c)"
            "v = ReduceMean<axes=[2]>(q)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(c, r)",
            because="the means run along different axes",
        ),
    ),
)
def norm_along_axes(m: Match, build: Builder) -> Value:
    """(x - mean)/√(var + ε) ⟶ Transpose(LayerNormalization(Transpose(x), 1)), or InstanceNormalization by channel."""
    require_epsilon(m, eps, above_zero=True)
    layout = _layout(m, common_axes(m, x, m[mean_axes], m[var_axes]))
    return layout.restored(m, build, _normalized(m, build, layout))


_MULTIPLIED = "g = Div(float[2,1,1] {2.0, 3.0}, r)  k = Mul(x, g)  n = Mul(m, g)"
_SUM = f"{_MULTIPLIED} o = Sub(z, n)  y = Add(k, o)"


@rule(
    "norm-along-axes-multiplied-out",
    RAISE,
    multiplied_out,
    benefit=20,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"float[n,2,h,w] x; float[2,1,1] z; {_parts('[1]', _SUM)}",
            to="float[n,2,h,w] x; float[2,1,1] z; t = Transpose<perm=[0,2,3,1]>(x)"
            "l = LayerNormalization<axis=-1, epsilon=1e-5>(t, {1.0, 1.0})  s = Mul(l, float[1,1,1,2] {2.0, 3.0})"
            "b = Transpose<perm=[0,3,1,2]>(s)  y = Add(b, z)",
        ),
        Rewrites(
            "float[n,8,8,4] z; x = Reshape(z, {0, 8, 8, 2, 2})"
            + _parts("[1,2,4]", "g = Div(float[2,2] {2, 3, 4, 5}, r)  k = Mul(x, g)  n = Mul(m, g)  y = Sub(k, n)"),
            to="float[n,8,8,4] z; t = Transpose<perm=[0,3,1,2]>(z)  g = Reshape(t, {0, 2, -1})"
            "i = InstanceNormalization<epsilon=1e-5>(g, {1.0, 1.0}, {0.0, 0.0})  j = Reshape(i, {0, 4, 8, 8})"
            "s = Mul(j, float[4,1,1] {2, 3, 4, 5})  k = Transpose<perm=[0,2,3,1]>(s)  y = Reshape(k, {0, 8, 8, 2, 2})",
        ),
        Rewrites(
            "float[n,2,h,w] x; float[n,1,1,1] w0;"
            + _parts("[1]", "g = Div(w0, r)  k = Mul(x, g)  n = Mul(m, g)  y = Sub(k, n)"),
            to="float[n,2,h,w] x; float[n,1,1,1] w0; t = Transpose<perm=[0,2,3,1]>(x)"
            "l = LayerNormalization<axis=-1, epsilon=1e-5>(t, {1.0, 1.0})  b = Transpose<perm=[0,3,1,2]>(l)"
            "y = Mul(b, w0)",
        ),
        Rejects(f"float[n,2,h,w] x; float[2,1,1] z; {_parts('[1]', _SUM, '0.0')}", because="without epsilon"),
        Rejects(
            f"float[n,2,3,w] x; float[2,1,1] z; {_parts('[1,2]', _SUM, '-1.0')}",
            because="what is added to the variance is -1",
        ),
        Rejects(f"float[n,2,1,4] x; float[2,1,1] z; {_parts('[2,3]', _SUM)}", because="runs along the last axes"),
    ),
)
def norm_along_axes_multiplied_out(m: Match, build: Builder) -> Value:
    """x·g + (β - mean·g) ⟶ Transpose(LayerNormalization(Transpose(x), 1)·γ + β), where g = γ/√(var + ε)."""
    require_epsilon(m, eps, above_zero=True)
    layout = _layout(m, common_axes(m, x, m[mean_axes], m[var_axes]))
    result = _normalized(m, build, layout)
    later: list[tuple[str, Value]] = []
    for term, op_type in ((gamma, "Mul"), (beta, "Add")):
        if term not in m:
            continue
        array = constant(m, m[term])
        fits = array is not None and array.ndim <= (m.rank(x) or 0) and not later
        turned = layout.parameter(array) if fits and array is not None else None
        if turned is None:
            later.append((op_type, m[term]))
        else:
            result = build.node(op_type, [result, build.const(turned, like=term)])[0]
    made = layout.restored(m, build, result)
    for op_type, operand in later:
        made = build.node(op_type, [made, operand])[0]
    return made
