"""ONNX Runtime's own operators, each by the standard's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.verify.ring import arithmetic as ring
from onnxrewrite.verify.ring.arithmetic import Array
from onnxrewrite.verify.ring.evaluate import Call, NotApplicable, Ring, Run, computes

MS = "com.microsoft"


def _standard(run: Run, op_type: str, inputs: list[Array | None], **attributes: Any) -> Array:
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
) -> Any:
    whole = _total(x, skip, bias)
    result = _standard(run, "LayerNormalization", [whole, gamma, beta], axis=-1, epsilon=call.get("epsilon"))
    return (result, None, None, whole)[: call.outputs]


@computes("SkipSimplifiedLayerNormalization", domain=MS)
def _skip_rms_norm(run: Run, call: Call, x: Array, skip: Array, gamma: Array, bias: Array | None = None) -> Any:
    whole = _total(x, skip, bias)
    result = _standard(run, "RMSNormalization", [whole, gamma], axis=-1, epsilon=call.get("epsilon"))
    return (result, None, None, whole)[: call.outputs]


@computes("SimplifiedLayerNormalization")
def _rms_norm(run: Run, call: Call, x: Array, gamma: Array) -> Any:
    return _standard(run, "RMSNormalization", [x, gamma], axis=call.get("axis", -1), epsilon=call.get("epsilon", 1e-5))


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
def _multi_head(
    run: Run,
    call: Call,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    padding: Array | None = None,
    mask: Array | None = None,
    *cache: Any,
) -> Array:
    """Query of shape (batch, length, heads·size); key and value too, or (batch, heads, length, size); no past."""
    if key is None or value is None or key.ndim == 5 or padding is not None or any(c is not None for c in cache):
        raise NotApplicable("MultiHeadAttention: packed inputs, key_padding_mask or a past")
    if call.outputs > 1:
        raise NotApplicable("MultiHeadAttention: present key and value")
    key, value = (np.moveaxis(e, 1, 2).reshape(len(e), e.shape[2], -1) if e.ndim == 4 else e for e in (key, value))
    if bias is not None:
        ends = np.cumsum([query.shape[-1], key.shape[-1]])
        query, key, value = map(ring.add, (query, key, value), np.split(bias, ends))
    return _attend(run, call, query, key, value, mask)


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
