"""Mutants in which the change makes no difference, and why: they were looked at one by one."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
"""A mutant's name to the reason."""
