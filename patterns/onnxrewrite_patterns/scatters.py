"""Rows that are written one after the other, all of them in the end: ScatterND of which nothing below is left.

Where it comes from: ``out = torch.empty_like(x); out[..., 0::2] = a; out[..., 1::2] = b``, as the rotary embeddings of
Wan and other video models have it.  Exporters lay out the axis that is written along as the first one, and back.

Why: each ScatterND copies all that it writes into, to overwrite a part of it, one row at a time.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxrewrite.rules import *

scatter = op.ScatterND(Var("below"), Const("places", rank=2), Var("rows"), reduction="none")
perm = Attr[tuple[int, ...]]("perm")
written = any_of(op.Transpose(scatter, perm=perm), scatter)

_EVERY_OTHER = "a = ScatterND(d, int64[4,1] {0, 2, 4, 6}, x)"


@rule(
    "scatter-of-all",
    CANONICALIZE,
    written,
    examples=(
        Rewrites(
            f"float[8,n] d; float[4,n] x; float[4,n] z; {_EVERY_OTHER}y = ScatterND(a, int64[4,1] {{1, 3, 5, -1}}, z)",
            to="float[8,n] d; float[4,n] x; float[4,n] z; x3 = Unsqueeze(x, {1})  z3 = Unsqueeze(z, {1})"
            "s = Concat<axis=1>(x3, z3)  y = Reshape(s, {8, -1})",
        ),
        Rewrites(
            "float[8,n,3] d; float[3,n,4] x; float[4,n,3] z; u = Transpose<perm=[2,1,0]>(x)"
            "a = ScatterND(d, int64[4,1] {1, 3, 5, 7}, u)  b = ScatterND(a, int64[4,1] {0, 2, 4, 6}, z)"
            "y = Transpose<perm=[2,1,0]>(b)",
            to="float[8,n,3] d; float[3,n,4] x; float[4,n,3] z; u = Transpose<perm=[2,1,0]>(x)"
            "z3 = Transpose<perm=[2,1,0]>(z)  u3 = Transpose<perm=[2,1,0]>(u)  z4 = Unsqueeze(z3, {3})"
            "u4 = Unsqueeze(u3, {3})  s = Concat<axis=3>(z4, u4)  y = Reshape(s, {3, 0, 8})",
        ),
        Rewrites(
            "float[5,n] d; float[2,n] x; float[3,n] z; a = ScatterND(d, int64[3,1] {2, 3, 4}, z)"
            "y = ScatterND(a, int64[2,1] {0, 1}, x)",
            to="float[5,n] d; float[2,n] x; float[3,n] z; y = Concat<axis=0>(x, z)",
        ),
        Rewrites(
            "float[3,n] d; float[3,n] x; y = ScatterND(d, int64[3,1] {0, 1, 2}, x)",
            to="float[3,n] d; float[3,n] x; y = Identity(x)",
        ),
        Rejects(
            'float[3,n] d; float[3,n] x; y = ScatterND<reduction="add">(d, int64[3,1] {0, 1, 2}, x)',
            because="reduction",
        ),
        Rejects(f"float[8,n] d; float[4,n] x; {_EVERY_OTHER}  y = Relu(a)", because="rows are left"),
        Rejects(
            f"float[8,n] d; float[4,n] x; {_EVERY_OTHER}  y = ScatterND(a, int64[4,1] {{1, 3, 5, 6}}, x)",
            because="written twice",
        ),
        Rejects(
            f"float[8,n] d; float[4,n] x; {_EVERY_OTHER}  y = ScatterND(a, int64[4,1] {{3, 1, 5, 7}}, x)",
            because="neither side by side nor in turn",
        ),
        Rejects(
            f"float[8,n] d; float[4,n] x; {_EVERY_OTHER}  b = ScatterND(a, int64[4,1] {{1, 3, 5, 7}}, x)  r = Relu(a)"
            "y = Concat<axis=0>(b, r)",
            because="is also used by Relu",
        ),
        Rejects(
            "float[3,n] d; float[3] x; y = ScatterND(d, int64[3,2] {0, 0, 1, 0, 2, 0}, x)", because="no whole rows"
        ),
        Rejects("float[m,n] d; float[3,n] x; y = ScatterND(d, int64[3,1] {0, 1, 2}, x)", because="not known"),
    ),
)
def scatter_of_all(m: Match, build: Builder) -> Value:
    """ScatterND(ScatterND(d, {0, 2, ...}, a), {1, 3, ...}, b) ⟶ Reshape(Concat(a, b)), and likewise of a, then b."""
    last, size = m.node(scatter), m.dim(scatter, 0)
    if not isinstance(size, int):
        m.refuse("the number of rows is not known", at=scatter)
    m.require(perm in m or only_reader(m.anchor, "Transpose") is None, "a Transpose lays it out anew", at=scatter)
    parts, left = [], np.ones(size, np.bool_)
    for node in (last, *path_through(m.operand(last), _writes).nodes):
        places = _places(m, node, left)
        left[places] = False
        parts.append((places, m.operand(node, 2)))
        m.cover(node)
        if not left.any():
            break
    m.require(not left.any(), "some rows are left as they were", at=scatter)
    axis = m[perm].index(0) if perm in m else 0
    parts.sort(key=lambda part: part[0][0])
    values = [build.Transpose(v, perm=m[perm]) if perm in m else v for _, v in parts]
    rows = [places for places, _ in parts]
    if np.array_equal(np.concatenate(rows), np.arange(size)):
        return build.Concat(*values, axis=axis) if len(values) > 1 else build.Identity(values[0])
    in_turn = len({len(r) for r in rows}) == 1 and np.array_equal(np.stack(rows, 1).ravel(), np.arange(size))
    m.require(in_turn, "the rows are neither side by side nor in turn", at=scatter)
    spread = [build.Unsqueeze(v, axes=(axis + 1,)) for v in values]
    return reshaped_as(m, build, build.Concat(*spread, axis=axis + 1), m.anchor)


def _writes(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "ScatterND"


def _places(m: Match, node: ir.Node, left: Array) -> Array:
    """The rows that a ScatterND writes, none of which may have been written below."""
    found = m.facts.constant(resolve(m.operand(node, 1)))
    m.require(node.attributes.get_string("reduction", "none") == "none", "it has a reduction")
    m.require(found is not None and found.ndim == 2 and found.shape[1] == 1, "no whole rows are written, or not always")
    assert found is not None
    places = np.where(found[:, 0] < 0, found[:, 0] + len(left), found[:, 0])
    m.require(len(places) > 0 and ((places >= 0) & (places < len(left))).all(), "a row is out of range")
    m.require(len(set(places)) == len(places) and left[places].all(), "a row is written twice")
    return places
