"""Peaks: measured once, of the right size; which roof is the lowest."""

from __future__ import annotations

import pytest

from onnxrewrite.measure import peaks as module
from onnxrewrite.measure.peaks import Peaks, measured_as, peaks
from onnxrewrite.runtime.kernel_work import Work
from onnxrewrite.runtime.settings import Setting

ROOF = Peaks(flops=1e9, bandwidth=1e6, dispatch=1e-6)


@pytest.mark.parametrize(
    ("work", "calls", "bound", "seconds"),
    [
        (Work(10**9, 1000), 1, "compute", 1.0),
        (Work(1000, 10**6), 1, "memory", 1.0),
        (Work(None, 10**6), 1, "memory", 1.0),
        (Work(0, 0), 3, "dispatch", 3e-6),
    ],
)
def test_the_lowest_roof_counts(work: Work, calls: int, bound: str, seconds: float) -> None:
    assert ROOF.bound(work, calls) == bound
    assert ROOF.seconds(work, calls) == pytest.approx(seconds)


def test_dtypes_that_stand_for_others() -> None:
    assert [measured_as(d) for d in ("float", "int8", "int64", "bool", "string")] == [
        "float",
        "uint8",
        "uint8",
        "float",
        "float",
    ]


def test_what_is_measured_is_plausible_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.02)
    setting = Setting(threads=1, without=("GeluFusionL2",))
    found = peaks(setting)
    assert 1e8 < found.flops < 1e14
    assert 1e8 < found.bandwidth < 1e13
    assert 1e-9 <= found.dispatch < 1e-3
    assert peaks(Setting(threads=1, level="basic")) == found


def test_a_dtype_without_a_kernel_is_measured_as_float(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.02)
    setting = Setting(threads=1)
    assert peaks(setting, "bfloat16").flops == peaks(setting).flops
    assert peaks(setting, "int8").flops > 1e8
