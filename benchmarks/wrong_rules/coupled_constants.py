"""A constant that the pattern has twice, or two of which the guard asks one relation too few."""

from __future__ import annotations

import numpy as np

from benchmarks.handwritten import wrong
from onnxrewrite.pattern.terms import FLOATS, INTS
from onnxrewrite.rules import Const, Scalar, Var, op

x, n = Var("x", dtype=FLOATS), Var("n", dtype=INTS)
c, d, low, high, low2, high2 = map(Scalar, ("c", "d", "low", "high", "low2", "high2"))
index, index2, scales, scales2 = map(Const, ("index", "index2", "scales", "scales2"))
q, s, z, z2 = Var("q"), Const("s"), Var("z"), Var("z2")
byte = Var("byte")

RULES = [
    wrong(
        "divide-and-multiply", op.Mul(op.Div(n, c), c), lambda m, b: m[n],
        on="int64[3] x; q = Div(x, 3)  y = Mul(q, 3)", at={"x": [7, 8, 9]},
        why="of integers the division forgets the remainder",
    ),
    wrong(
        "gather-twice-alike", op.Gather(op.Gather(x, index), index2), lambda m, b: b.Gather(m[x], m.value(index)),
        when=lambda m: np.array_equal(m[index], m[index2]),
        on="float[2,3] x; a = Gather(x, {1, 0})  y = Gather(a, {1, 0})", at={"x": [[1, 2, 3], [4, 5, 6]]},
        why="only a projection is the same twice; an exchange undoes itself",
    ),
    wrong(
        "shift-there-and-back",
        op.BitShift(op.BitShift(byte, c, direction="LEFT"), c, direction="RIGHT"), lambda m, b: m[byte],
        on="uint8[3] x; a = BitShift<direction=\"LEFT\">(x, 3)  y = BitShift<direction=\"RIGHT\">(a, 3)",
        at={"x": [1, 31, 255]}, why="bits are shifted out at the top",
    ),
    wrong(
        "clip-of-clip", op.Clip(op.Clip(x, low, high), low2, high2),
        lambda m, b: b.Clip(
            m[x], b.const(max(m[low], m[low2]), like=x), b.const(min(m[high], m[high2]), like=x)
        ),
        on="float[3] x; a = Clip(x, 0.0, 1.0)  y = Clip(a, 2.0, 3.0)", at={"x": [0.5, 2.5, -1]},
        why="ranges that do not meet: the outer one wins",
    ),
    wrong(
        "clip-to-a-multiple", op.Mul(op.Clip(op.Div(x, c), -1.0, 1.0), c),
        lambda m, b: b.Clip(m[x], b.const(-m[c], like=x), b.const(m[c], like=x)),
        on="float[3] x; a = Div(x, -2.0)  b = Clip(a, -1.0, 1.0)  y = Mul(b, -2.0)", at={"x": [0.5, 7, -7]},
        why="a negative number turns the bounds around",
    ),
    wrong(
        "power-of-power", op.Pow(op.Pow(x, c), d), lambda m, b: b.Pow(m[x], b.const(m[c] * m[d], like=x)),
        on="float[3] x; a = Pow(x, 2.0)  y = Pow(a, 0.5)", at={"x": [2, -2, 0]},
        why="the root of a square is no negative number",
    ),
    wrong(
        "requantize-alike", op.QuantizeLinear(op.DequantizeLinear(q, s, z), s, z2), lambda m, b: m[q],
        on="uint8[4] x; a = DequantizeLinear(x, 0.5, uint8 {128})  y = QuantizeLinear(a, 0.5, uint8 {0})",
        at={"x": [0, 127, 128, 255]}, why="the scale is the same, the zero point is another one",
    ),
    wrong(
        "resize-there-and-back",
        op.Resize(op.Resize(x, None, scales, mode="nearest"), None, scales2, mode="nearest"), lambda m, b: m[x],
        when=lambda m: np.allclose(m[scales] * m[scales2], 1),
        on="float[1,1,2,4] x; a = Resize<mode=\"nearest\">(x, , {1.0, 1.0, 0.5, 0.5})"
        "  y = Resize<mode=\"nearest\">(a, , {1.0, 1.0, 2.0, 2.0})",
        at={"x": [[[[1, 2, 3, 4], [5, 6, 7, 8]]]]}, why="what is made small first loses its pixels",
    ),
    wrong(
        "reciprocal-of-reciprocal", op.Div(c, op.Div(c, x)), lambda m, b: m[x],
        on="float[3] x; a = Div(0.0, x)  y = Div(0.0, a)", at={"x": [1, 2, -3]}, why="0/(0/x) is no number",
    ),
    wrong(
        "remainder-of-sum", op.Mod(op.Add(n, c), d), lambda m, b: b.Mod(m[n], b.const(m[d], like=n)),
        when=lambda m: m[c] % abs(m[d]) < 2,
        on="int64[3] x; a = Add(x, 9)  y = Mod(a, 4)", at={"x": [0, 1, 3]},
        why="the number is a multiple of the divisor, or one more",
    ),
]  # fmt: skip
