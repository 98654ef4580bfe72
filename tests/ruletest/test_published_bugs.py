"""Published bugs of other tools, as rules: they look right where they were tried, and the ladder refutes them."""

from __future__ import annotations

import pytest

from benchmarks.history import HISTORY, Bug
from onnxrewrite.rewrite import registry
from onnxrewrite.ruletest.fuzz import fuzz
from onnxrewrite.ruletest.fuzz.instances import fitted
from onnxrewrite.ruletest.fuzz.judge import judged
from onnxrewrite.ruletest.metamorphic import seeds

LIBRARY = list(registry.load(plugins=False))


@pytest.fixture(params=HISTORY, ids=lambda bug: bug.rule.name)
def bug(request: pytest.FixtureRequest) -> Bug:
    return request.param


def test_the_example_looks_right(bug: Bug):
    start = next(s for s in seeds(bug.rule, LIBRARY) if s.feeder is not None)
    finding = judged(fitted(start.trial, start.model), bug.rule.assumes)
    assert finding is not None
    assert finding.status == "equal", finding.reason


@pytest.mark.slow
def test_it_is_refuted(bug: Bug):
    assert fuzz(bug.rule, LIBRARY, count=150, thorough=False).refuted, bug.overlooks
