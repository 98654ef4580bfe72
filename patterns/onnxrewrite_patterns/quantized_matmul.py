"""Products of quantized matrices whose result becomes a float again, as dynamic quantization writes them.

float(MatMulInteger(a, b))·(scale of a · scale of b) is MatMulIntegerToFloat; with the DynamicQuantizeLinear that made a
it is DynamicQuantizeMatMul.  Both take a bias.

Why: the int32 product is not written, read, converted and scaled in passes of its own.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

from onnxrewrite.rules import *

FLOAT = 1

a, b = Var("a"), Var("b", rank=2)
a_zero, b_zero = Var("zero of a", default=None), Var("zero of b", default=None)
a_scale, b_scale = Var("scale of a"), Var("scale of b")


def scaled(first: Term, zero: Term, scale: Term) -> Term:
    """A product of integers as a float, times both scales."""
    return op.Cast(op.MatMulInteger(first, b, zero, b_zero), to=FLOAT) * (scale * b_scale)


to_float = scaled(a, a_zero, a_scale)
quantize = op.DynamicQuantizeLinear(x := Var("x"))
dynamic = scaled(quantize[0], quantize[2], quantize[1])


def require_by_column(m: Match) -> None:
    """Refuse scales and zeros of b that are neither one number nor one for each column."""
    columns: Dim | None = m.dim(b, 1)
    for term in (b_scale, b_zero):
        value = m.value(term)
        fits = value is None or m.shape(value) in ((), (1,), (columns,))
        m.require(fits, f"{term!r} is not known to be one number, or one for each column", at=value)


DECLARED = "float[m,4] x; uint8[4,3] b; "
_UNRANKED = (
    "h = Shape(v)  n = Not(c)  o = Or(c, n)  p = Or(o, {false, false, false})  k = Compress(h, p)  w = Reshape(v, k)  "
)
"""A value whose rank is not known before it is run."""
_SPELLED = "q, s, z = DynamicQuantizeLinear(x)  i = MatMulInteger(q, b, z)  f = Cast<to=1>(i)  "


@rule(
    "matmul-integer-to-float",
    LOWER,
    to_float,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            "uint8[m,4] a; int8[4,3] b; float s; float[3] t; uint8 z; i = MatMulInteger(a, b, z)  f = Cast<to=1>(i)"
            "  u = Mul(s, t)  y = Mul(f, u)",
            to="uint8[m,4] a; int8[4,3] b; float s; float[3] t; uint8 z;"
            "y = com.microsoft.MatMulIntegerToFloat(a, b, s, t, z)",
        ),
        Rejects(
            "uint8[m,4] a; int8[4,3] b; float[m,1] s; float t; i = MatMulInteger(a, b)  f = Cast<to=1>(i)"
            "  u = Mul(s, t)  y = Mul(f, u)",
            because="is not known to be one number",
        ),
        Rejects(
            "uint8[m,4] a; int8[4,3] b; float s; float[1,3] t; i = MatMulInteger(a, b)  f = Cast<to=1>(i)"
            "  u = Mul(s, t)  y = Mul(f, u)",
            because="is not known to be one number",
        ),
        Rejects(
            f"uint8[m,4] a; int8[4,3] b; float[1,1,3] v; float t; bool c; {_UNRANKED} i = MatMulInteger(a, b)"
            "  f = Cast<to=1>(i)  u = Mul(w, t)  y = Mul(f, u)",
            because="is not known to be one number",
        ),
    ),
)
def matmul_integer_to_float(m: Match, build: Builder) -> Value:
    """float(MatMulInteger(a, b))·(s·t) ⟶ com.microsoft.MatMulIntegerToFloat(a, b, s, t)."""
    m.require_one_number(a_scale)
    m.require_one_number(a_zero)
    require_by_column(m)
    inputs = [m[a], m[b], m[a_scale], m[b_scale], m.value(a_zero), m.value(b_zero)]
    return build.microsoft.node("MatMulIntegerToFloat", inputs)[0]


@rule(
    "dynamic-quantize-matmul",
    LOWER,
    dynamic,
    benefit=10,
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"{DECLARED} float[1] t; {_SPELLED} u = Mul(s, t)  y = Mul(f, u)",
            to=f"{DECLARED} float[1] t; y = com.microsoft.DynamicQuantizeMatMul(x, b, t)",
        ),
        Rejects(f"{DECLARED} float[1,3] t; {_SPELLED} u = Mul(s, t)  y = Mul(f, u)", because="or one for each column"),
        Rejects(
            f"{DECLARED} float[1,1,3] v; bool c; {_UNRANKED} {_SPELLED} u = Mul(s, w)  y = Mul(f, u)",
            because="or one for each column",
        ),
        Rejects(
            f"{DECLARED} float[1] t; {_SPELLED} u = Mul(s, t)  y = Mul(f, u)  v = Neg(s)", because="also used by Neg"
        ),
    ),
)
def dynamic_quantize_matmul(m: Match, build: Builder) -> Value:
    """The same of a DynamicQuantizeLinear(x) ⟶ com.microsoft.DynamicQuantizeMatMul(x, b, t)."""
    require_by_column(m)
    return build.microsoft.node("DynamicQuantizeMatMul", [m[x], m[b], m[b_scale], m.value(b_zero)])[0]


bias, stacked = Var("bias", rank=1), Var("matrices")
biasless = any_of(
    microsoft.DynamicQuantizeMatMul(x, stacked, b_scale, b_zero),
    microsoft.MatMulIntegerToFloat(a, stacked, a_scale, b_scale, a_zero, b_zero),
)


@rule(
    "quantized-matmul-bias",
    LOWER,
    op.Add(biasless, bias),
    assumes=(Assumption.NOT_EMPTY,),
    examples=(
        Rewrites(
            f"{DECLARED} float t; float[3] c; p = com.microsoft.DynamicQuantizeMatMul(x, b, t)  y = Add(c, p)",
            to=f"{DECLARED} float t; float[3] c; y = com.microsoft.DynamicQuantizeMatMul(x, b, t, , c)",
        ),
        Rewrites(
            "uint8[m,4] a; int8[4,3] b; float s; float t; float[3] c;"
            "p = com.microsoft.MatMulIntegerToFloat(a, b, s, t)  y = Add(p, c)",
            to="uint8[m,4] a; int8[4,3] b; float s; float t; float[3] c;"
            "y = com.microsoft.MatMulIntegerToFloat(a, b, s, t, , , c)",
        ),
        Rewrites(
            "uint8[2,m,4] a; int8[2,4,3] b; float s; float t; float[3] c;"
            "p = com.microsoft.MatMulIntegerToFloat(a, b, s, t)  y = Add(p, c)",
            to="uint8[2,m,4] a; int8[2,4,3] b; float s; float t; float[3] c;"
            "y = com.microsoft.MatMulIntegerToFloat(a, b, s, t, , , c)",
        ),
        Rejects(
            f"{DECLARED} float t; float[1] c; p = com.microsoft.DynamicQuantizeMatMul(x, b, t)  y = Add(c, p)",
            because="not one number for each column",
        ),
    ),
)
def quantized_matmul_bias(m: Match, build: Builder) -> Value:
    """DynamicQuantizeMatMul(x, b, t) + bias ⟶ DynamicQuantizeMatMul(x, b, t, bias=bias), and MatMulIntegerToFloat."""
    columns = m.dim(stacked, -1)
    m.require(isinstance(columns, int) and m.shape(bias) == (columns,), "it is not one number for each column", at=bias)
    call = m.call(biasless)
    wanted = 4 if call.op_types == ("DynamicQuantizeMatMul",) else 6
    node = m.node(call)
    return build.again(node, *(input_of(node, i) for i in range(wanted)), m[bias])[0]
