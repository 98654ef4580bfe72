"""Queries, keys and values that are transposed together and then taken apart: taken apart first.

Where it comes from: ``qkv.reshape(B, N, 3, H, D).permute(2, 0, 3, 4, 1).unbind(0)``, as in attention over channels
(El-Nouby et al., 2021, arXiv:2106.09681, "XCiT").

Why: ONNX Runtime's Transpose is fast where one axis moves, and several times slower, a number at a time, where more do.
The axis of q, k and v is one of them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

x, perm = Var("x"), Attr[tuple[int, ...]]("perm")
turn = op.Transpose(x, perm=perm)
split = op.Split(turn, Each[Value]("sizes", at_least=0), axis=Attr[int]("axis", default=0))
axis_of_view = Attr[tuple[int, ...]]("axes")
first = op.Squeeze(split[0], axes=axis_of_view)


def _view(m: Match, piece: Value, axis: int) -> ir.Node:
    """The Squeeze that alone reads a piece, and takes out the axis of the Split."""
    view = only_reader(piece, "Squeeze")
    if view is None:
        m.refuse("a piece is read by something else than a Squeeze", at=piece)
    m.require(unit_axes(m.facts, view) == (axis,), "a piece is not squeezed along the axis of the Split", at=piece)
    return view


_TURN = "float[b,5,3,4,2] x; t = Transpose<perm=[2,0,3,4,1]>(x)  p, q, r = Split<axis=0>(t, {1, 1, 1})"
_VIEWS = "a = Squeeze(p, {0})  b = Squeeze(q, {0})  c = Squeeze(r, {0})"
_SUM = "d = Sub(a, b)  y = Mul(d, c)"


@rule(
    "split-before-transpose",
    LOWER,
    first,
    needs_speedup=True,
    allow_shared=True,
    examples=(
        Rewrites(
            f"{_TURN} {_VIEWS} {_SUM}",
            to="float[b,5,3,4,2] x; p, q, r = Split<axis=2>(x, {1, 1, 1})"
            "  u = Squeeze(p, {2})  v = Squeeze(q, {2})  w = Squeeze(r, {2})  a = Transpose<perm=[0,2,3,1]>(u)"
            f"  b = Transpose<perm=[0,2,3,1]>(v)  c = Transpose<perm=[0,2,3,1]>(w)  {_SUM}",
        ),
        Rejects(
            f"{_TURN} a = Squeeze(p, {{0}})  b = Neg(q)  c = Neg(r) {_SUM}", because="something else than a Squeeze"
        ),
        Rejects(f"{_TURN} {_VIEWS} {_SUM} z = Neg(t)", because="the whole is used, too"),
        Rejects(
            "float[b,1,3,4,2] x; t = Transpose<perm=[2,0,3,4,1]>(x)  p, q, r = Split<axis=0>(t, {1, 1, 1})"
            "  a = Squeeze(p, {0})  b = Squeeze(q, {4})  c = Squeeze(r, {0})  d = Relu(b)  e = Sub(a, c)  y = Neg(e)",
            because="not squeezed along the axis",
        ),
    ),
)
def split_before_transpose(m: Match, build: Builder) -> list[Value]:
    """Squeeze(Split(Transpose(x))) of every piece ⟶ Transpose(Squeeze(Split(x))), with an axis less to transpose."""
    order, rank, turned = m[perm], len(m[perm]), m[turn]
    m.require(is_read_once(turned), "the whole is used, too", at=turn)
    axis = m.axis(m.node(split), rank)
    pieces = m.node(split).outputs
    views = [_view(m, piece, axis) for piece in pieces]
    m.widen([m.node(turn), *views], [view.outputs[0] for view in views])
    source, sizes = order[axis], np.ones(len(pieces), np.int64)
    parts: tuple[Value, ...] = build.Split(m[x], split=sizes, axis=source, outputs=len(pieces))
    rest = [a - (a > source) for a in order if a != source]
    return [build.Transpose(build.Squeeze(part, axes=(source,)), perm=rest) for part in parts]
