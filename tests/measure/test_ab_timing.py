"""A whole model against the original, and who slows it down."""

from __future__ import annotations

import itertools
import math
import random
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.workload import workload
from onnxrewrite.measure import ab_timing
from onnxrewrite.measure.ab_timing import OTHER_LEVELS, ABTiming, is_slower, opened_bytes, slowest
from onnxrewrite.measure.database.known import Database
from onnxrewrite.measure.database.store import Store
from onnxrewrite.measure.timing import OPENINGS, Allowance, Interval
from onnxrewrite.runtime.settings import Runner, Setting
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


@dataclass(eq=False)
class Slowed:
    """A session that takes so many seconds of the processor."""

    seconds: float
    creation: float = 1e-4

    def __call__(self) -> None:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass


class Opener:
    """Stands for ``open_runner``: the seconds that each session takes are told by what it opens and how many were opened
    of that before.  Counts sessions, and those that others are opened beside."""

    def __init__(self, seconds: Callable[[object, int], float]) -> None:
        self._seconds = seconds
        self.count, self.beside = 0, list[int]()
        self._alive = weakref.WeakSet[Slowed]()
        self._opened = Counter[str]()

    def __call__(self, model: onnx.ModelProto, feeds: object, setting: Setting) -> Runner:
        key = f"{len(model.graph.node)} {setting.level}"
        self.beside.append(len(self._alive))
        made = Slowed(self._seconds((len(model.graph.node), setting.level), self._opened[key]))
        self._opened[key] += 1
        self.count += 1
        self._alive.add(made)
        return cast(Runner, made)


SHORT, LONG = 1e-3, 1.3e-3
ORIGINAL, CANDIDATE = parser.parse_model(chain(4)), parser.parse_model(chain(5))


def raced(
    monkeypatch: pytest.MonkeyPatch, folder: Path, opener: Callable[..., Runner], seconds: float = math.inf
) -> ABTiming:
    monkeypatch.setattr(ab_timing, "open_runner", opener)
    known = Database(Store(folder))
    return ABTiming(ORIGINAL, workload(ORIGINAL), Setting(threads=1), known, Allowance(seconds))


def test_bad_places_in_memory_make_no_model_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)

    def seconds(what: object, before: int) -> float:
        return (LONG if what == (5, "all") else SHORT) if not before else rng.choice((SHORT, SHORT, LONG))

    opener = Opener(seconds)
    race = raced(monkeypatch, tmp_path, opener)
    seen = race.against(CANDIDATE)
    assert seen is not None
    assert not is_slower(seen)
    assert opener.count >= 2 + 2 * OPENINGS[0]
    assert set(opener.beside) == {0, 1}, "sessions are left open"


def test_a_model_that_is_slower_is_so_in_spite_of_bad_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    opener = Opener(lambda what, _: (1.1 if what == (5, "all") else 1) * rng.choice((SHORT, SHORT, SHORT, LONG)))
    seen = raced(monkeypatch, tmp_path, opener).against(CANDIDATE)
    assert seen is not None
    assert is_slower(seen)


@pytest.mark.parametrize("seconds", [0.001, 1.5])
def test_what_is_slower_is_not_opened_anew_where_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    opener = Opener(lambda what, _: 0.06 if what == (5, "all") else 0.03)
    seen = raced(monkeypatch, tmp_path, opener, seconds).against(CANDIDATE)
    assert seen is not None
    assert is_slower(seen)
    assert opener.count == 2


def test_what_is_slower_and_does_not_open_again_is_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = Opener(lambda what, _: 2 * SHORT if what == (5, "all") else SHORT)

    def failing(*args: Any) -> Runner:
        if opener.count > 4:
            raise ModelError("there is no memory left")
        return opener(*args)

    seen = raced(monkeypatch, tmp_path, failing).against(CANDIDATE)
    assert seen is not None
    assert is_slower(seen)


@pytest.mark.parametrize(
    ("again", "seconds", "level"), [(SHORT, math.inf, "basic"), (LONG, math.inf, "all"), (SHORT, 0.05, "all")]
)
def test_a_level_is_chosen_that_is_faster_when_it_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: float, seconds: float, level: str
) -> None:
    opener = Opener(lambda what, before: (again if before else SHORT) if what == (5, "basic") else LONG)
    found, seen = raced(monkeypatch, tmp_path, opener, seconds).best_level(CANDIDATE)
    assert found == level
    assert (seen is None) == (level == "all")
    assert (opener.count > 1 + len(OTHER_LEVELS) + 1) == math.isinf(seconds)


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
