"""Checks for the test beside a captured rule: that the pattern is where it was captured, and the numbers once there is
something to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

from onnxrewrite.authoring.staged_model import FILL_IN, found_by, in_example, matched
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import make_runnable
from onnxrewrite.rewrite.rule import Example, Rewrites, Rule
from onnxrewrite.ruletest.metamorphic.firing import Trial, why_not


def load_rule(file: Path, name: str) -> Rule:
    """A rule of a loose file, by its name.

    Raises:
        RuleError, UsageError: The file cannot be used, or has no rule of that name.
    """
    return registry.rules_of(registry.load_module(str(file)))[name]


def matching(rule: Rule) -> list[Example]:
    """The examples in which the pattern is there: those that are rewritten, and those that wait for the rewrite."""
    return [e for e in rule.examples if isinstance(e, Rewrites) or FILL_IN in e.because]


def places(rule: Rule, where: Example | Path) -> list[str]:
    """The names of the values at which a rule's pattern matches, whatever its rewrite says to that.

    Args:
        rule: The rule.
        where: An example, which is taken as it stands; or a model's file, which is looked at as the rule's stage
            finds it.
    """
    if isinstance(where, Path):
        return list(matched(rule, found_by(where, rule.stage, registry.load(), "onnxruntime-cpu")))
    return list(matched(rule, in_example(rule, where.graph, where.opset, where.target)))


def check_numbers(rule: Rule, example: Example, library: Sequence[Rule] | None = None) -> None:
    """Apply a rule to an example and compare both sides at inputs made up for it, as ``apply`` does at each place.

    Args:
        rule: The rule.
        example: A graph that it rewrites.
        library: Rules of the lower stage, without which a raised operator may not run; the built-in ones if not given.

    Raises:
        AssertionError: The rule does not apply, or computes something else, or the graph cannot be run.
        unittest.SkipTest: Its rewrite has yet to be filled in.
    """
    rules = list(registry.load()) if library is None else list(library)
    model = text.parse(example.graph, opset=example.opset)
    checker = SiteChecker(lower=lambda part: make_runnable(part, rules, target(example.target)))
    driver = Trial.of(rule, rules, example.target).drive(model, checker)
    if any(a.rule == rule.name for a in driver.trace.applied):
        assert checker.last.ok, f"{rule.name} was not compared: {checker.last.reason}"
        return
    reason = why_not(rule, driver)
    if FILL_IN in reason:
        raise SkipTest(f"{reason}: then this compares the numbers")
    raise AssertionError(f"{rule.name} does not apply: {reason}")
