"""Timing: intervals that hold, turns that are fair."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from onnxrewrite.measure import timing
from onnxrewrite.measure.timing import DOUBT, LOOKS, Interval, Timing, interleave, interleave_anew, interval, ratio


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 20, 101])
def test_the_interval_holds_the_median_in_95_of_100_cases(n: int) -> None:
    rng = np.random.default_rng(n)
    found = [interval(list(rng.exponential(size=n))) for _ in range(2000)]
    held = sum(i.low <= math.log(2) <= i.high for i in found) / len(found)
    assert all(i.low <= i.median <= i.high for i in found)
    assert held >= 0.935 if n >= 6 else held <= 0.95


def test_of_many_samples_the_interval_is_narrow() -> None:
    found = interval([float(i) for i in range(5001)])
    assert (found.low, found.median, found.high) == (2430.0, 2500.0, 2570.0)


def test_of_what_takes_long_there_are_three_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "LONGEST", 0.0)
    found = interleave({"a": lambda: None}, seconds=10.0, sample=0)
    assert len(found["a"].wall) == 3


def test_with_few_samples_the_interval_is_all_of_them() -> None:
    assert interval([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0)


def test_a_ratio_is_taken_round_by_round() -> None:
    slow_spell = (1.0, 1.0, 10.0, 10.0, 1.0)
    one, other = Timing(slow_spell, slow_spell), Timing(tuple(2 * s for s in slow_spell), slow_spell)
    assert ratio(other, one) == Interval(2.0, 2.0, 2.0)


def test_tasks_take_turns() -> None:
    order: list[str] = []
    tasks = {name: lambda name=name: order.append(name) for name in "abc"}
    found = interleave(tasks, seconds=0, least=6, sample=0)
    assert [len(t.wall) for t in found.values()] == [6, 6, 6]
    assert "".join(order[-18:]) == "abcbcacabcbaacbbac"


def test_what_is_opened_is_opened_anew_by_turns() -> None:
    opened: list[str] = []
    runs: list[tuple[str, int]] = []

    def opener(name: str) -> Callable[[], Callable[[], None]]:
        def begin() -> Callable[[], None]:
            opened.append(name)
            number = len(opened)
            return lambda: runs.append((name, number))

        return begin

    found = interleave_anew({name: opener(name) for name in "ab"}, seconds=0)
    assert "".join(opened) == "abbabaababbaba"
    assert {number for _, number in runs} == set(range(1, 15))
    assert {len(creation.wall) for creation, _ in found.values()} == {7}
    assert {len(timing.wall) for _, timing in found.values()} == {7}


@pytest.mark.parametrize("true", [0.9, 1.0, 1.05])
def test_who_stops_when_it_is_clear_is_wrong_in_5_of_100_cases(true: float) -> None:
    """A limit that is the true median is taken for clear in no more; one at a distance is decided, and rightly."""
    rng = np.random.default_rng(7)
    stopped = [0, 0]
    for _ in range(400):
        ratios = true * np.exp(0.05 * rng.standard_normal(max(LOOKS)))
        for place, limit in enumerate((true, 1.03)):
            seen = (interval(list(ratios[:n]), DOUBT) for n in LOOKS)
            clear = next((i for i in seen if not i.low < limit < i.high), None)
            stopped[place] += clear is not None
            assert place == 0 or clear is None or (clear.median > limit) == (true > limit)
    assert stopped[0] <= 0.06 * 400
    assert stopped[1] >= 0.5 * 400


def test_timing_stops_when_it_is_enough() -> None:
    asked: list[int] = []

    def enough(timings: dict[str, Timing]) -> bool:
        asked.append(len(timings["a"].wall))
        return asked[-1] >= LOOKS[1]

    found = interleave({"a": lambda: None, "b": lambda: None}, seconds=10.0, sample=0, enough=enough)
    assert asked == [*LOOKS[:2]]
    assert len(found["b"].wall) == LOOKS[1]


def test_what_takes_twice_as_long_is_found_to() -> None:
    found = interleave({"one": lambda: time.sleep(0.002), "two": lambda: time.sleep(0.004)}, seconds=0.2)
    seen = ratio(found["two"], found["one"])
    assert seen.low <= seen.median <= seen.high
    assert 1.6 < seen.median < 2.4
    assert found["one"].cpu_seconds < 0.5 * found["one"].latency.median
