"""A product, a sum or a pair of Casts around a normalization, which can do each of them by itself.

Why: every one of them is a pass over memory, and what scale and bias take in costs nothing.

In half precision the standard's LayerNormalization and RMSNormalization compute in float32 by themselves and round
before they scale: that is what exporters spell with Casts.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.norm_parts import constant, finite, is_all, spread

x, scale, bias = Var("x", dtype=FLOATS), Var("scale", dtype=FLOATS), Var("bias", default=None)
layer_norm, rms_norm = op.LayerNormalization(x, scale, bias), op.RMSNormalization(x, scale)
norm = any_of(layer_norm, rms_norm)

# -- scale and bias ------------------------------------------------------------------------------------------

factor, addend = Var("factor", dtype=FLOATS), Var("addend", dtype=FLOATS)
known_factor, known_addend = Const("factor"), Const("addend")
rounded, rounded_layer_norm = (op.Cast(each, to=Attr[int]("to")) for each in (norm, layer_norm))
scaled, shifted = any_of(norm, rounded), any_of(layer_norm, rounded_layer_norm)


def _parameter(m: Match, build: Builder, known: Const, term: Var) -> Value:
    """The factor or the addend, in the shape and the dtype of the scale."""
    sizes = m.shape(scale) or ()
    if known not in m:
        fits = m.dtype(term) == m.dtype(scale) and same_shape(m.shape(term), sizes)
        m.require(fits, f"the {term.name} is not constant, and not of the shape of the scale", at=term)
        return m[term]
    array = m[known]
    numbers = tuple(d for d in sizes if isinstance(d, int))
    m.require(len(numbers) == len(sizes) > 0, "the shape of the scale is not known", at=scale)
    lower = m.rank(x) is not None or array.ndim <= len(numbers)
    m.require(lower, f"the {known.name} may raise the rank, for that of x is unknown", at=scale)
    full = spread(array, numbers)
    m.require(full is not None, f"the {known.name} varies along other axes than the scale", at=scale)
    return finite(m, build.const(full, like=scale), at=scale)


def _read_by(m: Match, own: Value) -> Value:
    """The result of the normalization that reads the parameter ``own``."""
    return next((n.outputs[0] for n in readers(own, within=1) if n in m.nodes), own)


def _combined(m: Match, build: Builder, op_type: str, own: Value, other: Value) -> Value:
    """The product or the sum of two constants of one shape."""
    arrays = constant(m, own), constant(m, other)
    m.require(
        all(a is not None for a in arrays),
        f"both that and what is there already, `{own.name}`, are not constant",
        at=_read_by(m, own),
    )
    a, b = (np.asarray(array) for array in arrays)
    m.require(a.shape == b.shape, "it is not of the shape of what is there already", at=own)
    return finite(m, build.const(a * b if op_type == "Mul" else a + b, like=own), at=scale)


def _require_scaled(m: Match) -> None:
    """Refuse a normalization that is needed elsewhere, too, unless all that read it scale it by constants: one for each
    of them computes no more than they do."""
    for value in (m[each] for each in (norm, rounded) if each in m):
        others = [n for n in readers(value, within=1) if n not in m.nodes]
        scales = all(n.op_type == "Mul" and any(m.facts.tensor(i) for i in inputs_of(n)) for n in others)
        m.require(not value.is_graph_output() and scales, f"`{value.name}` is needed for something else, too", at=value)


def _rebuilt(m: Match, build: Builder, call: Term, inputs: list[Value | None]) -> Value:
    """The normalization with other parameters; rounded as before, after them now."""
    assert isinstance(call, Call)
    (result,) = build.node(m.node(call).op_type, inputs, m.attrs(call))
    cast = next((c for c in (rounded, rounded_layer_norm) if c in m), None)
    if cast is None:
        return result
    before, after = m.dtype(result), m.dtype(cast)
    narrows = before == ir.DataType.FLOAT and after in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    m.require(narrows, "the Cast after it does not narrow", at=cast)
    return build.Cast(result, to=int(after or 0))


_ONES = "LayerNormalization<epsilon=1e-6>(x, {1.0, 1.0})"


@rule(
    "norm-scale",
    RAISE,
    any_of(op.Mul(scaled, factor), scaled * known_factor),
    allow_shared=True,
    examples=(
        Rewrites(
            f"float[n,2] x; float[2] w; l = {_ONES}  y = Mul(w, l)",
            to="float[n,2] x; float[2] w; y = LayerNormalization<epsilon=1e-6>(x, w)",
        ),
        Rewrites(
            "float[n,2] x; l = LayerNormalization(x, {1.0, 2.0}, {3.0, 4.0})  y = Mul(l, float[1,2] {2.0, 0.5})",
            to="float[n,2] x; y = LayerNormalization(x, {2.0, 1.0}, {6.0, 2.0})",
        ),
        Rewrites(
            "float16[n,2] x; float16[2] w; l = RMSNormalization(x, float16[2] {1.0, 1.0})  y = Mul(l, w)",
            to="float16[n,2] x; float16[2] w; y = RMSNormalization(x, w)",
            opset=23,
        ),
        Rewrites(
            f"float[n,2] x; l = {_ONES}  c = Cast<to=10>(l)  y = Mul(c, float16[2] {{3.0, 4.0}})",
            to="float[n,2] x; l = LayerNormalization<epsilon=1e-6>(x, {3.0, 4.0})  y = Cast<to=10>(l)",
        ),
        Rewrites(
            f"float[n,2] x; l = {_ONES}  y = Mul(l, {{3.0, 4.0}})  z = Mul({{5.0, 6.0}}, l)",
            to="float[n,2] x; y = LayerNormalization<epsilon=1e-6>(x, {3.0, 4.0})"
            "z = LayerNormalization<epsilon=1e-6>(x, {5.0, 6.0})",
        ),
        Rejects(
            f"float[n,2] x; float[n,1] w; l = {_ONES}  y = Mul(l, w)",
            because="the factor is not constant, and not of the shape of the scale",
        ),
        Rejects(
            f"float[2,2] x; l = {_ONES}  y = Mul(l, float[2,1] {{1.0, 2.0}})",
            because="the factor varies along other axes than the scale",
        ),
        Rejects(
            f"l = {_ONES}  y = Mul(l, float[1,2] {{1.0, 2.0}})",
            because="the factor may raise the rank",
        ),
        Rejects(
            "float[n,2] x; float[2] w; float[2] z; l = LayerNormalization(x, z)  y = Mul(l, w)",
            because="not constant",
        ),
        Rejects(f"float[n,2] x; float[2] w; l = {_ONES}  y = Mul(l, w)  z = Relu(l)", because="for something else"),
        Rejects(
            "float[n,2] x; l = LayerNormalization(x, {1.0, 2.0}, {0.0, 4.0})  y = Div(l, {0.0, 1.0})",
            because="not finite",
        ),
    ),
)
def norm_scale(m: Match, build: Builder) -> Value:
    """LayerNormalization(x, γ, β)·c ⟶ LayerNormalization(x, γ·c, β·c), and likewise RMSNormalization."""
    _require_scaled(m)
    gain = _parameter(m, build, known_factor, factor)
    new_scale = gain if is_all(m, m[scale], 1.0) else _combined(m, build, "Mul", m[scale], gain)
    new_bias = m.value(bias)
    if new_bias is not None and not is_all(m, new_bias, 0.0):
        new_bias = _combined(m, build, "Mul", new_bias, gain)
    return _rebuilt(m, build, m.alternative(norm), [m[x], new_scale, new_bias])


@rule(
    "norm-bias",
    RAISE,
    any_of(op.Add(shifted, addend), shifted + known_addend),
    examples=(
        Rewrites(
            "float[n,2] x; float[2] w; float[2] b; l = LayerNormalization(x, w)  y = Add(l, b)",
            to="float[n,2] x; float[2] w; float[2] b; y = LayerNormalization(x, w, b)",
        ),
        Rewrites(
            "float[n,2] x; l = LayerNormalization(x, {1.0, 2.0}, {3.0, 4.0})  y = Add(l, 0.5)",
            to="float[n,2] x; y = LayerNormalization(x, {1.0, 2.0}, {3.5, 4.5})",
        ),
        Rejects(
            "float[n,2] x; float[n,2] b; l = LayerNormalization(x, {1.0, 2.0})  y = Add(l, b)",
            because="the addend is not constant, and not of the shape of the scale",
        ),
        Rejects(
            "float[n,2] x; l = RMSNormalization(x, {1.0, 2.0})  y = Add(l, 0.5)",
            because="found RMSNormalization",
            opset=23,
        ),
    ),
)
def norm_bias(m: Match, build: Builder) -> Value:
    """LayerNormalization(x, γ, β) + c ⟶ LayerNormalization(x, γ, β + c)."""
    offset = _parameter(m, build, known_addend, addend)
    old = m.value(bias)
    new_bias = offset if old is None or is_all(m, old, 0.0) else _combined(m, build, "Add", old, offset)
    return _rebuilt(m, build, layer_norm, [m[x], m[scale], new_bias])


perm = Attr[tuple[int, ...]]("perm")
turned, turned_layer_norm = op.Transpose(norm, perm=perm), op.Transpose(layer_norm, perm=perm)

_TURNED = f"float[n,s,2] x; l = {_ONES}  t = Transpose<perm=[0,2,1]>(l)  "


@rule(
    "norm-affine-before-transpose",
    RAISE,
    any_of(turned * known_factor, turned_layer_norm + known_addend),
    examples=(
        Rewrites(
            f"{_TURNED} y = Mul(t, float[2,1] {{3.0, 4.0}})",
            to=f"float[n,s,2] x; l = {_ONES}  m = Mul(l, {{3.0, 4.0}})  y = Transpose<perm=[0,2,1]>(m)",
        ),
        Rewrites(
            f"float[2,3,s,2] x; l = {_ONES}  t = Transpose<perm=[3,0,1,2]>(l)  y = Add(float[2,1,1,1] {{3.0, 4.0}}, t)",
            to=f"float[2,3,s,2] x; l = {_ONES}  a = Add(l, {{3.0, 4.0}})  y = Transpose<perm=[3,0,1,2]>(a)",
        ),
        Rejects(f"{_TURNED} y = Mul(t, {{3.0, 4.0}})", because="varies along other axes than the scale"),
        Rejects(f"{_TURNED} y = Mul(t, float[1,1,2,1] {{3.0, 4.0}})", because="the factor raises the rank"),
        Rejects(f"{_TURNED} y = Add(t, float[2,1] {{3.0, 4.0}})  z = Relu(t)", because="also used by Relu"),
    ),
)
def norm_affine_before_transpose(m: Match, build: Builder) -> Value:
    """Transpose(LayerNormalization(x, γ, β))·c ⟶ Transpose(LayerNormalization(x, γ, β)·cᵀ), and likewise a sum."""
    known = known_factor if known_factor in m else known_addend
    array, order = m[known], m[perm]
    sizes = tuple(d for d in m.shape(scale) or () if isinstance(d, int))
    m.require(array.ndim <= len(order), f"the {known.name} raises the rank", at=known)
    laid = array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(np.argsort(order))
    full = spread(laid, sizes)
    m.require(full is not None and full.ndim > 0, f"the {known.name} varies along other axes than the scale", at=known)
    inner, made = m.operand(m.node(turned if turned in m else turned_layer_norm)), build.const(full, like=scale)
    m.attrs(rms_norm if rms_norm in m else layer_norm)  # it stays as it is
    return build.Transpose(build.Mul(inner, made) if known is known_factor else build.Add(inner, made), perm=order)


source = Var("source", dtype=FLOATS)
moved = op.Transpose(source, perm=perm)
moved_layer_norm, moved_rms_norm = op.LayerNormalization(moved, scale, bias), op.RMSNormalization(moved, scale)

_MOVED = "float[b,s,3,2] x; float[2] w; t = Transpose<perm=[0,2,1,3]>(x)"


@rule(
    "norm-before-transpose",
    RAISE,
    any_of(moved_layer_norm, moved_rms_norm),
    examples=(
        Rewrites(
            f"{_MOVED} y = LayerNormalization(t, w)",
            to="float[b,s,3,2] x; float[2] w; l = LayerNormalization(x, w)  y = Transpose<perm=[0,2,1,3]>(l)",
        ),
        Rewrites(
            f"{_MOVED} y = RMSNormalization<axis=3, epsilon=0.5>(t, w)",
            to="float[b,s,3,2] x; float[2] w;l = RMSNormalization<epsilon=0.5>(x, w)  y = Transpose<perm=[0,2,1,3]>(l)",
            opset=23,
        ),
        Rejects(f"{_MOVED} y = LayerNormalization<axis=2>(t, w)", because="along other axes than the last"),
        Rejects(
            "float[b,s,3,2] x; float[3] w; t = Transpose<perm=[0,1,3,2]>(x)  y = LayerNormalization(t, w)",
            because="the last axis moves",
        ),
        Rejects(
            "float[b,s,3,2] x; float[3,1,2] w; t = Transpose<perm=[0,2,1,3]>(x)  y = LayerNormalization(t, w)",
            because="the scale varies along other axes than the last",
        ),
        Rejects(f"{_MOVED} y = LayerNormalization(t, w)  z = Relu(t)", because="also used by Relu"),
    ),
)
def norm_before_transpose(m: Match, build: Builder) -> Value:
    """LayerNormalization(Transpose(x), γ, β) ⟶ Transpose(LayerNormalization(x, γ, β)), where the last axis stays.

    Heads are normalized so: what stands behind the Transpose then finds it.
    """
    call, order = moved_rms_norm if moved_rms_norm in m else moved_layer_norm, m[perm]
    node = m.node(call)
    attributes = {name: value for name, value in m.attrs(call).items() if name != "axis"}  # the last, as by default
    m.require(m.axis(node, len(order)) == len(order) - 1, "it goes along other axes than the last")
    m.require(order[-1] == len(order) - 1, "the last axis moves", at=source)
    for term in (scale, bias):
        rank = m.rank(term) if m.value(term) is not None else 0
        m.require(rank is not None and rank <= 1, f"the {term.name} varies along other axes than the last", at=term)
    return build.Transpose(build.node(node.op_type, [m[source], *inputs_of(node)[1:]], attributes)[0], perm=order)


# -- half precision ------------------------------------------------------------------------------------------

wide = op.Cast(x, to=Attr[int]("wide"))
wide_layer_norm, wide_rms_norm = op.LayerNormalization(wide, scale, bias), op.RMSNormalization(wide, scale)
wide_norm = any_of(wide_layer_norm, wide_rms_norm)
narrow = op.Cast(wide_norm, to=Attr[int]("narrow"))


def _narrowed(m: Match, build: Builder, value: Value | None) -> Value | None:
    """A constant in the dtype of x, which has to hold it."""
    if value is None:
        return None
    array = constant(m, value)
    if array is None:
        m.refuse("scale and bias are not constant", at=value)
    made = build.const(array, like=x)
    m.require(np.array_equal(array, np.asarray(constant(m, made))), "scale or bias are more precise than x", at=value)
    return made


@rule(
    "norm-in-half-precision",
    RAISE,
    narrow,
    examples=(
        Rewrites(
            "float16[n,2] x; c = Cast<to=1>(x)  l = LayerNormalization<epsilon=1e-6>(c, {1.0, 2.0}, {0.0, 0.5})"
            "y = Cast<to=10>(l)",
            to="float16[n,2] x;y = LayerNormalization<epsilon=1e-6>(x, float16[2] {1.0, 2.0}, float16[2] {0.0, 0.5})",
        ),
        Rewrites(
            "float16[n,2] x; c = Cast<to=1>(x)  l = RMSNormalization(c, {1.0, 1.0})  y = Cast<to=10>(l)",
            to="float16[n,2] x; y = RMSNormalization(x, float16[2] {1.0, 1.0})",
            opset=23,
        ),
        Rejects(
            "float16[n,2] x; c = Cast<to=1>(x)  l = LayerNormalization(c, {0.1, 2.0})  y = Cast<to=10>(l)",
            because="scale or bias are more precise than x",
        ),
        Rejects(
            "float16[n,2] x; c = Cast<to=11>(x)  l = LayerNormalization(c, double[2] {1.0, 2.0})  y = Cast<to=10>(l)",
            because="it is not float32 between half precision",
        ),
        Rejects(
            "float16[n,2] x; c = Cast<to=1>(x)  l = LayerNormalization(c, {1.0, 2.0})  y = Cast<to=11>(l)",
            because="the result has another dtype than x",
        ),
    ),
)
def norm_in_half_precision(m: Match, build: Builder) -> Value:
    """Cast(LayerNormalization(Cast(x), γ, β)) ⟶ LayerNormalization(x, γ, β), which computes in float32 by itself."""
    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    m.require(m.dtype(x) == m.dtype(narrow), "the result has another dtype than x", at=x)
    from_half = m.dtype(x) in halves and m.dtype(wide) == ir.DataType.FLOAT
    m.require(from_half, f"it is not float32 between half precision: {m.dtype(x)} is computed in {m.dtype(wide)}", at=x)
    call = m.alternative(wide_norm)
    assert isinstance(call, Call)
    parameters = [_narrowed(m, build, v) for v in (m[scale], m.value(bias))]
    return build.node(m.node(call).op_type, [m[x], *parameters], m.attrs(call))[0]
