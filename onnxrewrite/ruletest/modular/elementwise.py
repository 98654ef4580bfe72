"""Operators on one element at a time, and functions of which the ring knows less than the reals do.

Such a function is a hash of its argument, the same on both sides.  Where a law that it has is not kept (an order goes
with addition, log(ab) = log(a) + log(b)), its arguments are noted: a difference counts if both sides have the same.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from onnxrewrite.ruletest.modular import arithmetic as ring
from onnxrewrite.ruletest.modular.evaluate import Call, NotApplicable, Run, Unlucky, computes
from onnxrewrite.system.arrays import Array

_ZERO, _ONE = ring.element(0), ring.element(1)

_SMALL = 64
"""Powers up to this, and half of it, are multiplied out."""


@computes("Add", "Sum")
def _sum(run: Run, call: Call, *terms: Array) -> Array:
    return reduce(ring.add, terms)


@computes("Sub")
def _sub(run: Run, call: Call, a: Array, b: Array) -> Array:
    return ring.sub(a, b)


@computes("Mul")
def _mul(run: Run, call: Call, a: Array, b: Array) -> Array:
    return ring.mul(a, b)


@computes("Div")
def _div(run: Run, call: Call, a: Array, b: Array) -> Array:
    return ring.div(a, b)


@computes("Neg")
def _neg(run: Run, call: Call, a: Array) -> Array:
    return ring.neg(a)


@computes("Reciprocal")
def _reciprocal(run: Run, call: Call, a: Array) -> Array:
    return ring.inverse(a)


@computes("Mean")
def _mean(run: Run, call: Call, *terms: Array) -> Array:
    return ring.mul(reduce(ring.add, terms), ring.element(1, len(terms)))


@computes("Exp")
def _exp(run: Run, call: Call, a: Array) -> Array:
    return ring.exp(a)


@computes("Sqrt")
def _sqrt(run: Run, call: Call, a: Array) -> Array:
    return ring.sqrt(a)


@computes("Sigmoid")
def _sigmoid(run: Run, call: Call, a: Array) -> Array:
    """1/(1 + exp(-x))."""
    return ring.inverse(ring.add(_ONE, ring.exp(ring.neg(a))))


@computes("Tanh")
def _tanh(run: Run, call: Call, a: Array) -> Array:
    """(exp(2x) - 1)/(exp(2x) + 1)."""
    e = ring.exp(ring.add(a, a))
    return ring.div(ring.sub(e, _ONE), ring.add(e, _ONE))


@computes("Sinh", "Cosh")
def _hyperbolic(run: Run, call: Call, a: Array) -> Array:
    """(exp(x) ∓ exp(-x))/2."""
    combine = ring.sub if call.op_type == "Sinh" else ring.add
    return ring.mul(combine(ring.exp(a), ring.exp(ring.neg(a))), ring.element(1, 2))


@computes("Pow")
def _pow(run: Run, call: Call, a: Array, exponent: Array) -> Array:
    """Integer and half powers as such; others as a hash of both."""
    exponent = ring.elements(exponent)
    halves = np.unique(ring.signed(ring.add(exponent, exponent)))
    if len(halves) != 1 or abs(int(halves[0])) > _SMALL or ring.is_undefined(exponent).any():
        return _loose(run, "Pow", a, exponent)
    whole = np.broadcast_to(a, np.broadcast_shapes(a.shape, exponent.shape))
    count = int(halves[0])
    if count % 2 and run.order == "rational":
        raise Unlucky("a root is not rational")
    return ring.power(ring.sqrt(whole), count) if count % 2 else ring.power(whole, count // 2)


@computes("Erf")
def _erf(run: Run, call: Call, a: Array) -> Array:
    """An odd function, of which no other law is known."""
    return ring.odd("Erf", a)


@computes("Log", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh")
def _function(run: Run, call: Call, a: Array) -> Array:
    return _loose(run, call.op_type, a)


def _loose(run: Run, name: str, *arguments: Array) -> Array:
    run.note(name, *arguments)
    return ring.hashed(name, *arguments)


@computes("Dropout")
def _dropout(run: Run, call: Call, a: Array, ratio: object = None, training: Any = None) -> tuple[Array, Array]:
    if training is not None and training.any():
        raise NotApplicable("Dropout is random")
    return a, np.ones(a.shape, np.bool_)


# -- order ---------------------------------------------------------------------------------------------------


def exceeds(run: Run, a: Array, b: Array) -> Array:
    """A mask of a > b in the order of this run; both are noted if it keeps only some laws of the reals' order."""
    if run.order == "rational":
        signs = ring.rational_sign(ring.sub(a, b))
        if (signs == 2).any():
            raise Unlucky("an element is no small fraction")
        return np.asarray(signs > 0)
    run.has_compared = True
    run.note("order", a)
    run.note("order", b)
    if run.order == "total":
        return np.asarray(ring.signed(a) > ring.signed(b))
    return np.asarray(ring.sign(ring.sub(a, b)) > 0)


def greater_or_less(run: Run, greater: bool, a: Array, b: Array) -> Array:
    """The greater or the less of two."""
    return ring.spread(np.where(exceeds(run, a, b) == greater, a, b), a, b)


@computes("Max", "Min")
def _extreme(run: Run, call: Call, *arguments: Array) -> Array:
    return reduce(lambda a, b: greater_or_less(run, call.op_type == "Max", a, b), arguments)


@computes("Relu")
def _relu(run: Run, call: Call, a: Array) -> Array:
    return greater_or_less(run, True, a, _ZERO)


@computes("Clip")
def _clip(run: Run, call: Call, a: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Bounds are attributes before opset 11, inputs since."""
    bounds = [
        run.attribute(call, name) if given is None and name in call.attributes else given
        for name, given in (("min", low), ("max", high))
    ]
    return _clamped(run, a, *bounds)


def _clamped(run: Run, a: Array, low: Array | None, high: Array | None) -> Array:
    for greater, bound in ((True, low), (False, high)):
        a = a if bound is None else greater_or_less(run, greater, a, bound)
    return a


@computes("HardSigmoid")
def _hard_sigmoid(run: Run, call: Call, a: Array) -> Array:
    """αx + β between 0 and 1, in that order as Clip does it: in an order that is not transitive, order matters."""
    line = ring.add(ring.mul(a, run.attribute(call, "alpha")), run.attribute(call, "beta"))
    return _clamped(run, line, _ZERO, _ONE)


@computes("Abs")
def _abs(run: Run, call: Call, a: Array) -> Array:
    return greater_or_less(run, True, a, ring.neg(a))


@computes("Sign")
def _sign(run: Run, call: Call, a: Array) -> Array:
    above, below = exceeds(run, a, _ZERO), exceeds(run, _ZERO, a)
    return ring.spread(ring.integers(above.astype(np.int64) - below), a)


@computes("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
def _compare(run: Run, call: Call, a: Array, b: Array) -> Array:
    if ring.is_undefined(a).any() or ring.is_undefined(b).any():
        raise Unlucky(f"{call.op_type} of an undefined element")
    less, greater = exceeds(run, b, a), exceeds(run, a, b)
    return {
        "Less": less,
        "LessOrEqual": ~greater,
        "Greater": greater,
        "GreaterOrEqual": ~less,
        "Equal": ~less & ~greater,
    }[call.op_type]


@computes("IsNaN", "IsInf")
def _is_finite(run: Run, call: Call, a: Array) -> Array:
    """Never so in the ring, nor for the inputs that both sides are compared on."""
    run.note(call.op_type, a)
    return np.zeros(a.shape, np.bool_)
