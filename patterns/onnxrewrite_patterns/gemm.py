"""Gemm, α·a·b + β·c: the product of two matrices with what is added to it, in one operator.

Why: what is added apart is one more pass over the result; Gemm starts from it.  A product of more dimensions with a
matrix is one of matrices, once all dimensions but the last are one.  That takes two Reshapes, which are free but for
the call, and a shape to return to, which layers share; whether it pays is measured.
Source: Dongarra et al., 1990, "A set of level 3 basic linear algebra subprograms".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns import linear_layers as linear

a, b = Var("a", dtype=FLOATS, rank=2), Var("b", dtype=FLOATS, rank=2)
c = Var("c")
product = any_of(op.MatMul(a, b), op.Gemm(a, b))
total = any_of(op.Add(product, c), op.Sum(product, c), op.Sum(c, product))


def require_fit(m: Match, addend: Value, shape: Sequence[Dim]) -> None:
    """Refuse unless what is added broadcasts to the result, and the result not to it."""
    own = m.shape(addend)
    if own is None or len(own) > len(shape):
        m.refuse("the rank of what is added is unknown, or larger than that of the product", at=addend)
    for size, wanted in zip(own[::-1], shape[::-1], strict=False):
        fits = size == 1 or same_dim(size, wanted)
        m.require(fits, f"a dimension of what is added is {size}, and not shown to be {wanted} or 1", at=addend)


@rule(
    "matmul-add",
    CANONICALIZE,
    total,
    examples=(
        Rewrites(
            "float[m,k] a; float[k,4] b; float[4] c; p = MatMul(a, b)  y = Add(c, p)",
            to="float[m,k] a; float[k,4] b; float[4] c; y = Gemm(a, b, c)",
        ),
        Rewrites(
            "float[k,m] a; float[k,n] b; float[m,1] c; p = Gemm<transA=1, alpha=3.0, beta=2.0>(a, b)  y = Sum(c, p)",
            to="float[k,m] a; float[k,n] b; float[m,1] c; y = Gemm<transA=1, alpha=3.0>(a, b, c)",
        ),
        Rejects(
            "float[m,k] a; float[k,4] b; float[1,1,4] c; p = MatMul(a, b)  y = Add(p, c)",
            because="larger than that of the product",
        ),
        Rejects(
            "float[m,k] a; float[k,n] b; float[s] c; p = MatMul(a, b)  y = Add(p, c)", because="not shown to be n or 1"
        ),
        Rejects(
            "float[1,k] a; float[k,4] b; float[m,4] c; p = MatMul(a, b)  y = Add(p, c)",
            because="not shown to be 1 or 1",
        ),
        Rejects("float[s,m,k] a; float[k,4] b; p = MatMul(a, b)  y = Add(p, c)", because="a must have rank 2"),
        Rejects("int32[m,k] a; int32[k,4] b; int32[4] c; p = MatMul(a, b)  y = Add(p, c)", because="has dtype int32"),
        Rejects(
            "float[m,2] a; float[4] c; b = DequantizeLinear(int8[2,4] {1, 2, 3, 4, 5, 6, 7, 8}, 0.5, int8 0)"
            "  p = MatMul(a, b)  y = Add(p, c)",
            because="quantized operands",
        ),
        Rejects(
            "float[m,k] a; float[k,n] b; float[n] c; float[n] d; p = Gemm(a, b, c)  y = Sum(p, d)",
            because="more inputs",
        ),
    ),
)
def matmul_add(m: Match, build: Builder) -> Value:
    """a·b + c ⟶ Gemm(a, b, c), and likewise Gemm(a, b) + c."""
    linear.require_unquantized(m, m[a], m[b])
    require_fit(m, m[c], m.shape(product) or ())
    call = m.alternative(product)
    assert isinstance(call, Call)
    attributes = {name: value for name, value in m.attrs(call).items() if name != "beta"}
    return build.node("Gemm", [m[a], m[b], m[c]], attributes)[0]


idle = Const("c")
with_idle = op.Gemm(a, b, idle)


@rule(
    "gemm-of-zero-bias",
    CANONICALIZE,
    with_idle,
    benefit=10,
    examples=(
        Rewrites(
            "float[m,k] a; float[n,k] b; y = Gemm<transB=1, beta=0.5>(a, b, {0.0, 0.0})",
            to="float[m,k] a; float[n,k] b; y = Gemm<transB=1>(a, b)",
        ),
        Rewrites(
            "float[m,k] a; float[k,n] b; y = Gemm<beta=0.0>(a, b, 3.0)", to="float[m,k] a; float[k,n] b; y = Gemm(a, b)"
        ),
        Rejects("float[m,k] a; float[k,n] b; y = Gemm(a, b, {0.0, 1e-9})", because="is not zero"),
        Rejects("float[m,k] a; float[k,n] b; y = Gemm(a, b, {0.0, 0.0})", because="does not take 2 inputs", opset=10),
    ),
)
def gemm_of_zero_bias(m: Match, build: Builder) -> Value:
    """Gemm(a, b, 0) ⟶ Gemm(a, b)."""
    m.require(m.attr(with_idle, "beta") == 0 or not m[idle].any(), "what is added is not zero", at=idle)
    attributes = {name: value for name, value in m.attrs(with_idle).items() if name != "beta"}
    return build.node("Gemm", [m[a], m[b]], attributes)[0]


constant = op.Gemm(linear.x, linear.w, linear.b)


@rule(
    "gemm-factors",
    CANONICALIZE,
    constant,
    examples=(
        Rewrites(
            "y = Gemm<alpha=0.5, beta=2.0, transB=1>(x, float[2,1] {1, 2}, {3.0, 4.0})",
            to="y = Gemm<transB=1>(x, float[2,1] {0.5, 1.0}, {6.0, 8.0})",
        ),
        Rewrites("y = Gemm<alpha=0.5>(x, float[1,2] {1, 2})", to="y = Gemm(x, float[1,2] {0.5, 1.0})"),
        Rejects("y = Gemm<beta=2.0>(x, float[1,2] {1, 2})", because="no factors"),
        Rejects(
            "w = float[1,2] {1, 2}  u = Gemm<alpha=0.5>(x, w)  v = Gemm(z, w)  y = Concat<axis=0>(u, v)",
            because="used elsewhere",
        ),
        Rejects("double x; y = Gemm<alpha=0.5>(x, double[1,2] {1, 2})", because="less precision"),
        Rejects("y = Gemm<alpha=3e38>(x, float[1,2] {1, 2})", because="does not fit into float"),
    ),
)
def gemm_factors(m: Match, build: Builder) -> Value:
    """Gemm(x, w, b, alpha=α, beta=β) ⟶ Gemm(x, α·w, β·b)."""
    alpha, beta = np.asarray(m.attr(constant, "alpha")), m.attr(constant, "beta") if linear.b in m else 1.0
    m.require(alpha != 1 or beta != 1, "there are no factors")
    m.require(
        m.dtype(linear.x) != ir.DataType.DOUBLE,
        "the factors are float32, and have less precision than the weight of dtype double",
    )
    weight = m.value(linear.w)
    assert weight is not None
    m.require(alpha == 1 or is_read_once(weight), "the weight is used elsewhere, too", at=weight)
    bias = linear.rounded(m, build, linear.bias_of(m, constant)) if linear.b in m else None
    attributes = {name: value for name, value in m.attrs(constant).items() if name not in ("alpha", "beta")}
    return build.node("Gemm", [m[linear.x], linear.weighted(m, build, alpha), bias], attributes)[0]


bias, perm = Const("c", default=None), Attr[tuple[int, ...]]("perm", default=())
turned = any_of(op.MatMul(a, b), op.Gemm(a, b, bias))
turn = op.Transpose(turned, perm=perm)


@rule(
    "transpose-of-gemm",
    LOWER,
    turn,
    examples=(
        Rewrites(
            "float[k,m] a; float[k,n] b; p = Gemm<alpha=3.0, transA=1>(a, b)  y = Transpose(p)",
            to="float[k,m] a; float[k,n] b; y = Gemm<alpha=3.0, transA=1, transB=0>(b, a)",
        ),
        Rewrites(
            "float[m,k] a; float[k,2] b; p = Gemm(a, b, {1.0, 2.0})  y = Transpose<perm=[1,0]>(p)",
            to="float[m,k] a; float[k,2] b; y = Gemm<transA=1, transB=1>(b, a, float[2,1] {1, 2})",
        ),
        Rewrites(
            "float[m,k] a; float[k,n] b; p = MatMul(a, b)  y = Transpose(p)",
            to="float[m,k] a; float[k,n] b; y = Gemm<transA=1, transB=1>(b, a)",
        ),
        Rejects(
            "float[m,k] a; float[k,n] b; p = MatMul(a, b)  y = Transpose<perm=[0,1]>(p)", because="it swaps nothing"
        ),
        Rejects("float[m,k] a; float[k,n] b; p = Gemm(a, b, c)  y = Transpose(p)", because="expected a constant for c"),
        Rejects(
            "float[m,k] a; float[k,n] b; p = MatMul(a, b)  y = Transpose(p)  z = Relu(p)", because="also used by Relu"
        ),
    ),
)
def transpose_of_gemm(m: Match, build: Builder) -> Value:
    """Transpose(a·b) ⟶ bᵀ·aᵀ, which is Gemm(b, a, transA=1, transB=1), and likewise of a Gemm."""
    m.require(m[perm] in ((), (1, 0)), "it swaps nothing")
    call = m.alternative(turned)
    assert isinstance(call, Call)
    attributes, addend = m.attrs(call), None
    attributes |= {"transA": int(not attributes.get("transB")), "transB": int(not attributes.get("transA"))}
    if m.value(bias) is not None:
        addend = build.const(np.atleast_2d(m[bias]).T if m[bias].ndim else m[bias], like=bias)
    return build.node("Gemm", [m[b], m[a], addend], attributes)[0]


# -- more dimensions, or fewer ---------------------------------------------------------------------------------

row = Var("a", dtype=FLOATS, rank=1)
row_product = op.MatMul(row, b)


@rule(
    "matmul-add-vector",
    LOWER,
    op.Add(row_product, c),
    examples=(
        Rewrites(
            "float[4] a; float[4,3] b; float[3] c; p = MatMul(a, b)  y = Add(p, c)",
            to="float[4] a; float[4,3] b; float[3] c; r = Unsqueeze(a, {0})  p = Gemm(r, b, c)  y = Squeeze(p, {0})",
        ),
        Rejects(
            "float[4] a; float[4,3] b; float[2,3] c; p = MatMul(a, b)  y = Add(p, c)",
            because="larger than that of the product",
        ),
    ),
)
def matmul_add_vector(m: Match, build: Builder) -> Value:
    """a·b + c of a vector a ⟶ Gemm of a matrix of one row."""
    require_fit(m, m[c], m.shape(row_product) or ())
    return build.Squeeze(build.Gemm(build.Unsqueeze(m[row], axes=(0,)), m[b], m[c]), axes=(0,))


x, w, offset = Var("x", dtype=FLOATS), Const("w", rank=2), Const("bias", rank=1)
layer = op.MatMul(x, w)


def unflattened(m: Match, build: Builder, rows: Value, wanted: Sequence[Dim]) -> Value:
    """Rows with the dimensions of x again: by a constant target, or by one taken from x at run time."""
    found = reshape_target(None, wanted, None)
    if found is not None:
        return build.Reshape(rows, np.array(found))
    m.require(build.opset >= 14, "a Reshape to a size of zero, which this could be, needs opset 14", at=x)
    leading = build.Slice(build.Shape(m[x]), np.array([0]), np.array([len(wanted) - 1]), np.array([0]))
    return build.Reshape(rows, build.Concat(leading, np.array([wanted[-1]]), axis=0), allowzero=1)


@rule(
    "matmul-add-flat",
    LOWER,
    op.Add(layer, offset),
    needs_speedup=True,
    examples=(
        Rewrites(
            "float[1,s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Add(p, {3.0})",
            to="float[1,s,2] x; r = Reshape(x, {-1, 2})  g = Gemm(r, float[2,1] {1, 2}, {3.0})"
            "  y = Reshape(g, {1, -1, 1})",
        ),
        Rewrites(
            "float[b,s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Add(p, {3.0})",
            to="float[b,s,2] x; r = Reshape(x, {-1, 2})  g = Gemm(r, float[2,1] {1, 2}, {3.0})"
            "  h = Shape(x)  l = Slice(h, {0}, {2}, {0})  t = Concat<axis=0>(l, {1})  y = Reshape<allowzero=1>(g, t)",
        ),
        Rejects("float[b,s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Add(p, {3.0})", because="opset 14", opset=13),
        Rejects("float[s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Add(p, {3.0})", because="not more than two"),
        Rejects("float[1,s,2] x; p = MatMul(x, float[2,1] {1, 2})  y = Add(p, {3.0, 4.0})", because="by channel"),
        Rejects(
            "float[1,s,2] x; p = MatMul(x, float[2,2] {1, 2, 3, 4})  q = Add(p, {3.0, 4.0})"
            "  y = com.microsoft.MultiHeadAttention<num_heads=1>(q, x, x)",
            because="for the attention to take in",
        ),
    ),
)
def matmul_add_flat(m: Match, build: Builder) -> Value:
    """x·w + b ⟶ Gemm(x, w, b) for an x of three dimensions or more, all but the last in one."""
    shape, weight, addend = m.shape(x), m.value(w), m.value(offset)
    m.require(shape is not None and len(shape) > 2, "x has not more than two dimensions", at=x)
    assert shape is not None
    assert weight is not None
    inner, outer = weight.shape or (0, 0)
    m.require(
        inner and outer and m.shape(offset) == (outer,), "the bias is not by channel, or there is none", at=offset
    )
    m.require(not linear.feeds_attention(m, m.anchor), "it is for the attention to take in")
    flat = build.Gemm(build.Reshape(m[x], np.array([-1, inner])), weight, addend)
    return unflattened(m, build, flat, (*shape[:-1], outer))
