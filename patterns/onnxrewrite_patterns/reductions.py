"""Reductions spelled another way: by attributes that say nothing, and with axes that go and come back.

Where it comes from: a converter writes what a reduction without axes would do beside the axes; PyTorch's ``var_mean``.

Why: a rule about means that has not considered that attribute must leave such a node alone, and those for
normalizations know a mean by its axes of size 1.
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


reduced = AnyNode(op_types=operators("reduce"))
put_back = op[operators("view")](reduced, Each("rest", at_least=0))


@rule(
    "reduction-of-kept-axes",
    CANONICALIZE,
    put_back,
    examples=(
        Rewrites(
            "float[n,s,4] x; r = ReduceMean<axes=[2], keepdims=0>(x)  y = Unsqueeze(r, {2})",
            to="float[n,s,4] x; y = ReduceMean<axes=[2], keepdims=1>(x)",
        ),
        Rewrites(
            "float[n,3,4] x; r = ReduceMax<axes=[1], keepdims=0>(x)  y = Reshape(r, {-1, 1, 4})",
            to="float[n,3,4] x; y = ReduceMax<axes=[1], keepdims=1>(x)",
        ),
        Rewrites(
            "float[n,3,4] x; r = ArgMax<axis=-1, keepdims=0>(x)  y = Reshape(r, {0, 3, 1})",
            to="float[n,3,4] x; y = ArgMax<axis=-1, keepdims=1>(x)",
        ),
        Rejects(
            "float[n,s,4] x; r = ReduceMean<axes=[2], keepdims=0>(x)  y = Unsqueeze(r, {1})", because="not those that"
        ),
        Rejects("float[n,3,4] x; r = ReduceMean<axes=[2]>(x)  y = Reshape(r, {0, 3, 1, 1})", because="kept already"),
        Rejects("float[n,s] x; r = ReduceMean<keepdims=0>(x)  y = Unsqueeze(r, {0})", because="not those that"),
        Rejects("float[n,s] x; r = Relu(x)  y = Unsqueeze(r, {0})", because="expected"),
    ),
)
def reduction_of_kept_axes(m: Match, build: Builder) -> Value:
    """Unsqueeze(Reduce(x, keepdims=0)) ⟶ Reduce(x, keepdims=1), where the axes come back that went."""
    m.node(put_back)  # of it the result counts, whatever its attributes
    node = m.node(reduced)
    found, shape = reduce_of(m.facts, node), m.shape(m.operand(node))
    if isinstance(found, str) or shape is None:
        m.refuse("the axes, or the rank, are not known", at=m[reduced])
    m.require(not found.keepdims, "the axes are kept already")
    kept = [1 if axis in found.axes else size for axis, size in enumerate(shape)]
    m.require(same_shape(m.shape(put_back), kept), "the axes that come are not those that went", at=m[put_back])
    return build.again(node, *inputs_of(node), keepdims=1)[0]
