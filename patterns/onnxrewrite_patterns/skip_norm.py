"""The normalization of a residual sum as ONNX Runtime's SkipLayerNormalization, or SkipSimplifiedLayerNormalization.

Why: the sum is normalized as it is made, row by row, and need not be read again; it is an output, too, where it is
carried on to the next residual sum.  A bias of what is added comes for free.  On a CPU the kernel is slow for many rows
(see ``unfuse.py``), so `apply` measures.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.norm_parts import with_sum

x, skip = Var("x", dtype=FLOATS), Var("skip", dtype=FLOATS)
bias_of_x = Var("bias of x", dtype=FLOATS, rank=1)
total = any_of(op.Add(op.Add(x, bias_of_x), skip), op.Add(op.Add(x, skip), bias_of_x), op.Add(x, skip))
widened = op.Cast(total, to=int(ir.DataType.FLOAT))
whole = any_of(total, widened)
scale, bias = Var("scale"), Var("bias", default=None)
layer_norm, rms_norm = op.LayerNormalization(whole, scale, bias), op.RMSNormalization(whole, scale)
norm = any_of(layer_norm, rms_norm)


def _widened(m: Match, build: Builder, value: Value | None) -> Value | None:
    """An operand in the dtype in which its sum is normalized."""
    if value is None or widened not in m:
        return value
    return build.Cast(value, to=int(ir.DataType.FLOAT))


def _by_shape(m: Match) -> tuple[Value, Value]:
    """The operand that has the shape of the sum, and the other, which may have no batch, or one of 1."""
    shape = m.shape(total)
    if shape is None or len(shape) not in (2, 3):
        m.refuse("the sum must be of rank 3, or 2", at=total)
    first, second = (m[x], m[skip]) if same_shape(m.shape(x), shape) else (m[skip], m[x])
    fit = same_shape(m.shape(first), shape) and _broadcasts(m, second, shape)
    m.require(fit, "one operand must have the shape of the sum, and the other all of it but the batch", at=total)
    return first, second


def _broadcasts(m: Match, value: Value, to: Sequence[Dim]) -> bool:
    """True if the kernel can broadcast a value to a shape: along the first of three axes, and no other."""
    shape = m.shape(value)
    if shape is None or same_shape(shape, to):
        return shape is not None
    return len(to) == 3 and same_shape(shape[-2:], to[1:]) and (len(shape) == 2 or shape[0] == 1)


def _require_rows(m: Match, call: Call) -> None:
    """Refuse unless rows are normalized, and scale and bias are as long as these."""
    shape = m.shape(total) or ()
    m.require(m.attr(call, "axis") in (-1, len(shape) - 1), "it is not along the last axis", at=total)
    for term in (scale, bias, bias_of_x):
        value = m.value(term)
        fits = value is None or same_shape(m.shape(value), shape[-1:])
        m.require(fits, f"the {term.name} is not shown to be as long as the last axis", at=term)
    m.require(m.dtype(scale) == m.dtype(whole), "the scale has another dtype than the sum", at=scale)


_X = "float[b,s,8] x; float[b,s,8] z; float[8] w; float[8] c;"


@rule(
    "skip-norm",
    LOWER,
    norm,
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_X} a = Add(x, z)  y = LayerNormalization<axis=-1, epsilon=1e-12>(a, w, c)",
            to=f"{_X} y = com.microsoft.SkipLayerNormalization<epsilon=1e-12>(x, z, w, c)",
        ),
        Rewrites(
            "float[1,s,8] x; float[b,s,8] z; float[8] w; float[8] c;  a = Add(x, z)  y = LayerNormalization(a, w, c)",
            to="float[1,s,8] x; float[b,s,8] z; float[8] w; float[8] c;"
            "y = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(z, x, w, c)",
        ),
        Rewrites(
            f"{_X} float[8] e; d = Add(x, e)  a = Add(d, z)  y = LayerNormalization(a, w)",
            to=f"{_X} float[8] e; y = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, z, w, , e)",
        ),
        Rewrites(
            f"{_X} float[8] e; d = Add(x, z)  a = Add(d, e)  y = LayerNormalization(a, w)",
            to=f"{_X} float[8] e; y = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, z, w, , e)",
        ),
        Rewrites(
            "(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, u) { a = Add(x, z)  y = RMSNormalization(a, w)"
            "u = Relu(a) }",
            to="(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, u) {"
            "y, m, i, a = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=1e-5>(x, z, w)  u = Relu(a) }",
            opset=23,
        ),
        Rewrites(
            "(float[b,s,4] x, float[b,s,4] z) => (y, u) { a = Add(x, z)  w = Constant<value=float[4] {1, 2, 3, 4}>()"
            "y = LayerNormalization(a, w)  u = Relu(a) }",
            to="(float[b,s,4] x, float[b,s,4] z) => (y, u) { w = Constant<value=float[4] {1, 2, 3, 4}>()"
            "y, m, i, a = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, z, w)  u = Relu(a) }",
        ),
        Rewrites(
            "float16[b,s,8] x; float16[b,s,8] z; float[8] w; a = Add(x, z)  f = Cast<to=1>(a)"
            "y = LayerNormalization(f, w)",
            to="float16[b,s,8] x; float16[b,s,8] z; float[8] w; c = Cast<to=1>(x)  d = Cast<to=1>(z)"
            "y = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(c, d, w)",
        ),
        Rejects(
            "float16[b,s,8] x; float16[b,s,8] z; float[8] w; a = Add(x, z)  f = Cast<to=1>(a)"
            "y = LayerNormalization(f, w)  u = Relu(a)",
            because="the sum is needed in half precision, too",
        ),
        Rejects(
            "double[b,s,8] x; double[b,s,8] z; float[8] w; a = Add(x, z)  f = Cast<to=1>(a)"
            "y = LayerNormalization(f, w)",
            because="the sum is one of doubles",
        ),
        Rejects(
            "float[b,s,8] x; float[b,1,8] z; a = Add(x, z)  y = LayerNormalization(a, w)",
            because="all of it but the batch",
        ),
        Rejects(
            "float[b,h,s,8] x; float[b,h,s,8] z; a = Add(x, z)  y = LayerNormalization(a, w)",
            because="of rank 3, or 2",
        ),
        Rejects(f"{_X} a = Add(x, z)  y = LayerNormalization<axis=1>(a, w)", because="not along the last axis"),
        Rejects(
            "float[b,s,n] x; float[b,s,n] z; float[8] w; a = Add(x, z)  y = LayerNormalization(a, w)",
            because="the scale is not shown to be as long as the last axis",
        ),
        Rejects(
            "(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, m){ a = Add(x, z)  y, m = LayerNormalization(a, w) }",
            because="inside the match is needed elsewhere, too",
        ),
        Rejects(f"{_X} a = Add(x, z)  y = LayerNormalization<epsilon=-0.5>(a, w)", because="epsilon is negative"),
        Rejects(f"{_X} a = Sub(x, z)  y = LayerNormalization(a, w)", because="expected"),
        Rejects(f"{_X} a = Add(x, z)  y = LayerNormalization(a, w)", target="onnx", because="standard operators only"),
    ),
)
def skip_norm(m: Match, build: Builder) -> Value | tuple[Value, Value]:
    """LayerNormalization(x + skip) ⟶ com.microsoft.SkipLayerNormalization(x, skip), which gives the sum, too."""
    call = m.alternative(norm)
    assert isinstance(call, Call)
    first, second = _by_shape(m)
    _require_rows(m, call)
    is_shared = with_sum(m, total)
    m.require(m.dtype(total) != ir.DataType.DOUBLE, "the sum is one of doubles", at=total)
    m.require(not is_shared or widened not in m, "the sum is needed in half precision, too", at=total)
    m.require(m.attr(call, "epsilon") >= 0, "epsilon is negative", at=norm)
    x_skip_bias = [_widened(m, build, v) for v in (first, second, m.value(bias_of_x))]
    own = [m[scale], m.value(bias)] if call is layer_norm else [m[scale]]
    op_type = "SkipLayerNormalization" if call is layer_norm else "SkipSimplifiedLayerNormalization"
    inputs, epsilon = [*x_skip_bias[:2], *own, x_skip_bias[2]], {"epsilon": m.attr(call, "epsilon")}
    if not is_shared:
        return build.microsoft.node(op_type, inputs, epsilon)[0]
    known_before = all(v is None or v.producer() is None or m.facts.tensor(v) is not None for v in inputs[2:])
    m.require(known_before, "scale and bias may be known only after the sum", at=scale)
    m.widen((), (m[norm], m[total]))
    result, _, _, carried = build.microsoft.node(op_type, inputs, epsilon, outputs=4)
    return result, carried
