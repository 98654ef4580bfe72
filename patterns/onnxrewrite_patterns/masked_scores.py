"""Scores of attention that a mask replaces by -10000, or adds it to others of which some are so replaced.

Why: older exporters write a mask so (GPT-2: ``torch.where(causal, scores, -1e4)``), and no other rule takes that for a
mask: a score may be less than -10000.  Where none is, and each row has one that is not masked, what is masked gets a
weight of zero, whatever is written for it; with the least number of its dtype it is a mask to every rule.

That is an assumption about the data that does not hold for every model: a query to which all keys are padding attends
to what is masked otherwise.  So it is made on request only.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.softmax import require_last_axis

computed = operators("broadcast linear pointwise view", but="comparison logic Where")
"""Operators that scores come from; a Where of constants alone is a mask that is added."""

scores, mask = op[computed](Each("operands", at_least=1)), Var("mask")
keep, drop, low = Var("keep"), Var("drop"), Scalar("low")
where_kept, where_dropped = op.Where(keep, scores, low), op.Where(drop, low, scores)
replaced = any_of(where_kept, where_dropped)
masked = any_of(op.Add(replaced, mask), replaced)
weights = op.Softmax(masked, axis=Attr[int]("axis", default=-1))

HIGHEST = -1e4
"""A number that is larger is no mask."""

LEAST = -1e30
"""One that is less is a mask anyway."""

_LEAST = {ir.DataType.FLOAT: float(np.finfo(np.float32).min), ir.DataType.FLOAT16: float(np.finfo(np.float16).min)}

_STEPS = 3
"""So far below the weights stands the product with the values."""

_HEAD = "float[n,s,l] z; float[n,l,d] v; bool[s,l] keep; x = Mul(z, 0.5)"
_END = "p = Softmax(w)  y = MatMul(p, v)"


@rule(
    "masked-scores",
    RAISE,
    weights,
    allow_shared=True,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY, Assumption.SCORES_ABOVE_10000),
    examples=(
        Rewrites(
            f"{_HEAD} w = Where(keep, x, -10000.0) {_END}",
            to=f"{_HEAD} w = Where(keep, x, -3.4028234663852886e+38) {_END}",
        ),
        Rewrites(
            f"{_HEAD} float[n,1,l] m; a = Where(keep, -10000.0, x)  w = Add(a, m) {_END}",
            to=f"{_HEAD} float[n,1,l] m; a = Where(keep, -3.4028234663852886e+38, x)  w = Add(a, m) {_END}",
        ),
        Rejects(f"{_HEAD} w = Where(keep, x, -100.0) {_END}", because="-100 is no mask"),
        Rejects(f"{_HEAD} w = Where(keep, x, -1e31) {_END}", because="a mask as it is"),
        Rejects(f"{_HEAD} a = Where(keep, 0.0, -10000.0)  w = Add(x, a) {_END}", because="expected"),
        Rejects(
            f"{_HEAD} w = Where(keep, x, -10000.0)  p = Softmax<axis=1>(w)  y = MatMul(p, v)", because="the last axis"
        ),
        Rejects(f"{_HEAD} w = Where(keep, x, -10000.0)  p = Softmax(w)  y = Mul(p, x)", because="no attention"),
    ),
)
def masked_scores(m: Match, build: Builder) -> Value:
    """softmax(where(keep, scores, -10000) + mask) ⟶ softmax(where(keep, scores, lowest) + mask)."""
    m.node(scores)  # of it the result counts, whatever its attributes
    node, dtype = m.node(weights), m.dtype(scores)
    require_last_axis(m, build, weights)
    below = readers(m.anchor, ("Cast", "Where"), within=_STEPS)
    m.require(any(n.op_type == "MatMul" for n in below), "it is no attention: the weights are of nothing")
    m.require(dtype in _LEAST, "the dtype of the scores is neither float32 nor float16", at=scores)
    least = _LEAST[dtype or ir.DataType.FLOAT]
    m.require(m[low] <= HIGHEST, f"{m[low]:g} is no mask", at=low)
    m.require(m[low] > max(LEAST, least), f"{m[low]:g} is a mask as it is", at=low)
    number = build.const(least, like=scores)
    made = build.Where(m[keep], m[scores], number) if where_kept in m else build.Where(m[drop], number, m[scores])
    return build.again(node, build.Add(made, m[mask]) if mask in m else made)[0]
