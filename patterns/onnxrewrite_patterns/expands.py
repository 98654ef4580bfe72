"""Expand by a constant, once, or not at all.

Why: Expand writes its operand out many times over, mostly for an operator that would broadcast it by itself;
and exporters compute its shape, of which only the sizes that grow matter: a 1 keeps what is there.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *
from onnxrewrite_patterns.identity import changes_nothing
from onnxrewrite_patterns.shape_arithmetic import written

x = Var("x")

expand = AnyNode(op_types=("Expand",))


@rule(
    "expand-constant",
    CANONICALIZE,
    expand,
    benefit=60,
    examples=(
        Rewrites(
            "float[n,1,s] x; h = Shape(x)  a = Gather(h, {0})  b = Gather(h, {2})"
            "  t = Concat<axis=0>(a, {6}, b)  y = Expand(x, t)",
            to="float[n,1,s] x; y = Expand(x, {1, 6, 1})",
        ),
        Rewrites(
            "float[1,s] x; float[n,t] z; h = Shape<start=0, end=1>(z)  a = Shape<start=1, end=2>(x)"
            "  t = Concat<axis=0>(h, a)  y = Expand(x, t)",
            to="float[1,s] x; float[n,t] z; h = Shape<start=0, end=1>(z)  t = Concat<axis=0>(h, {1})  y = Expand(x, t)",
        ),
        Rejects("float[1,s] x; float[n,s] z; h = Shape(z)  y = Expand(x, h)", because="nodes to make it"),
        Rejects("float[1,1] x; float[n,s] z; h = Shape(z)  y = Expand(x, h)", because="the result is [n, s]"),
        Rejects("float[1,s] x; float[n,s] z; h = Shape(z)  a = Size(h)  y = Expand(x, h)", because="also used by"),
    ),
)
def expand_constant(m: Match, build: Builder) -> Value:
    """Expand(x, [n, 6, s]) ⟶ Expand(x, {1, 6, 1}) for an x of shape [n, 1, s]; sizes that grow stay as they are."""
    node = m.node(expand)
    target = m.operand(node, 1)
    m.require(m.facts.tensor(target) is None, "the shape is constant already", at=target)
    source, wanted = m.shape(m.operand(node)), m.shape(expand)
    if source is None or wanted is None:
        m.refuse("a rank is not known", at=m[expand])
    padded = [1] * (len(wanted) - len(source)) + list(source)
    pairs = zip(wanted, padded, strict=True)
    kept = tuple(1 if not isinstance(size, int) and same_dim(size, own) else size for size, own in pairs)
    if all(isinstance(size, int) for size in kept):
        return build.Expand(m.operand(node), np.array(kept, np.int64))
    m.require(kept != m.facts.elements(target), f"the result is [{', '.join(map(str, wanted))}]", at=m[expand])
    need = need_outside(resolve(target), (node,))
    m.require(not need, f"the shape is {need}", at=target)
    return build.Expand(m.operand(node), written(m, build, target, kept))


inner_expand = op.Expand(x, Var("inner_shape"))
outer_expand = op.Expand(inner_expand, (outer_shape := Var("outer_shape")))


@rule(
    "expand-of-expand",
    CANONICALIZE,
    outer_expand,
    benefit=50,
    examples=(
        Rewrites(
            "float[1,1] x; a = Expand(x, {1, 4})  y = Expand(a, {3, 4})",
            to="float[1,1] x; y = Expand(x, {3, 4})",
        ),
        Rejects("float[1,1] x; a = Expand(x, {1, 4})  y = Expand(a, {3, 1})", because="does not say all"),
    ),
)
def expand_of_expand(m: Match, build: Builder) -> Value:
    """Expand(Expand(x, s), t) ⟶ Expand(x, t) where t says every size of the result."""
    wanted = m.shape(outer_expand)
    m.require(
        same_shape(m.facts.elements(m[outer_shape]), wanted),
        "the outer shape does not say all",
        at=outer_shape,
    )
    return build.Expand(m[x], m[outer_shape])


BROADCASTING = operators("broadcast", but="PRelu")

_REDUCTIONS = operators("reduce")
"""Readers of an Expand that keep it, and that rules for normalizations look for beside other readers of the same."""


def _expanded(value: Value | None, reader: ir.Node) -> Value | None:
    """The operand of the Expand, or of the Tile of axes of size 1, that computes a value; None for others."""
    found = path(value, ("Expand", "Tile"))
    if found is None or found.nodes[0].graph is not reader.graph:
        return None
    return None if found.nodes[0].op_type == "Tile" and not _repeats_ones(found.nodes[0]) else found.source


def _divides_whole(m: Match, node: ir.Node) -> bool:
    """True if it divides whole numbers, maybe none: ONNX Runtime fails at a single zero, not at none of many."""
    sizes = m.shape(m.anchor)
    may_be_empty = sizes is None or not all(at_least(size) > 0 for size in sizes)
    dtype = m.dtype(m.anchor)
    return node.op_type in ("Div", "Mod") and may_be_empty and not (dtype is not None and dtype.is_floating_point())


def _repeats_ones(node: ir.Node) -> bool:
    """True if a Tile repeats only axes of size 1: all others have the same size before and after."""
    before, after = (None if v is None else v.shape for v in (input_of(node), node.outputs[0]))
    if before is None or after is None or len(before) != len(after):
        return False
    return all(old == 1 or same_dim(old, new) for old, new in zip(before.dims, after.dims, strict=True))


def reads_expand(node: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: an operand is an Expand."""
    return any(_expanded(v, node) for v in inputs_of(node)) or "no operand is an Expand"


