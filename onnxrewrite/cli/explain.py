"""``onnxrewrite explain``: why a rule does not apply, and what a node has been through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import complain, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.explanation.offers import OfferRow
    from onnxrewrite.explanation.why_not import Explainer
    from onnxrewrite.rewrite.rule import Assumption, Rule

Shown: TypeAlias = "Callable[[], None]"
"""Prints what was found."""

Data: TypeAlias = "dict[str, object]"
"""What was found, as plain data."""

Kept: TypeAlias = "Sequence[Assumption]"
"""The assumptions that no rule may make."""


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The question about the rules."""

    at: Annotated[
        str | None, typer.Option("--at", metavar="NODE", help="Only there: a node, or the value that it computes.")
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="All rules that come near, in one table.")] = False
    profile: Annotated[
        bool, typer.Option("--profile", help="With --all: ranked by the time that they would save at the most.")
    ] = False
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="A node's story: which rules made, took or refused it.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class _View:
    """The rules and the target of the model that is looked at."""

    rules: options.Rules = field(default_factory=list)
    without: options.Without = field(default_factory=list)
    custom_ops: options.CustomOps = field(default_factory=list)
    target: options.Target = options.CPU
    opset: options.Opset = None
    assume: options.Assume = field(default_factory=list)
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Run what would come of it without what is in the way.")
    ] = True


def explain(
    model: options.Model,
    rule: Annotated[
        str | None, typer.Argument(metavar="[RULE]", help="The rule that is asked about.", show_default=False)
    ] = None,
    *,
    question: _Question,
    view: _View,
    json: options.Json = None,
    verbose: options.Verbose = False,
) -> None:
    """Tell why a rule does not apply where it nearly does, and what would come of it otherwise.

    Without a rule: every rule that applies or comes near, how often, and what keeps it from the nearest place.

    Exit status: 0 told; 2 bad arguments, an unreadable model, no such rule or node.
    """
    if (rule is not None) + question.everything + (question.node is not None) > 1:
        raise UsageError("give a RULE, or --all, or --node NAME; nothing for an overview")
    if (question.at is not None and rule is None) or (question.profile and not question.everything):
        raise UsageError("--at goes with a RULE, --profile with --all")
    report = options.json_path(json, model)

    from onnxrewrite import io
    from onnxrewrite.explanation.offers import offers
    from onnxrewrite.explanation.why_not import Explainer, only_rule
    from onnxrewrite.ir.target import target as target_by_name
    from onnxrewrite.rewrite import registry
    from onnxrewrite.rewrite.preparation import prepared
    from onnxrewrite.rewrite.rule import withheld

    library = registry.load(view.rules)
    for line in library.broken:
        complain(line)
    chosen = list(library.select(without=view.without))
    subject = only_rule(library, rule) if rule is not None else None
    if subject is not None and subject not in chosen:
        raise UsageError(f"{rule} is asked about, and left out by --without")
    loaded = io.load(model)
    options.keep_weights(loaded, report, "--json")
    loaded = prepared(loaded, chosen, target_by_name(view.target), view.opset).model
    kept = withheld(each.value for each in view.assume)
    if question.node is not None:
        data, shown = _story(loaded, chosen, view.target, kept, question.node)
    elif subject is not None:
        explainer = Explainer(loaded, chosen, view.target, check=view.check, withheld=kept)
        data, shown = _rule(explainer, subject, question.at, model, verbose)
    elif question.everything:
        data, shown = _all(loaded, chosen, view.target, kept, question.profile, verbose)
    else:
        data, shown = _overview(loaded, chosen, view.target, kept, model, verbose)
    if question.node is None and not question.everything:
        offered = [each.to_json() for each in offers(loaded, chosen, view.target, kept, subject)]
        data["offers"], shown = offered, _with_offers(shown, offered)
    write_json(data, json, report)
    if json != "-":
        shown()


def _with_offers(shown: Shown, offered: list[OfferRow]) -> Shown:
    from onnxrewrite.report.explain_report import offers_lines

    def both() -> None:
        shown()
        if offered:
            show(offers_lines, offered)

    return both


def _rule(explainer: Explainer, rule: Rule, at: str | None, name: str, verbose: bool) -> tuple[Data, Shown]:
    from onnxrewrite.report.explain_report import explanation_report

    data = explainer.explain(rule, at).to_json()
    return {**data}, partial(show, explanation_report, data, name, verbose=verbose)


def _all(
    model: ir.Model, rules: list[Rule], target: str, kept: Kept, profile: bool, verbose: bool
) -> tuple[Data, Shown]:
    from onnxrewrite.explanation.ranking import ranking
    from onnxrewrite.report.explain_report import near_misses_table

    rows = [r.to_json() for r in ranking(model, rules, target, profile=profile, withheld=kept)]
    return {"rules": rows}, partial(show, near_misses_table, rows, verbose=verbose)


def _overview(
    model: ir.Model, rules: list[Rule], target: str, kept: Kept, name: str, verbose: bool
) -> tuple[Data, Shown]:
    from onnxrewrite.explanation.ranking import overview
    from onnxrewrite.report.explain_report import overview_table

    rows = [r.to_json() for r in overview(model, rules, target, kept)]
    return {"rules": rows}, partial(show, overview_table, rows, name, verbose=verbose)


def _story(model: ir.Model, rules: list[Rule], target: str, kept: Kept, node: str) -> tuple[Data, Shown]:
    from onnxrewrite import io
    from onnxrewrite.explanation.history import story
    from onnxrewrite.ir.target import target as target_by_name
    from onnxrewrite.report.explain_report import story_report
    from onnxrewrite.rewrite.driver import Driver

    driver = Driver(io.load(model), rules, target_by_name(target), withheld=kept)
    data = story(model, driver.model, driver.run(), node).to_json()
    return {**data}, partial(show, story_report, data)
