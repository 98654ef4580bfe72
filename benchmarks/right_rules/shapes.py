"""Rules that move data and compute nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.handwritten import right
from onnxrewrite.rules import Attr, Builder, Const, Match, Value, Var, op

x, z = Var("x"), Var("z")
perm, perm2, axes, axes2, axis, axis2 = (Attr[Any](n) for n in ("perm", "perm2", "axes", "axes2", "axis", "axis2"))
shape, shape2, index, index2, repeats, repeats2 = (
    Const(n) for n in ("shape", "shape2", "index", "index2", "repeats", "repeats2")
)
block, sizes = Attr[Any]("block"), Const("sizes")
halves = op.Split(x, sizes, axis=axis)


def one_transpose(m: Match, build: Builder) -> Value:
    """Transpose(Transpose(x, p), q) ⟶ Transpose(x, p[q])."""
    return build.Transpose(m[x], perm=[m[perm][a] for a in m[perm2]])


RULES = [
    right("transposes-composed", op.Transpose(op.Transpose(x, perm=perm), perm=perm2), one_transpose),
    right("transpose-and-inverse", op.Transpose(op.Transpose(x, perm=perm), perm=perm2), lambda m, b: m[x],
          when=lambda m: [m[perm][a] for a in m[perm2]] == sorted(m[perm])),
    right("involution-twice", op.Transpose(op.Transpose(x, perm=perm), perm=perm2), lambda m, b: m[x],
          when=lambda m: m[perm] == m[perm2] and [m[perm][a] for a in m[perm]] == sorted(m[perm])),
    right("unsqueeze-and-squeeze", op.Squeeze(op.Unsqueeze(x, axes=axes), axes=axes2), lambda m, b: m[x],
          when=lambda m: m[axes] == m[axes2]),
    right("gather-composed", op.Gather(op.Gather(x, index, axis=0), index2, axis=0),
          lambda m, b: b.Gather(m[x], b.const(m[index][m[index2]], like=index), axis=0), when=lambda m: m[index].ndim == 1),
    right("tiles-joined", op.Tile(op.Tile(x, repeats), repeats2), lambda m, b: b.Tile(m[x], b.const(m[repeats] * m[repeats2])),
          when=lambda m: m[repeats].shape == m[repeats2].shape),
    right("depth-and-space", op.DepthToSpace(op.SpaceToDepth(x, blocksize=block), blocksize=block), lambda m, b: m[x]),
    right("split-and-concat", op.Concat(halves[0], halves[1], axis=axis2), lambda m, b: m[x], when=lambda m: m[axis] == m[axis2] and m[sizes].size == 2),
    right("flatten-of-flatten", op.Flatten(op.Flatten(x, axis=1), axis=1), lambda m, b: b.Flatten(m[x], axis=1)),
    right("reshape-of-reshape", op.Reshape(op.Reshape(x, shape), shape2), lambda m, b: b.Reshape(m[x], m.value(shape2)),
          when=lambda m: np.all(m[shape2] != 0) and np.all(m[shape] != 0)),
    right("reversed-twice", op.Slice(op.Slice(x, starts=(-1,), ends=(-9999,), axes=axes, steps=(-1,)), starts=(-1,), ends=(-9999,), axes=axes2, steps=(-1,)),
          lambda m, b: m[x], when=lambda m: m[axes] == m[axes2]),
    right("concat-of-one", op.Concat(x, axis=axis), lambda m, b: m[x]),
    right("expanded-and-gathered", op.Gather(op.Unsqueeze(x, axes=(0,)), 0, axis=0), lambda m, b: m[x]),
    right("triangle-twice", op.Trilu(op.Trilu(x, upper=axis), upper=axis), lambda m, b: b.Trilu(m[x], upper=m[axis])),
]  # fmt: skip
