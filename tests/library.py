"""The built-in rules, and the graphs that questions about each of them start from."""

from __future__ import annotations

import functools

import pytest

from onnxrewrite.rewrite import registry
from onnxrewrite.ruletest.metamorphic import Seed, seeds

LIBRARY = list(registry.load(plugins=False))

RULES = [pytest.param(r, id=r.name, marks=pytest.mark.xdist_group(f"rule {r.name}")) for r in LIBRARY]
"""Every rule as a parameter; one worker is asked all about it, so that its seeds are made once."""

SLOW_BUT_SOME = [
    pytest.param(*p.values, id=p.id, marks=[*p.marks, *([pytest.mark.slow] if number % 5 else [])])
    for number, p in enumerate(RULES)
]
"""The same for a question that takes seconds: CI asks it of all rules, the quick tests of every fifth."""


@functools.cache
def seeds_of(name: str) -> list[Seed]:
    """The seeds of a rule: to make them takes longer than what most tests do with them."""
    return seeds(next(r for r in LIBRARY if r.name == name), LIBRARY)
