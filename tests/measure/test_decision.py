"""Decisions are read as they were written, and nothing else is."""

from __future__ import annotations

import pytest

from onnxrewrite.measure.choice import Weighed
from onnxrewrite.measure.decision import Decision, Raced, Weighing, read
from onnxrewrite.measure.timing import Interval

RATIO = Interval(0.9, 0.8, 1.0)
MADE = Decision(
    (
        Weighing("a", "y", ("n", (0, 1)), Weighed("a", RATIO, 0.5, remembered=False, places=2)),
        Weighing("b", "z", (), "it cannot run"),
    ),
    (1,),
    (Raced(1, RATIO, taken=True, greedy=False),),
)


def test_a_decision_is_read_as_it_was_written() -> None:
    assert read(MADE.written()) == MADE


@pytest.mark.parametrize("told", ["", "[]", "{}", '{"met": [], "taken": ["a"], "raced": []}', "\x00"])
def test_what_is_no_decision_is_not_read(told: str) -> None:
    assert read(told) is None
