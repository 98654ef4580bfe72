"""ONNX Runtime's own operators, each by the standard's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.evaluate import Call, NotApplicable, Results, Ring, Run, computes
from onnxrewrite.ruletest.modular.linear import integers_to_float
from onnxrewrite.system.arrays import Array

MS = "com.microsoft"


def _standard(run: Run, op_type: str, inputs: list[Array | None], **attributes: AttributeValue) -> Array:
    """The first output of a standard operator in its newest version; attributes that are None are left out."""
    given = {k: v for k, v in attributes.items() if v is not None}
    made = {a.name: a for a in ir.convenience.convert_attributes(given)}
    values = tuple(Ring(v) if v is not None and v.dtype == np.uint64 else v for v in inputs)
    found = run.call(Call("", op_type, None, made, values, 1))[0]
    result: Array = run.elements(found)
    return result


def _total(*terms: Array | None) -> Array:
    result = np.asarray(0, np.uint64)
    for each in terms:
        result = result if each is None else ring.add(result, each)
    return result


@computes("Gelu", "BiasGelu", domain=MS)
def _gelu(run: Run, call: Call, *terms: Array | None) -> Array:
    return _standard(run, "Gelu", [_total(*terms)])


@computes("FastGelu", domain=MS)
def _fast_gelu(run: Run, call: Call, *terms: Array | None) -> Array:
    return _standard(run, "Gelu", [_total(*terms)], approximate="tanh")


@computes("QuickGelu", domain=MS)
def _quick_gelu(run: Run, call: Call, x: Array) -> Array:
    return _standard(run, "Swish", [x], alpha=call.get("alpha"))


@computes("SkipLayerNormalization", domain=MS)
def _skip_layer_norm(
    run: Run, call: Call, x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None
) -> Results:
    whole = _total(x, skip, bias)
    result = _standard(run, "LayerNormalization", [whole, gamma, beta], axis=-1, epsilon=call.get("epsilon"))
    return (result, None, None, whole)[: call.outputs]


@computes("SkipSimplifiedLayerNormalization", domain=MS)
def _skip_rms_norm(run: Run, call: Call, x: Array, skip: Array, gamma: Array, bias: Array | None = None) -> Results:
    whole = _total(x, skip, bias)
    result = _standard(run, "RMSNormalization", [whole, gamma], axis=-1, epsilon=call.get("epsilon"))
    return (result, None, None, whole)[: call.outputs]


@computes("EmbedLayerNormalization", domain=MS)
def _embed_layer_norm(run: Run, call: Call, ids: Array, segment_ids: Array | None, *given: Array | None) -> Results:
    words, positions, segments, gamma, beta, _, position_ids = (*given, None, None)[:7]
    rows = np.arange(ids.shape[1]) if position_ids is None else position_ids
    lookups = ((words, ids), (positions, rows), (segments, segment_ids))
    whole = _total(*(np.take(t, i, axis=0) for t, i in lookups if t is not None and i is not None))
    result = _standard(run, "LayerNormalization", [whole, gamma, beta], axis=-1, epsilon=call.get("epsilon"))
    return (result, None, whole)[: call.outputs]


@computes("SimplifiedLayerNormalization")
def _rms_norm(run: Run, call: Call, x: Array, gamma: Array) -> Array:
    return _standard(run, "RMSNormalization", [x, gamma], axis=call.get("axis", -1), epsilon=call.get("epsilon", 1e-5))


def _parameters(function: str) -> Sequence[str]:
    """The names of the parameters of an activation function of FusedConv, in their order."""
    found = schema.schema("", function, None) if function else None
    return ("min", "max") if function == "Clip" else sorted(found.attributes) if found is not None else ()


@computes("FusedGemm", domain=MS)
def _fused_gemm(run: Run, call: Call, *operands: Array | None) -> Array:
    attributes = {name: call.get(name) for name in ("alpha", "beta", "transA", "transB")}
    result = _standard(run, "Gemm", list(operands), **attributes)
    own = {name: call.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    return _standard(run, call.get("activation"), [result], **own) if call.get("activation") else result


@computes("FusedConv", domain=MS)
def _fused_conv(run: Run, call: Call, *operands: Array | None) -> Array:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: call.attributes[name].value for name in names if name in call.attributes}
    result = _standard(run, "Conv", list(operands[:3]), **attributes)
    result = _total(result, *operands[3:])
    function = call.get("activation")
    own = zip(_parameters(function), call.get("activation_params") or (), strict=True)
    if function == "Clip":
        return _standard(run, function, [result, *(run.constants.carry(np.float32(bound)) for _, bound in own)])
    return _standard(run, function, [result], **dict(own)) if function else result


def _attend(run: Run, call: Call, q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    heads = call.get("num_heads")
    scale = call.get("scale") or None
    return _standard(
        run,
        "Attention",
        [q, k, v, mask],
        q_num_heads=heads,
        kv_num_heads=heads,
        scale=scale,
        is_causal=call.get("unidirectional", 0),
    )


@computes("MultiHeadAttention", domain=MS)
def _multi_head(run: Run, call: Call, query: Array, *given: Array | None) -> Array | Results:
    """Query of shape (batch, length, heads·size); key and value too, or (batch, heads, length, size) like the past."""
    key, value, bias, padding, mask, past_key, past_value = (*given, None, None, None, None, None, None, None)[:7]
    if key is None or value is None or key.ndim == 5 or padding is not None or any(c is not None for c in given[7:]):
        raise NotApplicable("MultiHeadAttention: packed inputs, key_padding_mask or a shared cache")
    if call.outputs > 3 or (call.outputs == 1) != (past_key is None):
        raise NotApplicable("MultiHeadAttention: a past without a present, or a present without a past")
    if past_key is not None and call.get("unidirectional", 0):
        raise NotApplicable("MultiHeadAttention: a past, and queries that see no later keys")
    heads = call.get("num_heads")
    if bias is not None:
        key, value = _joined(key), _joined(value)
        ends = np.cumsum([query.shape[-1], key.shape[-1]])
        query, key, value = map(ring.add, (query, key, value), np.split(bias, ends))
    present = [_with_past(e, past, heads) for e, past in ((key, past_key), (value, past_value))]
    result = _attend(run, call, query, _joined(present[0]), _joined(present[1]), mask)
    return (result, *present)[: call.outputs] if call.outputs > 1 else result


def _joined(x: Array) -> Array:
    """(batch, heads, length, size) as (batch, length, heads·size)."""
    joined: Array = np.moveaxis(x, 1, 2).reshape(len(x), x.shape[2], x.shape[1] * x.shape[3]) if x.ndim == 4 else x
    return joined


def _with_past(x: Array, past: Array | None, heads: int) -> Array:
    """Keys or values by head, after the earlier ones."""
    by_head = x if x.ndim == 4 else np.moveaxis(x.reshape(*x.shape[:2], heads, x.shape[2] // heads), 2, 1)
    return by_head if past is None else np.concatenate([past, by_head], axis=2)


@computes("Attention", domain=MS)
def _attention(run: Run, call: Call, x: Array, w: Array, b: Array | None = None, *rest: Any) -> Array:
    """Attention(x·w + b) with one weight of query, key and value; no mask index and no past."""
    mask = rest[2] if len(rest) > 2 else None
    if any(v is not None and i != 2 for i, v in enumerate(rest)) or call.outputs > 1 or call.get("do_rotary", 0):
        raise NotApplicable("Attention of com.microsoft: mask_index, past or rotation")
    whole = _total(ring.bilinear(np.matmul, x, w), b)
    sizes = call.get("qkv_hidden_sizes") or [w.shape[-1] // 3] * 3
    q, k, v = np.split(whole, np.cumsum(sizes)[:2], axis=-1)
    return _attend(run, call, q, k, v, mask)


@computes("QAttention", domain=MS)
def _quantized_attention(run: Run, call: Call, x: Array, w: Array, b: Array, *given: Array | None) -> Array:
    """The same of integers; no mask index and no past."""
    x_scale, w_scale, mask, x_zero, w_zero, past = (*given, None, None, None, None)[:6]
    if mask is not None or past is not None or call.outputs > 1 or call.get("do_rotary", 0):
        raise NotApplicable("QAttention: mask_index, past or rotation")
    whole = integers_to_float(run, x, w, x_scale, w_scale, x_zero, w_zero, b)
    q, k, v = np.split(whole, 3, axis=-1)
    return _attend(run, call, q, k, v, None)


@computes("RotaryEmbedding", domain=MS)
def _rotary(run: Run, call: Call, x: Array, positions: Array, cos: Array, sin: Array) -> Array:
    """The standard's, of the rows that positions pick from both tables; one position is that of the first token."""
    tokens = x.shape[2 if x.ndim == 4 else 1]
    batch = np.zeros((len(x), 1), np.int64)
    rows = batch + (positions + np.arange(tokens) if positions.size == 1 and positions.ndim < 2 else positions)
    if call.get("is_packed_batching", 0):
        raise NotApplicable("RotaryEmbedding of packed batches")
    names = ("interleaved", "num_heads", "rotary_embedding_dim")
    how = {name: call.get(name, 0) or None for name in names}
    if x.ndim == 3 and how["num_heads"] is None:
        how["num_heads"] = x.shape[-1] // (2 * cos.shape[-1])
    return _standard(run, "RotaryEmbedding", [x, cos[rows], sin[rows]], **how)
