"""Passed checks of sites: what passed in an earlier run is not run again.

A check is a function of what it is given, so its outcome can be remembered: by both sides, their weights to the last
bit, the seed, what is assumed, and this program's own source.  What failed, or was not run, is tried again each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Final, Protocol

import onnx_ir as ir

from onnxrewrite.checks.likeness import weight_kind
from onnxrewrite.checks.site import SiteCheck
from onnxrewrite.io import external
from onnxrewrite.system.versions import versions

_TOLD: Final = frozenset(f.name for f in fields(SiteCheck)) - {"seconds", "cached", "feeds"}
"""What is remembered of a check."""


class Memory(Protocol):
    """Remembers on this machine what passed."""

    def passed(self, check: str) -> str:
        """The record of a check that has passed; empty if none is remembered."""
        ...

    def keep_passed(self, told: Mapping[str, str]) -> None:
        """Remember checks that passed."""
        ...


@dataclass
class Passed:
    """The checks that have passed.

    Args:
        memory: Remembers them.

    Attributes:
        recalled: The keys of those that were not run in this run.
    """

    memory: Memory
    recalled: set[str] = field(default_factory=set)
    _fresh: dict[str, str] = field(default_factory=dict)

    def check(self, key: str, sides: Sequence[ir.Model], run: Callable[[], SiteCheck]) -> SiteCheck:
        """A check that passed before, or else its ``run``.

        Args:
            key: Both sides in text, where weights are told by their kinds, the seed, and what is assumed.
            sides: The two sides.
            run: Runs it.
        """
        name = _digest(key, sides)
        known = _read(self.memory.passed(name))
        if known is not None:
            self.recalled.add(key)
            return known
        found = run()
        if found.ok:
            self._fresh[name] = _written(found)
        return found

    def keep(self) -> None:
        """Remember what has passed in this run."""
        if self._fresh:
            self.memory.keep_passed(self._fresh)
            self._fresh.clear()


def _digest(key: str, sides: Sequence[ir.Model]) -> str:
    """The digest of all that a check depends on but for the machine."""
    state = hashlib.sha256(json.dumps([key, versions()], sort_keys=True).encode())
    for slot in (each for side in sides for each in external.slots(side) if weight_kind(each.tensor)):
        state.update(slot.tensor.tobytes())
    return state.hexdigest()


def _written(check: SiteCheck) -> str:
    return json.dumps({name: told for name, told in asdict(check).items() if name in _TOLD}, separators=(",", ":"))


def _read(told: str) -> SiteCheck | None:
    """The check that was ``_written``; None if there is none, or it cannot be read."""
    try:
        found = json.loads(told or "null")
        check = SiteCheck(**found, cached=True) if isinstance(found, dict) and found.keys() == _TOLD else None
    except (ValueError, TypeError):
        return None
    return check if check is not None and check.ok else None
