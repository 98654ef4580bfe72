"""ONNX Runtime's attentions, and what rotates their operands, by those of the standard."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx

from onnxrewrite.ir import schema
from onnxrewrite.ir.bodies.contributed import defines
from onnxrewrite.ir.bodies.emitter import Attributes, Emit, Unsupported, operands


@defines("MultiHeadAttention")
def _multi_head(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Query of shape (batch, length, heads·size); key and value too, or (batch, heads, length, size) like the past."""
    query, key, value, bias, padding, mask, *past = operands(node, 8)
    made = [name for name in node.output if name]
    if not key or not value or len(e.shape(key)) == 5 or padding or any(node.input[8:]):
        raise Unsupported("packed inputs, key_padding_mask or a shared cache")
    if len(made) > 3 or (len(made) == 1) != (not past[0]):
        raise Unsupported("a past without a present, or a present without a past")
    is_causal = attrs.given("unidirectional", 0)
    if is_causal and (past[0] or e.sizes(query)[1] != e.sizes(key)[-2]):  # the kernel shows the last query all keys
        raise Unsupported("queries that see no later keys, with a past or another number of keys")
    parts = [query, *(_joined(e, x) for x in (key, value))]
    if bias:
        size = e.sizes(query)[-1]
        terms = split(e, bias, [size, size, e.sizes(bias)[0] - 2 * size])
        parts = [e.add(x, term) for x, term in zip(parts, terms, strict=True)]
    return attend(e, [*parts, mask, *past], attrs, outputs=len(made))


@defines("Attention")
def _attention(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Attention(x·w + b) with one weight of query, key and value; no mask index and no past."""
    x, w, b, index, past, mask, length = operands(node, 7)
    if index or past or length or any(node.output[1:]) or attrs.given("do_rotary", 0):
        raise Unsupported("mask_index, past or rotation")
    whole = e.add(e.op("MatMul", x, w), b)
    sizes = attrs.given("qkv_hidden_sizes", list[int]()) or [e.sizes(w)[-1] // 3] * 3
    return attend(e, [*split(e, whole, sizes), mask], attrs)


def attend(e: Emit, inputs: list[str], attrs: Attributes, outputs: int = 1) -> list[str]:
    """The standard's of as many heads of keys as of queries; its outputs."""
    heads, scale = attrs["num_heads"], attrs.given("scale", 0.0)
    how: dict[str, Any] = {"scale": scale} if scale else {}
    how |= {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": attrs.given("unidirectional", 0)}
    made = e.op("Attention", *inputs, outputs=outputs, **how)
    return [made] if outputs == 1 else list(made)


def split(e: Emit, x: str, sizes: list[int]) -> list[str]:
    """Pieces of these sizes along the last axis."""
    ends = itertools.accumulate(sizes)
    return [e.slice(x, [end - size], [end], [-1], [1]) for size, end in zip(sizes, ends, strict=True)]


def _joined(e: Emit, x: str) -> str:
    """(batch, heads, length, size) as (batch, length, heads·size)."""
    if len(e.shape(x)) != 4:
        return x
    return str(e.op("Reshape", e.op("Transpose", x, perm=[0, 2, 1, 3]), e.ints([0, 0, -1])))


@defines("LinearAttention", "CausalConvWithState")
def _stateful(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """The standard's, of which ONNX Runtime's do more."""
    known = schema.schema("", node.op_type, None)
    assert known is not None
    if attrs.keys() - known.attributes.keys():
        raise Unsupported("attributes that the standard has not")
    return list(e.op(node.op_type, *node.input, outputs=len(node.output), **attrs))


@defines("RotaryEmbedding")
def _rotary(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """The standard's; one position is that of the first token."""
    x, positions, cos, sin = node.input
    if attrs.given("is_packed_batching", 0):
        raise Unsupported("packed batches")
    rank = len(e.shape(x))
    if len(e.shape(positions)) < 2:
        sizes = e.op("Shape", x)
        length = e.op("Gather", sizes, e.const(2 if rank == 4 else 1, np.int64))
        row = e.op("Add", e.op("Range", e.const(0, np.int64), length, e.const(1, np.int64)), positions)
        positions = e.op("Expand", row, e.op("Concat", e.slice(sizes, [0], [1], [0], [1]), e.ints([1]), axis=0))
    how = {name: attrs[name] for name in ("interleaved", "num_heads", "rotary_embedding_dim") if attrs.get(name)}
    if rank == 3 and "num_heads" not in how:
        how["num_heads"] = e.sizes(x)[-1] // (2 * e.sizes(cos)[-1])
    return [e.op("RotaryEmbedding", x, cos, sin, positions, **how)]
