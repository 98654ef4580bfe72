"""Sizes that are read off the scores of an attention, for a mask of their shape.

Why: the scores then have another reader than the Softmax, and one kernel for all of it has none to offer.  The sizes
are those of the queries and the keys, and mostly those of an input of the graph.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.shape_arithmetic import joined, origin, parts_of

factors = Var("a"), Var("b")
scores = op.MatMul(*factors)
size_of_scores = op.Shape(scores, start=Attr[int]("start", default=0), end=Attr[int]("end", default=FAR))

_STEPS = 6
"""So far below the scores stands the Softmax."""

_FEW = 2
"""No more nodes are worth that."""

_ELEMENTWISE = frozenset(operators("broadcast pointwise"))


@rule(
    "shape-of-scores",
    RAISE,
    size_of_scores,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,h,s,8] a; float[n,h,8,s] b; z = MatMul(a, b)  w = Shape<start=2>(z)  p = Softmax(z)"
            "  y = MatMul(p, a)",
            to="float[n,h,s,8] a; float[n,h,8,s] b; z = MatMul(a, b)  h = Shape<start=2, end=3>(a)"
            "  w = Concat<axis=0>(h, h)  p = Softmax(z)  y = MatMul(p, a)",
        ),
        Rejects(
            "float[n,h,s,8] a; float[n,h,8,s] b; z = MatMul(a, b)  w = Shape<start=2>(z)  y = Relu(z)",
            because="no scores of attention",
        ),
        Rejects(
            "float[n,4,s,8] a; float[n,4,8,l] b; z = MatMul(a, b)  w = Shape(z)  p = Softmax(z)  y = MatMul(p, b)",
            because="as few nodes",
        ),
    ),
)
def shape_of_scores(m: Match, build: Builder) -> Value:
    """Shape(q·kᵀ) ⟶ sizes of q and of the graph's inputs: attention that is one kernel has no scores to ask."""
    below = readers(m[scores], _ELEMENTWISE, within=_STEPS)
    m.require(any(n.op_type == "Softmax" for n in below), "these are no scores of attention", at=m[scores])
    graph = m.node(size_of_scores).graph
    asked = [origin(m, m[each]) for each in factors]
    inputs = graph.inputs if isinstance(graph, ir.Graph) else ()
    elements = m.facts.elements(m.anchor)
    m.require(elements, "its sizes are not known")
    parts = parts_of(m, (list(dict.fromkeys((*inputs, *asked))), ()), elements or (), build.opset, ())
    new = sum(p.cost(m, build.opset, ()) for p in {*parts}) + (len(parts) > 1)
    m.require(new <= _FEW, f"its sizes are not read off earlier values by as few nodes as {_FEW}")
    return joined(m, build, parts)
