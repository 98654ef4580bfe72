"""Sizes by one spelling: read off the first input that has them, and a single one by Squeeze.

Where it comes from: exporters ask for the batch size of whatever value is at hand, the last input, an embedding, and
one of them takes it out of the shape by Gather, the other by a Shape of one axis.

Why: what is spelled in one way is computed once.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.shape_arithmetic import WITH_BOUNDS

x = Var("x")
shape_of = op.Shape(x)


def _piece(m: Match, build: Builder, value: Value, start: int, end: int) -> Value:
    if (start, end) == (0, m.rank(value)):
        return build.Shape(value)
    m.require(build.opset >= WITH_BOUNDS, f"Shape takes bounds since opset {WITH_BOUNDS}")
    return build.Shape(value, start=start, end=end)


@rule(
    "shape-of-first-input",
    CANONICALIZE,
    shape_of,
    benefit=15,
    examples=(
        Rewrites(
            "float[n,s] x; float[n,t] z; y = Shape<start=0, end=1>(z)",
            to="float[n,s] x; float[n,t] z; y = Shape<start=0, end=1>(x)",
        ),
        Rewrites(
            "float[m,n,s] x; float[n,s] z; y = Shape(z)",
            to="float[m,n,s] x; float[n,s] z; y = Shape<start=1, end=3>(x)",
        ),
        Rejects("float[n,s] x; float[n,t] z; y = Shape(z)", because="no earlier input"),
        Rejects("float[n,s] x; float[n,t] z; y = Shape(x)", because="no earlier input"),
        Rejects("float[n,3] x; float[n,3] z; y = Shape<start=1>(z)", because="no size is a symbol"),
        Rejects("float[m,n,s] x; float[n,s] z; y = Shape(z)", because="since opset 15", opset=14),
    ),
)
def shape_of_first_input(m: Match, build: Builder) -> Value:
    """Shape(x, start=0, end=1) ⟶ Shape(input, start=0, end=1) for the first input that has the size."""
    sizes = m.shape(x)
    if sizes is None:
        m.refuse("the rank is not known", at=x)
    wanted = sizes[slice(m.attr(shape_of, "start"), m.attr(shape_of, "end"))]
    m.require(any(not isinstance(d, int) for d in wanted), "no size is a symbol", at=x)
    graph = m.node(shape_of).graph
    for given in graph.inputs if isinstance(graph, ir.Graph) else ():
        m.require(given is not m[x], "no earlier input has these sizes", at=x)
        shape = m.shape(given) or ()
        for start in range(len(shape) - len(wanted) + 1):
            if all(same_dim(a, b) for a, b in zip(shape[start:], wanted, strict=False)):
                return _piece(m, build, given, start, start + len(wanted))
    return m.refuse("no earlier input has these sizes", at=x)


index = Const("index", rank=0)
one = op.Gather(shape_of, index)


@rule(
    "size-by-squeeze",
    CANONICALIZE,
    one,
    benefit=15,
    examples=(
        Rewrites(
            "float[n,s] x; h = Shape(x)  y = Gather(h, -1)",
            to="float[n,s] x; h = Shape<start=1, end=2>(x)  y = Squeeze(h)",
        ),
        Rejects("float[n,s] x; h = Shape(x)  y = Gather(h, 2)", because="out of range"),
        Rejects("float[n,s] x; h = Shape<start=0>(x)  y = Gather(h, 1)", because="not the whole"),
        Rejects("float[n,s] x; h = Shape(x)  a = Gather(h, 1)  y = Div(h, a)", because="is also used by"),
        Rejects("float[n,s] x; h = Shape(x)  y = Gather(h, 1)", because="since opset 15", opset=14),
    ),
)
def size_by_squeeze(m: Match, build: Builder) -> Value:
    """Gather(Shape(x), 1) ⟶ Squeeze(Shape(x, start=1, end=2)), as long as nobody else reads the shape."""
    rank = m.rank(x)
    m.require(rank is not None and not m.node(shape_of).attributes, "it is not the whole of a known shape", at=x)
    m.require(build.opset >= WITH_BOUNDS, f"Shape takes bounds since opset {WITH_BOUNDS}")
    place = int(m[index]) + (rank or 0) * (m[index] < 0)
    m.require(0 <= place < (rank or 0), "the index is out of range", at=index)
    m.node(one)
    return build.Squeeze(build.Shape(m[x], start=place, end=place + 1))
