"""Assertions about rules and models: an example comes true, a rule passes the fuzzer, a model is as expected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxrewrite import io
from onnxrewrite.compiler import run
from onnxrewrite.compiler.request import Request
from onnxrewrite.compiler.result import Result
from onnxrewrite.ir import schema, text
from onnxrewrite.ir.graph import isomorphic
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Example, Rejects, Rewrites, Rule, Stage
from onnxrewrite.ruletest.fuzz import INSTANCES, fuzz
from onnxrewrite.ruletest.fuzz.counterexample import INPUTS, MODEL
from onnxrewrite.ruletest.fuzz.instances import fitted
from onnxrewrite.ruletest.fuzz.judge import differs_at, judged
from onnxrewrite.ruletest.metamorphic.firing import Trial, why_not
from onnxrewrite.testing.golden import Golden, error, observed


def check_example(rule: Rule, example: Example, library: Sequence[Rule] = ()) -> None:
    """Run one example of a rule.

    Args:
        rule: The rule, which is applied alone.
        example: The claim to check.
        library: Rules of the lower stage, without which a raised operator may not be legal.

    Raises:
        AssertionError: The claim is wrong; the message shows the graph that came out, or the reason that was given.
    """
    model = text.parse(example.graph, opset=example.opset)
    schema.date(model)
    lowering = [r for r in library if r.stage == Stage.LOWER and r is not rule]
    driver = Driver(model, [rule, *lowering], target(example.target), withheld=())
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


def assert_rewrites(rule: Rule, graph: str, to: str, *, opset: int = 17, target: str = "onnxruntime-cpu") -> None:
    """The rule turns ``graph`` into ``to``, both in text form; AssertionError with what came out, or why nothing."""
    check_example(rule, Rewrites(graph, to, opset, target), list(registry.load()))


def assert_rejects(rule: Rule, graph: str, because: str, *, opset: int = 17, target: str = "onnxruntime-cpu") -> None:
    """The rule leaves ``graph`` alone, and its reason has ``because`` in it; AssertionError with what came out."""
    check_example(rule, Rejects(graph, because, opset, target), list(registry.load()))


def check_ladder(rule: Rule, library: Sequence[Rule] = (), *, count: int = INSTANCES) -> None:
    """Try a rule on generated graphs, as ``onnxrewrite verify`` does.

    Args:
        rule: The rule.
        library: All rules, of which the lower stage makes legal what it raises.
        count: The number of graphs.

    Raises:
        AssertionError: It is refuted, or could not be tried on any graph; the message is the reason and the graph.
    """
    verdict = fuzz(rule, library or [rule], count=count)
    found = verdict.counterexample
    shown = f"\n{text.print_model(found.before)}\nbecame\n{text.print_model(found.after)}" if found is not None else ""
    reason = verdict.reason or (found.reason if found is not None else f"{verdict.status}: {dict(verdict.refusals)}")
    assert verdict.passed, f"{rule.name}: {reason}{shown}"


def check_golden(golden: Golden, *, rules: Sequence[str | Rule] = (), renew: bool = False) -> Result:
    """Apply all rules to a golden model: nothing is undone, and what comes out is what the folder expects.

    The fused form is taken, for what is faster depends on the machine.

    Args:
        golden: A folder, as ``onnxrewrite.testing.golden.load`` reads it.
        rules: Rules beside the library's and those of installed plugins.
        renew: Write what came out as the new expectation, if it is right.

    Returns:
        What came out.

    Raises:
        AssertionError: The result is wrong, less exact than expected, or other rules applied or operators came out.
    """
    result = run.apply(golden.model, Request(rules=rules, lower="fused"))
    checked = result.checks.model
    assert checked is not None
    assert checked.skipped is None, f"it could not be run: {checked.skipped}"
    assert checked.ok, f"it is wrong: {checked.failures}"
    assert result.checks.undone == {}, f"rewrites were undone: {result.checks.undone}"
    if renew:
        golden.renew(result)
        return result
    assert golden.expected, f"{golden.folder} has no expectation yet; pytest --update-golden writes it"
    seen, expected = observed(result), golden.expected
    assert error(result) <= expected["tolerance"], f"the error is {error(result):.1e}, not {expected['tolerance']:.0e}"
    for kind in ("rules", "operators"):
        assert seen[kind] == expected[kind], f"other {kind} than expected; pytest --update-golden renews them"
    return result


def check_counterexample(folder: Path, rule: str, *, rules: Sequence[str] = (), target: str) -> None:
    """Apply one rule to the model in ``folder`` and compare both sides at the inputs beside it.

    Args:
        folder: With ``model.onnx`` and ``inputs.npz``, as ``onnxrewrite verify --save`` writes them.
        rule: The name of the rule.
        rules: Files or packages with rules, if it is not the library's or an installed plugin's.
        target: The target that the result must run on.

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
