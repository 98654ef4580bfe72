"""The sign of a zero, and what divides by it."""

from __future__ import annotations

from benchmarks.handwritten import wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Builder, Term, Value, Var, op

x, z = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS)


def zero(build: Builder, like: Term) -> Value:
    """0 in the dtype of another."""
    return build.const(0.0, like=like)


RULES = [
    wrong(
        "reciprocal-of-sum-with-zero", op.Reciprocal(op.Add(x, 0.0)), lambda m, b: b.Reciprocal(m[x]),
        on="float[2] x; a = Add(x, 0.0)  y = Reciprocal(a)", at={"x": [1, -0.0]}, why="-0 + 0 is 0",
    ),
    wrong(
        "reciprocal-of-turned-difference", op.Reciprocal(op.Neg(op.Sub(x, z))), lambda m, b: b.Reciprocal(b.Sub(m[z], m[x])),
        on="float[2] x; float[2] z; d = Sub(x, z)  n = Neg(d)  y = Reciprocal(n)", at={"x": [1, 2], "z": [3, 2]},
        why="-(x - x) is -0 and x - x is 0",
    ),
    wrong(
        "quotient-by-negative", op.Div(z, op.Neg(x)), lambda m, b: b.Div(m[z], b.Sub(zero(b, x), m[x])),
        on="float[2] x; float[2] z; n = Neg(x)  y = Div(z, n)", at={"x": [1, 0], "z": [3, 2]}, why="-0 is no 0 - 0",
    ),
    wrong(
        "reciprocal-of-filled", op.Reciprocal(op.Where(op.Equal(x, 0.0), 0.0, x)), lambda m, b: b.Reciprocal(m[x]),
        on="float[2] x; e = Equal(x, 0.0)  w = Where(e, 0.0, x)  y = Reciprocal(w)", at={"x": [1, -0.0]},
        why="-0 equals 0 and becomes it",
    ),
    wrong(
        "reciprocal-of-sign-and-size", op.Reciprocal(op.Mul(op.Sign(x), op.Abs(x))), lambda m, b: b.Reciprocal(m[x]),
        on="float[2] x; s = Sign(x)  a = Abs(x)  p = Mul(s, a)  y = Reciprocal(p)", at={"x": [1, -0.0]},
        why="the sign of -0 is 0",
    ),
    wrong(
        "negative-reciprocal", op.Reciprocal(op.Sub(x, z)), lambda m, b: b.Neg(b.Reciprocal(b.Sub(m[z], m[x]))),
        on="float[2] x; float[2] z; d = Sub(x, z)  y = Reciprocal(d)", at={"x": [1, 2], "z": [3, 2]},
        why="x - x is 0 in either order",
    ),
    wrong(
        "reciprocal-of-sum-of-negatives", op.Reciprocal(op.Add(op.Neg(x), op.Neg(z))),
        lambda m, b: b.Reciprocal(b.Neg(b.Add(m[x], m[z]))),
        on="float[2] x; float[2] z; n = Neg(x)  o = Neg(z)  a = Add(n, o)  y = Reciprocal(a)", at={"x": [1, 2], "z": [3, -2]},
        why="-x + x is 0 and -(x - x) is -0",
    ),
    wrong(
        "negative-by-reciprocal", op.Less(op.Reciprocal(x), 0.0), lambda m, b: b.Less(m[x], zero(b, x)),
        on="float[2] x; r = Reciprocal(x)  y = Less(r, 0.0)", at={"x": [1, -0.0]}, why="1/-0 is negative and -0 is not",
    ),
    wrong(
        "reciprocal-of-negative-sum", op.Reciprocal(op.Neg(op.ReduceSum(x, axes=(-1,), keepdims=1))),
        lambda m, b: b.Reciprocal(b.ReduceSum(b.Neg(m[x]), axes=(-1,), keepdims=1)),
        on="float[2,2] x; s = ReduceSum<keepdims=1>(x, {-1})  n = Neg(s)  y = Reciprocal(n)", at={"x": [[1, 2], [3, -3]]},
        why="what cancels is 0 before the sign is changed and after",
    ),
    wrong(
        "power-of-product-with-minus-one", op.Pow(op.Sub(0.0, x), -1.0), lambda m, b: b.Reciprocal(b.Neg(m[x])),
        on="float[2] x; n = Sub(0.0, x)  y = Pow(n, -1.0)", at={"x": [1, 0]}, why="0 - 0 is 0 and -(0) is -0",
    ),
]  # fmt: skip
