"""Operators without a double kernel that is exact, spelled in operators that have one.

Only the few primitives that the standard's own function bodies, and those of ``ir.bodies``, bottom out in.  Every
formula is exact up to double rounding.  Emits for any opset from 11 on.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import onnx

from onnxrewrite.ir.bodies.emitter import Attributes, Body, Emit
from onnxrewrite.ir.by_operator import ByOperator

DOUBLE = onnx.TensorProto.DOUBLE
INT64 = onnx.TensorProto.INT64

EXPANSIONS = ByOperator[Body]()
"""(domain, operator) to what it computes, by operators with a double kernel."""

expands = EXPANSIONS.of


@cache
def _erfc_coefficients(degree: int = 20) -> tuple[float, ...]:
    """exp(x²)·erfc(x) as a polynomial in (x − 15/4)/(x + 15/4), by its Chebyshev series (Shepherd, Laframboise, 1981).

    The terms fall so fast that powers are as accurate, and take two operators a term, not three.
    """

    def scaled(t: Any) -> Any:
        x = 3.75 * (1 + t) / (1 - t)
        return np.array([_erfcx(float(v)) for v in x])

    series = np.polynomial.chebyshev.chebinterpolate(scaled, degree)
    return tuple(np.polynomial.chebyshev.cheb2poly(series))


def _erfcx(x: float) -> float:
    """exp(x²)·erfc(x) for x ≥ 0: the product while erfc is far from 0, then a continued fraction."""
    if x < 5.0:
        return math.exp(x * x) * math.erfc(x)
    tail = 0.0
    for k in range(60, 0, -1):
        tail = (k / 2) / (x + tail)
    return 1.0 / (math.sqrt(math.pi) * (x + tail))


def erf(e: Emit, x: str) -> str:
    """Error function to about 1e-15: sign(x)·(1 − exp(−a²)·p(t)), p by Horner's rule."""
    a = e.op("Min", e.op("Abs", x), e.const(30.0))
    shift = e.const(3.75)
    t = e.op("Div", e.op("Sub", a, shift), e.op("Add", a, shift))
    *rest, p = map(e.const, _erfc_coefficients())
    for c in reversed(rest):
        p = e.op("Add", e.op("Mul", p, t), c)
    tail = e.op("Mul", e.op("Exp", e.op("Neg", e.op("Mul", a, a))), p)
    return str(e.op("Mul", e.op("Sign", x), e.op("Sub", e.const(1.0), tail)))


