"""Decisions, from made-up figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxrewrite.measure.timing import Interval
from onnxrewrite.suite.deploy.acceptance import Trial, best, settled, weigh
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics
from onnxrewrite.suite.quality.closeness import Closeness
from onnxrewrite.suite.quality.gate import Gate, Quality


def metrics(
    low: float, median: float, high: float, *, size: int = 100, creation: float = 1.0, cosine: float = 1.0
) -> Metrics:
    step, opens = Interval(median, low, high), Interval(creation, creation, creation)
    return Metrics(step, step, step, 1 / median, opens, size, Quality({"y": Closeness(cosine=cosine)}))


BEFORE = metrics(1, 1, 1)


@pytest.mark.parametrize(
    ("made", "kept", "close"),
    [
        (metrics(0.5, 0.6, 0.7), True, False),
        (metrics(0.9, 0.95, 0.99), True, True),
        (metrics(0.9, 0.95, 1.01), False, True),
        (metrics(0.99, 1.0, 1.01), False, False),
        (metrics(0.99, 1.0, 1.01, size=50), True, False),
        (metrics(1.1, 1.2, 1.3, size=50), False, False),
        (metrics(1.01, 1.2, 1.3), False, True),
        (metrics(0.99, 1.0, 1.01, creation=0.5), True, False),
        (metrics(0.1, 0.1, 0.1, cosine=0.9), False, False),
    ],
)
def test_faster_or_smaller_or_nothing(made: Metrics, kept: bool, close: bool) -> None:
    found = weigh(made, BEFORE, Gate())
    assert (found.kept, found.close) == (kept, close)
    assert found.reason


def test_size_is_worth_time_where_it_is_asked_for() -> None:
    made = metrics(1.1, 1.2, 1.3, size=50)
    assert weigh(made, BEFORE, Gate(), "size").reason == "0.50 of the size"


def test_the_best_is_the_fastest_or_the_smallest() -> None:
    fast, small = metrics(0.5, 0.5, 0.5, size=90), metrics(0.8, 0.8, 0.8, size=40)
    trials = [Trial(Artifact(Path("m")), m, weigh(m, BEFORE, Gate())) for m in (fast, small)]
    assert best(trials) is trials[0]
    assert best(trials, "size") is trials[1]
    assert best([]) is None


def test_of_equally_fast_ones_the_closest_is_kept() -> None:
    far, close, slow = (
        metrics(0.5, 0.5, 0.5, cosine=0.99),
        metrics(0.5, 0.505, 0.51, cosine=0.999),
        metrics(0.6, 0.6, 0.6),
    )
    trials = [Trial(Artifact(Path("m")), m, weigh(m, BEFORE, Gate())) for m in (far, close, slow)]
    assert best(trials) is trials[1]


def test_of_several_one_is_kept() -> None:
    fast, small = metrics(0.5, 0.5, 0.5, size=90), metrics(0.8, 0.8, 0.8, size=40)
    trials = [Trial(Artifact(Path("m"), how=h), m, weigh(m, BEFORE, Gate())) for h, m in (("a", fast), ("b", small))]
    found, kept = settled(trials)
    assert kept is trials[0]
    assert [t.verdict.kept for t in found] == [True, False]
    assert found[1].verdict.reason == "a is better"
