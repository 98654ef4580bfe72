"""Relu, Clip, Min and Max in a row.

Why: each is a pass over memory; two of them are one.  Exactly so: ONNX Runtime's Clip lets NaN through, keeps the
sign of zero, gives the upper bound where the bounds are crossed, and takes an absent bound for the largest finite number, so
that a Clip without bounds still changes infinity.  Max and Min in contrast make NaN of NaN on either side.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxrewrite import FLOATS, AnyNode, Attr, Builder, Const, Match, Rejects, Rewrites, Rule, Stage, Value, Var, op

x = Var("x")

'''IDEM'''

# -- one interval after another ----------------------------------------------------------------------------------

low, high, low2, high2 = (Attr[float | None](n, default=None) for n in ("low", "high", "low2", "high2"))
number = Var("number", dtype=FLOATS | {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.INT8, ir.DataType.UINT8})
inner_clip, inner_relu = op.Clip(number, min=low, max=high), op.Relu(number)
outer_clip, outer_relu = op.Clip(INNER, min=low2, max=high2), op.Relu(INNER)
