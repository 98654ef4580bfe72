"""A whole model against the original, and who slows it down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.workload import workload
from onnxrewrite.measure import ab_timing
from onnxrewrite.measure.ab_timing import ABTiming, is_slower, opened_bytes, slowest
from onnxrewrite.measure.database.known import Database
from onnxrewrite.measure.database.store import Store
from onnxrewrite.measure.timing import OPENINGS, Allowance, Interval
from onnxrewrite.runtime.settings import Runner, Setting, open_runner
from onnxrewrite.system import resources


@pytest.mark.parametrize(
    ("low", "median", "slower"), [(1.01, 1.05, True), (0.99, 1.05, False), (1.001, 1.01, False), (0.7, 0.8, False)]
)
def test_slower_is_beyond_doubt_and_by_more_than_the_margin(low: float, median: float, slower: bool) -> None:
    assert is_slower(Interval(median, low, 2.0)) is slower


@given(st.integers(1, 20), st.data())
def test_the_one_that_makes_it_slow_is_found(count: int, data: st.DataObject) -> None:
    groups = [f"g{i}" for i in range(count)]
    brake = data.draw(st.sampled_from(groups))
    asked: list[Sequence[str]] = []

    def is_slow(without: Sequence[str]) -> bool:
        asked.append(without)
        return brake not in without

    assert slowest(groups, is_slow) == brake
    assert len(asked) <= 2 + count.bit_length()


def test_nobody_is_found_where_it_is_slow_without_all_of_them() -> None:
    assert slowest(["a", "b"], lambda without: True) is None
    assert slowest(["a", "b"], lambda without: False) is None
    assert slowest([], lambda without: False) is None


MATMUL = '<ir_version: 8, opset_import: ["": 17]> g (float[64,64] x) => (float[64,64] y) {{ {body} }}'


def chain(length: int) -> str:
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    return MATMUL.format(body=" ".join(f"{b} = MatMul(x, {a})" for a, b in itertools.pairwise(names)))


def test_twice_the_work_takes_longer_and_is_remembered(tmp_path: Path) -> None:
    original, longer = parser.parse_model(chain(4)), parser.parse_model(chain(16))
    race = ABTiming(original, workload(original), Setting(threads=1), Database(Store(tmp_path)))
    seen = race.against(longer)
    same = race.against(original)
    assert seen is not None
    assert same is not None
    assert is_slower(seen)
    assert not is_slower(same)
    again = ABTiming(original, workload(original), Setting(threads=1), Database(Store(tmp_path)))
    assert again.against(longer) == seen
    assert (race.measured, again.measured) == (2, 0)


def test_bad_places_in_memory_make_no_model_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, opened = parser.parse_model(chain(8)), list[Runner]()

    def opener(*args: Any) -> Runner:
        runner = open_runner(*args)
        opened.append(runner)
        return cast(Runner, BadlyPlaced(runner)) if len(opened) % 4 == 2 else runner  # the first candidate, and others

    monkeypatch.setattr(ab_timing, "open_runner", opener)
    race = ABTiming(model, workload(model), Setting(threads=1), Database(Store(tmp_path)))
    seen = race.against(model)
    assert seen is not None
    assert not is_slower(seen)
    assert len(opened) >= 2 + 2 * OPENINGS[0]


@dataclass
class BadlyPlaced:
    """A session that is slower than others of the same model, for as long as it is open."""

    runner: Runner

    @property
    def creation(self) -> float:
        return self.runner.creation

    def __call__(self) -> object:
        return [self.runner() for _ in range(2)]


def test_what_is_slower_is_not_opened_anew_where_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, longer = parser.parse_model(chain(4)), parser.parse_model(chain(16))
    monkeypatch.setattr(ab_timing, "interleave_anew", lambda *_, **__: pytest.fail("it is opened anew"))
    race = ABTiming(
        original, workload(original), Setting(threads=1), Database(Store(tmp_path)), allowance=Allowance(0.001)
    )
    seen = race.against(longer)
    assert seen is not None
    assert is_slower(seen)


def test_what_does_not_fit_into_the_memory_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[64,64] x) => (float[64,64] y)'
        " <float16[64,64] w> { v = Cast<to=1>(w) y = MatMul(x, v) }"
    )
    del original.graph.value_info[:]
    original.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float16), "w"))
    assert opened_bytes(original) == 64 * 64 * (2 + 2 * 4)
    race = ABTiming(original, workload(original), Setting(threads=1), Database(Store(tmp_path)))
    monkeypatch.setattr(resources, "memory", lambda: resources.Memory(10**6, 50_000))
    with pytest.raises(ModelError, match="GB of memory"):
        race.against(original)
    assert not race.measured
