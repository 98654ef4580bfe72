"""Two Pads, or two Tiles, one right after the other, are one.

Where it comes from: layers that pad by themselves, behind a layer for padding; expansions along one axis after another.

Why: each of them copies the whole tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnxrewrite.rules import *

x = Var("x")

# -- Pad -------------------------------------------------------------------------------------------------------

inner_pads, outer_pads = Const("pads inside"), Const("pads")
inner_value, outer_value = Var("value inside", default=None), Var("value", default=None)
inner_axes, outer_axes = Const("axes inside", default=None), Const("axes", default=None)
inner_mode, outer_mode = Attr[str]("mode inside", default="constant"), Attr[str]("mode", default="constant")
inner_pad = op.Pad(x, inner_pads, inner_value, inner_axes, mode=inner_mode)
outer_pad = op.Pad(inner_pad, outer_pads, outer_value, outer_axes, mode=outer_mode)

ADD_UP = ("constant", "edge")
"""Modes in which the second Pad fills with what the first one would have gone on with."""


def _filling(m: Match, value: Var) -> object:
    """The number to fill with; None where it is not known, which is no number."""
    given = m.value(value)
    if given is None:
        return 0
    known = m.facts.constant(given)
    return None if known is None or known.size != 1 else known.item()


def _by_axis(m: Match, pads: Const, axes: Const, rank: int) -> npt.NDArray[Any]:
    """Begins and then ends for every axis."""
    along = m[axes].astype(np.int64) if m.value(axes) is not None else np.arange(rank)
    given = m[pads].astype(np.int64)
    m.require(given.size == 2 * along.size and (abs(along + 0.5) < rank).all(), "Pad is of another rank", at=pads)
    both = np.zeros((2, rank), np.int64)
    both[:, along] = given.reshape(2, -1)
    return both.ravel()


@rule(
    "pad-of-pad",
    CANONICALIZE,
    outer_pad,
    examples=(
        Rewrites(
            "float[n,4] x; p = Pad(x, {0, 1, 0, 2})  y = Pad(p, {0, 3, 1, -1}, 0.0)",
            to="float[n,4] x; y = Pad(x, {0, 4, 1, 1}, 0.0)",
        ),
        Rewrites(
            'float[n,4] x; p = Pad<mode="edge">(x, {1, 2}, , {-1})  y = Pad<mode="edge">(p, {0, 3, 0, 1})',
            to='float[n,4] x; y = Pad<mode="edge">(x, {0, 4, 0, 3})',
            opset=18,
        ),
        Rejects("float[n,4] x; p = Pad(x, {0, 1, 0, 2}, 1.0)  y = Pad(p, {0, 3, 0, 1})", because="the same number"),
        Rejects("float[n,4] x; p = Pad(x, {0, -1, 0, 0})  y = Pad(p, {0, 1, 0, 0})", because="more than padding"),
        Rejects("float[n,2] x; p = Pad(x, {0, 5, 0, 0})  y = Pad(p, {0, 0, 0, -4})", because="more than padding"),
        Rejects(
            'float[n,4] x; p = Pad<mode="reflect">(x, {0, 1, 0, 2})  y = Pad<mode="reflect">(p, {0, 1, 0, 1})',
            because="do not add up",
        ),
    ),
)
def pad_of_pad(m: Match, build: Builder) -> Value:
    """Pad(Pad(x, p), q) ⟶ Pad(x, p + q)."""
    mode = m[outer_mode]
    m.require(m[inner_mode] == mode and mode in ADD_UP, f"{m[inner_mode]} and {mode} do not add up", at=outer_pad)
    if mode == "constant":
        same = _filling(m, inner_value) == _filling(m, outer_value) is not None
        m.require(same, "they are not known to fill with the same number", at=outer_pad)
    rank = m.rank(x)
    if rank is None:
        m.refuse("the rank is not known", at=x)
    inner, outer = _by_axis(m, inner_pads, inner_axes, rank), _by_axis(m, outer_pads, outer_axes, rank)
    m.require((inner >= 0).all() and (inner + outer >= 0).all(), "more than padding is cut off", at=outer_pad)
    value = m.value(outer_value) or m.value(inner_value)
    return build.node("Pad", [m[x], build.const(inner + outer), value], {} if mode == "constant" else {"mode": mode})[0]


# -- Tile ------------------------------------------------------------------------------------------------------

inner_times, outer_times = Const("times inside", rank=1), Const("times", rank=1)
outer_tile = op.Tile(op.Tile(x, inner_times), outer_times)

TILE_OF_TILE = rule(
    "tile-of-tile",
    CANONICALIZE,
    outer_tile,
    op.Tile(x, inner_times * outer_times),
    doc="Tile(Tile(x, r), s) ⟶ Tile(x, r·s).",
    examples=(
        Rewrites("float[n,4] x; t = Tile(x, {1, 2})  y = Tile(t, {3, 2})", to="float[n,4] x; y = Tile(x, {3, 4})"),
        Rejects("float[n,4] x; int64[2] r; t = Tile(x, r)  y = Tile(t, {3, 2})", because="expected a constant"),
    ),
)
