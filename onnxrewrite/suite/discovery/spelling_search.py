"""A corpus searched for two spellings of one thing: regions that compute the same, of which one is cheaper."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxrewrite.authoring.region import Region
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery.candidate_trial import Candidate, Trials, outcome
from onnxrewrite.suite.discovery.enumeration import enumerate_regions
from onnxrewrite.suite.discovery.finding import KNOWN, REGIONS, Finding, Journal, Searched
from onnxrewrite.suite.discovery.region_cost import Cost, cost_of
from onnxrewrite.suite.discovery.region_spelling import Spelling, hits, orders, spelling
from onnxrewrite.suite.discovery.result_fingerprint import rounded
from onnxrewrite.suite.discovery.sampled_region import SampledRegion, sampled
from onnxrewrite.suite.discovery.search_request import Part, Request
from onnxrewrite.suite.discovery.substitute import model_of, results_of
from onnxrewrite.system.arrays import Array

THE_CORPUS = "the corpus"
"""The name of the part that compares the regions of all models."""

_CHEAPEST = 6
"""With so many cheaper ones each region is compared."""

_ORDERS = 6
"""In so many orders a region is given its operands."""


@dataclass(frozen=True)
class Spelled:
    """A region of the corpus that runs; what it computes is not kept.

    Attributes:
        kind: The digest of its structure.
        driver: Of its model.
        model: The path of that.
        region: The region.
        spelling: It as a small graph.
        cost: What that costs.
    """

    kind: str
    driver: Driver
    model: str
    region: Region
    spelling: Spelling
    cost: Cost


@dataclass(frozen=True)
class Way:
    """A region with its operands in some order.

    Attributes:
        spelled: The region.
        names: The names of what its operands are fed.
        key: Equal for regions that may compute the same: the kinds of what they are fed, and their fingerprints.
    """

    spelled: Spelled
    names: Mapping[int, str]
    key: object


def part_of(models: Sequence[Path]) -> Part:
    """The part that compares the regions of models with each other."""
    return Part(REGIONS, THE_CORPUS, tuple(models))


def search(request: Request, folder: Path, part: Part) -> tuple[Searched, list[Finding]]:
    """Compare the regions of all models with each other, or go on where an earlier search stopped.

    Args:
        request: What is asked for.
        folder: Of the journals.
        part: The models.
    """

    def searched(journal: Journal) -> Searched:
        start, trials = time.perf_counter(), Trials(request, part, journal)
        counts = _Counts([], 0)
        ways: list[Way] = []
        classes: dict[object, list[Way]] = defaultdict(list)
        for own in _regions(trials, counts):
            ways += own[:1]
            for each in own:
                classes[each.key].append(each)
        pairs = 0
        for left in sorted(ways, key=_order):
            cheaper = [way for way in sorted(classes[left.key], key=_order) if way.spelled.cost < left.spelled.cost]
            pairs += len(cheaper)
            if cheaper and trials.begin(f"{left.spelled.kind} as another"):
                _compare(left.spelled, cheaper[:_CHEAPEST], trials)
                trials.end()
        return Searched(
            part.name,
            len(counts.kinds),
            counts.left,
            len(ways),
            pairs,
            trials.died(counts.kinds),
            is_complete=not request.is_over,
            seconds=time.perf_counter() - start - trials.seconds,
            by=REGIONS,
        )

    return outcome(request, folder, part, searched)


@dataclass
class _Counts:
    """The digests of all regions, and the number of those that were left out."""

    kinds: list[str]
    left: int


def _order(way: Way) -> tuple[Cost, str]:
    return way.spelled.cost, way.spelled.kind


def _regions(trials: Trials, counts: _Counts) -> Iterator[list[Way]]:
    """The regions of all models that run, each kind once, as canonicalization leaves them."""
    request, met = trials.request, set[str]()
    for model in trials.part.models:
        driver = found_by(model, Stage.RAISE, trials.library, request.target)
        found = enumerate_regions(driver, nodes=request.nodes, most=request.regions)
        counts.left += found.left
        for kind, region in found.regions.items():
            if kind in met or not trials.begin(kind):
                continue
            met.add(kind)
            counts.kinds.append(kind)
            facts = driver.facts(region.graph)
            graph = spelling(region, facts)
            made = sampled(region, facts, request.seed) if graph is not None else None
            if graph is not None and made is not None and not any(map(_is_one_number, made.results)):
                cost = cost_of(model_of(graph.graph, made.operands, made.opset))
                yield list(_ways(Spelled(kind, driver, str(model), region, graph, cost), made))
            trials.end()


def _is_one_number(result: Array) -> bool:
    return bool(np.ptp(result.astype(np.float64)) == 0)


def _ways(spelled: Spelled, sample: SampledRegion) -> Iterator[Way]:
    """A region with its operands in each order that their kinds allow, in its own order first."""
    given = [i for i, o in enumerate(sample.operands) if not o.is_constant]
    kinds = [sample.operands[i].name.rpartition("_")[0] for i in given]
    own = {i: i for i in range(len(sample.operands))}
    for places in orders(kinds, _ORDERS):
        chosen = {given[i]: given[k] for i, k in places.items()}
        graph = spelled.spelling.over({**own, **chosen})
        is_own = all(i == k for i, k in chosen.items())
        results = sample.results if is_own else results_of(graph, sample)
        if results is not None:
            names = {i: sample.operands[k].name for i, k in chosen.items()}
            yield Way(spelled, names, (tuple(sorted(kinds)), *map(rounded, results)))


def _compare(left: Spelled, others: Sequence[Way], trials: Trials) -> None:
    """Try cheaper regions in the place of one, until a rule is right or such a one is known."""
    sample = sampled(left.region, left.driver.facts(left.region.graph), trials.request.seed)
    if sample is None:
        return
    number = {o.name: i for i, o in enumerate(sample.operands)}
    for right in others:
        chosen = {i: number[name] for i, name in right.names.items()}
        for hit in hits(sample, right.spelled.spelling, chosen):
            found = trials.take(Candidate(hit, left.driver, Stage.CANONICALIZE, left.model))
            if found is None or found.is_right or found.status == KNOWN:
                return
