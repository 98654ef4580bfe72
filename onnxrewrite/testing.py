"""Rules as tests: their examples are run, and what they claim must come true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxrewrite.ir import io, schema, text
from onnxrewrite.ir.graph import isomorphic
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Example, Rejects, Rule, Stage
from onnxrewrite.verify.ladder.instances import fitted
from onnxrewrite.verify.ladder.judge import differs_at, judged
from onnxrewrite.verify.ladder.save import INPUTS, MODEL
from onnxrewrite.verify.respell.firing import Trial, why_not


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
