"""ONNX Runtime's fused linear layers in double precision: the layer, what is added to it, then the function."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from onnxrewrite.reference import convolve  # noqa: F401  (registers Conv)
from onnxrewrite.reference.expand import EXPANSIONS, Attributes, Emit, expands

MS = "com.microsoft"
_OWN = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")
_IN_ORDER = {"HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",)}
"""The attribute names of FusedConv's ``activation_params``, in order, by activation."""


def _standard(e: Emit, op_type: str, inputs: list[str], attrs: Attributes) -> str:
    """One of the standard's operators, expanded where it has no double kernel."""
    expansion = EXPANSIONS.get(("", op_type))
    if expansion is None:
        return str(e.op(op_type, *inputs, **attrs))
    return expansion(e, helper.make_node(op_type, inputs, [""]), attrs)[0]


def _layer(e: Emit, op_type: str, inputs: list[str], attrs: Attributes) -> str:
    return _standard(e, op_type, inputs, Attributes({n: value for n, value in attrs.items() if n not in _OWN}))


@expands("FusedGemm", domain=MS)
def _fused_gemm(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    result = _layer(e, "Gemm", list(node.input), attrs)
    own = Attributes({name.removeprefix("activation_"): attrs[name] for name in _OWN[2:] if name in attrs})
    function = attrs.given("activation", b"").decode()
    return [_standard(e, function, [result], own) if function else result]


@expands("FusedConv", domain=MS)
def _fused_conv(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    layer, z = [i for i in node.input[:3] if i], node.input[3:]
    result = _layer(e, "Conv", layer, attrs)
    result = e.add(result, *z)
    function, own = attrs.given("activation", b"").decode(), attrs.given("activation_params", list[float]())
    if function == "Clip":
        low, high = (e.const(float(np.float32(bound))) for bound in own)
        return [str(e.op("Min", e.op("Max", result, low), high))]
    names = _IN_ORDER.get(function, ())
    return [_standard(e, function, [result], Attributes(zip(names, own, strict=True))) if function else result]
