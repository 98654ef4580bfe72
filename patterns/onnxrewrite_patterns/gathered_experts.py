"""Mixtures of experts whose weights are gathered for each token, by ONNX Runtime's kernel.

Where it comes from: exporters that cannot branch copy the weights of each token's experts and multiply batches of them.

Why: the copies are as many times the experts as there are tokens, of which a prompt has thousands; the kernel makes
none.  With 2 of 8 experts of 512 to 1,024 it takes 0.4 of the time for one token, and 0.07 for 128.

"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.expert_kernel import Choice, Gating, kernel_as_text, mixture, numbers_as_text

_VIEWS = operators("view")

_H, _I, _E = 2, 2, 3


def _numbers(*shape: int, step: float = 1 / 32) -> Array:
    return step * np.arange(1, 1 + math.prod(shape), dtype=np.float64).reshape(shape)


_FIRST, _SECOND, _BIAS = _numbers(_E, 2 * _I, _H), _numbers(_E, _H, _I, step=-1 / 32), _numbers(_E, 2 * _I)
_START = f"(float[t,{_H}] x, float[t,{_E}] l) => (y) {{ t = Unsqueeze(x, {{1}})"
_BEST = "p = Softmax<axis=1>(l)  w, i = TopK(p, {2})"
_NORMALIZED = f"{_BEST}  s = ReduceSum(w, {{-1}})  n = Div(w, s)"
_OF_BEST = "w, i = TopK(l, {2})  n = Softmax<axis=1>(w)"
_APART = "p = Sigmoid(l)  c = Add(p, 0.5)  w, i = TopK(c, {2})  n = GatherElements<axis=1>(p, i)"
_HALVES = f"u, v = Split<axis=1>(q, {{{_I}, {_I}}})"
_SWIGLU = f"{_HALVES}  z = Sigmoid(u)  d = Mul(u, z)  h = Mul(d, v)"
_BOUNDED = (
    "u = Slice(q, {0}, {9}, {1}, {2})  v = Slice(q, {1}, {9}, {1}, {2})  uc = Clip(u, , 0.5)  vc = Clip(v, -0.5, 0.5)"
    "  d = com.microsoft.QuickGelu<alpha=1.5>(uc)  va = Add(vc, 1.0)  h = Mul(d, va)"
)


def _gathered(router: str, weights: str = "n", gated: str = _SWIGLU, *, by_rows: bool = False) -> str:
    """Weights times columns, or rows times weights and biases."""
    first, second = (_turned(w) if by_rows else w for w in (_FIRST, _SECOND))
    one = 1 if by_rows else -1
    row = f"{{-1, 1, {_H}}}" if by_rows else f"{{-1, {_H}, 1}}"
    a, o = ("MatMul(r, g)", "MatMul(j, k)") if by_rows else ("MatMul(g, r)", "MatMul(k, j)")
    bias = f"  bg = Gather({numbers_as_text(_BIAS)}, f)  q = Add(b, bg)" if by_rows else "  q = Identity(b)"
    return (
        f"{_START}  {router}  e = Expand(t, {{1, 2, 1}})  r = Reshape(e, {row})  f = Reshape(i, {{-1}})"
        f"  g = Gather({numbers_as_text(first)}, f)  a = {a}  b = Squeeze(a, {{{one}}}){bias}  {gated}"
        f"  k = Gather({numbers_as_text(second)}, f)  j = Unsqueeze(h, {{{one}}})  o = {o}  m = Squeeze(o, {{{one}}})"
        f"  nn = Reshape({weights}, {{-1, 1}})  mn = Mul(m, nn)  ms = Reshape(mn, {{-1, 2, {_H}}})"
        f"  y = ReduceSum<keepdims=0>(ms, {{1}}) }}"
    )


def _turned(matrices: Array) -> Array:
    return matrices.swapaxes(1, 2)


_USUAL = "activation_alpha=1.0, activation_beta=0.0"
_BOUNDS = "activation_alpha=1.5, activation_beta=1.0, swiglu_limit=0.5"


def _kernel(
    router: str, of: str, weights: str = "n", *, bounded: bool = False, order: Sequence[int] = (0, 2, 1, 3)
) -> str:
    first, bias = (_FIRST, numbers_as_text(_BIAS)) if bounded else (_FIRST[:, order], "")
    settings = _BOUNDS if bounded else _USUAL
    start = f"{_START}  {router}  xx = Reshape(t, {{-1, {_H}}})"
    return start + kernel_as_text("xx", of, weights, (first, bias, _SECOND), settings, 2)


_PLAIN = _gathered(_NORMALIZED)
_EXAMPLES = (
    Rewrites(_PLAIN, to=_kernel(_NORMALIZED, "p")),
    Rewrites(_gathered(_BEST, "w"), to=_kernel(_BEST, "p", "w")),
    Rewrites(_gathered(_OF_BEST, gated=_BOUNDED, by_rows=True), to=_kernel(_OF_BEST, "l", bounded=True)),
    Rewrites(_gathered(_APART), to=_kernel(_APART, "c")),
    Rewrites(
        _PLAIN.replace("y = ReduceSum<keepdims=0>", "y = ReduceSum"),
        to=_kernel(_NORMALIZED, "p").replace(
            "y = Where(n0, 0.0, zt)", "yy = Where(n0, 0.0, zt)  y = Unsqueeze(yy, {1})"
        ),
    ),
    Rewrites(
        _PLAIN.replace("u, v = Split", "v, u = Split"),
        to=_kernel(_NORMALIZED, "p", order=[2, 0, 3, 1]),
    ),
    Rejects(_gathered(_APART, "w").replace("Sigmoid(l)", "Tanh(l)"), because="may be below zero"),
    Rejects(_PLAIN.replace("float[t,3] l", "float[t,4] l"), because="not the experts"),
    Rejects(
        _gathered(f"{_NORMALIZED}  ii = Sub({{2}}, i)").replace("Reshape(i", "Reshape(ii"), because="best by scores"
    ),
    Rejects(_gathered(_OF_BEST, gated=_BOUNDED.replace("v, -0.5", "v, -0.25"), by_rows=True), because="other bounds"),
    Rejects(
        _gathered(_OF_BEST, gated=_BOUNDED.replace("u, , 0.5", "u, -0.5, 0.5"), by_rows=True), because="lower bound"
    ),
    Rejects(_gathered(_OF_BEST, gated=_BOUNDED.replace("q, {1}", "q, {0}"), by_rows=True), because="no halves"),
    Rejects(_PLAIN.replace("{-1, 2, 2}", "{2, -1, 2}").replace("(ms, {1})", "(ms, {0})"), because="not one behind"),
    Rejects(_PLAIN.replace("(ms, {1})", "(ms, {0})"), because="not over the experts"),
    Rejects(_PLAIN.replace("(y)", "(y, h)"), because="a graph output"),
)


def view(of: Term, name: str) -> Call:
    """The elements in another shape."""
    return op[_VIEWS](of, Each(f"shape of {name}", at_least=0))


# -- the pattern -------------------------------------------------------------------------------------------------------


class Linear:
    """The layer of the expert that was chosen for each row.

    Attributes:
        weight: Its weights, those of one expert behind those of the other.
        bias: Its biases likewise.
    """

    def __init__(self, name: str, rows: Term):
        self.weight, self.bias = Var(f"weights of {name}"), Var(f"biases of {name}")
        of_expert, self._given = op.Gather(self.weight, numbers, axis=0), view(rows, f"rows of {name}")
        self._rows = op.MatMul(self._given, of_expert)
        self._product = any_of(op.MatMul(of_expert, self._given), self._rows)
        product = view(self._product, f"results of {name}")
        self._biased = op.Add(product, op.Gather(self.bias, numbers, axis=0))
        self._forms = any_of(self._biased, product)

    @property
    def out(self) -> Term:
        """The results."""
        return self._forms

    def weights(self, m: Match) -> Array:
        """The weights, a row for each output, of each expert."""
        found = m.known(m.facts.constant(m[self.weight]), "the weights are computed", at=self.weight)
        m.require(found.ndim == 3, "the weights are no matrices", at=self.weight)
        rows = m.shape(self._given)
        m.require(rows is not None and 1 in rows[1:], "rows are taken apart", at=self._given)
        return found.swapaxes(1, 2) if m.alternative(self._product) is self._rows else found

    def packed(self, m: Match, build: Builder, order: Sequence[int]) -> tuple[Value, Value | None]:
        """The weights and the biases, outputs in an order."""
        rows, is_same = self.weights(m), list(order) == sorted(order)
        stays = is_same and m.alternative(self._product) is not self._rows
        weight = m[self.weight] if stays else build.const(np.ascontiguousarray(rows[:, order]), like=each)
        if m.alternative(self._forms) is not self._biased:
            return weight, None
        bias = m.known(m.facts.constant(m[self.bias]), "the biases are computed", at=self.bias)
        m.require(bias.shape == rows.shape[:2], "not every output has a bias", at=self.bias)
        return weight, m[self.bias] if is_same else build.const(bias[:, order], like=each)


each, chosen, weights = Var("each", dtype=ir.DataType.FLOAT, rank=3), Var("chosen", rank=2), Var("weights", rank=2)
numbers = view(chosen, "numbers")
copies = op["Expand", "Tile"](each, (repeats := Const("repeats")))
gate_up = Linear("gate and up", copies)


class Half:
    """A half of what the first layer gives, between bounds or not.

    Attributes:
        low: The least number.
        high: The greatest.
    """

    def __init__(self, name: str):
        self.low = Attr[float](f"low of {name}", default=-math.inf)
        self.high = Attr[float](f"high of {name}", default=math.inf)
        split = op.Split(gate_up.out, Each(f"sizes of {name}", at_least=0), axis=Attr[int](f"axis of {name}"))
        self._part = any_of(split[0], split[1], op.Slice(gate_up.out, Each(f"bounds of {name}", at_least=0)))
        self._clipped = op.Clip(self._part, min=self.low, max=self.high)
        self._forms = any_of(self._clipped, self._part)

    @property
    def out(self) -> Term:
        """The half."""
        return self._forms

    def elements(self, m: Match) -> list[int]:
        """Its elements, of those of the layer."""
        return list(m.piece(m[self._part], 1))

    def bounds(self, m: Match) -> tuple[float, float]:
        """Its bounds."""
        is_clipped = m.alternative(self._forms) is self._clipped
        return (m[self.low], m[self.high]) if is_clipped else (-math.inf, math.inf)


gate, up = Half("gate"), Half("up")
alpha, beta = Attr[float]("alpha"), Scalar("beta", default=0.0)
spelled = gate.out * op.Sigmoid(gate.out)
swish = any_of(spelled, op.Swish(gate.out, alpha=alpha), microsoft.QuickGelu(gate.out, alpha=alpha))
down = Linear("down", op.Mul(swish, up.out + beta))
weighted = view(op.Mul(down.out, view(weights, "column")), "slots")
axes, kept = Attr[tuple[int, ...]]("axes"), Attr[int]("keepdims", default=1)
summed = op.ReduceSum(weighted, axes=axes, keepdims=kept)


@rule("gathered-experts", LOWER, summed, allow_shared=True, assumes=(Assumption.FINITE,), examples=_EXAMPLES)
def gathered_experts(m: Match, build: Builder) -> Value:
    """Σ weight·down(swish(gate(x))·up(x)) of experts whose weights are gathered ⟶ com.microsoft.MoE(x, scores)"""
    first, second = gate_up.weights(m), down.weights(m)
    count, inner, size = len(first), second.shape[2], second.shape[1]
    fit = first.shape == (count, 2 * inner, size) and second.shape == (count, size, inner)
    m.require(fit, "the layers do not fit together", at=down.weight)
    order = [e for pair in zip(gate.elements(m), up.elements(m), strict=True) for e in pair]
    m.require(sorted(order) == list(range(2 * inner)), "gate and up are no halves", at=gate.out)
    least, limit = gate.bounds(m)
    m.require(least == -math.inf, "the gate has a lower bound", at=gate.out)
    m.require(up.bounds(m) == (-limit, limit), "gate and up have other bounds", at=up.out)
    choice = Choice(m[chosen], m[weights], count)
    _require_in_turn(m, choice.slots(m), size)
    tokens = build.Reshape(m[each], np.array([-1, size]))
    layers = *gate_up.packed(m, build, order), *down.packed(m, build, range(size))
    slope = 1.0 if m.alternative(swish) is spelled else m[alpha]
    mixed = mixture(m, build, tokens, choice, layers, Gating(slope, float(m[beta]), limit))
    return build.Unsqueeze(mixed, axes=(1,)) if m[kept] else mixed


def _require_in_turn(m: Match, slots: int, size: int) -> None:
    """Require that the copies of a token are one behind the other, and that what becomes of them is summed."""
    m.require(slots > 1, "a token has one expert", at=chosen)
    tokens, repeated, apart = m.shape(each), m.shape(copies), m.shape(weighted)
    m.require(tokens is not None and tokens[1:] == (1, size), "tokens are not copied as a whole", at=each)
    in_turn = m[repeats].tolist() in ([1, slots, 1], [1, slots, size]) and apart is not None
    in_turn = in_turn and all(shape is not None and shape[1:] == (slots, size) for shape in (repeated, apart))
    m.require(in_turn, "the copies of a token are not one behind the other", at=copies)
    m.require(m[axes] in ((1,), (-2,)), "the sum is not over the experts of a token")
