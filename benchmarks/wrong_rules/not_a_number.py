"""No number equals itself, is above or below, and nothing takes it away."""

from __future__ import annotations

import numpy as np

from benchmarks.handwritten import wrong
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Scalar, Var, op

x, z, c, mask = Var("x", dtype=FLOATS), Var("z", dtype=FLOATS), Scalar("c"), Var("mask")
INF, NAN = np.inf, np.nan

RULES = [
    wrong(
        "where-by-max", op.Where(op.Greater(x, c), x, c), lambda m, b: b.Max(m[x], b.const(m[c], like=x)),
        on="float[2] x; g = Greater(x, 0.5)  y = Where(g, x, 0.5)", at={"x": [1, NAN]}, why="NaN is not above, and Max keeps it",
    ),
    wrong(
        "equal-to-itself", op.Where(op.Equal(x, x), x, z), lambda m, b: m[x],
        when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z),
        on="float[2] x; float[2] z; e = Equal(x, x)  y = Where(e, x, z)", at={"x": [1, NAN], "z": [3, 4]},
        why="NaN does not equal itself",
    ),
    wrong(
        "not-less", op.Not(op.Less(x, z)), lambda m, b: b.GreaterOrEqual(m[x], m[z]),
        on="float[2] x; float[2] z; l = Less(x, z)  y = Not(l)", at={"x": [1, NAN], "z": [3, 4]},
        why="NaN is neither less nor greater",
    ),
    wrong(
        "difference-from-itself", op.Sub(x, x), lambda m, b: b.Mul(b.Sign(b.Abs(b.Clip(m[x], b.const(0.0, like=x), b.const(0.0, like=x)))), b.const(0.0, like=x)),
        on="float[2] x; y = Sub(x, x)", at={"x": [1, INF]}, why="infinity less itself is no number",
    ),
    wrong(
        "relu-by-where", op.Relu(x), lambda m, b: b.Where(b.Greater(m[x], b.const(0.0, like=x)), m[x], b.const(0.0, like=x)),
        on="float[2] x; y = Relu(x)", at={"x": [1, NAN]}, why="Relu keeps NaN",
    ),
    wrong(
        "square-of-root", op.Mul(op.Sqrt(x), op.Sqrt(x)), lambda m, b: m[x],
        on="float[2] x; s = Sqrt(x)  y = Mul(s, s)", at={"x": [1, -1]}, why="a negative number has no root",
    ),
    wrong(
        "not-a-number-filled", op.Where(op.IsNaN(x), c, x), lambda m, b: m[x],
        on="float[2] x; n = IsNaN(x)  y = Where(n, 0.0, x)", at={"x": [1, NAN]}, why="that is what it is for",
    ),
    wrong(
        "absorbed", op.Max(op.Min(x, z), x), lambda m, b: m[x],
        when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z),
        on="float[2] x; float[2] z; l = Min(x, z)  y = Max(l, x)", at={"x": [1, 2], "z": [3, NAN]},
        why="NaN in the other operand stays",
    ),
    wrong(
        "times-zero-added", op.Add(x, op.Mul(z, 0.0)), lambda m, b: m[x],
        when=lambda m: m.shape(x) is not None and m.shape(x) == m.shape(z),
        on="float[2] x; float[2] z; p = Mul(z, 0.0)  y = Add(x, p)", at={"x": [1, 2], "z": [3, INF]},
        why="infinity times zero is no number",
    ),
    wrong(
        "equal-by-difference", op.Equal(op.Sub(x, z), 0.0), lambda m, b: b.Equal(m[x], m[z]),
        on="float[2] x; float[2] z; d = Sub(x, z)  y = Equal(d, 0.0)", at={"x": [1, INF], "z": [1, INF]},
        why="infinity less itself is no number",
    ),
]  # fmt: skip