broadcasting = AnyNode(op_types=BROADCASTING, where=reads_expand)


@rule(
    "expand-into-elementwise",
    CANONICALIZE,
    broadcasting,
    benefit=30,
    examples=(
        Rewrites(
            "float[1,s] x; float[n,s] z; h = Shape(z)  e = Expand(x, h)  y = Add(e, z)",
            to="float[1,s] x; float[n,s] z; y = Add(x, z)",
        ),
        Rewrites(
            "float[1,s] x; float[n,s] z; h = Shape(z)  a = Slice(h, {0}, {1})  t = Concat<axis=0>(a, {1})"
            "  e = Tile(x, t)  y = Sub(z, e)",
            to="float[1,s] x; float[n,s] z; y = Sub(z, x)",
        ),
        Rejects("float[2] x; float[6] z; e = Tile(x, {3})  y = Sub(z, e)", because="found Tile"),
        Rejects("float[1,1] x; float[1,4] z; e = Expand(x, {3, 1})  y = Add(e, z)", because="not shown"),
        Rejects(
            "float[1,s] x; float[1,s] z; float[n,s] w; h = Shape(w)  e = Expand(x, h)  y = Add(e, z)",
            because="not shown",
        ),
        Rejects(
            "float[1,s,4] x; float[n,s,4] z; h = Shape(z)  e = Expand(x, h)  u = ReduceMean<axes=[2]>(e)"
            "  y = Sub(e, u)",
            because="ReduceMean reads the Expand, too",
        ),
        Rejects("y = Add(x, z)", because="no operand is an Expand"),
        Rejects("int64[1] x; int64[n] z; h = Shape(z)  e = Expand(x, h)  y = Div(z, e)", because="may be zero"),
    ),
)
def expand_into_elementwise(m: Match, build: Builder) -> Value:
    """Expand(x, s) + y ⟶ x + y where the sum broadcasts x by itself, and likewise elementwise operators, and Tile."""
    node = m.node(broadcasting)
    taken = [v for v in inputs_of(node) if _expanded(v, node)]
    whole = _divides_whole(m, node) and _expanded(m.operand(node, 1), node) is not None
    m.require(not whole, "where the Expand is empty, the whole numbers that it divides by may be zero")
    beside = next((n.op_type for v in taken for n in readers(v, within=1) if n.op_type in _REDUCTIONS), None)
    m.require(beside is None, f"{beside} reads the Expand, too, as a normalization does")
    (made,) = build.again(node, *(_expanded(v, node) or v for v in inputs_of(node)))
    same = same_shape(m.shape(made), m.shape(broadcasting))
    m.require(same, "without the Expand the result is not shown to have the same shape", at=m[broadcasting])
    return made


def reads_fill(node: ir.Node, facts: Facts) -> bool | str:
    """True, or the reason why not: an operand is a ConstantOfShape, one number throughout."""
    return any(_fill(v, node) is not None for v in inputs_of(node)) or "no operand is a ConstantOfShape"


def _fill(value: Value | None, reader: ir.Node) -> Array | None:
    """The number that a ConstantOfShape fills its result with; None for another operator."""
    node = made_by(value, "ConstantOfShape")
    return None if node is None or node.graph is not reader.graph else fill_of(node)


filled = AnyNode(op_types=BROADCASTING, where=reads_fill)


