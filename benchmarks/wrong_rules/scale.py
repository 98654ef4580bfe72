"""A factor that is negative, zero, or not the one that was meant."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.handwritten import Rewrite, wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Attr, Builder, Const, Match, Scalar, Value, Var, op

x, q, k, v = Var("x", dtype=FLOATS), *(Var(n, dtype=FLOATS, rank=4) for n in "qkv")
w, b = Const("w"), Const("b", default=None)
c, low, high = Scalar("c"), Scalar("low"), Scalar("high")
gemm, pool = op.Gemm(x, w, b), op.MaxPool(op.Mul(x, c))
axis = Attr[int]("axis", -1)


def moved(op_type: str, **attributes: Any) -> Rewrite:
    """f(c·x) ⟶ c·f(x)."""
    return lambda m, build: build.Mul(build.node(op_type, [m[x]], attributes)[0], build.const(m[c], like=x))


def into_alpha(m: Match, build: Builder) -> Value:
    """Gemm(x, w, b)·c ⟶ Gemm(x, w, b, alpha=c)."""
    alpha = m.attr(gemm, "alpha") * m[c]
    return build.node("Gemm", [m[x], m.value(w), m.value(b)], {**m.attrs(gemm), "alpha": alpha})[0]


def gelu(m: Match, build: Builder) -> Value:
    """x·½·(1 + erf(x·c)) ⟶ Gelu(x), for a c that is about √½."""
    m.require(abs(m[c] - math.sqrt(0.5)) < 0.02, "another factor")
    return build.Gelu(m[x])


def clipped(m: Match, build: Builder) -> Value:
    """Clip(c·x, a, b) ⟶ c·Clip(x, a/c, b/c)."""
    m.require(m[c] != 0, "zero")
    bounds = [build.const(m[bound] / m[c], like=x) for bound in (low, high)]
    return build.Mul(build.Clip(m[x], *bounds), build.const(m[c], like=x))


RULES = [
    wrong(
        "attention-without-scale",
        op.MatMul(op.Softmax(op.Mul(op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2))), c), axis=-1), v),
        lambda m, b: b.Attention(m[q], m[k], m[v]),
        on="float[1,1,2,4] x; t = Transpose(x, perm=[0, 1, 3, 2])  p = MatMul(x, t)  d = Mul(p, 1.0)  s = Softmax(d)"
        "  y = MatMul(s, x)",
        at={"x": [[[[1, 2, 3, 4], [4, 3, 2, 0]]]]}, why="the scale need not be that of the size of a head",
    ),
    wrong(
        "max-by-leaky", op.Max(op.Mul(x, c), x), lambda m, b: b.LeakyRelu(m[x], alpha=m[c]),
        on="float[2] x; a = Mul(x, 2.0)  y = Max(a, x)", at={"x": [1, -1]}, why="above one the factor is that of positive numbers",
    ),
    wrong("relu-of-scaled", op.Relu(op.Mul(x, c)), moved("Relu"), on="float[2] x; a = Mul(x, -2.0)  y = Relu(a)", at={"x": [1, -1]},
          why="a negative factor turns the sign"),
    wrong("abs-of-scaled", op.Abs(op.Mul(x, c)), moved("Abs"), on="float[2] x; a = Mul(x, -2.0)  y = Abs(a)", at={"x": [1, -1]},
          why="the factor's sign comes back"),
    wrong(
        "largest-of-scaled", op.ReduceMax(op.Mul(x, c), axes=(-1,), keepdims=1), moved("ReduceMax", axes=(-1,), keepdims=1),
        on="float[1,2] x; a = Mul(x, -2.0)  y = ReduceMax(a, axes=[-1])", at={"x": [[1, -1]]},
        why="with a negative factor the smallest becomes the largest",
    ),
    wrong(
        "argmax-of-scaled", op.ArgMax(op.Mul(x, c), axis=axis), lambda m, b: b.ArgMax(m[x], axis=m[axis]),
        on="float[1,2] x; a = Mul(x, -2.0)  y = ArgMax(a, axis=1)", at={"x": [[1, -1]]},
        why="with a negative factor the smallest becomes the largest",
    ),
    wrong(
        "norm-of-scaled", op.LayerNormalization(op.Mul(x, c), w), lambda m, b: b.LayerNormalization(m[x], m.value(w)),
        on="float[1,2] x; a = Mul(x, 0.001)  y = LayerNormalization(a, {1.0, 1.0})", at={"x": [[1, -1]]},
        why="beside a small variance ε counts, and a negative factor turns the sign",
    ),
    wrong("clip-of-scaled", op.Clip(op.Mul(x, c), low, high), clipped,
          on="float[3] x; a = Mul(x, -2.0)  y = Clip(a, 0.0, 1.0)", at={"x": [1, -1, -0.25]}, why="a negative factor exchanges the bounds"),
    wrong(
        "scale-into-gemm", op.Mul(gemm, c), into_alpha,
        on="float[1,2] x; a = Gemm(x, float[2,1] {1.0, 2.0}, {1.0})  y = Mul(a, 3.0)", at={"x": [[1, 2]]},
        why="beside alpha there is beta, for the bias",
    ),
    wrong(
        "almost-gelu", op.Mul(op.Mul(x, 0.5), op.Add(op.Erf(op.Mul(x, c)), 1.0)), gelu,
        on="float[2] x; h = Mul(x, 0.5)  a = Mul(x, 0.7)  e = Erf(a)  o = Add(e, 1.0)  y = Mul(h, o)", at={"x": [1, -1]},
        why="0.7 is not √½",
    ),
]  # fmt: skip
