"""Small graphs that are in no model searched for identities: two that compute the same, of which one is cheaper."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from onnxrewrite.authoring.region import between
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.errors import UsageError
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery.candidate_trial import Candidate, Trials, outcome
from onnxrewrite.suite.discovery.finding import IDENTITIES, Finding, Journal, Searched
from onnxrewrite.suite.discovery.graph_families import FAMILIES, OPSET, SIZES, Family
from onnxrewrite.suite.discovery.region_spelling import Spelling, hits
from onnxrewrite.suite.discovery.sampled_region import Operand, SampledRegion, sampled
from onnxrewrite.suite.discovery.search_request import Part, Request
from onnxrewrite.suite.discovery.small_graphs import NODES, Pool
from onnxrewrite.suite.discovery.substitute import Given, Inner, Substitute, model_of

PART = Part(IDENTITIES, "small graphs")
"""The part that looks for identities."""


@dataclass(frozen=True)
class Equation:
    """Two graphs of a family that compute the same, of which the one costs more."""

    family: Family
    operands: Sequence[Operand]
    dear: Substitute
    cheap: Substitute

    @cached_property
    def digest(self) -> str:
        """The same for equal ones."""
        return hashlib.sha256(repr((self.family.name, self.dear, self.cheap)).encode()).hexdigest()

    @property
    def models(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Both as models whose sizes have names."""
        return _model(self.dear, self.operands), _model(self.cheap, self.operands)


def search(
    request: Request, folder: Path, part: Part = PART, families: Sequence[Family] = FAMILIES
) -> tuple[Searched, list[Finding]]:
    """Search the small graphs of families of operators for identities, or go on where an earlier search stopped.

    Args:
        request: What is asked for.
        folder: Of the journals.
        part: That of all small graphs.
        families: The families.
    """

    def searched(journal: Journal) -> Searched:
        start, trials = time.perf_counter(), Trials(request, part, journal)
        pools = [Pool(family, request.seed) for family in families]
        for pool in pools:
            pool.grow(NODES, request.graphs)
        found = equations(pools)
        for each in found:
            if trials.begin(each.digest):
                _compare(each, trials)
                trials.end()
        return Searched(
            part.name,
            sum(pool.graphs for pool in pools),
            sum(pool.left for pool in pools),
            sum(pool.classes for pool in pools),
            len(found),
            trials.died([each.digest for each in found]),
            is_complete=not request.is_over,
            seconds=time.perf_counter() - start - trials.seconds,
            by=IDENTITIES,
        )

    return outcome(request, folder, part, searched)


def equations(pools: Sequence[Pool]) -> list[Equation]:
    """The pairs that may be rules: those of few nodes first, of these those that save most, then those that say most.

    Of pairs that differ in the names of operands only one is left; so is none whose cheaper side reads more.
    """
    found: list[tuple[tuple[int, ...], Equation]] = []
    for pool, pair in ((each, pair) for each in pools for pair in each.pairs):
        leaves = _leaves(pair.dear.graph)
        varying = [i for i in leaves if not pool.operands[i].is_constant]
        named = list(dict.fromkeys(varying))
        kinds = [[i for i in named if pool.operands[i].value.dtype == o.value.dtype] for o in pool.operands]
        read = {i for i in pair.cheap.graph.read() if not pool.operands[i].is_constant}
        if read <= set(named) and all(_is_first(kind, pool.operands) for kind in kinds):
            order = pair.dear.nodes, pair.cheap.nodes, -len(named), len(leaves) - len(varying), len(found)
            found.append((order, Equation(pool.family, pool.operands, pair.dear.graph, pair.cheap.graph)))
    return [equation for _, equation in sorted(found, key=lambda each: each[0])]


def _is_first(named: Sequence[int], operands: Sequence[Operand]) -> bool:
    """True if operands of one dtype are read in their order, from the first one on."""
    if not named:
        return True
    dtype = operands[named[0]].value.dtype
    alike = [i for i, o in enumerate(operands) if o.value.dtype == dtype and not o.is_constant]
    return list(named) == alike[: len(named)]


def _leaves(graph: Substitute) -> list[int]:
    """The operands that a graph reads, as often as its formula names them."""

    def visit(read: object) -> Iterator[int]:
        if isinstance(read, int):
            yield read
        elif isinstance(read, Inner):
            for each in graph.nodes[read.node].inputs:
                yield from visit(each)

    return list(visit(graph.results[0]))


def _model(graph: Substitute, operands: Sequence[Operand]) -> onnx.ModelProto:
    model = model_of(graph, operands, OPSET)
    for value in model.graph.input:
        for dim, name in zip(value.type.tensor_type.shape.dim, SIZES, strict=True):
            dim.dim_param = name
    return model


def _compare(equation: Equation, trials: Trials) -> None:
    """Try the cheaper of two graphs in the place of the other, unless there are rules that do as much."""
    dear, cheap = equation.models
    by = trials.as_cheap(dear, cheap)
    if by:
        trials.note_known(equation.dear, equation.cheap, by)
        return
    driver = found_by(dear, Stage.RAISE, trials.library, trials.request.target)
    left = _sampled(driver, trials.request.seed)
    if left is None:
        return
    found = f"Found among all small graphs of {equation.family.name}."
    for hit in hits(left, _spelling(equation), _chosen(equation, left)):
        finding = trials.take(Candidate(hit, driver, Stage.CANONICALIZE, trials.part.name, found))
        if finding is None or finding.is_right:
            return


def _sampled(driver: Driver, seed: int) -> SampledRegion | None:
    """The whole of a small model as a region; None where nothing is left of it."""
    graph = driver.model.graph
    facts = driver.facts(graph)
    try:
        region = between(graph, facts, [v for v in graph.inputs if v.uses()], graph.outputs)
    except UsageError:
        return None
    return sampled(region, facts, seed)


def _spelling(equation: Equation) -> Spelling:
    constants = {i: o for i, o in enumerate(equation.operands) if o.is_constant}
    given = {i: Given.of(o.array, o.value.dtype) for i, o in constants.items() if o.value.dtype is not None}
    return Spelling(equation.cheap, given)


def _chosen(equation: Equation, left: SampledRegion) -> dict[int, int]:
    """The operands of the dearer graph, as its model has them, for those of the cheaper one."""
    by_name = {o.value.name: i for i, o in enumerate(left.operands) if not o.is_constant}
    return {i: by_name[o.value.name] for i, o in enumerate(equation.operands) if o.value.name in by_name}
