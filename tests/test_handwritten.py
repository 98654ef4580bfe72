"""Rules written by hand for the benchmarks do not get in the way of those that are built in."""

from __future__ import annotations

from collections import Counter

from benchmarks import right_rules, wrong_rules
from benchmarks.handwritten import collected
from onnxrewrite.rewrite import registry


def test_every_rule_written_by_hand_has_a_name_of_its_own() -> None:
    wrong = [w.rule.name for rules in collected(wrong_rules).values() for w in rules]
    right = [r.name for rules in collected(right_rules).values() for r in rules]
    counts = Counter([*wrong, *right, *(r.name for r in registry.load(plugins=False))])
    assert [name for name, count in counts.items() if count > 1] == []
