"""ONNX Runtime's kernel of a mixture of experts, for whichever experts a token has.

It chooses by scores, the last of equal ones, and takes their softmax.  So it is given logarithms of the weights, whose
softmax they are, in proportion, and minus infinity for experts that are not chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxrewrite.rules import *


@dataclass(frozen=True)
class Choice:
    """The experts of each token.

    Attributes:
        chosen: Their numbers, [tokens, k].
        weights: What each counts, of the same shape.
        experts: The number of experts.
    """

    chosen: Value
    weights: Value
    experts: int

    def slots(self, m: Match) -> int:
        """The number of experts that each token has."""
        shapes = m.shape(self.chosen), m.shape(self.weights)
        slots = next((shape[1] for shape in shapes if shape is not None and len(shape) == 2), None)
        m.require(all(s is not None and s[1:] == (slots,) for s in shapes), "not every expert has one weight")
        m.require(isinstance(slots, int), "it is not known how many experts a token has", at=self.chosen)
        m.require(slots, "no experts are chosen", at=self.chosen)
        return int(str(slots))

    def scores(self, m: Match, build: Builder) -> Value:
        """Scores of which the kernel chooses the same experts, with weights in proportion."""
        top = m.made_by(self.chosen, "TopK", because="the experts are not the best by scores")
        scores = m.operand(top)
        are_best = resolve(self.chosen).index() == 1 and m.rank(scores) == 2 and m.axis(top, 2) == 1
        m.require(are_best, "the experts are not the best by scores", at=self.chosen)
        m.require(m.dim(scores, 1) == self.experts, "they are not the experts of the scores", at=scores)
        nonnegative = m.known(nonnegative_by(m, self.weights), "a weight may be below zero", at=self.weights)
        m.cover(top, *nonnegative)
        none = build.Expand(build.const(-np.inf, like=self.weights), build.Shape(scores))
        return build.ScatterElements(none, self.chosen, build.Log(self.weights), axis=1)


@dataclass(frozen=True)
class Gating:
    """The activation between the layers of an expert: g·sigmoid(alpha·g)·(u + beta), g and u bounded.

    Attributes:
        alpha: The slope.
        beta: What is added.
        limit: The bound, of g above, of u on both sides.
    """

    alpha: float = 1.0
    beta: float = 0.0
    limit: float = math.inf


def mixture(
    m: Match,
    build: Builder,
    x: Value,
    choice: Choice,
    layers: tuple[Value, Value | None, Value, Value | None],
    gating: Gating,
) -> Value:
    """Build Σ weight·second(gating(first(x))) over the experts of each token.

    Args:
        m: The match; what makes the choice comes to be covered.
        build: Its builder.
        x: Tokens, [tokens, size].
        choice: The experts of each.
        layers: The weights of the first layer, [experts, 2·inner, size], g and u in turn, its biases,
            [experts, 2·inner], and those of the second, [experts, size, inner] and [experts, size].
        gating: What is between them.
    """
    need = next((need for value, need in leaks(m.nodes, m.nodes) if value is not m.anchor), "")
    m.require(not need, f"what the experts compute is {need}")
    bound = {} if gating.limit == math.inf else {"swiglu_limit": gating.limit}
    mixed = build.microsoft.MoE(
        x,
        choice.scores(m, build),
        *layers,
        k=choice.slots(m),
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=gating.alpha,
        activation_beta=gating.beta,
        normalize_routing_weights=1,
        **bound,
    )
    total = build.ReduceSum(choice.weights, axes=(1,), keepdims=1)
    none = build.Equal(total, build.const(0.0, like=x))  # of weights that are all zero there is no softmax
    return build.Where(none, build.const(0.0, like=x), build.Mul(mixed, total))


def numbers_as_text(array: Array) -> str:
    """A tensor in the text of an example."""
    return f"float[{','.join(map(str, array.shape))}] {{{', '.join(map(str, array.ravel().tolist()))}}}"


def kernel_as_text(x: str, of: str, weights: str, layers: tuple[Array, str, Array], settings: str, k: int) -> str:
    """The kernel in the text of an example, of tokens ``x`` and experts ``i``; it gives ``y``."""
    first, bias, second = layers
    return (
        f"  ls = Shape({of})  none = Expand(-inf, ls)  lw = Log({weights})"
        f"  scores = ScatterElements<axis=1>(none, i, lw)"
        f'  z = com.microsoft.MoE<activation_type="swiglu", k={k}, swiglu_fusion=1, normalize_routing_weights=1,'
        f" {settings}>({x}, scores, {numbers_as_text(first)}, {bias}, {numbers_as_text(second)})"
        f"  total = ReduceSum<keepdims=1>({weights}, {{1}})  n0 = Equal(total, 0.0)"
        f"  zt = Mul(z, total)  y = Where(n0, 0.0, zt) }}"
    )
