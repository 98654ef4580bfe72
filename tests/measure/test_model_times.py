"""Times of models: of one comparison, by the processor where one thread works."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import pytest

from onnxrewrite.measure.model_times import model_times
from onnxrewrite.runtime.settings import Setting


def waits(seconds: float) -> Any:
    """A run that takes time on the wall and none of the processor's."""
    return partial(time.sleep, seconds)


def works(rounds: int) -> Any:
    return lambda: sum(range(rounds))


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_is_timed_by_the_processor(threads: int) -> None:
    setting = Setting(threads=threads)
    openers = {"short": lambda: works(20_000), "long": lambda: works(60_000)}
    found = model_times(openers, [setting], seconds=0.3)
    serial = threads == 1
    assert found["long"].of_processor is serial
    assert found["long"].ratio(found["short"]).median == pytest.approx(3, rel=0.4)
    timing = found["long"].running
    assert found["long"].latency.median == statistics.median(timing.cpu if serial else timing.wall)


def test_waiting_counts_where_not_all_are_of_one_thread() -> None:
    openers = {"waits": lambda: waits(0.004), "works": lambda: works(1000)}
    found = model_times(openers, [Setting(threads=1), Setting(threads=2)], seconds=0.1)
    assert not found["waits"].of_processor
    assert found["waits"].latency.median >= 0.004
    alone = model_times(openers, [Setting(threads=1)], seconds=0.1)
    assert alone["waits"].latency.median < 0.004
