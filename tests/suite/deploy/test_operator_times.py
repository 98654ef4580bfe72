"""Where the time goes before and after; and that nothing that goes wrong there ends a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from suite.deploy.models import chain, saved, slow

from onnxrewrite.measure.timing import Interval
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.deploy import operator_times
from onnxrewrite.suite.deploy.acceptance import AS_IT_WAS, Trial
from onnxrewrite.suite.deploy.artifact import Artifact, Metrics
from onnxrewrite.suite.deploy.operator_times import by_operator
from onnxrewrite.suite.quality.gate import Quality

DIMS = {"batch": 4}


def trial(path: Path, *, latency: float = 0.001, size: int = 1000, **setting: Any) -> Trial:
    once = Interval(latency, latency, latency)
    metrics = Metrics(once, Interval(1, 1, 1), None, 1 / latency, once, size, Quality({}))
    return Trial(Artifact(path, Setting(**{"threads": 1, **setting})), metrics, AS_IT_WAS)


@pytest.fixture
def both(tmp_path: Path) -> tuple[Trial, Trial]:
    return trial(saved(tmp_path, slow(chain(3)))), trial(saved(tmp_path, chain(3), "fast.onnx"))


def test_time_by_operator(both: tuple[Trial, Trial]) -> None:
    found = by_operator(*both, DIMS, {})
    assert found.missing == ""
    before, after = ({p.operator: p for p in side} for side in (found.before, found.after))
    assert before["MatMul"].kernels == after["MatMul"].kernels == 3
    assert before["Expand"].seconds > after["MatMul"].seconds > 0
    assert "Expand" not in after
    assert [p.seconds for p in found.before] == sorted((p.seconds for p in found.before), reverse=True)


def test_each_runs_as_it_is_set(tmp_path: Path) -> None:
    path = saved(tmp_path, chain(3))
    found = by_operator(trial(path, level="all"), trial(path, level="disabled"), DIMS, {})
    assert "Identity" not in {p.operator for p in found.before}
    assert "Identity" in {p.operator for p in found.after}


def test_the_original_alone_runs_once(both: tuple[Trial, Trial]) -> None:
    found = by_operator(both[0], both[0], DIMS, {})
    assert found.before == found.after != ()


def test_a_failure_is_told(both: tuple[Trial, Trial], tmp_path: Path) -> None:
    gone = replace(both[1], artifact=both[1].artifact.at(tmp_path / "gone.onnx"))
    found = by_operator(both[0], gone, DIMS, {})
    assert (found.before, found.after) == ((), ())
    assert found.missing.startswith("the profile failed: ")
    assert "gone.onnx" in found.missing


def test_what_nobody_expects_is_told(both: tuple[Trial, Trial], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("ts")

    monkeypatch.setattr(operator_times, "run_profiled", broken)
    assert by_operator(*both, DIMS, {}).missing == "the profile failed: 'ts'"


def test_what_is_not_profiled(both: tuple[Trial, Trial], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    other = trial(path, provider="CUDAExecutionProvider")
    assert "CUDAExecutionProvider" in by_operator(both[0], other, DIMS, {}).missing
    assert "a run takes 4.0 s" in by_operator(trial(path, latency=4.0), both[1], DIMS, {}).missing
    assert "too large" in by_operator(both[0], trial(path, size=3 * 10**9), DIMS, {}).missing
