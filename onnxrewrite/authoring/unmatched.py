"""The nodes of a model that no rule has taken in, labels that tell which are alike, and their costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.region import sizes
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.compiler import run as compiler
from onnxrewrite.compiler.request import Request
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes, subgraphs
from onnxrewrite.ir.skip_identity import resolve
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.rewrite.trace import RULE_KEY

Label: TypeAlias = Hashable
"""The features by which two nodes are alike."""


@dataclass
class Left:
    """The nodes that rules have left of one model.

    Attributes:
        name: The model's.
        driver: The rewritten model.
        labels: The nodes that no rule has taken in, with what makes two of them alike.
        weights: Their costs: seconds, or 1 each.
        names: The values that were there before anything was raised, where ``capture`` looks.
        sizes: The shape arithmetic of each graph.
        order: The position of each node in its graph.
    """

    name: str
    driver: Driver
    labels: dict[ir.Node, Label]
    weights: dict[ir.Node, float]
    names: frozenset[str | None]
    sizes: dict[ir.Graph, set[ir.Value]]
    order: dict[ir.Node, int]

    @classmethod
    def of(cls, source: io.Source, number: int, rules: Sequence[str], target: str, profile: bool) -> Left:
        """The nodes that ``apply`` with all rules leaves of a model, at the opset that these need."""
        loaded = io.load(source)
        result = compiler.apply(loaded, Request(rules=rules, target=target, check="off", lower="fused"))
        stages = {rule.name: rule.stage for rule in result.rules}
        names = value_names(found_by(loaded, Stage.RAISE, result.rules, target))
        name = str(source) if isinstance(source, str | Path) else f"model {number + 1}"
        left = cls.in_model(name, Driver(result.model, [], result.target), stages, names)
        return replace(left, weights=_seconds(loaded, left.driver)) if profile else left

    @classmethod
    def in_model(cls, name: str, driver: Driver, stages: Mapping[str, Stage], names: frozenset[str | None]) -> Left:
        """The nodes of a rewritten model that none of these rules has made, but for those that only tidy up."""
        labels, of_shapes = {}, {}
        for graph in scopes(driver.model):
            facts = driver.facts(graph)
            of_shapes[graph] = sizes(graph, facts)
            for node in graph:
                if not _is_taken(node, stages) and _is_work(node, facts, of_shapes[graph]):
                    labels[node] = _label(node, facts)
        order = {n: i for graph in scopes(driver.model) for i, n in enumerate(graph)}
        return cls(name, driver, labels, dict.fromkeys(labels, 1.0), names, of_shapes, order)


def value_names(driver: Driver) -> frozenset[str | None]:
    """The names of all values."""
    graphs = scopes(driver.model)
    return frozenset(v.name for g in graphs for v in (*g.inputs, *(o for n in g for o in n.outputs)))


def _is_taken(node: ir.Node, stages: Mapping[str, Stage]) -> bool:
    """True if a rule that does more than tidy up has made a node."""
    made = [r for r in node.metadata_props.get(RULE_KEY, "").split(",") if r]
    return any(stages.get(rule, Stage.RAISE) is not Stage.CANONICALIZE for rule in made)


def _is_work(node: ir.Node, facts: Facts, of_shapes: set[ir.Value]) -> bool:
    """True if a node computes something from the model's data, and a pattern can have it."""
    if subgraphs(node) or node.op_type in ("Identity", "Constant") or all(o in of_shapes for o in node.outputs):
        return False
    return any(v is not None and facts.tensor(resolve(v)) is None for v in node.inputs)


def _label(node: ir.Node, facts: Facts) -> Label:
    constant = tuple(None if v is None else facts.tensor(resolve(v)) is not None for v in node.inputs)
    return (node.domain, node.op_type, node.overload, len(node.outputs), constant)


def _seconds(model: ir.Model, driver: Driver) -> dict[ir.Node, float]:
    """The time that a run of the model spends on the nodes that each node of the rewritten one stands for."""
    from onnxrewrite.inputs.workload import workload
    from onnxrewrite.measure.kernel_times import run_profiled
    from onnxrewrite.measure.lineage import covered, origins
    from onnxrewrite.measure.opportunities import side
    from onnxrewrite.runtime.settings import DEFAULT

    run = run_profiled({"model": model}, workload(model).feeds, DEFAULT)["model"]
    measured = side(run.kernels, covered(model, run.optimized))
    of_name: dict[str, float] = defaultdict(float)
    for kernel in measured.kernels:
        names = measured.nodes.get(kernel.name, ())
        for name in names:
            of_name[name] += kernel.seconds / len(names)
    nodes = [n for graph in scopes(driver.model) for n in graph]
    shared = Counter(name for n in nodes for name in origins(n))
    return {n: sum(of_name.get(name, 0.0) / shared[name] for name in origins(n)) for n in nodes}
