"""The rules for grouped-query attention: their examples."""

from __future__ import annotations

import pytest

from onnxrewrite.rewrite.rule import Example, Rule
from onnxrewrite.suite.decoders.grouped_query import Padding, rules
from onnxrewrite.suite.decoders.masks import CAUSAL, Seen
from onnxrewrite.testing import check_example

RULES = rules({CAUSAL: Seen()}, Padding.RIGHT)
CASES = [pytest.param(r, e, id=f"{r.name}-{i}") for r in RULES for i, e in enumerate(r.examples)]


@pytest.mark.parametrize(("rule", "example"), CASES)
def test_example(rule: Rule, example: Example) -> None:
    check_example(rule, example)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_is_documented(rule: Rule) -> None:
    assert "⟶" in rule.summary
    assert rule.examples, "a rule shows what it does"
