"""Transposes between views: axes of size 1 that a view puts in before one, and another takes away after it.

Why: a converter that knows only a product of batches gives every letter of an Einsum a place in it, [B, S, H, D] as
[B, S, H, 1, D], transposed to [B, H, S, 1, D] and merged to [B·H, S, D].  Nothing that looks for heads sees them there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxrewrite.rules import *
from onnxrewrite_patterns.transpose_frames import Perm, is_identity
from onnxrewrite_patterns.view_chains import copies_nothing

x = Var("x")
perm = Attr[Perm]("perm", default=())
padded = op["Unsqueeze", "Reshape"](x, Each("rest", at_least=0))
turn = op.Transpose(padded, perm=perm)
view = op["Reshape", "Squeeze"](turn, Each("given", at_least=0))


@rule(
    "unit-axes-of-transpose",
    CANONICALIZE,
    view,
    assumes=(Assumption.NOT_EMPTY,),
    allow_shared=True,
    examples=(
        Rewrites(
            "float[n,5,4,8] x; u = Unsqueeze(x, {3})  t = Transpose<perm=[0,2,1,3,4]>(u)  y = Reshape(t, {-1, 5, 8})",
            to="float[n,5,4,8] x; t = Transpose<perm=[0,2,1,3]>(x)  y = Reshape(t, {-1, 5, 8})",
        ),
        Rewrites(
            "float[n,5,32] x; u = Reshape(x, {0, 5, 1, 4, 8})  t = Transpose<perm=[0,3,2,4,1]>(u)"
            "  y = Reshape(t, {-1, 8, 5})",
            to="float[n,5,32] x; u = Reshape(x, {0, 5, 4, 8})  t = Transpose<perm=[0,2,3,1]>(u)"
            "  y = Reshape(t, {-1, 8, 5})",
        ),
        Rewrites(
            "float[b,s,4,8] x; u = Unsqueeze(x, {1})  t = Transpose<perm=[0,3,1,2,4]>(u)  h = Shape(x)"
            "  l = Gather(h, {1})  g = Concat<axis=0>({-1}, l, {8})  y = Reshape(t, g)",
            to="float[b,s,4,8] x; t = Transpose<perm=[0,2,1,3]>(x)  h = Shape(x)"
            "  l = Gather(h, {1})  g = Concat<axis=0>({-1}, l, {8})  y = Reshape(t, g)",
        ),
        Rewrites(
            "float[n,5,8] x; u = Unsqueeze(x, {1})  t = Transpose<perm=[0,2,1,3]>(u)  y = Reshape(t, {0, -1})",
            to="float[n,5,8] x; y = Reshape(x, {0, 40})",
        ),
        Rewrites(
            "float[b,s,32] x; u = Reshape(x, {0, 0, 4, 8, 1})  t = Transpose<perm=[0,2,1,3,4]>(u)  y = Squeeze(t, {4})",
            to="float[b,s,32] x; u = Reshape(x, {0, 0, 4, 8})  y = Transpose<perm=[0,2,1,3]>(u)",
        ),
        Rejects(
            "float[n,1,4,8] x; u = Unsqueeze(x, {3})  t = Transpose<perm=[0,2,1,3,4]>(u)  y = Reshape(t, {-1, 1, 8})",
            because="x has an axis of size 1 itself",
        ),
        Rejects(
            "float[4,5,8] x; u = Reshape(x, {1, 4, 5, 8})  t = Transpose<perm=[0,2,1,3]>(u)"
            "  y = Reshape(t, {1, 5, 32})",
            because="an axis of size 1 is left",
        ),
        Rejects(
            "float[n,5,4,8] x; t = Reshape(x, {0, 5, 8, 4})  u = Transpose<perm=[0,2,1,3]>(t)  y = Reshape(u, {0, -1})",
            because="puts in no axis of size 1",
        ),
        Rejects(
            "float[b,s,4,8] x; int64[3] g; u = Unsqueeze(x, {1})  t = Transpose<perm=[0,3,1,2,4]>(u)"
            "  y = Reshape(t, g)",
            because="no constant target",
        ),
    ),
)
def unit_axes_of_transpose(m: Match, build: Builder) -> Value:
    """Reshape(Transpose(Unsqueeze(x))) ⟶ Reshape(Transpose(x)), without the axes of size 1 that were put in."""
    m.node(padded)
    node = m.node(view)
    before, between = m.shape(x), m.shape(padded)
    m.require(before is not None and between is not None, "the rank is not known", at=x)
    m.require(1 not in (before or ()), "x has an axis of size 1 itself", at=x)
    m.require(1 not in (m.shape(view) or ()), "an axis of size 1 is left, for a batch of one, say", at=view)
    kept = [axis for axis, size in enumerate(between or ()) if size != 1]
    m.require(len(kept) < len(between or ()), "it puts in no axis of size 1", at=padded)
    order = m[perm] or tuple(reversed(range(len(between or ()))))
    left = tuple(kept.index(axis) for axis in order if axis in kept)
    source = _in_shape(m, build, m[x], [(between or ())[axis] for axis in kept])
    turned = source if is_identity(left) else build.Transpose(source, perm=left)
    if node.op_type == "Reshape" and copies_nothing(m, target := m.operand(node, 1)):
        return build.Reshape(turned, target)
    return turned if same_shape(m.shape(turned), m.shape(view)) else reshaped_as(m, build, turned, m[view])


def _in_shape(m: Match, build: Builder, value: Value, wanted: Sequence[Dim]) -> Value:
    """A value in a shape, by a constant target."""
    if same_shape(m.shape(value), wanted):
        return value
    found = reshape_target(m.shape(value), wanted, None)
    m.require(found is not None, "no constant target takes away the axes of size 1", at=value)
    return build.Reshape(value, np.array(found, dtype=np.int64))
