"""Attention under a mask that masks nothing: true throughout, or zero.

Where it comes from: exporters write a mask for a model that has none, an Expand of ``true`` to the size of the scores,
or its sum with zeros.

Why: the mask is as large as the scores, or is broadcast to them in the kernel.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *

q, k, v = (Var(name, dtype=FLOATS) for name in ("q", "k", "v"))
mask = Var("mask")
attention = op.Attention(q, k, v, mask)

_QKV = "float[b,3,5,8] q; float[b,3,7,8] k; float[b,3,7,8] v;"


@rule(
    "attention-unmasked",
    RAISE,
    attention,
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_QKV} m = Expand(bool[1,1,1,1] {{true}}, {{1, 1, 5, 7}})  y = Attention<scale=0.5>(q, k, v, m)",
            to=f"{_QKV} y = Attention<scale=0.5>(q, k, v)",
            opset=23,
        ),
        Rewrites(
            f"{_QKV} c = Expand(bool[1,1,1,1] {{true}}, {{1, 1, 5, 7}})  m = Where(c, 0.0, -1e30)"
            "  y = Attention(q, k, v, m)",
            to=f"{_QKV} y = Attention(q, k, v)",
            opset=23,
        ),
        Rejects(
            f"{_QKV} bool[5,7] m; y = Attention(q, k, v, m)",
            because="not one number",
            opset=23,
        ),
        Rejects(
            f"{_QKV} m = Expand(bool[1,1,1,1] {{false}}, {{1, 1, 5, 7}})  y = Attention(q, k, v, m)",
            because="does mask",
            opset=23,
        ),
    ),
)
def attention_unmasked(m: Match, build: Builder) -> Value:
    """Attention(q, k, v, {true}) ⟶ Attention(q, k, v), and likewise under a mask of zeros."""
    used = list[ir.Node]()
    number = uniform(m.facts, m[mask], used)
    m.require(number is not None, "the mask is not one number throughout", at=mask)
    m.require(number is True or (number == 0 and number is not False), "the mask does mask", at=mask)
    m.cover(*used)
    made: Value = build.Attention(m[q], m[k], m[v], **m.attrs(attention))
    return made
