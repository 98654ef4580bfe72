"""Gelu of a sum with a bias as ONNX Runtime's BiasGelu, or FastGelu for the approximation by tanh.

Why: one pass over memory less.  On a CPU the two kernels are often faster (see ``unfuse.py``), so `apply` measures.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31).
"""

from __future__ import annotations

from onnxrewrite.rules import *

x, bias = Var("x", dtype=FLOATS), Var("bias", rank=1)
total = op.Add(x, bias)
gelu = op.Gelu(total, approximate=(kind := Attr[str]("approximate")))
exact, fast = microsoft.Gelu(total), microsoft.FastGelu(total)
activation = any_of(gelu, exact, fast)


@rule(
    "bias-gelu",
    LOWER,
    activation,
    benefit=10,
    examples=(
        Rewrites(
            "float[n,8] x; float[8] b; a = Add(b, x)  y = com.microsoft.Gelu(a)",
            to="float[n,8] x; float[8] b; y = com.microsoft.BiasGelu(x, b)",
        ),
        Rewrites(
            'float[n,8] x; float[8] b; a = Add(x, b)  y = Gelu<approximate="tanh">(a)',
            to="float[n,8] x; float[8] b; y = com.microsoft.FastGelu(x, b)",
            opset=20,
        ),
        Rejects("float[n,8] x; float[8] b; a = Add(x, b)  y = Gelu(a)", because="it has to be lowered first"),
        Rejects(
            "float[n,m] x; float[8] b; a = Add(x, b)  y = Gelu(a)",
            because="the bias is not shown to be as long as the last axis",
            opset=20,
        ),
        Rejects("float[n,8] x; float[1,8] b; a = Add(x, b)  y = Gelu(a)", because="bias must have rank 1", opset=20),
        Rejects("float16[n,8] x; float16[8] b; a = Add(x, b)  y = com.microsoft.Gelu(a)", because="no CPU kernel"),
        Rejects(
            "float[n,8] x; float[8] b; a = Add(x, b)  y = Gelu(a)  z = Relu(a)", because="also used by Relu", opset=20
        ),
    ),
)
def bias_gelu(m: Match, build: Builder) -> Value:
    """Gelu(x + b) ⟶ com.microsoft.BiasGelu(x, b), or FastGelu(x, b) for the tanh form."""
    call = m.alternative(activation)
    assert isinstance(call, Call)
    m.require(not m.is_newer(call), "it has to be lowered first")
    width, size = m.dim(x, -1), m.dim(bias, 0)
    fits = width is not None and size is not None and same_dim(width, size)
    m.require(fits, "the bias is not shown to be as long as the last axis", at=bias)
    if call is fast or (call is gelu and m[kind] == "tanh"):
        return build.microsoft.FastGelu(m[x], m[bias])
    return build.microsoft.BiasGelu(m[x], m[bias])
