"""Shapes that need not be computed: constant Reshape targets, chains of views as one, each shape once.

Why: exporters compute the target of every Reshape from the input's shape (Shape, Gather, Unsqueeze, Concat:
six to ten nodes).  A target says the same by a constant: 0 copies the input's dimension, one -1 takes what is
left.  In ONNX Runtime -1 next to a size of zero is an error, so -1 stands only where the other sizes are
certainly not zero, or where it stood before.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxrewrite.rules import *

x = Var("x")

# -- the target of a Reshape ---------------------------------------------------------------------------------

reshape = AnyNode(op_types=("Reshape",))


def _is_plain(m: Match, node: ir.Node) -> bool:
    """True if the target of a Reshape is constant, and is the one that ``reshape_target`` makes, if it makes one."""
    spelled, wanted = m.facts.constant(m.operand(node, 1)), m.shape(reshape)
    if spelled is None or wanted is None:
        return spelled is not None
    made = reshape_target(m.shape(m.operand(node)), wanted, tuple(spelled.tolist()))
    return made is None or (made == spelled.tolist() and not m.attr(reshape, "allowzero"))


@rule(
    "reshape-constant",
    CANONICALIZE,
    reshape,
    benefit=60,
    examples=(
        Rewrites(
            "float[n,s,12] x; h = Shape(x)  a = Slice(h, {0}, {2})  t = Concat<axis=0>(a, {3, 4})  y = Reshape(x, t)",
            to="float[n,s,12] x; y = Reshape(x, {0, 0, 3, 4})",
        ),
        Rewrites(
            "float[n,s,12] x; h = Shape(x)  a = Gather(h, {0})  b = Gather(h, {1})  c = Mul(a, b)"
            "  t = Concat<axis=0>(c, {12})  y = Reshape(x, t)",
            to="float[n,s,12] x; y = Reshape(x, {-1, 12})",
        ),
        Rewrites(
            "float[n,s,3,4] x; h = Shape(x)  a = Slice(h, {0}, {2})  t = Concat<axis=0>(a, {-1})  y = Reshape(x, t)",
            to="float[n,s,3,4] x; y = Reshape(x, {0, 0, 12})",
        ),
        Rewrites(
            "float[n,s] x; h = Shape(x)  a = Slice(h, {0}, {1})  b = Slice(h, {1}, {2})"
            "  t = Concat<axis=0>(a, {1, 1}, b)  y = Reshape(x, t)",
            to="float[n,s] x; y = Unsqueeze(x, {1, 2})",
        ),
        Rejects(
            "float[n,6,s,32] x; h = Shape(x)  a = Gather(h, {0})  b = Mul(a, {6})  c = Gather(h, {2})"
            "  t = Concat<axis=0>(b, c, {32})  y = Reshape(x, t)",
            because="no constant target",
        ),
        Rejects(
            "float[n,s,t] x; h = Shape(x)  a = Gather(h, {0})  b = Gather(h, {1})  c = Gather(h, {2})"
            "  d = Mul(b, c)"
            "  t = Concat<axis=0>(a, d)  y = Reshape(x, t)",
            because="no constant target",
        ),
        Rejects("float[n,4] x; int64[2] t; y = Reshape(x, t)", because="no constant target"),
        Rewrites(
            "float[n,32,4,4] x; y = Reshape<allowzero=1>(x, {-1, 32, 16})",
            to="float[n,32,4,4] x; y = Reshape(x, {0, 32, 16})",
        ),
        Rewrites("float[2,12] x; y = Reshape(x, {0, -1, 4})", to="float[2,12] x; y = Reshape(x, {2, 3, 4})"),
        Rewrites(
            "float[1,s,1,d] x; h = Shape(x)  a = Slice(h, {0}, {2})  t = Concat<axis=0>(a, {-1})"
            "  y = Reshape<allowzero=1>(x, t)",
            to="float[1,s,1,d] x; y = Squeeze(x, {2})",
        ),
        Rejects("float[n,4] x; y = Reshape(x, {2, -1})", because="constant already"),
        Rejects(
            "float[1,s,1,1] x; h = Shape(x)  a = Slice(h, {1}, {2})  t = Concat<axis=0>(a, {-1})  y = Reshape(x, t)",
            because="copies another",
        ),
    ),
)
def reshape_constant(m: Match, build: Builder) -> Value:
    """Reshape(x, [n, s, 3, 4]) ⟶ Reshape(x, {0, 0, 3, 4}) for an x of shape [n, s, 12].

    A target that is constant already gets the same spelling: numbers that are known, then zeros, -1 where nothing else
    will do.
    """
    node = m.node(reshape)
    m.require(not _is_plain(m, node), "the target is constant already", at=m.operand(node, 1))
    made = reshaped_as(m, build, m.operand(node), m[reshape])
    require_sizes_as_told(m, node)
    return made


# -- chains of views -----------------------------------------------------------------------------------------

VIEWS = operators("view")
inner_view = op[VIEWS](x, Each("inner_rest", at_least=0))
outer_view = op[VIEWS](inner_view, Each("outer_rest", at_least=0))


@rule(
    "view-of-view",
    CANONICALIZE,
    outer_view,
    benefit=40,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,4,6] x; a = Reshape(x, {0, 2, 12})  y = Reshape(a, {0, 0, 3, 4})",
            to="float[n,4,6] x; y = Reshape(x, {0, 2, 3, 4})",
        ),
        Rewrites(
            "float[n,4,1,1] x; a = Squeeze(x, {2,3})  y = Flatten(a)",
            to="float[n,4,1,1] x; y = Reshape(x, {0, 4})",
        ),
        Rewrites(
            "float[n,4] x; a = Unsqueeze(x, {0})  y = Reshape<allowzero=1>(a, {-1, 2, 2})",
            to="float[n,4] x; y = Reshape(x, {0, 2, 2})",
        ),
        Rewrites(
            "float[4,6] x; a = Reshape(x, {2, 12})  b = Reshape(a, {24})  c = Relu(a)  y = Add(b, 1.0)",
            to="float[4,6] x; a = Reshape(x, {2, 12})  b = Reshape(x, {24})  c = Relu(a)  y = Add(b, 1.0)",
        ),
        Rewrites(
            "float[b,2,2,s,8] x; a = Reshape(x, {0, 4, -1, 8, 1})  y = Squeeze(a, {4})",
            to="float[b,2,2,s,8] x; y = Reshape(x, {0, 4, -1, 8})",
        ),
        Rejects("float[n,s] x; int64[2] t; a = Reshape(x, {-1})  y = Reshape(a, t)", because="no constant target"),
    ),
)
def view_of_view(m: Match, build: Builder) -> Value:
    """Reshape(Reshape(x, s), t) ⟶ Reshape(x, t), and likewise Flatten, Squeeze and Unsqueeze in a row."""
    inner, outer = m.node(inner_view), m.node(outer_view)
    made = reshaped_as(m, build, m[x], m[outer_view], _with_unit_axes(m, inner, outer))
    for node in (inner, outer):
        if node.op_type == "Reshape":
            require_sizes_as_told(m, node)
    return made


def _with_unit_axes(m: Match, inner: ir.Node, outer: ir.Node) -> Sequence[Dim] | None:
    """The target of a Reshape, with the axes of size 1 that come or go after it; None where it is of others."""
    spelled = m.facts.elements(m.operand(inner, 1)) if inner.op_type == "Reshape" else None
    if spelled is None or outer.op_type not in AXES or m.rank(m.operand(outer)) is None:
        return None
    return [1 if place is None else spelled[place] for place in _places(m, outer, [*range(len(spelled))])]


target = Var("target")
unit_view = op["Squeeze", "Unsqueeze"](x, Each("unit_axes", at_least=0))
computed_view = op.Reshape(unit_view, target)


def copies_nothing(m: Match, target: Value) -> bool:
    """True if a target of Reshape is computed, and has no 0, which copies a dimension, unless a size is zero."""
    elements = m.facts.elements(target)
    return elements is not None and m.facts.constant(target) is None and 0 not in elements


@rule(
    "computed-view-of-view",
    CANONICALIZE,
    computed_view,
    assumes=(Assumption.NOT_EMPTY,),
    benefit=30,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[b,4,s] x; u = Unsqueeze(x, {3})  h = Shape(x)  l = Slice(h, {2}, {3})"
            "  t = Concat<axis=0>({-1}, l, {2, 2})  y = Reshape(u, t)",
            to="float[b,4,s] x; h = Shape(x)  l = Slice(h, {2}, {3})"
            "  t = Concat<axis=0>({-1}, l, {2, 2})  y = Reshape(x, t)",
        ),
        Rejects(
            "float[b,4,s] x; u = Unsqueeze(x, {0})  h = Shape(x)  l = Slice(h, {2}, {3})"
            "  t = Concat<axis=0>({-1}, l, {0, 2})  y = Reshape(u, t)",
            because="copies a dimension",
        ),
        Rejects("float[n,s] x; int64[2] t; a = Unsqueeze(x, {0})  y = Reshape(a, t)", because="copies a dimension"),
    ),
)
def computed_view_of_view(m: Match, build: Builder) -> Value:
    """Reshape(Unsqueeze(x), t) ⟶ Reshape(x, t) for a target that is computed, and likewise Squeeze."""
    m.node(unit_view), m.node(computed_view)
    m.require(copies_nothing(m, m[target]), "for all that is known it copies a dimension, or is constant", at=target)
    return build.Reshape(m[x], m[target])


AXES = ("Squeeze", "Unsqueeze")
first = op[AXES](x, Each("first_axes", at_least=0))
second = op[AXES](first, Each("second_axes", at_least=0))


def _places(m: Match, node: ir.Node, places: list[int | None]) -> list[int | None]:
    """The input axis of each axis of the result, None for a new one."""
    axes = m.unit_axes(node)
    if node.op_type == "Squeeze":
        return [place for axis, place in enumerate(places) if axis not in axes]
    result = list(places)
    for axis in axes:
        result.insert(axis, None)
    return result


@rule(
    "squeeze-unsqueeze",
    CANONICALIZE,
    second,
    benefit=50,
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,s] x; a = Unsqueeze(x, {1})  y = Unsqueeze(a, {-1})",
            to="float[n,s] x; y = Unsqueeze(x, {1, 3})",
        ),
        Rewrites(
            "float[n,1,s,1] x; a = Squeeze(x, {1})  y = Squeeze(a, {2})",
            to="float[n,1,s,1] x; y = Squeeze(x, {1, 3})",
        ),
        Rewrites(
            "float[n,s] x; a = Unsqueeze(x, {1})  b = Squeeze(a, {-2})  y = Relu(b)",
            to="float[n,s] x; y = Relu(x)",
        ),
        Rewrites(
            "float[n,s] x; a = Unsqueeze<axes=[0,1]>(x)  y = Squeeze<axes=[0]>(a)",
            to="float[n,s] x; y = Unsqueeze<axes=[0]>(x)",
            opset=11,
        ),
        Rejects("a = Unsqueeze(x, {-1})  y = Unsqueeze(a, {0})", because="the rank is not known"),
        Rejects("float[n,1] x; a = Unsqueeze(x, {0})  y = Squeeze(a, {2})", because="some axes go"),
        Rejects("float[n,1] x; a = Unsqueeze(x, {0})  y = Squeeze(a)", because="are not given"),
        Rejects("float[1,1] x; a = Squeeze(x, int64[0] {})  y = Unsqueeze(a, {0})", because="all for ONNX Runtime"),
    ),
)
def squeeze_unsqueeze(m: Match, build: Builder) -> Value:
    """Unsqueeze(Unsqueeze(x, a), b) ⟶ Unsqueeze(x, a ∪ b), and likewise Squeeze; one undoes the other."""
    rank = m.rank(x)
    m.require(rank is not None, "the rank is not known", at=x)
    places: list[int | None] = list(range(rank or 0))
    for call in (first, second):
        places = _places(m, m.node(call), places)
    gone = [axis for axis in range(rank or 0) if axis not in places]
    new = [axis for axis, place in enumerate(places) if place is None]
    m.require(not (gone and new), "some axes go and others come")
    if gone:
        return build.Squeeze(m[x], axes=gone)
    return build.Unsqueeze(m[x], axes=new) if new else m[x]


# -- views on either side ------------------------------------------------------------------------------------

one, other = Var("one"), Var("other")
views = op.Reshape(one, Var("shape of one")), op.Reshape(other, Var("shape of the other"))
combined = op["Add", "Sub", "Mul", "Div"](*views)
undone = op.Reshape(combined, Var("shape of the result"))

_BY_HEAD = "float[n,s,12] x; float[n,s,12] z; a = Reshape(x, {0, 0, 3, 4})"


@rule(
    "views-around-elementwise",
    CANONICALIZE,
    undone,
    examples=(
        Rewrites(
            f"{_BY_HEAD} b = Reshape(z, {{0, 0, 3, 4}})  c = Sub(a, b)  y = Reshape(c, {{0, 0, 12}})",
            to="float[n,s,12] x; float[n,s,12] z; y = Sub(x, z)",
        ),
        Rejects(
            f"{_BY_HEAD} b = Reshape(z, {{0, 0, 4, 3}})  c = Reshape(b, {{0, 0, 3, 4}})  d = Add(a, c)"
            "y = Reshape(d, {0, 0, 6, 2})",
            because="are not views of the shape of the result",
        ),
        Rejects(
            "float[n,s,12] x; float[n,12] z; a = Reshape(x, {0, 0, 3, 4})  b = Reshape(z, {-1, 1, 3, 4})"
            "c = Mul(a, b)  y = Reshape(c, {0, 0, 12})",
            because="are not views of the shape of the result",
        ),
    ),
)
def views_around_elementwise(m: Match, build: Builder) -> Value:
    """Reshape(Reshape(x) + Reshape(z)) ⟶ x + z, where all three are of one shape."""
    alike = same_shape(m.shape(one), m.shape(other)) and same_shape(m.shape(one), m.shape(undone))
    alike = alike and same_shape(*map(m.shape, views))
    m.require(alike, "the operands are not views of the shape of the result", at=combined)
    return build.again(m.node(combined), m[one], m[other])[0]
