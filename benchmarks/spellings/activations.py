"""Activations in parts.

The parts of tanh, 2·σ(2·x) - 1, are zero where tanh is tiny, and those of Softplus, ln(1 + eˣ), overflow: they compute
something else, and nobody has to find them.
"""

from __future__ import annotations

import math

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("Sigmoid")
def sigmoid_by_tanh(s: Script) -> bool:
    """σ(x) as ½ + ½·tanh(½·x)."""
    x = s.place.inputs[0]
    assert x is not None
    half = s.constant(0.5, x)
    return s.put(s.new("Add", s.new("Mul", s.new("Tanh", s.new("Mul", x, half)), half), half))


@spelling("Sigmoid")
def sigmoid_by_exp(s: Script) -> bool:
    """σ(x) as 1 / (1 + exp(-x))."""
    x = s.place.inputs[0]
    assert x is not None
    one = s.constant(1.0, x)
    below = s.new("Add", one, s.new("Exp", s.new("Neg", x)))
    return s.put(s.new("Reciprocal", below) if s.rng.random() < 0.5 else s.new("Div", one, below))


@spelling("HardSwish")
def hard_swish_in_parts(s: Script) -> bool:
    """HardSwish(x) as x·HardSigmoid(x), or x·clip(x + 3, 0, 6) / 6."""
    x = s.place.inputs[0]
    assert x is not None
    if s.rng.random() < 0.5:
        return s.put(s.new("Mul", x, s.new("HardSigmoid", x, alpha=1 / 6, beta=0.5)))
    moved = s.new("Add", x, s.constant(3.0, x))
    held = s.new("Clip", moved, s.constant(0.0, x), s.constant(6.0, x))
    if s.rng.random() < 0.5:
        return s.put(s.new("Div", s.new("Mul", x, held), s.constant(6.0, x)))
    return s.put(s.new("Mul", x, s.new("Div", held, s.constant(6.0, x))))


@spelling("HardSigmoid")
def hard_sigmoid_in_parts(s: Script) -> bool:
    """HardSigmoid(x) as clip(α·x + β, 0, 1)."""
    x = s.place.inputs[0]
    assert x is not None
    alpha, beta = s.place.attributes.get_float("alpha", 0.2), s.place.attributes.get_float("beta", 0.5)
    line = s.new("Add", s.new("Mul", x, s.constant(alpha, x)), s.constant(beta, x))
    return s.put(s.new("Clip", line, s.constant(0.0, x), s.constant(1.0, x)))


@spelling("Gelu")
def gelu_in_parts(s: Script) -> bool:
    """Gelu(x) by its Erf or its tanh, whichever it is."""
    x = s.place.inputs[0]
    assert x is not None
    half, one = s.constant(0.5, x), s.constant(1.0, x)
    if s.place.attributes.get_string("approximate", "none") == "none":
        inner = s.new("Erf", s.new("Div", x, s.constant(math.sqrt(2), x)))
    else:
        cube = s.new("Mul", s.new("Pow", x, s.constant(3.0, x)), s.constant(0.044715, x))
        inner = s.new("Tanh", s.new("Mul", s.new("Add", x, cube), s.constant(math.sqrt(2 / math.pi), x)))
    factors = [x, s.new("Add", inner, one), half]
    s.rng.shuffle(factors)
    return s.put(s.new("Mul", s.new("Mul", *factors[:2]), factors[2]))


@spelling("Erf")
def erf_of_opposite(s: Script) -> bool:
    """erf(x) as -erf(-x), an odd function."""
    x = s.place.inputs[0]
    return s.put(s.new("Neg", s.new("Erf", s.new("Neg", x))))
