"""The record of one rewrite: both sides in text, and what running them side by side showed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from onnxrewrite.system.constraints import Count, Error

Status: TypeAlias = Literal["ok", "failed", "not run"]


@dataclass(frozen=True)
class CheckRecord:
    """The result of running one rewrite beside what it replaces; errors are relative, None is not finite."""

    status: Status
    reason: str
    reference: str
    error_original: Error | None
    error_rewritten: Error | None
    bound: Error | None
    runs: Count


@dataclass(frozen=True)
class ProofRecord:
    """A proof that both sides compute the same: its domain, its strength, the number of its goals, and SHA-256 of the
    script of SMT-LIB."""

    domain: str
    strength: str
    goals: Count
    sha256: str


@dataclass(frozen=True)
class SiteRecord:
    """Both sides of a rewrite as lines of text, their check and their proof; None where none was asked for."""

    before: list[str]
    after: list[str]
    check: CheckRecord | None
    proof: ProofRecord | None = None

    @property
    def id(self) -> str:
        """16 hexadecimal digits; equal records have equal ones."""
        return hashlib.sha256(line(self).encode()).hexdigest()[:16]


def line(data: object) -> str:
    """Plain data as one line of JSON."""
    return json.dumps(data, sort_keys=True, allow_nan=False, default=vars)
