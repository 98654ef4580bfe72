"""Every example of every built-in rule comes true."""

import pytest

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Example, Rule
from onnxrewrite.testing import check_example

LIBRARY = list(registry.load(plugins=False))
CASES = [pytest.param(r, e, id=f"{r.name}-{i}") for r in LIBRARY for i, e in enumerate(r.examples)]


@pytest.mark.parametrize(("rule", "example"), CASES)
def test_example(rule: Rule, example: Example) -> None:
    check_example(rule, example, LIBRARY)


@pytest.mark.parametrize("rule", LIBRARY, ids=lambda r: r.name)
def test_rule_is_documented(rule: Rule) -> None:
    assert "⟶" in rule.summary
    assert rule.examples, "a rule shows what it does"
