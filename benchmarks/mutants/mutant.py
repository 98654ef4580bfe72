"""What a mutant is, and how a rule becomes one."""

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
        kind: Which mistake, one of ``KINDS``.
        what: What was changed, in words that no other mutant of the rule has.
        change: The change itself.
    """

    rule: str
    kind: str
    what: str
    change: Any

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.rule}: {self.what}"
