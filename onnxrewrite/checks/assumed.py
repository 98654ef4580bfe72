"""Classes of values that are fed to a rewrite, given what its rule assumes of the data."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnxrewrite.inputs.classes import EDGES, NOT_FINITE
from onnxrewrite.rewrite.rule import Assumption


def classes(assumes: Collection[Assumption], among: Sequence[str] = EDGES) -> tuple[str, ...]:
    """The classes of values to feed, of all or of some."""
    return tuple(c for c in among if c != NOT_FINITE or Assumption.FINITE not in assumes)
