"""Classes of values that are fed to a rewrite, given what its rule assumes of the data."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnxrewrite.inputs.classes import CANCELLING, EDGES, HUGE, MARKS, NOT_FINITE
from onnxrewrite.rewrite.rule import Assumption

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
