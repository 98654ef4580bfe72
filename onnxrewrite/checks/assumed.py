"""Values that are fed to a rewrite, given what its rule assumes of the data."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from onnxrewrite.checks.site_inputs import counted
from onnxrewrite.inputs.classes import CANCELLING, EDGES, HUGE, MARKS, NOT_FINITE
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.system.arrays import Array, Feeds, is_tensor

_LEFT_OUT = {
    Assumption.FINITE: (NOT_FINITE,),
    Assumption.SCORES_ABOVE_10000: ("large", "far", HUGE, CANCELLING, MARKS),
}
"""The classes in which an assumption does not hold."""


def classes(assumes: Collection[Assumption], among: Sequence[str] = EDGES) -> tuple[str, ...]:
    """The classes of values to feed, of all or of some."""
    left_out = set[str]()
    for assumption in assumes:
        left_out.update(_LEFT_OUT.get(assumption, ()))
    return tuple(c for c in among if c not in left_out)


def hold(assumes: Collection[Assumption], feeds: Feeds) -> bool:
    """True if certain inputs are as a rule assumes, as far as inputs can tell."""
    arrays = [np.asarray(v) for v in feeds.values() if is_tensor(v)]
    return all(_HOLDS[each](array) for each in assumes if each in _HOLDS for array in arrays)


def _is_moderate(array: Array) -> bool:
    """True for scores above ``-_SCORE``, and truth values of which no row is false, or true, throughout."""
    if array.dtype == np.bool_:
        return array.tobytes() == np.asarray(counted(array)).tobytes()
    return array.dtype.kind not in "fV" or bool((np.abs(array.astype(np.float64)) < _SCORE).all())


_SCORE = 100.0
"""Of this size a score is far above -10000, whatever is added to it."""

_HOLDS = {
    Assumption.FINITE: lambda a: a.dtype.kind not in "fV" or bool(np.isfinite(a.astype(np.float64)).all()),
    Assumption.NOT_EMPTY: lambda a: a.size > 0,
    Assumption.NOT_NEGATIVE: lambda a: a.dtype.kind != "i" or bool((a >= 0).all()),
    Assumption.SCORES_ABOVE_10000: _is_moderate,
}
