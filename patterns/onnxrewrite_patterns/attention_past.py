"""Attention to earlier keys and values as well, which the kernel joins to the new ones itself.

MultiHeadAttention(q, Concat(past k, k), Concat(past v, v)) ⟶ MultiHeadAttention(q, k, v, past k, past v), whose further
results are what the Concats gave: what the next step is given as its past.

The standard's Attention, in models that have it, takes a past likewise.

Why: the new keys and values go as [B, S, H·D], without the Transposes before the Concats, and nothing is joined twice.
Measured with 8 heads of 64 numbers: 0.53 to 0.73 of the time for one query, 0.9 for 64.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.31): any number of queries is taken,
no past at all is, and without its further results the kernel computes something else.
"""

from __future__ import annotations

from onnxrewrite.rules import *
from onnxrewrite_patterns.attention_heads import has_past, is_merged_before, merged

query, bias = Var("query", dtype=FLOATS, rank=3), Var("bias", default=None)
past_k, past_v, new_k, new_v = (Var(name, dtype=FLOATS, rank=4) for name in ("past k", "past v", "k", "v"))
keys, values = (
    any_of(op.Concat(past, new, axis=2), op.Concat(past, new, axis=-2))
    for past, new in ((past_k, new_k), (past_v, new_v))
)
query4, rest = Var("query by head", dtype=FLOATS, rank=4), Each[Value]("rest", at_least=0)
standard = op.Attention(query4, keys, values, rest)
heads, scale = Attr[int]("num_heads"), Attr[float]("scale")
attention = microsoft.MultiHeadAttention(query, keys, values, None, None, bias, num_heads=heads, scale=scale)


def _require_alike(m: Match) -> None:
    """Earlier and new keys and values fit together as the kernels want them to."""
    shapes = [m.shape(t) or () for t in (past_k, new_k, past_v, new_v)]
    one_size = all(same_dim(a[3], b[3]) for a in shapes for b in shapes)
    m.require(one_size, "keys and values must be of one size", at=m.anchor)
    m.require(same_shape(shapes[0], shapes[2]), "there are not as many past values as past keys", at=past_v)
    m.require(same_shape(shapes[1], shapes[3]), "there are not as many new values as new keys", at=new_v)
    same = all(same_dim(a, b) for a, b in zip(shapes[0][:2], shapes[1][:2], strict=True))
    m.require(same, "past and new keys differ in batch or heads", at=past_k)


_PAST = (
    "float[b,s,24] q; float[b,3,s,8] k; float[b,3,s,8] v; float[b,3,p,8] pk; float[b,3,p,8] pv;"
    "ks = Concat<axis=2>(pk, k)  vs = Concat<axis={axis}>({values})"
    "y = com.microsoft.MultiHeadAttention<num_heads=3, scale=0.5>(q, ks, vs)"
    "present_k = Identity(ks)  present_v = Identity(vs)"
)


@rule(
    "attention-past",
    LOWER,
    attention,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    allow_shared=True,
    examples=(
        Rewrites(
            _PAST.format(axis=-2, values="pv, v"),
            to="float[b,s,24] q; float[b,3,s,8] k; float[b,3,s,8] v; float[b,3,p,8] pk; float[b,3,p,8] pv;"
            "y, ks, vs = com.microsoft.MultiHeadAttention<num_heads=3, scale=0.5>(q, k, v, , , , pk, pv)"
            "present_k = Identity(ks)  present_v = Identity(vs)",
        ),
        Rejects(_PAST.format(axis=-2, values="v, pv"), because="not as many past values"),
        Rejects(_PAST.format(axis=0, values="pv, v"), because="axis"),
    ),
)
def attention_past(m: Match, build: Builder) -> tuple[Value, ...]:
    """MultiHeadAttention(q, Concat(p, k), Concat(r, v)) ⟶ MultiHeadAttention(q, k, v, p, r)."""
    _require_alike(m)
    m.widen(m.nodes, [m.anchor, m[keys], m[values]])
    parts = [m[new_k], m[new_v]]
    if all(is_merged_before(m, p) for p in parts):
        parts = [merged(m, build, p) for p in parts]
    return build.microsoft.MultiHeadAttention(
        m[query],
        *parts,
        None,
        None,
        m.value(bias),
        m[past_k],
        m[past_v],
        num_heads=m[heads],
        scale=m[scale],
        outputs=3,
    )


_STANDARD = (
    "float[b,6,s,8] q; float[b,3,s,8] k; float[b,3,s,8] v; float[b,3,p,8] pk; float[b,3,p,8] pv;"
    "ks = Concat<axis=2>(pk, k)  vs = Concat<axis=2>(pv, v)  y = Attention<scale=0.5{more}>(q, ks, vs)"
    "present_k = Identity(ks)  present_v = Identity(vs)"
)


@rule(
    "attention-past-standard",
    LOWER,
    standard,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    allow_shared=True,
    examples=(
        Rewrites(
            _STANDARD.format(more=""),
            to="float[b,6,s,8] q; float[b,3,s,8] k; float[b,3,s,8] v; float[b,3,p,8] pk; float[b,3,p,8] pv;"
            "y, ks, vs = Attention<scale=0.5>(q, k, v, , pk, pv)"
            "present_k = Identity(ks)  present_v = Identity(vs)",
            opset=23,
        ),
        Rejects(_STANDARD.format(more=", is_causal=1"), because="would see the past", opset=23),
        Rejects(_STANDARD.format(more=""), because="no Attention"),
    ),
)
def attention_past_standard(m: Match, build: Builder) -> tuple[Value, ...]:
    """Attention(q, Concat(p, k), Concat(r, v)) ⟶ Attention(q, k, v, p, r)."""
    m.require(not m.is_newer(standard), "the model's opset has no Attention")
    _require_alike(m)
    node = m.node(standard)
    m.require(not has_past(node), "there is a past already", at=m.anchor)
    m.require(not m.attr(standard, "is_causal"), "queries would see the past, too", at=m.anchor)
    m.widen(m.nodes, [m.anchor, m[keys], m[values]])
    inputs = (m[query4], m[new_k], m[new_v], input_of(node, 3), m[past_k], m[past_v])
    return build.Attention(*inputs, **m.attrs(standard), outputs=3)
