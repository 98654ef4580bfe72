"""ONNX Runtime's own operators, raised to those of the standard.

Where it comes from: models that ONNX Runtime's optimizer, its transformers optimizer or an exporter for it has written.

Why: rules know the standard's operators, and what was fused for one machine is slow on another one (see ``unfuse.py``).
The lower stage fuses again what pays.  What it has written itself stays, also in a later run.  Attention by heads is
raised in ``multi_head.py``; packed attention and embeddings stay: the lower stage makes the same of the standard's.
"""

from __future__ import annotations

from onnxrewrite.rules import *

contributed = any_of(
    microsoft["Gelu", "BiasGelu", "FastGelu", "QuickGelu"](Each("operands")),
    microsoft["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"](Each("operands")),
    microsoft["FusedMatMul", "FusedGemm", "FusedConv"](Each("operands")),
    microsoft["QuantizeLinear", "DequantizeLinear"](Each("operands")),
    op.SimplifiedLayerNormalization(Each("operands")),
)

_X = "float[b,s,8] x; float[b,s,8] z; float[8] w; float[8] c; "


_NAME = "contrib-operator"


@rule(
    _NAME,
    RAISE,
    contributed,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,8] x; float[8] b; y = com.microsoft.BiasGelu(x, b)",
            to="float[n,8] x; float[8] b; a = Add(x, b)  y = Gelu(a)",
            opset=20,
        ),
        Rewrites(
            "float[n,8] x; y = com.microsoft.FastGelu(x)", to='float[n,8] x; y = Gelu<approximate="tanh">(x)', opset=20
        ),
        Rewrites(
            f"{_X} y = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, z, w, c)",
            to=f"{_X} a = Add(x, z)  y = LayerNormalization<axis=-1, epsilon=1e-5>(a, w, c)",
        ),
        Rewrites(
            "(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, u)"
            " { y, , , a = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, z, w)  u = Relu(a) }",
            to="(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, u)"
            " { a = Add(x, z)  y = LayerNormalization<axis=-1, epsilon=1e-5>(a, w)  u = Relu(a) }",
        ),
        Rewrites(
            f"{_X} y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=1e-6>(x, z, w)",
            to=f"{_X} a = Add(x, z)  y = RMSNormalization<axis=-1, epsilon=1e-6>(a, w)",
            opset=23,
        ),
        Rewrites(
            "float[2,m,k] a; float[2,n,k] b; y = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(a, b)",
            to="float[2,m,k] a; float[2,n,k] b; t = Transpose<perm=[0,2,1]>(b)  p = MatMul(a, t)  y = Mul(p, 0.5)",
        ),
        Rewrites(
            'float[m,k] a; float[k,n] b; y = com.microsoft.FusedGemm<activation="Relu">(a, b)',
            to="float[m,k] a; float[k,n] b; g = Gemm(a, b)  y = Relu(g)",
        ),
        Rewrites(
            "int8[n] x; y = com.microsoft.DequantizeLinear(x, 0.5, int8 3)",
            to="int8[n] x; y = DequantizeLinear(x, 0.5, int8 3)",
        ),
        Rejects(
            "(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, v)"
            " { y, v = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, z, w) }",
            because="the mean or the deviation is needed",
        ),
        Rejects("y = com.microsoft.FusedMatMul<transB=1>(a, b)", because="an operand of unknown rank"),
        Rejects("y = com.microsoft.ExpandDims(x, 0)", because="expected"),
    ),
)
def contrib_operator(m: Match, build: Builder) -> tuple[Value, ...]:
    """An operator of ONNX Runtime ⟶ its parts, operators of the standard."""
    node = m.node(m.call(contributed))
    m.require(written_by(node) <= {_NAME}, "it is the result of lowering")  # a part may have parts
    made = build.parts(node)
    read = [(old, new) for old, new in zip(node.outputs, made, strict=True) if old.uses() or old.is_graph_output()]
    m.require(all(new is not None for _, new in read), "the mean or the deviation is needed, too")
    m.widen((), [old for old, _ in read])
    return tuple(new for _, new in read if new is not None)
