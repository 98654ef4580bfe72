"""ONNX Runtime's own operators, each by operators of the standard: the one place that says what they compute.

Both the float64 reference and the exact evaluation read it.  A body takes the newest operator of the standard that
says it, whatever the opset around it: each of the two evaluates that operator in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import onnx

from onnxrewrite.ir import schema
from onnxrewrite.ir.bodies.emitter import Attributes, Body, Emit, Unsupported, operands
from onnxrewrite.ir.by_operator import ByOperator

Value = TypeVar("Value")

BODIES = ByOperator[Body]()
"""(domain, operator) to what it computes."""

defines = partial(BODIES.of, domain="com.microsoft")


# -- activations -----------------------------------------------------------------------------------------------------


@defines("Gelu", "BiasGelu")
def _gelu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [e.op("Gelu", e.add(*node.input))]


@defines("FastGelu")
def _fast_gelu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [e.op("Gelu", e.add(*node.input), approximate="tanh")]


@defines("QuickGelu")
def _quick_gelu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [e.op("Swish", node.input[0], alpha=attrs.given("alpha", 1.702))]


# -- normalizations --------------------------------------------------------------------------------------------------


@defines("SkipLayerNormalization")
def _skip_layer_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Mean and deviation stay out, as in ONNX Runtime."""
    x, skip, gamma, beta, bias = operands(node, 5)
    total = e.add(x, bias, skip)
    return [_layer_norm(e, total, gamma, beta, attrs), "", "", total]


@defines("SkipSimplifiedLayerNormalization")
def _skip_rms_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, skip, gamma, bias = operands(node, 4)
    total = e.add(x, bias, skip)
    epsilon = attrs.given("epsilon", 1e-12)
    return [e.op("SimplifiedLayerNormalization", total, gamma, axis=-1, epsilon=epsilon), "", "", total]


@defines("SimplifiedLayerNormalization", domain="")
def _rms_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [e.op("RMSNormalization", *node.input, **{"axis": -1, "epsilon": 1e-5, **attrs})]


@defines("EmbedLayerNormalization")
def _embed_layer_norm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Rows of two or three tables, where positions count up if they are not given; the number of tokens; the sum."""
    ids, segment_ids, words, positions, segments, gamma, beta, mask, rows = operands(node, 9)
    batch, length = (e.op("Gather", e.op("Shape", ids), e.const(i, np.int64)) for i in (0, 1))
    rows = rows or e.op("Range", e.const(0, np.int64), length, e.const(1, np.int64))
    looked_up = ((words, ids), (positions, rows), (segments, segment_ids))
    total = e.add(*(str(e.op("Gather", table, indices)) for table, indices in looked_up if table and indices))
    zeros = e.op("Expand", e.const(0, np.int32), e.unsqueeze(batch, [0]))
    tokens = e.reduce_sum(mask, [1], keepdims=0) if mask else zeros
    return [_layer_norm(e, total, gamma, beta, attrs), tokens, total]


def _layer_norm(e: Emit, x: str, gamma: str, beta: str, attrs: Attributes) -> str:
    given = filter(None, [gamma, beta])
    return str(e.op("LayerNormalization", x, *given, axis=-1, epsilon=attrs.given("epsilon", 1e-12)))


# -- linear layers and what follows ----------------------------------------------------------------------------------

_ACTIVATION = "activation"


def _layer(e: Emit, op_type: str, inputs: list[str], attrs: Attributes) -> str:
    """The layer, with those of the attributes that are its own."""
    return str(e.op(op_type, *inputs, **{n: v for n, v in attrs.items() if not n.startswith(_ACTIVATION)}))


def _activated(e: Emit, x: str, attrs: Attributes, own: dict[str, Any]) -> str:
    function = attrs.given(_ACTIVATION, b"").decode()
    return str(e.op(function, x, **own)) if function else x


@defines("FusedGemm")
def _fused_gemm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    prefix = f"{_ACTIVATION}_"
    own = {name.removeprefix(prefix): value for name, value in attrs.items() if name.startswith(prefix)}
    return [_activated(e, _layer(e, "Gemm", list(node.input), attrs), attrs, own)]


@defines("FusedConv")
def _fused_conv(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Convolution, sum and activation, whose parameters stand in the order of their names."""
    result = e.add(_layer(e, "Conv", list(filter(None, node.input[:3])), attrs), *node.input[3:])
    own = attrs.given("activation_params", list[float]())
    if attrs.get(_ACTIVATION) == b"Clip":
        return [e.op("Clip", result, *map(e.const, own))]
    known = schema.schema("", attrs.given(_ACTIVATION, b"").decode(), None)
    names = sorted(known.attributes) if known is not None else []
    if len(names) != len(own):
        raise Unsupported("an activation with other parameters")
    return [_activated(e, result, attrs, dict(zip(names, own, strict=True)))]


# -- products of matrices --------------------------------------------------------------------------------------------


@defines("FusedMatMul")
def _fused_matmul(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """α·a·b, each with its batches in the middle, its matrices transposed, or both."""
    factors = [_turned(e, x, attrs, which) for x, which in zip(node.input, "AB", strict=True)]
    alpha = np.float32(attrs.given("alpha", 1.0))
    product = str(e.op("MatMul", *factors))
    return [product if alpha == 1 else e.mul(product, e.const(alpha))]


def _turned(e: Emit, x: str, attrs: Attributes, which: str) -> str:
    order = as_read(range(len(e.shape(x))), which, attrs.given)
    return x if order == sorted(order) else str(e.op("Transpose", x, perm=order))


def as_read(axes: Iterable[Value], which: str, given: Callable[[str, int], int | None]) -> list[Value]:
    """The axes of an operand, or their sizes, in the order in which FusedMatMul reads them.

    Args:
        axes: In the order in which they lie.
        which: The operand, ``A`` or ``B``.
        given: Gives an attribute by name, or a default.
    """
    found = list(axes)
    if given(f"transBatch{which}", 0) and len(found) > 2:
        found.insert(-1, found.pop(0))
    if given(f"trans{which}", 0) and len(found) > 1:
        found[-2:] = found[:-3:-1]
    return found
