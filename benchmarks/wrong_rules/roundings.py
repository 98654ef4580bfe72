"""A rounding that the graph asks for, taken for nothing or for another one."""

from __future__ import annotations

import onnx_ir as ir

from benchmarks.handwritten import wrong
from onnxrewrite.rules import Builder, Match, Scalar, Term, Value, Var, op

D = ir.DataType
x, w = Var("x", dtype=D.FLOAT), Var("w", dtype=D.DOUBLE)
n, k = Var("n", dtype=frozenset({D.INT32, D.INT64})), Var("k", dtype=frozenset({D.INT32, D.INT64}))
c = Scalar("c")
s, z = Scalar("s"), Var("z", dtype=frozenset({D.UINT8, D.INT8}))


def through(value: Term, dtype: D, back: D = D.FLOAT) -> Term:
    """There and back."""
    return op.Cast(op.Cast(value, to=int(dtype)), to=int(back))


def limited(m: Match, build: Builder) -> Value:
    """DequantizeLinear(QuantizeLinear(x, s)) ⟶ Clip(x), for bytes without a sign."""
    low, high = build.const(0.0, like=x), build.const(255 * m[s], like=x)
    return build.Clip(m[x], low, high)


RULES = [
    wrong(
        "half-and-back", through(x, D.FLOAT16), lambda m, b: m[x],
        on="float[3] x; h = Cast(x, to=10)  y = Cast(h, to=1)", at={"x": [0.1, 1, 3.14159]},
        why="eleven bits are kept of twenty-four",
    ),
    wrong(
        "bfloat-and-back", through(x, D.BFLOAT16), lambda m, b: m[x],
        on="float[3] x; h = Cast(x, to=16)  y = Cast(h, to=1)", at={"x": [0.1, 1, 3.14159]},
        why="eight bits are kept of twenty-four",
    ),
    wrong(
        "single-and-back", through(w, D.FLOAT, D.DOUBLE), lambda m, b: m[w],
        on="double[3] x; h = Cast(x, to=1)  y = Cast(h, to=11)", at={"x": [0.1, 1, 3.14159]},
        why="24 bits are kept of 53",
    ),
    wrong(
        "integer-and-back", through(x, D.INT64), lambda m, b: b.Floor(m[x]),
        on="float[3] x; i = Cast(x, to=7)  y = Cast(i, to=1)", at={"x": [1.5, -1.5, -0.2]},
        why="a cast rounds to zero, negative numbers up",
    ),
    wrong(
        "round-by-floor", op.Floor(op.Add(x, 0.5)), lambda m, b: b.Round(m[x]),
        on="float[4] x; a = Add(x, 0.5)  y = Floor(a)", at={"x": [0.5, 1.5, 2.5, -0.5]},
        why="Round takes a half to the even neighbour",
    ),
    wrong(
        "quantize-and-back", op.DequantizeLinear(op.QuantizeLinear(x, s), s), limited,
        on="float[3] x; i = QuantizeLinear(x, 0.1)  y = DequantizeLinear(i, 0.1)", at={"x": [0.12, 0.1, -1]},
        why="it is limited and rounded to steps",
    ),
    wrong(
        "floor-of-quotient", op.Floor(op.Div(x, c)), lambda m, b: b.Floor(b.Mul(m[x], b.const(1 / m[c], like=x))),
        on="float[3] x; d = Div(x, 41.0)  y = Floor(d)", at={"x": [41, 82, 10]},
        why="41 · (1/41) is a little less than one",
    ),
    wrong(
        "ceil-by-floor", op.Ceil(x), lambda m, b: b.Add(b.Floor(m[x]), b.const(1.0, like=x)),
        on="float[3] x; y = Ceil(x)", at={"x": [1.5, -1.5, 2]}, why="of an integer the next one is itself",
    ),
    wrong(
        "cast-before-sum", op.Cast(op.Sub(x, c), to=int(D.FLOAT16)),
        lambda m, b: b.Sub(b.Cast(m[x], to=10), b.const(m[c], like=D.FLOAT16)),
        on="float[3] x; a = Sub(x, 100.1)  y = Cast(a, to=10)", at={"x": [100, 100.2, 99.9]},
        why="of nearly equal numbers the difference is what was rounded away",
    ),
    wrong(
        "half-of-sum", op.Div(op.Add(n, k), 2), lambda m, b: b.Add(b.Div(m[n], b.const(2, like=n)), b.Div(m[k], b.const(2, like=n))),
        on="int64[3] x; int64[3] z; a = Add(x, z)  y = Div(a, 2)", at={"x": [1, 2, 3], "z": [1, 2, 4]},
        why="two halves are lost that make one",
    ),
]  # fmt: skip
