"""The types of plain data: what reports, caches and records are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
"""Data that JSON can tell, as it is written."""

Plain: TypeAlias = Mapping[str, Any]
"""The same as it is read, by who knows what stands under each name."""
