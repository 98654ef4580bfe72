"""Types of plain data that is read from files: what a value must be beside being of its type."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias


@dataclass(frozen=True)
class Must:
    """A constraint on a value beyond its type: a predicate, and its wording in messages."""

    wanted: str
    accepts: Callable[[Any], bool]


def _is_inside(path: str) -> bool:
    parts = PurePath(path).parts
    return bool(parts) and not PurePath(path).is_absolute() and os.pardir not in parts and "\0" not in path


Inside: TypeAlias = Annotated[str, Must("a path inside a folder", _is_inside)]
Count: TypeAlias = Annotated[int, Must("0 or more", lambda n: n >= 0)]
Size: TypeAlias = Annotated[int, Must("a size", lambda n: 0 <= n < 2**63)]
Seconds: TypeAlias = Annotated[float, Must("0 or more", lambda n: n >= 0)]
Error: TypeAlias = Annotated[float, Must("0 or more", lambda n: n >= 0)]
