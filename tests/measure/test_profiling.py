"""Profiles as a whole, of small models and in short."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from onnx import parser
from test_kernel_times import GELU, HEADER

from onnxrewrite import io
from onnxrewrite.api.application import apply
from onnxrewrite.errors import ModelError
from onnxrewrite.measure import peaks
from onnxrewrite.measure.profiling import Profile, Rewritten, profile
from onnxrewrite.runtime.settings import Setting

SETTING = Setting(threads=1, level="disabled")


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peaks, "SECONDS", 0.02)
        yield


def profiled(text: str, setting: Setting = SETTING, **options: object) -> Profile:
    return profile(io.load(parser.parse_model(text)), setting=setting, seconds=0.05, **options)  # type: ignore[arg-type]


def test_times_add_up() -> None:
    found = profiled(GELU)
    assert {e.name for e in found.kernels} == {"first", "divided", "erf", "plus", "times", "last"}
    assert {e.name: e.kernels for e in found.operators} == {"MatMul": 1, "Div": 1, "Erf": 1, "Add": 1, "Mul": 2}
    assert sum(e.seconds for e in found.operators) == pytest.approx(sum(e.seconds for e in found.kernels))
    assert [e.seconds for e in found.kernels] == sorted((e.seconds for e in found.kernels), reverse=True)
    assert found.ratio is None
    assert {o.kind for o in found.opportunities} <= {"far from the roof"}


def test_what_rules_do_is_measured() -> None:
    model = io.load(parser.parse_model(GELU))
    result = apply(model, check="off", only=["gelu"])
    rewritten = Rewritten(result.model, result.trace, tuple(result.rules))
    found = profile(model, rewritten=rewritten, setting=SETTING, seconds=0.05)
    first = found.opportunities[0]
    assert (first.kind, first.name, first.places) == ("rewrite", "gelu-erf, gelu-lower", 1)
    assert first.measured is not None
    assert first.seconds == pytest.approx(sum(e.seconds for e in found.kernels if e.name != "first"))
    assert found.rewritten is not None
    assert {e.name: e.seen.rules for e in found.kernels}["erf"] == ("gelu-erf", "gelu-lower")
    data = found.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_what_onnx_runtime_fuses_is_said() -> None:
    found = profiled(GELU, Setting(threads=1))
    gelu = next(e for e in found.kernels if e.op_type == "Gelu")
    assert gelu.operators == {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2}
    assert any("fused by ONNX Runtime: 5 nodes" in note for note in found.notes)


def test_a_model_of_constants_runs_nothing() -> None:
    found = profiled(f"{HEADER} g () => (float[2] y) <float[2] c = {{1.0, 2.0}}> {{ y = Relu(c) }}", Setting(threads=1))
    assert found.kernels == ()
    assert any("nothing runs" in note for note in found.notes)
    assert found.to_json()["operators"] == []


def test_sizes_are_those_given() -> None:
    text = f"{HEADER} g (float[n,4] x) => (float[n,4] y) {{ y = Relu(x) }}"
    found = profiled(text, dims={"n": 6})
    assert found.sizes == {"n": 6}
    assert found.kernels[0].work.flops == 24


def test_a_model_that_does_not_run_is_an_error() -> None:
    text = f"{HEADER} g (float[2,3] x, float[4,5] w) => (y) {{ y = Concat <axis = 0> (x, w) }}"
    with pytest.raises(ModelError):
        profiled(text)
