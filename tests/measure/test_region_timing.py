"""When a rewrite is timed, how long, and when not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from onnx import numpy_helper, parser

from onnxrewrite.inputs.bindings import Binding
from onnxrewrite.inputs.sample import Sampler
from onnxrewrite.measure import region_timing
from onnxrewrite.measure.region_timing import RegionTiming
from onnxrewrite.measure.site_benchmark import Subject
from onnxrewrite.measure.timing import Allowance, Interval, Timing
from onnxrewrite.runtime.settings import Setting

HEADER = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
CONV = "g (float[1,2,6,6] x) => (float[1,4,4,4] y)"
WEIGHTS = {"w": np.linspace(-1, 1, 72, dtype=np.float32).reshape(4, 2, 3, 3), "b": np.ones(4, np.float32)}


def subject(before: str, after: str) -> Subject:
    models = [parser.parse_model(f"{HEADER} {CONV} {{ {nodes} }}") for nodes in (before, after)]
    for model in models:
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in WEIGHTS.items())
    sampler = Sampler(models[0])
    return Subject(models[0], models[1], Binding({}), lambda care: sampler.feeds(Binding({}), care=care))


def timed(found: Subject) -> Interval:
    clock = RegionTiming(Setting(threads=1), Allowance(60.0))
    figures = clock._timed(found, [1.03])
    assert figures is not None
    return figures.ratios["after/before"]


def test_what_onnx_runtime_makes_the_same_of_is_not_compared_by_the_clock() -> None:
    same = timed(subject("c = Conv(x, w, b)  y = Relu(c)", "d = Conv(x, w, b)  y = Relu(d)"))
    assert same == Interval(1.0, 1.0, 1.0)
    fused = 'y = com.microsoft.FusedConv<activation="Relu">(x, w, b)'
    assert timed(subject("c = Conv(x, w, b)  y = Relu(c)", fused)) == Interval(1.0, 1.0, 1.0)


def test_what_differs_is_timed() -> None:
    found = timed(subject("c = Conv(x, w, b)  y = Relu(c)", "c = Conv(x, w, b)  d = Tan(c) e = Atan(d) y = Relu(e)"))
    assert found.low < found.high


def test_what_cannot_be_read_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> object:
        raise DecodeError(path)

    monkeypatch.setattr(region_timing.onnx, "load", broken)
    found = timed(subject("c = Conv(x, w, b)  y = Relu(c)", "d = Conv(x, w, b)  y = Relu(d)"))
    assert found.low < found.high


SLOWER = [1.04, 1.05, 0.95, 1.06, 1.03, 1.04, 0.99, 1.05, 1.02]


@pytest.mark.parametrize(
    ("after", "limits", "clear"),
    [
        (SLOWER, [0.97], True),  # 3 % are to be gained, and hardly anything speaks for that
        (SLOWER, [1.03], False),
        ([0.9, 1.1, 0.96, 0.99, 0.94, 1.0, 0.95, 1.02, 0.98], [0.97], False),
        ([0.5] * 9, [0.97], True),
    ],
    ids=["no hope to be faster", "slower or not", "faster or not", "faster"],
)
def test_timing_ends_when_it_is_clear(after: Sequence[float], limits: list[float], clear: bool) -> None:
    def of(samples: Sequence[float]) -> Timing:
        return Timing(tuple(samples), tuple(samples))

    clock = RegionTiming(Setting(threads=1), Allowance(60.0))
    assert clock._is_clear({"before": of([1.0] * 9), "after": of(after)}, limits) is clear


def test_what_does_not_matter_is_clear() -> None:
    timings = {
        side: Timing(tuple(s), tuple(s)) for side, s in (("before", [1e-6] * 9), ("after", [2e-6, 1e-7] * 4 + [1e-6]))
    }
    assert RegionTiming(Setting(threads=1), whole=lambda: 1.0)._is_clear(timings, [1.03])
    assert not RegionTiming(Setting(threads=1), whole=lambda: 1e-5)._is_clear(timings, [1.03])