@rule(
    "fill-into-elementwise",
    CANONICALIZE,
    filled,
    benefit=30,
    allow_shared=True,
    examples=(
        Rewrites(
            "int64[n,s] x; h = Shape(x)  c = ConstantOfShape<value=int64[1] {3}>(h)  y = Min(x, c)",
            to="int64[n,s] x; y = Min(x, 3)",
        ),
        Rewrites(
            "float[n,s] x; bool[n,s] k; h = Shape(x)  c = ConstantOfShape(h)  y = Where(k, x, c)",
            to="float[n,s] x; bool[n,s] k; y = Where(k, x, 0.0)",
        ),
        Rejects("float[1,s] x; float[n,s] z; h = Shape(z)  c = ConstantOfShape(h)  y = Add(x, c)", because="not shown"),
        Rejects("y = Add(x, z)", because="no operand is a ConstantOfShape"),
        Rejects("int64[n] x; h = Shape(x)  c = ConstantOfShape(h)  y = Div(x, c)", because="divided by zeros"),
    ),
)
def fill_into_elementwise(m: Match, build: Builder) -> Value:
    """ConstantOfShape(s, value=c) + y ⟶ c + y where y gives the sum its shape, and likewise elementwise operators."""
    node = m.node(filled)
    operands: list[Value | None] = []
    for value in inputs_of(node):
        number, source = _fill(value, node), made_by(value, "ConstantOfShape")
        operands.append(value if number is None else build.const(number, like=value))
        if number is not None and not number.any() and _divides_whole(m, node):
            divides = value is m.operand(node, 1)
            m.require(not divides, "where there are none, a whole number can be divided by zeros")
        if source is not None and number is not None:
            m.cover(source, *passed(value))
    (made,) = build.again(node, *operands)
    same = same_shape(m.shape(made), m.shape(filled))
    m.require(same, "with the number alone the result is not shown to have the same shape", at=m[filled])
    return made


target_shape, to = Var("target shape"), Attr[int]("to")
CAST_OF_EXPAND = rule(
    "cast-of-expand",
    CANONICALIZE,
    op.Cast(op.Expand(x, target_shape), to=to),
    op.Expand(op.Cast(x, to=to), target_shape),
    doc="Cast(Expand(x, s)) ⟶ Expand(Cast(x), s).",
    examples=(
        Rewrites(
            "bool x; float[n,s] z; h = Shape(z)  e = Expand(x, h)  y = Cast<to=1>(e)",
            to="bool x; float[n,s] z; h = Shape(z)  c = Cast<to=1>(x)  y = Expand(c, h)",
        ),
        Rejects(
            "bool x; int64[2] h; e = Expand(x, h)  y = Cast<to=1>(e)  z = Not(e)",
            because="also used by Not",
        ),
    ),
)


def _number(value: Value, reader: ir.Node, facts: Facts) -> tuple[Array, Value] | None:
    """The number that an Expand or a ConstantOfShape writes out, and the shape; None for another operator."""
    fill, node = _fill(value, reader), made_by(value, "Expand", "ConstantOfShape")
    if node is None or node.graph is not reader.graph:
        return None
    array = fill if fill is not None else facts.constant(m) if (m := input_of(node)) is not None else None
    return None if array is None or array.size != 1 else (array, inputs_of(node)[-1])


def _broadcast_by_number(node: ir.Node, facts: Facts) -> list[tuple[Value, Array, Value]]:
    """The operands that another one broadcasts: each with that one's number, and its shape."""
    a, b = inputs_of(node)
    pairs = ((a, b), (b, a))[: 2 if "commutative" in TRAITS[node.op_type].marks else 1]
    return [(kept, *found) for kept, other in pairs if (found := _number(other, node, facts)) is not None]


neutral = AnyNode(
    op_types=operators(marks="neutral"),
    where=lambda node, facts: bool(_broadcast_by_number(node, facts)) or "no operand is an Expand of a number",
)


@rule(
    "expand-of-neutral",
    CANONICALIZE,
    neutral,
    allow_shared=True,
    examples=(
        Rewrites(
            "bool[s] k; float[n,s] x; h = Shape(x)  e = Expand(bool {1}, h)  y = And(e, k)",
            to="bool[s] k; float[n,s] x; h = Shape(x)  y = Expand(k, h)",
        ),
        Rewrites(
            "float[1,s] x; float[n,s] z; h = Shape(z)  c = ConstantOfShape<value=float[1] {1}>(h)  y = Div(x, c)",
            to="float[1,s] x; float[n,s] z; h = Shape(z)  y = Expand(x, h)",
        ),
        Rejects("bool[s] k; int64[2] h; e = Expand(bool {0}, h)  y = And(e, k)", because="not true"),
        Rejects("y = Div(x, z)", because="no operand is an Expand"),
        Rejects("float[s] x; int64[2] h; e = Expand(0.0, h)  y = Add(e, x)", because="-0.0"),
    ),
)
def expand_of_neutral(m: Match, build: Builder) -> Value:
    """x·Expand(1, s) ⟶ Expand(x, s), and likewise x∧true, x∨false, x/1, x-0, x+(-0)."""
    found = _broadcast_by_number(m.node(neutral), m.facts)
    tested = [changes_nothing(m.node(neutral).op_type, number) for _, number, _ in found]
    m.require(True in tested, str(tested[0]))
    kept, _, shape = found[tested.index(True)]
    made: Value = build.Expand(kept, shape)
    return made
