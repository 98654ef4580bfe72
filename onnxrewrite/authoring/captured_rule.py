"""``capture``: a region of a model becomes the file of a rule that matches it wherever it recurs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.region import Region, between, candidates, ending_at, named, starting_at, with_all
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.authoring.template import Captured, Writing
from onnxrewrite.authoring.write import Source
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.preparation import prepared
from onnxrewrite.rewrite.rule import NAME, Stage

DEFAULT_NAME = "my-fusion"


def capture(
    model: io.Source,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    name: str = DEFAULT_NAME,
    stage: Stage = Stage.RAISE,
    rules: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    opset: int | None = None,
    label: str | None = None,
) -> Captured:
    """Cut out what lies between named values, and write the rule that matches it wherever it recurs.

    The model is looked at as the rule will find it: after the stages before its own.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        inputs: Values, or nodes, at which the region begins; what else it reads is captured as well.
        outputs: Values, or nodes, at which it ends; the first is the rule's anchor.
        name: The rule's, lower case with hyphens.
        stage: The stage in which it is to run.
        rules: Files or packages with rules beside the library's.
        target: The target that the result must run on.
        opset: Convert the model to this ai.onnx opset first.
        label: The name of the model in the file; without it, its file name.

    Returns:
        The rule, which refuses every match until somebody fills in what it makes of it.

    Raises:
        UsageError: There are no such values, or what lies between them cannot be one pattern.
        ModelError, RuleError: Bad model or rules.
    """
    library = registry.load(rules)
    _check_name(name, library)
    if not inputs or not outputs:
        raise UsageError("give at least one value at which the region begins, and one at which it ends")
    loaded = prepared(io.load(model), library, target_by_name(target), opset).model
    driver = found_by(loaded, stage, library, target)
    region = _region(driver, loaded, inputs, outputs, stage)
    called = label or (Path(model).name if isinstance(model, str | Path) else "a model")
    source = Source(name, called, tuple(inputs), tuple(outputs), (), stage)
    return Writing(driver, region, source).captured([rule for rule in library if rule.stage is stage])


def _check_name(name: str, library: registry.Registry) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name}: a rule's name is lower case, with hyphens, as in {DEFAULT_NAME}")
    if name in library.rules or name in library.sets:
        raise UsageError(f"--name {name}: a rule, or a rule set, is called so already; choose another name")


def _region(driver: Driver, original: ir.Model, inputs: Sequence[str], outputs: Sequence[str], stage: Stage) -> Region:
    among = with_all(driver.model, [*inputs, *outputs])
    ends = [v for name in outputs for v in ending_at(_named(driver, original, name, "--to", stage, among))]
    if not ends:
        raise UsageError(f"--to {outputs[0]}: nobody reads what it computes")
    graphs = [v.graph for v in ends]
    apart = next((v for v, g in zip(ends, graphs, strict=True) if g is not graphs[0]), None)
    if apart is not None:
        raise UsageError(f"--to {apart.name}: is in another graph than `{ends[0].name}`")
    graph = graphs[0]
    assert isinstance(graph, ir.Graph)
    facts = driver.facts(graph)
    begin = [_named(driver, original, name, "--from", stage, among) for name in inputs]
    return between(graph, facts, [v for each in begin for v in starting_at(each, graph, facts)], ends)


def _named(
    driver: Driver, original: ir.Model, name: str, option: str, stage: Stage, among: Sequence[ir.Graph]
) -> ir.Value | ir.Node:
    """The value or node of this name by now; if it is gone, the error names the rule that took it, and neighbours."""
    try:
        return named(driver.model, name, option, among)
    except UsageError:
        if candidates(driver.model, name):
            raise
        gone = named(original, name, option)  # which says so if it never was there
        nodes = [gone] if isinstance(gone, ir.Node) else [p for p in [gone.producer()] if p is not None]
        applied = [a.rule for a in driver.trace.applied if any(n.name in a.before for n in nodes) or a.value == name]
        told = f" ({applied[-1]} took it)" if applied else ""
        there = {o.name for g in scopes(driver.model) for n in g for o in n.outputs}
        there.update(v.name for g in scopes(driver.model) for v in g.inputs)
        before = _nearest([v for n in nodes for v in _above(n)], there, lambda v: _above(v.producer()))
        behind = _nearest(
            [v for n in nodes for v in _below(n)], there, lambda v: [o for c in v.consumers() for o in _below(c)]
        )
        hints = [f"`{v}` {where} it" for v, where in ((before, "before"), (behind, "behind")) if v is not None]
        raise UsageError(
            f"{option} {name}: is not there any more when rules of the {stage.name.lower()} stage run{told}; "
            f"name {' or '.join(hints) or 'another'}, or take the model as it is with --stage canonicalize"
        ) from None


def _above(node: ir.Node | None) -> list[ir.Value]:
    return [v for v in node.inputs if v is not None] if node is not None else []


def _below(node: ir.Node) -> list[ir.Value]:
    return list(node.outputs)


def _nearest(
    start: Sequence[ir.Value], there: Container[str | None], onward: Callable[[ir.Value], Iterable[ir.Value]]
) -> str | None:
    """The name of the nearest value, step by step, that is still there."""
    layer, seen = dict.fromkeys(start), set(start)
    while layer:
        found = next((v.name for v in layer if v.name in there and v.const_value is None), None)
        if found is not None:
            return found
        layer = dict.fromkeys(w for v in layer for w in onward(v) if w not in seen)
        seen.update(layer)
    return None
