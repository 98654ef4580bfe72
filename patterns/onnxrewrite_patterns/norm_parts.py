"""Shared code of the rules about normalizations: the axes they run along, and parameters of the right shape.

No rules here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from onnxrewrite.rules import *

Axes: TypeAlias = "tuple[int, ...] | int | None"


def common_axes(m: Match, source: Term, *reductions: Axes) -> tuple[int, ...]:
    """The axes that all of these means of ``source`` run along, counted from the back, in order."""
    found = {_from_back(m, source, axes) for axes in reductions}
    m.require(len(found) == 1, "the means run along different axes", at=source)
    return found.pop()


def last_axes(m: Match, source: Term, *reductions: Axes) -> int:
    """The number of axes that all of these means of ``source`` run along; refuses unless they are the last ones."""
    axes = common_axes(m, source, *reductions)
    are_last = axes == tuple(range(-len(axes), 0))
    m.require(are_last, f"the mean runs along the axes {list(axes)}, not the last ones", at=source)
    return len(axes)


def _from_back(m: Match, source: Term, axes: Axes) -> tuple[int, ...]:
    """Axes in order, each counted from the back."""
    rank = m.rank(source)
    if axes is None or axes == ():
        m.require(rank == 1, "the mean is one of everything", at=source)
        return (-1,)
    given = (axes,) if isinstance(axes, int) else axes
    known = rank is not None or all(a < 0 for a in given)
    m.require(known, "an axis cannot be told, for the rank is unknown", at=source)
    return tuple(sorted({a if a < 0 else a - (rank or 0) for a in given}))


def last_sizes(m: Match, source: Term, count: int) -> tuple[int, ...]:
    """The sizes of the last axes of ``source``, which have to be numbers."""
    dims = (m.shape(source) or ())[-count:]
    sizes = tuple(d for d in dims if isinstance(d, int))
    m.require(len(sizes) == count, "the sizes of the normalized axes are not known", at=source)
    return sizes


def require_epsilon(m: Match, eps: Scalar, *, above_zero: bool = False) -> None:
    """Refuse to add to a variance what makes it negative, or leaves it zero where it must be ``above_zero``."""
    m.require(0 <= m[eps] < math.inf, f"what is added to the variance is {m[eps]:g}")
    known = m[eps] > 0 or not above_zero
    m.require(known, "without epsilon, the variance of equal numbers is zero or what rounding makes of it")


def constant(m: Match, value: Value) -> Array | None:
    """A constant in float64; None where the value is not constant."""
    array = m.facts.constant(resolve(value))
    return None if array is None else array.astype(np.float64)


def is_all(m: Match, value: Value | None, number: float) -> bool:
    """True if a value is constant, and every element is ``number``."""
    array = None if value is None else constant(m, value)
    return array is not None and bool((array == number).all())


def spread(array: Array, sizes: Sequence[int]) -> Array | None:
    """A constant broadcast to ``sizes``, ones in front left out; None where it does not fit."""
    shape = array.shape
    while len(shape) > len(sizes) and shape[0] == 1:
        shape = shape[1:]
    fits = len(shape) <= len(sizes) and all(d in (1, s) for d, s in zip(shape[::-1], sizes[::-1], strict=False))
    return np.broadcast_to(array.reshape(shape), sizes) if fits else None


def require_inner(m: Match, *free: Term) -> None:
    """Refuse if a value inside the match is needed elsewhere, except those that are ``free`` to be: a rule with
    ``allow_shared`` has to check that itself."""
    allowed = {m.anchor, *(m[t] for t in free if t in m)}
    leaking = next((v for v, _ in leaks(m.nodes, set(m.nodes)) if v not in allowed), None)
    m.require(leaking is None, f"`{leaking and leaking.name}` inside the match is needed elsewhere, too")


def with_sum(m: Match, total: Term, *computed_twice: Term) -> bool:
    """True if the sum that is normalized is needed elsewhere, too, so that it has to be an output.

    Refuses if another value inside the match is, except those that may be ``computed_twice``.
    """
    require_inner(m, total, *computed_twice)
    return bool(need_outside(m[total], set(m.nodes)))


def finite(m: Match, made: Value, *, at: Term) -> Value:
    """A constant without infinities: next to one of them a zero becomes NaN."""
    m.require(np.isfinite(np.asarray(constant(m, made))).all(), "what is folded in is not finite", at=at)
    return made
