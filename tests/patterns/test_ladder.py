"""Every rule of the library up the ladder."""

from __future__ import annotations

import pytest

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.verify.ladder import climb

RULES = list(registry.load(plugins=False))

COUNT = 8
"""Fewer graphs than ``onnxrewrite verify`` tries."""


INEXACT = {"gelu-six-digits", "relu-into-quantize"}
"""Of a number that is only nearly what is meant, and of the range of an integer, exact arithmetic has nothing to say."""


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_climbs_the_ladder(rule: Rule) -> None:
    verdict = climb(rule, RULES, count=COUNT)
    found = verdict.counterexample
    assert verdict.passed, found.reason if found is not None else verdict
    assert verdict.exact or rule.name in INEXACT, "some instance of every rule is equal in exact arithmetic"
