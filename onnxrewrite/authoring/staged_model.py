"""A model as the rules of a stage find it, and where a rule matches there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from onnxrewrite import io
from onnxrewrite.ir import schema, text
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.pattern.finder import Matcher
from onnxrewrite.pattern.match import Match
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.index import index
from onnxrewrite.rewrite.legality import shared_inside
from onnxrewrite.rewrite.preparation import prepared
from onnxrewrite.rewrite.rule import Rule, Stage

FILL_IN = "fill in the rewrite"
"""The reason of a rule that was captured and that nobody has finished."""

_MATCHES = 64
"""So many ways to match at one value are tried, as the driver does."""


def found_by(source: io.Source, stage: Stage, rules: Iterable[Rule], target: str, opset: int | None = None) -> Driver:
    """A copy of a model after all stages before ``stage``: as it is in the file where that is the first one.

    Args:
        source: The model; it is not changed.
        stage: The stage of the rule that is to find it so.
        rules: All rules.
        target: The target that the result must run on.
        opset: Convert the model to this ai.onnx opset first.
    """
    known = list(rules)
    runs_on = target_by_name(target)
    driver = Driver(prepared(io.load(source), known, runs_on, opset).model, known, runs_on)
    if stage > min(Stage):
        driver.run(Stage(stage - 1))
    return driver


def in_example(rule: Rule, graph: str, opset: int, target: str = "onnxruntime-cpu") -> Driver:
    """An example of a rule, as it stands."""
    model = text.parse(graph, opset=opset)
    schema.date(model)
    return Driver(model, [rule], target_by_name(target))


def matched(rule: Rule, driver: Driver) -> dict[str, Match]:
    """The names of the values at which a rule's pattern matches as a driver's model stands, and inner values are free
    to go; with the first such match at each."""
    found: dict[str, Match] = {}
    for graph in scopes(driver.model):
        view = index((rule,)).view(driver.facts(graph), graph)
        matcher = Matcher(view)
        values = [o for n in graph for o in n.outputs if view.at(o)]
        for value in values:
            those = islice(matcher.matches(rule.outputs, value), _MATCHES)
            free = next((m for m in those if rule.allow_shared or shared_inside(m) is None), None)
            if free is not None:
                found[value.name or ""] = free
    return found
