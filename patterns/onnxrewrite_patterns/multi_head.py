"""ONNX Runtime's attention by heads, as that of the standard.

Where it comes from: ONNX Runtime's transformers optimizer and onnxscript's fusions for it write it, with the keys of
grouped heads repeated before it, and the heads laid out by Transposes after it.

Why: what is around it is seen, such as keys that heads share.  The lower stage makes the same of it again where that
is the fastest.
"""

from __future__ import annotations

import math

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import HEADS

q, k, v = (Var(name, dtype=FLOATS, rank=3) for name in ("q", "k", "v"))
mask = Var("mask", default=None)
heads, scale = Attr[int]("num_heads"), Attr[float]("scale", default=0.0)
multi_head = microsoft.MultiHeadAttention(q, k, v, None, None, mask, num_heads=heads, scale=scale, unidirectional=0)

_QKV = "float[b,s,24] q; float[b,t,24] k; float[b,t,24] v;"
_SPLIT = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {0}4 = Transpose<perm=[0,2,1,3]>(r{0})"
_BY_HEAD = "  ".join(map(_SPLIT.format, "qkv"))
_END = "t = Transpose<perm=[0,2,1,3]>(a)  y = Reshape(t, {0, 0, 24})"


@rule(
    "multi-head-attention",
    RAISE,
    multi_head,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            f"{_QKV} y = com.microsoft.MultiHeadAttention<num_heads=3, scale=0.5>(q, k, v)",
            to=f"{_QKV} {_BY_HEAD} a = Attention<scale=0.5>(q4, k4, v4) {_END}",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} float[b,3,s,t] m; y = com.microsoft.MultiHeadAttention<num_heads=3>(q, k, v, , , m)",
            to=f"{_QKV} float[b,3,s,t] m; {_BY_HEAD} a = Attention<scale=0.35355339>(q4, k4, v4, m) {_END}",
            opset=23,
        ),
        Rejects(
            f"{_QKV} y = com.microsoft.MultiHeadAttention<num_heads=3, unidirectional=1>(q, k, v)",
            because="unidirectional",
            opset=23,
        ),
        Rejects(
            "float[b,s,n] q; float[b,t,24] k; float[b,t,24] v;"
            " y = com.microsoft.MultiHeadAttention<num_heads=3>(q, k, v)",
            because="not known",
            opset=23,
        ),
    ),
)
def multi_head_attention(m: Match, build: Builder) -> Value:
    """com.microsoft.MultiHeadAttention(q, k, v, mask) ⟶ Attention(q, k, v, mask), heads split before, merged after."""
    m.require(not written_by(m.node(multi_head)), "it is the result of lowering")
    m.require(m[scale] >= 0, "the scale is negative")
    widths = [m.dim(each, -1) for each in (q, k, v)]
    if not all(isinstance(width, int) and width % m[heads] == 0 for width in widths):
        m.refuse("the size of a head is not known", at=q)
    sizes = [int(str(width)) // m[heads] for width in widths]
    parts = [
        build.Transpose(build.Reshape(m[each], np.array([0, 0, m[heads], size])), perm=HEADS)
        for each, size in zip((q, k, v), sizes, strict=True)
    ]
    factor = m[scale] or 1 / math.sqrt(sizes[0])
    result = build.Attention(*parts, *([m[mask]] if mask in m else []), scale=factor)
    return build.Reshape(build.Transpose(result, perm=HEADS), np.array([0, 0, int(str(widths[2]))]))