@expands("Erf")
def _erf(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [erf(e, node.input[0])]


def gelu(e: Emit, x: str) -> str:
    """½·x·(1 + erf(x/√2))."""
    half = e.op("Mul", x, e.const(0.5))
    return e.mul(half, e.op("Add", e.const(1.0), erf(e, e.op("Mul", x, e.const(math.sqrt(0.5))))))


def gelu_tanh(e: Emit, x: str) -> str:
    """½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    cube = e.mul(x, x, x, e.const(0.044715))
    inner = e.op("Mul", e.op("Add", x, cube), e.const(math.sqrt(2 / math.pi)))
    return e.mul(x, e.const(0.5), e.op("Add", e.const(1.0), e.op("Tanh", inner)))


@expands("Gelu")
def _gelu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    tanh = attrs.given("approximate", b"none") == b"tanh"
    return [(gelu_tanh if tanh else gelu)(e, node.input[0])]


@expands("Softplus")
def _softplus(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [softplus(e, x)]


def softplus(e: Emit, x: str) -> str:
    """max(x, 0) + log(1 + exp(−|x|)), which does not overflow."""
    small = e.op("Exp", e.op("Neg", e.op("Abs", x)))
    return e.add(e.op("Relu", x), e.op("Log", e.op("Add", e.const(1.0), small)))


@expands("Sigmoid")
def _sigmoid(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """1 / (1 + exp(−x))."""
    return [str(e.op("Div", e.const(1.0), e.op("Add", e.const(1.0), e.op("Exp", e.op("Neg", node.input[0])))))]


@expands("Mish")
def _mish(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [e.mul(x, e.op("Tanh", softplus(e, x)))]


def _clip01(e: Emit, x: str) -> str:
    return str(e.op("Max", e.const(0.0), e.op("Min", e.const(1.0), x)))


@expands("HardSigmoid")
def _hard_sigmoid(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    alpha, beta = attrs.given("alpha", 0.2), attrs.given("beta", 0.5)
    return [_clip01(e, e.add(e.mul(node.input[0], e.const(_f32(alpha))), e.const(_f32(beta))))]


@expands("HardSwish")
def _hard_swish(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [e.mul(x, _clip01(e, e.add(e.mul(x, e.const(1 / 6)), e.const(0.5))))]


@expands("Swish")
def _swish(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [e.mul(x, e.op("Sigmoid", e.mul(x, e.const(_f32(attrs.given("alpha", 1.0))))))]


def _f32(value: float) -> float:
    """An attribute's number as float32 holds it (attributes are stored so)."""
    return float(np.float32(value))


@expands("LeakyRelu")
def _leaky(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    low = e.op("Min", x, e.const(0.0))
    return [e.add(e.op("Relu", x), e.mul(low, e.const(_f32(attrs.given("alpha", 0.01)))))]


@expands("PRelu")
def _prelu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x, slope = node.input
    return [e.add(e.op("Relu", x), e.mul(e.op("Min", x, e.const(0.0)), slope))]


def _exp_branch(e: Emit, x: str, alpha: float, gamma: float = 1.0, inner: float = 1.0) -> str:
    low = e.op("Min", x, e.const(0.0))
    bent = e.op("Sub", e.op("Exp", e.mul(low, e.const(1.0 / inner))), e.const(1.0))
    return e.mul(e.const(gamma), e.add(e.op("Relu", x), e.mul(e.const(alpha), bent)))


@expands("Elu")
def _elu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [_exp_branch(e, node.input[0], _f32(attrs.given("alpha", 1.0)))]


@expands("Celu")
def _celu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    alpha = _f32(attrs.given("alpha", 1.0))
    return [_exp_branch(e, node.input[0], alpha, inner=alpha)]


@expands("Selu")
def _selu(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    alpha, gamma = (
        attrs.given("alpha", 1.67326319217681884765625),
        attrs.given("gamma", 1.05070102214813232421875),
    )
    return [_exp_branch(e, node.input[0], alpha, gamma)]


@expands("Softsign")
def _softsign(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [str(e.op("Div", x, e.op("Add", e.const(1.0), e.op("Abs", x))))]


@expands("ThresholdedRelu")
def _thresholded(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [str(e.op("Where", e.op("Greater", x, e.const(_f32(attrs.given("alpha", 1.0)))), x, e.const(0.0)))]


@expands("Tan")
def _tan(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    return [str(e.op("Div", e.op("Sin", x), e.op("Cos", x)))]


@expands("Sinh", "Cosh")
def _hyperbolic(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    x = node.input[0]
    up, down = e.op("Exp", x), e.op("Exp", e.op("Neg", x))
    return [e.mul(e.const(0.5), e.op("Sub" if node.op_type == "Sinh" else "Add", up, down))]


@expands("Mean")
def _mean(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [e.mul(e.add(*node.input), e.const(1.0 / len(node.input)))]


@expands("NonZero")
def _nonzero(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    return [str(e.op("NonZero", e.op("Cast", node.input[0], to=onnx.TensorProto.BOOL)))]


@expands("OneHot")
def _one_hot(e: Emit, node: onnx.NodeProto, attrs: Attributes) -> list[str]:
    """Off + (on − off)·onehot, the unit vectors in float, where 0 and 1 are exact."""
    indices, depth, values = node.input
    units = e.const([0.0, 1.0], np.float32)
    hot = e.op(
        "Cast",
        e.op(
            "OneHot",
            e.op("Cast", indices, to=INT64),
            e.op("Cast", depth, to=INT64),
            units,
            axis=attrs.given("axis", -1),
        ),
        to=DOUBLE,
    )
    off, on = (e.op("Gather", values, e.const(i, np.int64)) for i in (0, 1))
    return [e.add(off, e.mul(hot, e.op("Sub", on, off)))]
