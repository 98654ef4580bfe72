"""Properties that integers have until they wrap around."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from benchmarks.handwritten import wrong
from onnxrewrite.rules import Builder, Match, Value, Var, op

D = ir.DataType
NUMBERS = frozenset({D.INT32, D.INT64})
n, k = Var("n", dtype=NUMBERS), Var("k", dtype=NUMBERS)
long, other = Var("long", dtype=D.INT64), Var("other", dtype=D.INT64)
int32 = Var("int32", dtype=D.INT32)
LEAST, MOST = -(2**63), 2**63 - 1


def true(m: Match, build: Builder) -> Value:
    """A condition that always holds ⟶ true."""
    return build.Equal(m[n], m[n])


RULES = [
    wrong(
        "less-by-difference", op.Less(op.Sub(n, k), 0), lambda m, b: b.Less(m[n], m[k]),
        on="int64[2] x; int64[2] z; d = Sub(x, z)  y = Less(d, 0)", at={"x": [1, LEAST], "z": [2, 1]},
        why="the difference wraps around",
    ),
    wrong(
        "half-of-twice", op.Div(op.Add(n, n), 2), lambda m, b: m[n],
        on="int32[2] x; t = Add(x, x)  y = Div(t, 2)", at={"x": [3, 2**30 + 1]}, why="twice the number wraps around",
    ),
    wrong(
        "relu-of-abs", op.Relu(op.Abs(int32)), lambda m, b: b.Abs(m[int32]),
        on="int32[2] x; a = Abs(x)  y = Relu(a)", at={"x": [-3, -(2**31)]}, why="the smallest number has no absolute value",
    ),
    wrong(
        "less-than-next", op.Less(n, op.Add(n, 1)), true,
        on="int64[2] x; a = Add(x, 1)  y = Less(x, a)", at={"x": [3, MOST]}, why="after the largest comes the smallest",
    ),
    wrong(
        "int32-and-back", op.Cast(op.Cast(long, to=6), to=7), lambda m, b: m[long],
        on="int64[2] x; a = Cast(x, to=6)  y = Cast(a, to=7)", at={"x": [3, 2**40]}, why="the upper half is cut off",
    ),
    wrong(
        "float-and-back", op.Cast(op.Cast(n, to=1), to=6), lambda m, b: m[n],
        on="int32[2] x; a = Cast(x, to=1)  y = Cast(a, to=6)", at={"x": [3, 2**24 + 1]},
        why="a float has 24 bits", when=lambda m: m.dtype(n) == D.INT32,
    ),
    wrong(
        "square-is-positive", op.Max(op.Mul(n, n), 0), lambda m, b: b.Mul(m[n], m[n]),
        on="int32[2] x; a = Mul(x, x)  y = Max(a, 0)", at={"x": [3, 46341]}, why="a square can wrap around",
    ),
    wrong(
        "sum-of-casts", op.Cast(op.ReduceSum(int32, axes=(-1,), keepdims=1), to=7),
        lambda m, b: b.ReduceSum(b.Cast(m[int32], to=7), axes=(-1,), keepdims=1),
        on="int32[2,2] x; a = ReduceSum<keepdims=1>(x, {-1})  y = Cast(a, to=7)",
        at={"x": [[3, 4], [2**31 - 1, 1]]}, why="the sum wraps around in 32 bits and not in 64",
    ),
    wrong(
        "positive-difference", op.Add(n, op.Max(op.Sub(k, n), 0)), lambda m, b: b.Max(m[n], m[k]),
        on="int64[2] x; int64[2] z; d = Sub(z, x)  r = Max(d, 0)  y = Add(x, r)", at={"x": [1, -2], "z": [2, MOST]},
        why="the difference wraps around",
    ),
    wrong(
        "limit-of-int32", op.Min(long, np.iinfo(np.int32).max), lambda m, b: m[long],
        on="int64[2] x; y = Min(x, 2147483647)", at={"x": [3, 2**40]},
        why="the largest number of 32 bits limits one of 64",
    ),
]  # fmt: skip
