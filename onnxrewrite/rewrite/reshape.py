"""Reshapes to a constant target, which copies dimensions and may leave one open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.dims import Dim, at_least, same_dim
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.paths import made_by
from onnxrewrite.rewrite.build import Builder


def reshape_target(
    source: Sequence[Dim] | None, wanted: Sequence[Dim], spelled: Sequence[Dim] | None
) -> list[int] | None:
    """A constant target that reshapes ``source`` to ``wanted``; None where there is none.

    Args:
        source: The input's shape; None when unknown.
        wanted: The result's shape.
        spelled: The target that the model has, if any; its -1 may stay.
    """
    made: list[int | None] = [_entry(source, place, size) for place, size in enumerate(wanted)]
    left = [place for place, entry in enumerate(made) if entry is None]
    if not left:
        return made  # type: ignore[return-value]
    if len(left) > 1:
        return None
    (place,) = left
    others = [at_least(size) > 0 for other, size in enumerate(wanted) if other != place]
    if not all(others) and (spelled is None or len(spelled) != len(wanted) or spelled[place] != -1):
        return None
    return [-1 if entry is None else entry for entry in made]


def _entry(source: Sequence[Dim] | None, place: int, size: Dim) -> int | None:
    """The entry of a target for one dimension: the number, 0 where the input has the same size there, or None."""
    if isinstance(size, int) and size:
        return size
    copies = source is not None and place < len(source) and same_dim(source[place], size)
    return 0 if copies else None


def new_axes(source: Sequence[Dim] | None, wanted: Sequence[Dim]) -> list[int] | None:
    """The axes of size 1 that make ``wanted`` of ``source``; None where that takes more."""
    added, place = [], 0
    for axis, size in enumerate(wanted):
        if source is not None and place < len(source) and same_dim(source[place], size):
            place += 1
        elif size == 1:
            added.append(axis)
        else:
            return None
    return added if source is not None and place == len(source) else None


def reshaped_as(
    m: Match, build: Builder, source: ir.Value, out: ir.Value, spelled: Sequence[Dim] | None = None
) -> ir.Value:
    """``source`` in the shape of ``out``, by a constant target; or with axes of size 1 that come or go.

    Args:
        m: The match.
        build: Its builder.
        source: What is reshaped.
        out: What has the shape.
        spelled: A target that gives this shape where ``out`` is made by no Reshape.
    """
    wanted, own = m.shape(out), made_by(out, "Reshape")
    if wanted is None:
        m.refuse("the rank of the result is not known", at=out)
    if own is not None:  # a zero beside -1 copies a size, and fails where that is none, but with allowzero
        spelled = None if own.attributes.get_int("allowzero", 0) else m.facts.elements(m.operand(own, 1))
    return reshaped_to(m, build, source, wanted, at=out, spelled=spelled)


def reshaped_to(
    m: Match,
    build: Builder,
    source: ir.Value,
    wanted: Sequence[Dim],
    *,
    at: ir.Value,
    spelled: Sequence[Dim] | None = None,
) -> ir.Value:
    """``source`` in a shape, by a constant target; or with axes of size 1 that come or go.

    Args:
        m: The match.
        build: Its builder.
        source: What is reshaped.
        wanted: The shape.
        at: Where the match is refused if there is no such target.
        spelled: A target that gives this shape in the model, if any.
    """
    m.require(all(not isinstance(d, int) or d >= 0 for d in wanted), "the result has no shape", at=at)
    found = reshape_target(m.shape(source), wanted, spelled)
    if found is None and (added := new_axes(m.shape(source), wanted)) is not None:
        return build.Unsqueeze(source, axes=added)
    if found is None and (removed := new_axes(wanted, m.shape(source) or ())) is not None:
        return build.Squeeze(source, axes=removed)
    if found is None:
        shown = f"[{', '.join(map(str, m.shape(source) or '?'))}] to [{', '.join(map(str, wanted))}]"
        m.refuse(f"no constant target turns {shown}", at=at)
    return build.Reshape(source, shape=np.array(found, np.int64))
