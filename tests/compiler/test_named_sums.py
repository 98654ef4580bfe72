"""Dimensions that are called like a computation: an assumption that is told, tried, and can be turned off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.ir.sums import named_sums, with_plain_names

HEADER = '<ir_version: 8, opset_import: ["": 17]>'

RESTS_ON_IT = parser.parse_model(
    f'{HEADER} g (float[a,2] x, float[b,2] z, float["a + b",2] w) => (float[n,2] y) {{'
    "c = Concat<axis=0>(x, z)  s = Shape(c)  t = Reshape(w, s)  u = Reshape(t, s)  y = Relu(u) }"
)
"""w has the shape that it is reshaped to, if it is called what it is; at other sizes the original does not run."""

RUNS_ANYWAY = parser.parse_model(
    f'{HEADER} g (float[a] x, float[b] z, float["a + b"] w) => (int64[1] y) {{'
    "c = Concat<axis=0>(x, z)  s = Shape(c)  t = Shape(w)  y = Sub(s, t) }"
)
"""Zero, if w is called what it is; the original tells the difference."""

NAME = "a + b"


@pytest.fixture
def runs_anyway(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(RUNS_ANYWAY, path)
    return path


def feeds(a: int, b: int, w: int) -> dict[str, np.ndarray]:
    return {"x": np.ones(a, np.float32), "z": np.ones(b, np.float32), "w": np.ones(w, np.float32)}


def test_what_is_taken_for_a_sum():
    model = io.load(RUNS_ANYWAY)
    assert named_sums(model) == [NAME]
    plain = with_plain_names(model)
    assert named_sums(plain) == []
    assert named_sums(model) == [NAME]
    assert [str(d) for d in plain.graph.inputs[2].shape or ()] == ["a_b"]
    written = io.to_proto(plain).graph.input[2].type.tensor_type.shape.dim[0].dim_param
    assert written == NAME


@pytest.mark.parametrize("name", ["past_seq", "a_plus_b", "batch*", "N", "2nd", "seq-len"])
def test_plain_names(name):
    proto = parser.parse_model(f'{HEADER} g (float["{name}"] x) => (float[n] y) {{ y = Relu(x) }}')
    assert named_sums(io.load(proto)) == ([name] if name == "seq-len" else [])


def test_the_assumption_is_told_and_stands_in_the_certificate(tmp_path):
    result = rw.apply(RESTS_ON_IT, lower="fused")
    assert [n.op_type for n in result.model.graph] == ["Relu"]
    told = {"a size that is called `a + b` is that": []}
    assert result.assumes == told
    assert result.certificate.assumes == told
    assert result.certificate.options.named_sums


def test_it_can_be_turned_off():
    result = rw.apply(RESTS_ON_IT, lower="fused", named_sums=False)
    assert "Reshape" in [n.op_type for n in result.model.graph]
    assert result.assumes == {}


def test_where_the_original_runs_at_other_sizes_it_is_not_made():
    result = rw.apply(RUNS_ANYWAY, lower="fused")
    assert result.assumes == {}
    assert not result.request.named_sums
    (told,) = [note for note in result.notes if "a + b" in note]
    assert told.startswith("the size `a + b` is taken for a name: the original runs where it is something else")
    run = ReferenceEvaluator(result.to_proto()).run
    assert run(None, feeds(2, 3, 5))[0].tolist() == [0]
    assert run(None, feeds(2, 3, 7))[0].tolist() == [-2]


def test_unchecked_it_is_made_and_told():
    result = rw.apply(RUNS_ANYWAY, lower="fused", check="off")
    assert result.assumes == {"a size that is called `a + b` is that": []}


def test_the_result_is_replayed(runs_anyway, tmp_path):
    from onnxrewrite.cli import main

    out = tmp_path / "out.onnx"
    assert main(["apply", str(runs_anyway), "-o", str(out), "--lower", "fused", "-q"]) == 0
    assert main(["replay", f"{out}.certificate.json"]) == 0
