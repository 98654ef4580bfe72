"""Views around products of quantized matrices: what merges the batch of an input, and takes it apart afterwards.

Where it comes from: Gemm is of matrices only, so exporters write [B, S, D] as [B·S, D] for it and undo that at once.
The kernels of quantized products take any rank.

Why: two nodes a layer that move nothing, each with a shape to be computed.
"""

from __future__ import annotations

from onnxrewrite.rules import *

x, b = Var("x"), Var("b", rank=2)
flat = op.Reshape(x, Var("shape of the matrix"))
scale, zero, bias = Var("scale of b"), Var("zero of b", default=None), Var("bias", default=None)
own_scale, own_zero = Var("scale of a"), Var("zero of a", default=None)
product = any_of(
    microsoft.DynamicQuantizeMatMul(flat, b, scale, zero, bias),
    microsoft.MatMulIntegerToFloat(flat, b, own_scale, scale, own_zero, zero, bias),
)
apart = op.Reshape(product, Var("shape of the product"))


@rule(
    "quantized-matmul-of-view",
    LOWER,
    apart,
    benefit=20,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "float[2,s,4] x; uint8[4,3] b; float t; float[3] c; f = Reshape(x, {-1, 4})"
            "p = com.microsoft.DynamicQuantizeMatMul(f, b, t, , c)  h = Shape(x)  n = Gather(h, {1})"
            "k = Concat<axis=0>({2}, n, {3})  y = Reshape(p, k)",
            to="float[2,s,4] x; uint8[4,3] b; float t; float[3] c;"
            "y = com.microsoft.DynamicQuantizeMatMul(x, b, t, , c)",
        ),
        Rewrites(
            "uint8[2,5,4] x; int8[4,3] b; float s; float[3] t; uint8 z; f = Reshape(x, {10, 4})"
            "p = com.microsoft.MatMulIntegerToFloat(f, b, s, t, z)  y = Reshape(p, {2, 5, 3})",
            to="uint8[2,5,4] x; int8[4,3] b; float s; float[3] t; uint8 z;"
            "y = com.microsoft.MatMulIntegerToFloat(x, b, s, t, z)",
        ),
        Rejects(
            "float[2,2,4] x; uint8[2,3] b; float t; f = Reshape(x, {8, 2})"
            "p = com.microsoft.DynamicQuantizeMatMul(f, b, t)  y = Reshape(p, {2, 4, 3})",
            because="changes the rows",
        ),
        Rejects(
            "float[2,5,4] x; uint8[4,3] b; float t; f = Reshape(x, {10, 4})"
            "p = com.microsoft.DynamicQuantizeMatMul(f, b, t)  y = Reshape(p, {5, 2, 3})",
            because="not given the batch again",
        ),
        Rejects(
            "float[2,5,4] x; uint8[4,3] b; float t; f = Reshape(x, {10, 4})"
            "p = com.microsoft.DynamicQuantizeMatMul(f, b, t)  y = Reshape(p, {2, 5, 3})  z = Relu(p)",
            because="also used by Relu",
        ),
    ),
)
def quantized_matmul_of_view(m: Match, build: Builder) -> Value:
    """Reshape(DynamicQuantizeMatMul(Reshape(x), b)) ⟶ DynamicQuantizeMatMul(x, b), and MatMulIntegerToFloat."""
    call = m.call(product)
    m.node(flat), m.node(apart)  # of both the results count, whatever their attributes
    before, matrix = m.shape(x) or (), m.shape(flat) or ()
    m.require(len(before) > 1 and len(matrix) > 1, "the rank of x is not known, or too small", at=x)
    m.require(same_dim(before[-1], matrix[-1]), "the view changes the rows", at=flat)
    after = m.shape(apart) or ()
    kept = len(after) == len(before) and same_shape(after[:-1], before[:-1])
    m.require(kept, "the result is not given the batch again", at=apart)
    return build.again(m.node(call), m[x])[0]


source, target = Var("x"), Var("shape")
view = op.Reshape(source, target)
quantized = op.DynamicQuantizeLinear(view)


@rule(
    "dynamic-quantize-of-view",
    LOWER,
    (quantized[0], quantized[1], quantized[2]),
    examples=(
        Rewrites(
            "float[2,s,4] x; f = Reshape(x, {-1, 4})  q, t, z = DynamicQuantizeLinear(f)"
            "  y = DequantizeLinear(q, t, z)",
            to="float[2,s,4] x; q, t, z = DynamicQuantizeLinear(x)  f = Reshape(q, {-1, 4})"
            "  y = DequantizeLinear(f, t, z)",
        ),
        Rewrites(
            "float[3,0] x; f = Reshape<allowzero=1>(x, {0, 2, 2})  q, t, z = DynamicQuantizeLinear(f)"
            "  y = DequantizeLinear(q, t, z)",
            to="float[3,0] x; q, t, z = DynamicQuantizeLinear(x)  f = Reshape<allowzero=1>(q, {0, 2, 2})"
            "  y = DequantizeLinear(f, t, z)",
        ),
        Rejects(
            "float[2,s,4] x; f = Reshape(x, {-1, 4})  q, t, z = DynamicQuantizeLinear(f)"
            "  y = DequantizeLinear(q, t, z)  v = Relu(f)",
            because="also used by Relu",
        ),
    ),
)
def dynamic_quantize_of_view(m: Match, build: Builder) -> tuple[Value, ...]:
    """DynamicQuantizeLinear(Reshape(x, s)) ⟶ Reshape(q, s), where q, scale, zero = DynamicQuantizeLinear(x)."""
    integers, own, its_zero = build.DynamicQuantizeLinear(m[source], outputs=3)
    return build.Reshape(integers, m[target], **m.attrs(view)), own, its_zero
