"""Mutants: wrong rules, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CONSTANT, ATTRIBUTE, AXIS, EPSILON, SCALE, DTYPE = "constant", "attribute", "axis", "epsilon", "scale", "dtype"
ORDER, OPERAND, OPERATOR, DEFAULT, GUARD = "operand order", "operand", "operator", "default", "guard"

KINDS = (CONSTANT, ATTRIBUTE, AXIS, EPSILON, SCALE, DTYPE, ORDER, OPERAND, OPERATOR, DEFAULT, GUARD)
"""The kinds of mistakes."""


@dataclass(frozen=True)
class Mutant:
    """A wrong rule, as data.

    Attributes:
        rule: The right rule's name.
        kind: The kind of mistake, one of ``KINDS``.
        what: The change, in words that no other mutant of the rule has.
        change: The change itself.
    """

    rule: str
    kind: str
    what: str
    change: Any

    @property
    def name(self) -> str:
        """The name: the rule and the change."""
        return f"{self.rule}: {self.what}"
