"""Axes of size 1 that are taken away before arithmetic, and put back, or elsewhere, after it.

Where it comes from: JAX and NumPy reduce without keeping axes; a variance is computed of such means, and is given its
axes back where it meets what it belongs to.

Why: the views go, and a normalization is seen whose statistics have the shape that its pattern says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.rules import *

VIEWS, REDUCTIONS = operators("view"), operators("reduce")
ARITHMETIC = operators("broadcast pointwise", but="PRelu Clip Where comparison logic")

arithmetic = AnyNode(op_types=ARITHMETIC)
view = op[(*VIEWS, "Transpose")](arithmetic, Each("rest", at_least=0))

_FAR = 12
"""No more nodes of arithmetic are looked at, one above the other."""

_STATISTICS = "q = ReduceMean<axes=[2,3], keepdims=0>(w)  s = Mul(n, n)  v = Sub(q, s)  c = Max(v, 0.0)"

_SCALE = "{1.0, 2.0, 3.0}"


@dataclass
class _Move:
    """The way in which values become those of the shape that the view makes.

    Attributes:
        before: The sizes below the view, of which axes of size 1 may be elsewhere after it.
        after: Those.
        arithmetic: The nodes between the view and the ``leaves``, outermost first.
        leaves: What goes in.
    """

    before: Sequence[Dim]
    after: Sequence[Dim]
    arithmetic: dict[ir.Node, None] = field(default_factory=dict)
    leaves: dict[Value, None] = field(default_factory=dict)

    def look(self, m: Match, value: Value, far: int = _FAR) -> None:
        """Find the arithmetic above a value, of which nothing is read elsewhere."""
        node, inside = made_by(value, *ARITHMETIC), {m.node(view), *self.arithmetic}
        if node is None or node.graph is not m.node(view).graph or not far or need_outside(value, inside):
            self.leaves[value] = None
            return
        self.arithmetic[node] = None
        for operand in self._moved(node):
            self.look(m, operand, far - 1)

    @staticmethod
    def _moved(node: ir.Node) -> list[Value]:
        """The operands of arithmetic that have its shape: the first one, where the others are parameters."""
        return inputs_of(node) if TRAITS[node.op_type].kind == "broadcast" else inputs_of(node)[:1]

    def shape(self, given: Sequence[Dim]) -> list[Dim]:
        """The shape of an operand that is broadcast to ``before``, after the move."""
        padded = [1] * (len(self.before) - len(given)) + list(given)
        wide = iter([own for own, size in zip(padded, self.before, strict=True) if size != 1])
        return [1 if size == 1 else next(wide) for size in self.after]

    def again(self, m: Match, build: Builder, value: Value, moved: dict[Value, Value]) -> Value:
        """A value after the move, of leaves that are so."""
        if value not in moved:
            node = made_by(value, *ARITHMETIC)
            assert node is not None
            operands = [self.again(m, build, each, moved) for each in self._moved(node)]
            (moved[value],) = build.again(node, *operands, *inputs_of(node)[len(operands) :])
        return moved[value]


@rule(
    "returning-axes",
    CANONICALIZE,
    view,
    examples=(
        Rewrites(
            f"float[b,16,8,8] x; p = GlobalAveragePool(x)  n = Squeeze(p, {{2, 3}})  w = Mul(x, x)  {_STATISTICS}"
            "  u = Reshape(c, {0, 16, 1, 1})  y = Div(x, u)",
            to="float[b,16,8,8] x; p = GlobalAveragePool(x)  w = Mul(x, x)  q = ReduceMean<axes=[2,3], keepdims=1>(w)"
            "  s = Mul(p, p)  v = Sub(q, s)  c = Max(v, float[1,1,1,1] {0.0})  y = Div(x, c)",
        ),
        Rewrites(
            f"float[b,3] x; a = Unsqueeze(x, {{1, 2}})  s = Sqrt(a)  d = Div(float[1,1,1,3] {_SCALE}, s)"
            "  y = Reshape(d, {0, 3, 1, 1})",
            to=f"float[b,3] x; a = Reshape(x, {{0, 3, 1, 1}})  s = Sqrt(a)  y = Div(float[1,3,1,1] {_SCALE}, s)",
        ),
        Rewrites(
            "float[b,3] x; a = Unsqueeze(x, {1, 2})  s = Sqrt(a)  y = Transpose<perm=[0,3,1,2]>(s)",
            to="float[b,3] x; a = Reshape(x, {0, 3, 1, 1})  y = Sqrt(a)",
        ),
        Rejects("float[b,3] x; a = Unsqueeze(x, {1})  s = Sqrt(a)  y = Transpose(s)", because="other than of size 1"),
        Rejects("float[b,16] x; s = Sqrt(x)  y = Unsqueeze(s, {2, 3})", because="no view goes"),
        Rejects(
            "float[b,6,1] x; a = Squeeze(x, {2})  s = Sqrt(a)  y = Reshape(s, {0, 2, 3})",
            because="other than of size 1",
        ),
        Rejects(
            "float[b,6,1] x; a = Squeeze(x, {2})  s = Sqrt(a)  y = Unsqueeze(s, {2})  z = Neg(s)",
            because="also used by Neg",
        ),
    ),
)
def returning_axes(m: Match, build: Builder) -> Value:
    """Unsqueeze(Squeeze(x) + Reduce(z, keepdims=0)) ⟶ x + Reduce(z, keepdims=1), whatever is computed between."""
    move = _move(m)
    move.look(m, m[arithmetic])
    inside = {m.node(view), *move.arithmetic}
    moved = {leaf: _moved_leaf(m, build, leaf, move) for leaf in move.leaves}
    gone = [leaf for leaf in moved if _is_view(leaf) and not need_outside(leaf, inside)]
    made = [new for leaf, new in moved.items() if _is_view(new) and not _is_there(m, leaf, new)]
    m.require(len(made) < len(gone) + 1, "no view goes", at=m[view])
    m.cover(*move.arithmetic)
    return move.again(m, build, m[arithmetic], moved)


def _move(m: Match) -> _Move:
    """The move that the view makes, which is of axes of size 1 alone."""
    node = m.node(view)
    before, after = m.shape(m.operand(node)), m.shape(view)
    if before is None or after is None:
        m.refuse("a rank is not known", at=m[view])
    wide, wanted = ([size for size in shape if size != 1] for shape in (before, after))
    perm = permutation(m.facts, node) if node.op_type == "Transpose" else ()
    stay = [axis for axis in perm if before[axis] != 1] if not isinstance(perm, str) else [1, 0]
    m.require(same_shape(wide, wanted) and stay == sorted(stay), "axes change other than of size 1", at=m[view])
    return _Move(before, after)


def _is_view(value: Value) -> bool:
    return made_by(value, *VIEWS) is not None


def _is_there(m: Match, leaf: Value, new: Value) -> bool:
    """True if a view of the same shape is there already: then they are one."""
    own = (m.node(view), made_by(new, *VIEWS))
    others = (n for n in readers(leaf, within=1) if n not in own and n.op_type in VIEWS and input_of(n) is leaf)
    return any(same_shape(m.shape(made), m.shape(new)) for n in others for made in n.outputs)


def _moved_leaf(m: Match, build: Builder, leaf: Value, move: _Move) -> Value:
    """The operand of the arithmetic in its shape after the move."""
    array, shape = m.facts.constant(leaf), m.shape(leaf)
    if shape is None:
        m.refuse("a rank is not known", at=leaf)
    wanted = move.shape(shape)
    if array is not None:
        return build.const(array.reshape([int(str(size)) for size in wanted]), like=leaf)
    if same_shape(shape, wanted):
        return leaf
    node = made_by(leaf, *REDUCTIONS, *VIEWS)
    reduction = reduce_of(m.facts, node) if node is not None and node.op_type in REDUCTIONS else ""
    if node is not None and not isinstance(reduction, str) and not reduction.keepdims:
        sizes = m.shape(reduction.source) or ()
        kept = [1 if axis in reduction.axes else size for axis, size in enumerate(sizes)]
        if same_shape(kept, wanted):
            return build.again(node, *inputs_of(node), keepdims=1)[0]
    source = m.operand(node) if node is not None and _is_view(leaf) else leaf
    return source if same_shape(m.shape(source), wanted) else reshaped_to(m, build, source, wanted, at=leaf)
