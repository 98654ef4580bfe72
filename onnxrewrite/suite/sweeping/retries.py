"""The reasons why a model may fail, and how often each is worth another attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from onnxrewrite.errors import UsageError

Reason: TypeAlias = Literal["", "memory", "crash", "time", "storage", "file", "check", "model", "bug"]
"""The reason of a failure: ``memory``: it did not suffice, or the system killed the process; ``crash``: native code
died; ``time``: it took longer than the limit; ``storage``: a file system or an object store did not answer; ``file``:
a file could not be written or read here; ``check``: a check failed; ``model``: the file or the settings cannot be used;
``bug``: an error of ours."""

DEFAULT: Final[Mapping[str, int]] = MappingProxyType({"memory": 1, "storage": 2})
"""Further attempts by reason: those that say more of the moment than of the model."""

_ALONE = frozenset({"memory", "crash", "time"})
"""Reasons that other work at the same time may be the cause of."""

_SETTLED = frozenset({"check", "model"})
"""Reasons that the same model with the same settings and versions always gives."""

_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds before the first further attempt at a storage; each further one waits four times as long."""


@dataclass(frozen=True)
class Retries:
    """Further attempts within one sweep.

    Attributes:
        by_reason: Their number for each reason.
    """

    by_reason: Mapping[str, int] = field(default_factory=lambda: DEFAULT)

    @staticmethod
    def parse(given: Sequence[str]) -> Retries:
        """``["memory=2", "crash=1"]`` over the default; UsageError for anything else."""
        found = dict(DEFAULT)
        for text in given:
            reason, _, number = text.partition("=")
            if not reason or reason not in get_args(Reason) or reason in _SETTLED or not number.isdecimal():
                known = ", ".join(r for r in get_args(Reason) if r and r not in _SETTLED)
                raise UsageError(f"--retry {text}: write REASON=N, REASON being one of {known}")
            found[reason] = int(number)
        return Retries(found)

    def wants(self, reason: str, attempts: int) -> bool:
        """True if a model that failed for this reason after so many attempts is tried again."""
        return attempts <= self.by_reason.get(reason, 0)


def is_settled(reason: str) -> bool:
    """True if another attempt with the same model, settings and versions would end the same."""
    return reason in _SETTLED


def alone(reason: str) -> bool:
    """True if another attempt is to be made while nothing else of the sweep runs."""
    return reason in _ALONE


def pause(reason: str, attempts: int) -> float:
    """Seconds to wait before another attempt."""
    return min(_PAUSE * 4.0 ** (attempts - 1), _LONGEST_PAUSE) if reason == "storage" else 0.0
