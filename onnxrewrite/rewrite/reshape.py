"""Reshapes to a constant target, which copies dimensions and may leave one open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.dims import Dim, at_least, is_known, is_zero_with, same_dim
from onnxrewrite.ir.shapes import allows_zero
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


def takes_sizes_as_told(source: Sequence[Dim] | None, target: Sequence[Dim] | None) -> bool:
    """True if a Reshape, without ``allowzero``, is shown to make the sizes of its computed target, or not to run.

    A size that is zero copies that of the input, which may be another: [1, 0, 1, 1] by {0, -1} is [1, 0], not [0, 1].
    One alone, beside sizes that are not zero, is what those leave over, whatever it copies.
    """
    if target is None:
        return True
    doubtful = [place for place, size in enumerate(target) if _may_copy_another(source, place, size)]
    others = [size for place, size in enumerate(target) if place not in doubtful]
    return not doubtful or (len(doubtful) == 1 and all(at_least(size) > 0 for size in others))


def _may_copy_another(source: Sequence[Dim] | None, place: int, size: Dim) -> bool:
    """True if a size may be zero where the input's at its place is there, and is not."""
    if not is_known(size) or isinstance(size, int) or at_least(size) > 0:
        return False
    return source is None or (place < len(source) and not is_zero_with(source[place], size))


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
        spelled = None if allows_zero(own) else m.facts.elements(m.operand(own, 1))
    return reshaped_to(m, build, source, wanted, at=out, spelled=spelled)


def require_sizes_as_told(m: Match, node: ir.Node) -> None:
    """Refuse where a Reshape may make other sizes than those that its computed target tells."""
    told = None if allows_zero(node) else m.facts.elements(m.operand(node, 1))
    holds = takes_sizes_as_told(m.shape(m.operand(node)), told)
    m.require(holds, "a size that may be zero copies another", at=m.operand(node, 1))


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
