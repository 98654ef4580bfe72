"""The built-in rules, and the graphs that questions about each of them start from."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.metamorphic import Seed, seeds

LIBRARY = list(registry.load(plugins=False))

PASSED = Path(__file__).with_name("passed.json")
"""Fingerprints of rules, by name, of which all questions were answered; ``pytest --update-golden`` renews it."""

SAMPLE = 40
"""The quick tests ask every fortieth rule all the same, for the engine may have changed since."""


def is_changed(rule: Rule, passed: Mapping[str, str]) -> bool:
    """True if a rule is not as it was when all questions about it were answered."""
    return passed.get(rule.name) != fingerprint(rule).sha256


def _parameters() -> Iterator[object]:
    passed = json.loads(PASSED.read_text(encoding="utf-8"))
    for number, rule in enumerate(LIBRARY):
        slow = [] if is_changed(rule, passed) or number % SAMPLE == 0 else [pytest.mark.slow]
        yield pytest.param(rule, id=rule.name, marks=[pytest.mark.xdist_group(f"rule {rule.name}"), *slow])


RULES = list(_parameters())
"""Every rule as a parameter; one worker is asked all about it, so that its seeds are made once.

CI asks about all rules; the quick tests about those that have changed, and some others.
"""


QUESTIONS = frozenset(
    {
        "explanation/test_why_not.py::test_what_an_example_is_rejected_for_is_told_at_some_value",
        "patterns/test_ladder.py::test_a_rule_climbs_the_ladder",
        "ruletest/test_variants.py::test_a_rule_makes_nothing_wrong_of_a_near_miss",
        "ruletest/test_variants.py::test_a_rule_matches_every_spelling",
    }
)
"""The tests that ask about every rule."""


class Answers:
    """Answers to questions about rules, as test reports come in."""

    def __init__(self) -> None:
        self._asked: dict[str, set[str]] = {}
        self._wrong: set[str] = set()

    def add(self, nodeid: str, outcome: str) -> None:
        """Note the outcome of a phase of a test; one that is not about a rule is left out."""
        test, _, rest = nodeid.removeprefix("tests/").partition("[")
        if test in QUESTIONS:
            rule = rest.partition("]")[0]
            self._asked.setdefault(rule, set()).add(test)
            if outcome == "failed":
                self._wrong.add(rule)

    def renewed(self, passed: Mapping[str, str]) -> dict[str, str]:
        """The fingerprints of rules of which everything was asked, now or before, and nothing is wrong."""
        right = {rule for rule, asked in self._asked.items() if asked >= QUESTIONS} - self._wrong
        kept = {r.name: passed[r.name] for r in LIBRARY if r.name in passed and r.name not in self._wrong}
        return kept | {r.name: fingerprint(r).sha256 for r in LIBRARY if r.name in right}


@functools.cache
def seeds_of(name: str) -> list[Seed]:
    """The seeds of a rule: to make them takes longer than what most tests do with them."""
    return seeds(next(r for r in LIBRARY if r.name == name), LIBRARY)
