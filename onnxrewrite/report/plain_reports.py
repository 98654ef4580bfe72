"""The reports of tools as plain data: the types of what ``to_json`` gives, and JSON files hold."""

from __future__ import annotations

from typing import TypedDict


class ModelRow(TypedDict):
    """A model of a sweep, see ``suite.sweeping.journal.Row``."""

    model: str
    output: str
    status: str
    error: str
    nodes: dict[str, int] | None
    size: dict[str, int] | None
    ratio: float | None
    seconds: float
    resumed: bool
    key: str
    files: dict[str, str]
    notes: list[str]


class LeftOutRow(TypedDict):
    """A file or folder that was left out."""

    path: str
    reason: str


class SweepReport(TypedDict):
    """The result of ``sweep`` as plain data: bytes, seconds, SHA-256 of the files that were written."""

    out: str
    models: list[ModelRow]
    left_out: list[LeftOutRow]
    notes: list[str]
    seconds: float
