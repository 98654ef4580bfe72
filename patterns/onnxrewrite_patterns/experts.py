"""Mixtures of experts, which exporters spell out one by one, by ONNX Runtime's kernel.

Why: a graph without branches computes every expert for every token, and multiplies most of it by zero.  The kernel
computes the experts that the router chose: at one token a quarter of the time with 2 of 8, at a hundred tokens three
fifths; at sixteen it is slower, for it sorts tokens by experts.  So `apply` measures.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.expert_kernel import Choice, Gating, kernel_as_text, mixture, numbers_as_text

_D, _I = 2, 3
_W1, _W3, _W2 = (
    [np.arange(1, 1 + size, dtype=np.float64).reshape(shape) / 64 * sign for sign in (1, -1)]
    for size, shape in ((_D * _I, (_D, _I)), (_D * _I, (_D, _I)), (_I * _D, (_I, _D)))
)


_ROUTERS = {"w": "p = Softmax<axis=1>(l)  w, i = TopK(p, {1})"}
_ROUTERS["n"] = f"{_ROUTERS['w']}  s = ReduceSum(w, {{-1}})  n = Div(w, s)"
_EXPERT = (
    "  q# = Equal(i, #)  c# = Cast<to=1>(q#)  m# = Mul(WEIGHT, c#)  r# = ReduceSum(m#, {-1})"
    "  a# = MatMul(x, W1)  b# = Sigmoid(a#)  d# = Mul(a#, b#)  u# = MatMul(x, W3)  h# = Mul(d#, u#)"
    "  o# = MatMul(h#, W2)  z# = Mul(r#, o#)  y# = Add(BEFORE, z#)"
)


def _experts(weights: str) -> str:
    spelled = ""
    for number in range(2):
        one = _EXPERT.replace("#", str(number)).replace("WEIGHT", weights)
        for name, array in (("W1", _W1[number]), ("W3", _W3[number]), ("W2", _W2[number])):
            one = one.replace(name, numbers_as_text(array))
        spelled += one.replace("BEFORE", f"y{number - 1}" if number else "0.0")
    return f"(float[t,{_D}] x, float[t,2] l) => (y1) {{ {_ROUTERS[weights]}{spelled} }}"


def _kernel(weights: str) -> str:
    first = np.stack([np.stack([w1.T, w3.T], 1).reshape(2 * _I, _D) for w1, w3 in zip(_W1, _W3, strict=True)])
    start = f"(float[t,{_D}] x, float[t,2] l) => (y) {{ {_ROUTERS[weights]}"
    settings = "activation_alpha=1.0, activation_beta=0.0"
    second = np.stack([w2.T for w2 in _W2])
    return start + kernel_as_text("x", "p", weights, (first, "", second), settings, 1)


_SPELLED = _experts("n")
_EXAMPLES = (
    Rewrites(_SPELLED, to=_kernel("n")),
    Rewrites(_experts("w"), to=_kernel("w")),
    Rejects(_SPELLED.replace("Equal(i, 1)", "Equal(i, 0)"), because="they are not the experts of the router"),
    Rejects(_SPELLED.replace("float[t,2] l", "float[t,3] l"), because="not the experts of the scores"),
    Rejects(_SPELLED.replace("float[t,2] l", "float[1,2] l"), because="not as many tokens as choices"),
    Rejects(_SPELLED.replace("Add(0.0, z0)", "Add(1.0, z0)"), because="the sum does not begin at zero"),
    Rejects(_SPELLED.replace("r0 = ReduceSum(m0, {-1})", "r0 = ReduceSum(m0, {0})"), because="not summed over experts"),
    Rejects(_SPELLED.replace("TopK(p, {1})", "TopK(p, {0})"), because="no experts are chosen"),
    Rejects(
        _SPELLED.replace("u0 = MatMul(x", "u0 = MatMul(z").replace("(float", f"(float[t,{_D}] z, float", 1),
        because="x must be the same value in both places",
    ),
    Rejects(_SPELLED.replace("(y1)", "(y1, y0)"), because="what the experts compute is a graph output"),
)


# -- the pattern -------------------------------------------------------------------------------------------------------


class Linear:
    """A layer without bias.

    Attributes:
        weight: Its weight.
        out: What it gives.
    """

    def __init__(self, name: str, source: Term):
        self.weight, self._transposed = Const(name), Attr[int](f"transB of {name}", default=0)
        self._gemm = op.Gemm(
            source, self.weight, transB=self._transposed, transA=0, alpha=1.0, beta=Attr[float]("beta", default=1.0)
        )
        self.out = any_of(op.MatMul(source, self.weight), self._gemm)

    def rows(self, m: Match) -> Array:
        """The weight, a row for each output."""
        is_row = m.alternative(self.out) is self._gemm and m[self._transposed]
        return m[self.weight] if is_row else m[self.weight].T


x, numbers, weights, number, total = (
    Var("x", dtype=ir.DataType.FLOAT, rank=2),
    Var("numbers", rank=2),
    Var("weights", rank=2),
    Scalar("number"),
    Var("total"),
)
along = Attr[tuple[int, ...]]("axes")
chosen = op.ReduceSum(op.Mul(weights, op.Cast(op.Equal(numbers, number), to=Attr[int]("to"))), axes=along, keepdims=1)

gate, up = Linear("gate", x), Linear("up", x)
swish = any_of(gate.out * op.Sigmoid(gate.out), op.Swish(gate.out, alpha=1.0), microsoft.QuickGelu(gate.out, alpha=1.0))
down = Linear("down", op.Mul(swish, up.out))
experts = Repeat(op.Add(total, op.Mul(chosen, down.out)), total, shared=(x, weights, numbers))


@rule(
    "experts",
    LOWER,
    experts,
    needs_speedup=True,
    allow_shared=True,
    assumes=(Assumption.FINITE,),
    examples=_EXAMPLES,
)
def mixture_of_experts(m: Match, build: Builder) -> Value:
    """Σᵢ weightᵢ·downᵢ(swish(gateᵢ(x))·upᵢ(x)) of the chosen experts ⟶ com.microsoft.MoE(x, scores)"""
    found = m.layers(experts)
    m.require([each[number] for each in found] == list(range(len(found))), "they are not the experts of the router")
    tokens, choices = m.shape(x), m.shape(numbers)
    as_many = tokens is not None and choices is not None and same_shape(tokens[:1], choices[:1])
    m.require(as_many, "there are not as many tokens as choices", at=numbers)
    m.require(uniform(m.facts, m[total], []) == 0, "the sum does not begin at zero", at=total)
    m.require(all(each[along] in ((1,), (-1,)) for each in found), "weights are not summed over experts", at=weights)
    gates, ups, downs = ([layer.rows(each) for each in found] for layer in (gate, up, down))
    m.require(
        len({w.shape for w in (*gates, *ups)}) == len({w.shape for w in downs}) == 1, "the experts differ in size"
    )
    both = [np.stack([g, u], 1).reshape(-1, g.shape[1]) for g, u in zip(gates, ups, strict=True)]
    first, second = (build.const(np.stack(matrices), like=x) for matrices in (both, downs))
    return mixture(m, build, m[x], Choice(m[numbers], m[weights], len(found)), (first, None, second, None), Gating())
