"""The spellings that there are, by family.

A spelling is a function of a script that stands at a node: it writes that node in another way and returns True, or
changes nothing and returns False, because that node cannot be written so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.spellings.script import Script

Writer: TypeAlias = Callable[[Script], bool]


@dataclass(frozen=True)
class Spelling:
    """One way to write a node anew.

    Attributes:
        family: The class that it belongs to, the name of its module.
        name: The name of the function.
        operators: The operators of the places where it may be possible; all where empty.
        write: Does it.
    """

    family: str
    name: str
    operators: frozenset[str]
    write: Writer


SPELLINGS: dict[str, Spelling] = {}
"""All spellings, by name."""


def spelling(*operators: str) -> Callable[[Writer], Writer]:
    """Register a function that writes nodes of these operators anew."""

    def register(write: Writer) -> Writer:
        name = write.__name__
        assert name not in SPELLINGS, name
        SPELLINGS[name] = Spelling(write.__module__.rpartition(".")[2], name, frozenset(operators), write)
        return write

    return register


def families() -> dict[str, list[Spelling]]:
    """The spellings of each family."""
    found: dict[str, list[Spelling]] = {}
    for each in SPELLINGS.values():
        found.setdefault(each.family, []).append(each)
    return found
