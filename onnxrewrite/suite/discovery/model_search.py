"""One model searched for kernels: its regions, and the kernels that compute the same."""

from __future__ import annotations

import time
from pathlib import Path

from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery.candidate_trial import Candidate, Trials, outcome
from onnxrewrite.suite.discovery.enumeration import CONE, enumerate_regions
from onnxrewrite.suite.discovery.finding import Finding, Journal, Searched
from onnxrewrite.suite.discovery.joining import Known, joined
from onnxrewrite.suite.discovery.sampled_region import sampled
from onnxrewrite.suite.discovery.search_request import Part, Request


def search(request: Request, folder: Path, part: Part) -> tuple[Searched, list[Finding]]:
    """Search a model for regions that a kernel computes as well, or go on where an earlier search stopped.

    Args:
        request: What is asked for.
        folder: Of the journals.
        part: The model.
    """

    def searched(journal: Journal) -> Searched:
        start, trials, known = time.perf_counter(), Trials(request, part, journal), Known()
        driver = found_by(part.models[0], Stage.LOWER, trials.library, request.target)
        found = enumerate_regions(driver, nodes=request.nodes, most=request.regions, cone=CONE)
        ran = 0
        for kind, region in found.regions.items():
            if not trials.begin(kind):
                continue
            made = sampled(region, driver.facts(region.graph), request.seed)
            ran += made is not None
            for hit in joined(made, trials.target, known) if made is not None else ():
                trials.take(Candidate(hit, driver, Stage.LOWER, part.name))
            trials.end()
        return Searched(
            part.name,
            len(found.regions),
            found.left,
            ran,
            known.evaluated,
            trials.died(list(found.regions)),
            known.cut_short,
            not request.is_over,
            seconds=time.perf_counter() - start - trials.seconds,
        )

    return outcome(request, folder, part, searched)
