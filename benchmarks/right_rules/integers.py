"""Rules of integers, which are exact, also where they wrap around."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from benchmarks.handwritten import right
from onnxrewrite.rules import Const, Scalar, Var, op

D = ir.DataType
NUMBERS, SMALL = frozenset({D.INT32, D.INT64}), frozenset({D.UINT8, D.INT8, D.INT32, D.INT64})
n, k, byte, long, int32 = (
    Var("n", dtype=NUMBERS),
    Var("k", dtype=NUMBERS),
    Var("byte", dtype=D.UINT8),
    Var("long", dtype=D.INT64),
    Var("int32", dtype=D.INT32),
)
c, d, w, v = Scalar("c"), Scalar("d"), Const("w"), Const("v")

RULES = [
    right("added-and-taken-off-again", op.Sub(op.Add(n, c), c), lambda m, b: m[n]),
    right("two-constants-added", op.Add(op.Add(n, c), d), lambda m, b: b.Add(m[n], b.const(m[c] + m[d], like=n)),
          when=lambda m: abs(m[c] + m[d]) < 2**31),
    right("difference-negated", op.Neg(op.Sub(n, k)), lambda m, b: b.Sub(m[k], m[n])),
    right("integer-through-double", op.Cast(op.Cast(int32, to=11), to=6), lambda m, b: m[int32]),
    right("integer-through-long", op.Cast(op.Cast(int32, to=7), to=6), lambda m, b: m[int32]),
    right("byte-through-float", op.Cast(op.Cast(byte, to=1), to=2), lambda m, b: m[byte]),
    right("byte-through-half", op.Cast(op.Cast(byte, to=10), to=2), lambda m, b: m[byte]),
    right("remainder-of-remainder", op.Mod(op.Mod(n, c), d), lambda m, b: b.Mod(m[n], b.const(m[c], like=n)),
          when=lambda m: m[c] == m[d] and m[c] > 0),
    right("shift-twice", op.BitShift(op.BitShift(byte, c, direction="RIGHT"), d, direction="RIGHT"),
          lambda m, b: b.BitShift(m[byte], b.const(m[c] + m[d], like=byte), direction="RIGHT"), when=lambda m: m[c] + m[d] < 8),
    right("product-of-twice", op.Mul(op.Add(n, n), k), lambda m, b: b.Mul(m[n], b.Add(m[k], m[k])),
          when=lambda m: m.shape(n) is not None and m.shape(n) == m.shape(k)),
    right("exclusive-or-twice", op.BitwiseXor(op.BitwiseXor(long, c), c), lambda m, b: m[long]),
    right("integer-weights-multiplied", op.MatMul(op.MatMul(int32, w), v), lambda m, b: b.MatMul(m[int32], b.const((m[w].astype(np.int64) @ m[v].astype(np.int64)).astype(np.int32))),
          when=lambda m: m[w].ndim == m[v].ndim == 2),
    right("minimum-of-maximum", op.Min(op.Max(n, c), d), lambda m, b: b.Clip(m[n], b.const(m[c], like=n), b.const(m[d], like=n)),
          when=lambda m: m[c] <= m[d]),
    right("negative-of-negative", op.Neg(op.Neg(n)), lambda m, b: m[n]),
]  # fmt: skip
