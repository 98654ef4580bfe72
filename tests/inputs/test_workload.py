"""Workloads: sizes as in use, and inputs at which the model runs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.workload import workload
from onnxrewrite.runtime.settings import LEVELS, Setting, open_runner

HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def test_sizes_are_those_in_use() -> None:
    model = parser.parse_model(f"{HEADER} g (float[batch,seq,4] x) => (float[batch,seq,4] y) {{ y = Relu(x) }}")
    found = workload(model)
    assert found.binding == {"batch": 1, "seq": 128}
    assert found.feeds["x"].shape == (1, 128, 4)


def test_given_sizes_and_inputs_are_kept() -> None:
    model = parser.parse_model(f"{HEADER} g (float[batch,seq] x) => (float[batch,seq] y) {{ y = Relu(x) }}")
    given = np.ones((1, 5), np.float32)
    assert workload(model, dims={"batch": 3}).binding == {"batch": 3, "seq": 128}
    assert workload(model, inputs={"x": given}).feeds["x"] is given


def test_other_sizes_are_tried_where_typical_ones_do_not_run() -> None:
    text = f"{HEADER} g (float[n,seq] x, float[1,16] w) => (y) {{ y = Concat <axis = 0> (x, w) }}"
    found = workload(parser.parse_model(text))
    assert found.binding["seq"] == 16


def test_smaller_sizes_are_tried_first_where_typical_ones_are_too_large() -> None:
    text = f"{HEADER} g (float[batch,seq,1] x) => (y) <float[1,40,1] p = {{{', '.join(['1'] * 40)}}}> {{"
    text += (
        " s = Shape <start = 1, end = 2> (x)  z = Constant <value_ints = [0]> ()  a = Constant <value_ints = [1]> ()"
    )
    text += "  c = Slice(p, z, s, a)  y = Add(x, c) }"
    assert workload(parser.parse_model(text)).binding == {"batch": 1, "seq": 32}


def test_a_model_that_does_not_run_is_an_error() -> None:
    text = f"{HEADER} g (float[2,3] x, float[4,5] w) => (y) {{ y = Concat <axis = 0> (x, w) }}"
    with pytest.raises(ModelError):
        workload(parser.parse_model(text))


@pytest.mark.parametrize("level", LEVELS)
def test_a_runner_runs(level: str) -> None:
    model = parser.parse_model(f"{HEADER} g (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    run = open_runner(model, {"x": np.array([-1, 1], np.float32)}, Setting(threads=1, level=level))  # type: ignore[arg-type]
    assert run()[0].tolist() == [0, 1]
    assert run.creation > 0


def test_an_optimizer_of_onnx_runtime_can_be_left_out() -> None:
    model = parser.parse_model(f"{HEADER} g (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    run = open_runner(model, {"x": np.ones(2, np.float32)}, Setting(without=("SkipLayerNormFusion",)))
    assert run()[0].tolist() == [1, 1]
