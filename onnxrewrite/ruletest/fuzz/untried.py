"""The reasons why a rule could not be tried: what became of the graphs that were made for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir import text
from onnxrewrite.rewrite.purity import ImpureRule
from onnxrewrite.rewrite.rule import Rewrites, Rule
from onnxrewrite.ruletest.fuzz.generation import TARGET, attempts
from onnxrewrite.ruletest.fuzz.starts import how_many
from onnxrewrite.ruletest.fuzz.verdict import Reasons
from onnxrewrite.ruletest.metamorphic.firing import Trial, why_not
from onnxrewrite.ruletest.metamorphic.running import feeder_or_reason
from onnxrewrite.ruletest.metamorphic.seeds import STANDARD, named


def why_untried(rule: Rule, library: Sequence[Rule], seed: int = 0) -> dict[str, int]:
    """The reasons why a rule fires on no example and no graph grown from its pattern, or why these do not run.

    Returns: Reason to number of graphs, the most frequent first.

    Raises:
        ImpureRule: A rule changed a graph by itself.
    """
    found = Reasons()
    for trial, made in _made(rule, library, seed):
        found.add(made if isinstance(made, str) else _obstacle(trial, made))
    return found.counts()


def _made(rule: Rule, library: Sequence[Rule], seed: int) -> Iterator[tuple[Trial, ir.Model | str]]:
    """Every graph as it is, or why there is none."""
    for example in rule.examples:
        if isinstance(example, Rewrites):
            yield Trial.of(rule, library, example.target), named(text.parse(example.graph, opset=example.opset))
    trial = Trial.of(rule, library, TARGET)
    yield from ((trial, made) for made in attempts(rule, how_many(rule), seed))


def _obstacle(trial: Trial, model: ir.Model) -> str:
    try:
        driver = trial.drive(model)
    except ImpureRule:
        raise
    except OnnxRewriteError as error:
        return str(error)
    if trial.rule.name not in driver.trace.counts():
        return why_not(trial.rule, driver)
    if trial.target == STANDARD:
        return "what it makes is legal by the standard alone, and no runtime can say whether it is right"
    found = feeder_or_reason(model)
    return f"ONNX Runtime does not run the graph: {found}" if isinstance(found, str) else ""
