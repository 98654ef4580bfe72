"""Attention with a past as com.microsoft.GroupQueryAttention, whose past and present may be one buffer.

The kernel takes how many tokens there are in place of a mask: a token sees itself and those before it.  What more a
mask says goes in as a bias.  Where it is assumed that texts are padded on the right only, if at all, a mask says no
more than their lengths, and positions count from zero, so that the kernel can turn queries and keys by tables too.

These rules are for decoders alone, whose interface they read: the masks that ``masks.take_out`` made inputs, and
``attention_mask``.  They are not in the library, for the kernel does not do all that attention does: several new tokens
after a past are for a batch of one.
Source: ONNX Runtime, docs/ContribOperators.md; what it does not say was tried (1.32): heads of a multiple of 8
elements, or 16 to be turned; in a prompt the kernel turns by place and not by ``position_ids``.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.views import input_of
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import FLOATS, Attr, Const, Scalar, Var, any_of, microsoft, op
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import LOWER, Assumption, Rejects, Rewrites, Rule, rule
from onnxrewrite.suite.decoders.decoder_interface import CUSTOMARY
from onnxrewrite.suite.decoders.masks import CAUSAL, Seen
from onnxrewrite.suite.decoders.packed_projections import packed_projections


class Padding(enum.StrEnum):
    """The side at which texts of a batch are filled up to one length."""

    RIGHT = "right"
    ANY = "any"


_SINK = 11
"""The place of ``head_sink`` among the inputs of GroupQueryAttention."""

HEADS = (0, 2, 1, 3)
"""The permutation between [B, S, H, D] and [B, H, S, D], either way."""

q, k, v, past_k, past_v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v", "past k", "past v"))
visible, fill, bias = Var("mask"), Scalar("fill"), Var("bias")
causal = op.Where(visible, 0.0, fill)
mask = any_of(causal, op.Add(bias, causal))
q_heads, kv_heads = (Attr[int | None](name, default=None) for name in ("q_num_heads", "kv_num_heads"))
scale, softcap = Attr[float | None]("scale", default=None), Attr[float]("softcap", default=0.0)
attention = op.Attention(
    q, k, v, mask, past_k, past_v, q_num_heads=q_heads, kv_num_heads=kv_heads, scale=scale, softcap=softcap
)

rows = (cos := Const("cos"), sin := Const("sin"), positions := Var("positions"))
interleaved = Attr[int]("interleaved", default=0)
turning = {"interleaved": interleaved, "rotary_embedding_dim": Attr[int]("rotary_embedding_dim", default=0)}
turned_q = op.RotaryEmbedding(q, *rows, num_heads=Attr[int]("num_heads"), **turning)
turned_k = op.RotaryEmbedding(k, *rows, num_heads=Attr[int]("heads of k"), **turning)
seqlens, total = Var("seqlens"), Var("total")
grouped = microsoft.GroupQueryAttention(
    turned_q,
    turned_k,
    v,
    past_k,
    past_v,
    seqlens,
    total,
    num_heads=Attr[int]("num_heads"),
    kv_num_heads=Attr[int]("kv_num_heads"),
    scale=Attr[float]("scale", default=0.0),
    softcap=Attr[float]("softcap", default=0.0),
    local_window_size=Attr[int]("local_window_size", default=-1),
)


def rules(seen: Mapping[str, Seen], padding: Padding) -> tuple[Rule, ...]:
    """The rules for a decoder whose masks are inputs of these names."""
    made = Rule(
        "grouped-query-attention",
        LOWER,
        attention,
        partial(to_grouped, dict(seen), padding),
        examples=EXAMPLES if padding is Padding.RIGHT else (),
        assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
        allow_shared=True,
        benefit=10,
    )
    turned = (grouped_rotary,) if padding is Padding.RIGHT else ()
    return (made, *turned, packed_projections)


def to_grouped(seen: Mapping[str, Seen], padding: Padding, m: Match, build: Builder) -> tuple[ir.Value, ...]:
    """Attention(q, k, v, causal, past k, past v) ⟶ GroupQueryAttention(q, k, v, past k, past v, lengths, length)."""
    node = m.node(attention)
    name = m[visible].name or ""
    m.require(name in seen, f"the mask is not {CAUSAL}", at=visible)
    m.require(fill in m and m[fill] <= -1e30, "what is masked is not far below all scores", at=visible)
    m.require(len(node.outputs) == 3, "there is no present", at=m.anchor)
    heads, shared, size = _heads(m)
    m.require(size % 8 == 0, f"heads must be of a multiple of 8 elements, not {size}", at=q)
    counts = _input(m, CUSTOMARY["mask"])
    window, sinks = seen[name].window, seen[name].sinks
    plain = padding is Padding.RIGHT and bias not in m
    lengths, length = _lengths(m, build, counts, plain)
    added = None if plain else m[mask]
    how = {
        "num_heads": heads,
        "kv_num_heads": shared,
        "scale": m[scale] if m[scale] is not None else 1 / math.sqrt(size),
        "softcap": m[softcap] or None,
        "local_window_size": window if plain else None,
    }
    parts = [_merged(m, build, m[each]) for each in (q, k, v)]
    m.widen(m.nodes, list(node.outputs))
    sink = None if sinks is None else build.const(sinks, like=m[q])
    more = (None, None, None, added, sink) if added is not None or sink is not None else ()
    result = build.microsoft.GroupQueryAttention(*parts, m[past_k], m[past_v], lengths, length, *more, **how, outputs=3)
    return (_split(build, result[0], heads, size) if m.rank(q) == 4 else result[0], *result[1:])


def _heads(m: Match) -> tuple[int, int, int]:
    """The numbers of heads of queries and of keys, and the size of one."""
    heads, shared = (m[q_heads], m[kv_heads]) if m.rank(q) == 3 else (m.dim(q, 1), m.dim(k, 1))
    size = m.dim(past_k, 3)
    if not isinstance(heads, int) or not isinstance(shared, int) or not isinstance(size, int):
        m.refuse("the number of heads or their size is not known", at=q)
    m.require(m.dim(past_v, 3) == size, "keys and values must be of one size", at=past_v)
    return heads, shared, size


def _merged(m: Match, build: Builder, x: ir.Value) -> ir.Value:
    """[B, H, S, D] as [B, S, H·D]; what is turned by head, turned in that layout."""
    if m.rank(x) == 3:
        return x
    node = x.producer()
    if node is not None and node.op_type == "RotaryEmbedding" and len(node.inputs) == 4:
        inner, *tables = node.inputs
        assert inner is not None
        how = {name: attr.value for name, attr in node.attributes.items()} | {"num_heads": m.dim(x, 1)}
        m.cover(node)
        turned: ir.Value = build.RotaryEmbedding(_merged(m, build, inner), *tables, **how)
        return turned
    heads, size = m.dim(x, 1), m.dim(x, 3)
    if not isinstance(heads, int) or not isinstance(size, int):
        m.refuse("the number of heads or their size is not known", at=x)
    return build.Reshape(build.Transpose(x, perm=HEADS), np.array([0, 0, heads * size]))


def _split(build: Builder, x: ir.Value, heads: int, size: int) -> ir.Value:
    """[B, S, H·D] as [B, H, S, D]."""
    return build.Transpose(build.Reshape(x, np.array([0, 0, heads, size])), perm=HEADS)


def _lengths(m: Match, build: Builder, counts: ir.Value, by_text: bool) -> tuple[ir.Value, ir.Value]:
    """The number of tokens that each text has, less one, and that all have, as the kernel wants them.

    ``by_text``: those that count; else they all have as many, and a bias says which of them count.
    """
    length = build.Cast(build.Squeeze(build.Shape(counts, start=1, end=2), np.array([0])), to=int(ir.DataType.INT32))
    if by_text:
        whole = counts if m.dtype(counts) == ir.DataType.INT64 else build.Cast(counts, to=int(ir.DataType.INT64))
        summed = build.ReduceSum(whole, np.array([1]), keepdims=0)
        return build.Cast(build.Sub(summed, np.array(1)), to=int(ir.DataType.INT32)), length
    batch = build.Shape(counts, start=0, end=1)
    return build.Expand(build.Sub(length, np.array(1, np.int32)), batch), length


def _input(m: Match, name: str) -> ir.Value:
    """An input of the graph."""
    graph = m.node(attention).graph
    found: list[ir.Value] = [value for value in getattr(graph, "inputs", ()) if value.name == name]
    if not found:
        m.refuse(f"the model takes no {name}")
    return found[0]


_PARTS = (
    "float[b,s,32] q; float[b,s,16] k; float[b,s,16] v; bool[b,1,s,t] causal_mask; int64[b,t] attention_mask;"
    "float[b,2,p,8] pk; float[b,2,p,8] pv;"
)
_CALL = (
    "y, present_k, present_v = Attention<scale=0.5, q_num_heads=4, kv_num_heads=2>(q, k, v, m, pk, pv)"
    "z = Identity(attention_mask)"
)
EXAMPLES = (
    Rewrites(
        f"{_PARTS} m = Where(causal_mask, 0.0, -3e38)  {_CALL}",
        to=f"{_PARTS} c = Shape<start=1, end=2>(attention_mask)  t1 = Squeeze(c, {{0}})  t = Cast<to=6>(t1)"
        "n = ReduceSum<keepdims=0>(attention_mask, {1})  n1 = Sub(n, 1)  l = Cast<to=6>(n1)"
        "y, present_k, present_v = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2, scale=0.5>"
        "(q, k, v, pk, pv, l, t)  z = Identity(attention_mask)",
        opset=23,
    ),
    Rejects(
        f"{_PARTS} bool[b,1,s,t] other; m = Where(other, 0.0, -3e38)  {_CALL}",
        because="the mask is not causal_mask",
        opset=23,
    ),
    Rejects(
        f"{_PARTS} m = Where(causal_mask, 0.0, -1.0)  {_CALL}",
        because="not far below all scores",
        opset=23,
    ),
)
"""Examples of the rule for a mask without a window, and padding on the right."""


_TURNED = (
    "float[b,s,32] x; float[b,s,32] k; float[b,s,32] v; float[b,2,p,16] pk; float[b,2,p,16] pv; int32[b] l; int32 t;"
    "int64[b,s] places; float[2,8] c = {1,1,1,1,1,1,1,1, 0,0,0,0,0,0,0,0};"
    "float[2,8] z = {0,0,0,0,0,0,0,0, 1,1,1,1,1,1,1,1};"
)
_BOTH = "rq = RotaryEmbedding<num_heads=2>(x, c, z, places)  rk = RotaryEmbedding<num_heads=2>(k, {0}, {1}, places)"
_GROUPED = "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2, scale=0.5{0}>"


@rule(
    "grouped-query-rotary",
    LOWER,
    grouped,
    assumes=(Assumption.NOT_NEGATIVE,),
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_TURNED} {_BOTH.format('c', 'z')} {_GROUPED.format('')}(rq, rk, v, pk, pv, l, t)  w = Identity(places)",
            to=f"{_TURNED} {_GROUPED.format(', do_rotary=1')}(x, k, v, pk, pv, l, t, c, z)  w = Identity(places)",
            opset=23,
        ),
        Rejects(
            f"{_TURNED} {_BOTH.format('z', 'c')} {_GROUPED.format('')}(rq, rk, v, pk, pv, l, t)",
            because="cos must be the same value in both places",
            opset=23,
        ),
        Rejects(
            f"{_TURNED.replace(',16]', ',8]')} {_BOTH.format('c', 'z')} {_GROUPED.format('')}(rq, rk, v, pk, pv, l, t)",
            because="heads must be of a multiple of 16 elements",
            opset=23,
        ),
    ),
)
def grouped_rotary(m: Match, build: Builder) -> tuple[ir.Value, ...]:
    """GroupQueryAttention(RotaryEmbedding(q), RotaryEmbedding(k), …) ⟶ GroupQueryAttention(q, k, …, cos, sin)."""
    node = m.node(grouped)
    sink = input_of(node, _SINK)
    known = 7 if sink is None else 8
    m.require(len([v for v in node.inputs if v is not None]) == known, "there are tables or a bias", at=m.anchor)
    size, width = m.dim(past_k, 3), m[cos].shape[-1]
    m.require(isinstance(size, int) and size % 16 == 0, "heads must be of a multiple of 16 elements", at=q)
    m.require(width % 8 == 0, f"the kernel turns a multiple of 16 elements of a head, not {2 * width}", at=cos)
    tables = (input_of(m.node(turned_q), 1), input_of(m.node(turned_q), 2))
    m.widen(m.nodes, list(node.outputs))
    made: tuple[ir.Value, ...] = build.microsoft.GroupQueryAttention(
        m[q],
        m[k],
        *node.inputs[2:7],
        *tables,
        *([] if sink is None else [None, None, sink]),
        **m.attrs(grouped),
        do_rotary=1,
        rotary_interleaved=m[interleaved] or None,
        outputs=3,
    )
    return made
