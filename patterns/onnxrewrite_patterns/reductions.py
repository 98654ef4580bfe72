"""Reductions whose attributes say nothing.

Why: a converter writes what a reduction without axes would do beside the axes.  A rule about means that has not
considered that attribute must leave such a node alone.
"""

from __future__ import annotations

from onnxrewrite.rules import *

reduction = AnyNode(op_types=operators("reduce"))


@rule(
    "reduction-with-axes",
    CANONICALIZE,
    reduction,
    examples=(
        Rewrites(
            "float[n,4] x; y = ReduceMean<noop_with_empty_axes=1>(x, {1})",
            to="float[n,4] x; y = ReduceMean(x, {1})",
            opset=18,
        ),
        Rewrites(
            "float[n,4] x; y = ReduceSum<noop_with_empty_axes=1, keepdims=0>(x, {-1})",
            to="float[n,4] x; y = ReduceSum<keepdims=0>(x, {-1})",
        ),
        Rejects("float[n,4] x; y = ReduceMean<noop_with_empty_axes=1>(x)", because="no axes", opset=18),
        Rejects("float[n,4] x; int64[k] a; y = ReduceMean<noop_with_empty_axes=1>(x, a)", because="axes", opset=18),
        Rejects("float[n,4] x; y = ReduceMean(x, {1})", because="says nothing else", opset=18),
    ),
)
def reduction_with_axes(m: Match, build: Builder) -> Value:
    """Reduce(x, axes, noop_with_empty_axes=1) ⟶ Reduce(x, axes), where there are axes."""
    node = m.node(reduction)
    m.require(parameter(m.facts, node, "noop_with_empty_axes"), "it says nothing else than its axes")
    found = reduce_of(m.facts, node)
    m.require(not isinstance(found, str) and found.names == "axes", "it has no axes, or they are not known")
    attributes = {name: value for name, value in m.attrs(reduction).items() if name != "noop_with_empty_axes"}
    return build.node(node.op_type, node.inputs, attributes)[0]
