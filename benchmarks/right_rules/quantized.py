"""Rules of quantized numbers, and of casts that lose nothing."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from benchmarks.handwritten import right
from onnxrewrite.pattern.terms import FLOATS
from onnxrewrite.rules import Attr, Scalar, Var, op

D = ir.DataType
BYTES = frozenset({D.UINT8, D.INT8})
q, half, x = Var("q", dtype=BYTES), Var("half", dtype=D.FLOAT16), Var("x", dtype=FLOATS)
s, z, perm, to, axis = Scalar("s"), Var("z", dtype=BYTES), Attr[Any]("perm"), Attr[Any]("to"), Attr[Any]("axis")
scale = Var("scale", rank=0)
dequantized = op.DequantizeLinear(q, scale, z)

RULES = [
    right("transpose-of-bytes", op.Transpose(dequantized, perm=perm),
          lambda m, b: b.DequantizeLinear(b.Transpose(m[q], perm=m[perm]), m[scale], m[z]), when=lambda m: m.rank(z) == 0),
    right("half-through-float", op.Cast(op.Cast(half, to=1), to=10), lambda m, b: m[half]),
    right("half-through-double", op.Cast(op.Cast(half, to=11), to=10), lambda m, b: m[half]),
    right("relu-of-cast", op.Relu(op.Cast(half, to=1)), lambda m, b: b.Cast(b.Relu(m[half]), to=1)),
    right("concat-of-bytes", op.Concat(op.DequantizeLinear(q, scale, z), op.DequantizeLinear(q, scale, z), axis=axis),
          lambda m, b: b.DequantizeLinear(b.Concat(m[q], m[q], axis=m[axis]), m[scale], m[z]), when=lambda m: m.rank(z) == 0),
]  # fmt: skip
