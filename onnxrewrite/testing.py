"""Rules as tests: their examples are run, and what they claim must come true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

import numpy as np

from onnxrewrite.authoring.stage import FILL_IN, found_by, matched
from onnxrewrite.ir import io, schema, text
from onnxrewrite.ir.graph import isomorphic
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver, make_runnable
from onnxrewrite.rewrite.rule import Example, Rejects, Rewrites, Rule, Stage
from onnxrewrite.verify.ladder.instances import fitted
from onnxrewrite.verify.ladder.judge import differs_at, judged
from onnxrewrite.verify.ladder.save import INPUTS, MODEL
from onnxrewrite.verify.respell.firing import Trial, why_not
from onnxrewrite.verify.rewrites import SiteChecker


def check_example(rule: Rule, example: Example, library: Sequence[Rule] = ()) -> None:
    """Run one example of a rule.

    Args:
        rule: The rule, which is applied alone.
        example: What it claims.
        library: Rules of the lower stage, without which a raised operator may not be legal.

    Raises:
        AssertionError: The claim is wrong; the message shows the graph that came out, or the reason that was given.
    """
    model = text.parse(example.graph, opset=example.opset)
    schema.date(model)
    lowering = [r for r in library if r.stage == Stage.LOWER and r is not rule]
    driver = Driver(model, [rule, *lowering], target(example.target))
    driver.run_stage(rule.stage, [rule])
    applied = [a for a in driver.trace.applied if a.rule == rule.name]
    if isinstance(example, Rejects):
        assert not applied, f"{rule.name} must reject this graph, it became:\n{text.print_model(model)}"
        reason = why_not(rule, driver)
        assert example.because in reason, f"{rule.name} must say {example.because!r}, it said {reason!r}"
        return
    assert applied, f"{rule.name} does not apply: {why_not(rule, driver)}"
    expected = text.parse(example.to, opset=example.opset)
    assert isomorphic(model.graph, expected.graph), (
        f"{rule.name} made\n{text.print_model(model)}\nnot\n{text.print_model(expected)}"
    )


def check_counterexample(folder: Path, rule: str, *, rules: Sequence[str] = (), target: str) -> None:
    """Apply one rule to the model in ``folder`` and compare both sides at the inputs beside it.

    Args:
        folder: With ``model.onnx`` and ``inputs.npz``, as ``onnxrewrite verify --save`` writes them.
        rule: The name of the rule.
        rules: Files or packages with rules, if it is not the library's or an installed plugin's.
        target: What the result must run on.

    Raises:
        AssertionError: The rule still rewrites the model wrongly; the message says how.
    """
    library = registry.load(rules)
    (tried,) = library.named(rule)
    model = io.load(folder / MODEL)
    instance = fitted(Trial.of(tried, list(library), target), model)
    if instance.after is None:
        return
    with np.load(folder / INPUTS) as inputs:
        wrong = differs_at(instance.before, instance.after, dict(inputs))
    finding = judged(instance, tried.assumes) if wrong is None else None
    wrong = finding.reason if finding is not None and finding.differs else wrong
    assert wrong is None, f"{rule}: {wrong}"


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
    model = text.parse(where.graph, opset=where.opset)
    schema.date(model)
    return list(matched(rule, Driver(model, [rule], target(where.target))))


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
