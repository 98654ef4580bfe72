"""Every rule of the library up the ladder."""

from __future__ import annotations

import pytest
from library import LIBRARY, RULES, seeds_of

from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz import fuzz, starts

COUNT = 8
"""Fewer graphs than ``onnxrewrite verify`` tries."""


INEXACT = {
    "exp-of-log-softmax", "experts", "gathered-experts", "gelu-six-digits", "masked-scores", "place-among-integers",
    "quantized-table", "relu-into-quantize", "softmax-masked-afterwards", "softplus", "softplus-below-bound",
}  # fmt: skip
"""Of a number that is only nearly what is meant, or taken to be beyond all others, of the range of an integer, of
what rounding makes of each integer, of what depends on an order, and of logarithms, exact arithmetic has nothing to
say."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_climbs_the_ladder(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "each_seed", lambda rule, library: seeds_of(rule.name))  # which are the same
    verdict = fuzz(rule, LIBRARY, count=COUNT)
    found = verdict.counterexample
    assert verdict.passed, found.reason if found is not None else verdict
    assert verdict.exact or rule.name in INEXACT, "some instance of every rule is equal in exact arithmetic"
