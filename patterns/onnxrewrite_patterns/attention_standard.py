"""The standard's Attention without the Transposes around it, in models that have it.

It takes [B, S, H·D] as well as [B, H, S, D], and splits the heads itself.

Why: the Reshapes and Transposes of q, k, v and the result go.  Which of this kernel and MultiHeadAttention is the
faster one depends on sizes, so the step from one to the other is measured.
"""

from __future__ import annotations

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import HEADS, head_size, is_merged_before, merged
from onnxrewrite_patterns.attention_lower import attention as any_attention
from onnxrewrite_patterns.attention_lower import to_multi_head

q, k, v = (Var(name, dtype=FLOATS, rank=4) for name in ("q", "k", "v"))
rest = Each[Value]("rest", at_least=0)
attention = op.Attention(q, k, v, rest)
of_one_token = op.Reshape(attention, Var("shape without heads"))
by_token = any_of(op.Transpose(attention, perm=HEADS), of_one_token)

_SPLIT = "r{0} = Reshape({0}, {{0, 0, 3, 8}})  {0}4 = Transpose<perm=[0,2,1,3]>(r{0})"
_HEADS = "float[b,s,24] q; float[b,s,24] k; float[b,s,24] v;" + "  ".join(map(_SPLIT.format, "qkv"))
_ONE = _HEADS.replace("float[b,s,24] q", "float[b,1,24] q").replace(
    "rq = Reshape(q, {0, 0, 3, 8})  q4 = Transpose<perm=[0,2,1,3]>(rq)", "q4 = Reshape(q, {0, 3, 1, 8})"
)
_ONE += "a = Attention<scale=0.5>(q4, k4, v4)"
_TURN = "y = Transpose<perm=[0,2,1,3]>(a)"


@rule(
    "attention-merge-heads",
    LOWER,
    by_token,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_HEADS} a = Attention<scale=0.5>(q4, k4, v4) {_TURN}",
            to="float[b,s,24] q; float[b,s,24] k; float[b,s,24] v;"
            "a = Attention<scale=0.5, q_num_heads=3, kv_num_heads=3>(q, k, v)  y = Reshape(a, {0, 0, 3, 8})",
            opset=23,
        ),
        Rewrites(
            f"{_ONE} y = Reshape(a, {{0, 1, 24}})",
            to="float[b,1,24] q; float[b,s,24] k; float[b,s,24] v;"
            "y = Attention<scale=0.5, q_num_heads=3, kv_num_heads=3>(q, k, v)",
            opset=23,
        ),
        Rejects(f"{_HEADS} a = Attention<scale=0.5>(q4, k4, v4) {_TURN}", because="opset has no Attention"),
        Rejects(f"{_ONE} y = Reshape(a, {{0, 3, 8}})", because="does not merge the heads of one token", opset=23),
        Rejects(
            f"{_HEADS} k5 = Relu(k4)  a = Attention<scale=0.5>(q4, k5, v4) {_TURN}",
            because="was not split by head",
            opset=23,
        ),
    ),
)
def attention_merge_heads(m: Match, build: Builder) -> tuple[Value, ...]:
    """Transpose(Attention(q, k, v)) ⟶ Reshape(Attention(x, y, z)), where q, k and v are x, y and z split by head.

    The heads of one token are merged by a Reshape alone.
    """
    m.require(not m.is_newer(attention), "the model's opset has no Attention")
    heads, shared = m.dim(q, 1), m.dim(k, 1)
    if not isinstance(heads, int) or not isinstance(shared, int):
        m.refuse("the number of heads is not known", at=q)
    m.require(all(is_merged_before(m, m[x]) for x in (q, k, v)), "q, k or v was not split by head", at=attention)
    node = m.node(attention)
    known = node.outputs
    width = head_size(m, m[v])
    if of_one_token in m:
        wanted = (*(m.shape(q) or ())[:1], 1, heads * width)
        merges = m.dim(q, 2) == 1 and same_shape(m.shape(of_one_token), wanted)
        m.require(merges, "the Reshape does not merge the heads of one token", at=of_one_token)
    m.widen(m.nodes, [m.anchor, *known[1:]])
    parts = [merged(m, build, m[x]) for x in (q, k, v)]
    attributes = {**m.attrs(attention), "q_num_heads": heads, "kv_num_heads": shared}
    result, *present = build.Attention(*parts, *node.inputs[3:], **attributes, outputs=len(known))
    apart = result if of_one_token in m else build.Reshape(result, np.array([0, 0, heads, width]))
    return apart, *present


TO_MULTI_HEAD = rule(
    "attention-to-multi-head",
    LOWER,
    any_attention,
    to_multi_head,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    allow_shared=True,
    needs_speedup=True,
    examples=(
        Rewrites(
            "float[b,s,24] q; float[b,s,24] k; float[b,s,24] v;"
            "y = Attention<scale=0.5, q_num_heads=3, kv_num_heads=3>(q, k, v)",
            to="float[b,s,24] q; float[b,s,24] k; float[b,s,24] v;"
            "y = com.microsoft.MultiHeadAttention<num_heads=3, scale=0.5>(q, k, v)",
            opset=23,
        ),
        Rejects("float[b,3,s,8] q; float[b,3,s,8] k; y = Attention<scale=0.5>(q, k, k)", because="no Attention"),
        Rejects(
            "float[b,3,s,8] q; float[b,3,s,8] k; float[s,s] mask; y = Attention<scale=0.5>(q, k, k, mask)",
            because="the kernels differ",
            opset=23,
        ),
    ),
)
