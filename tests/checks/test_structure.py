from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from corpus import SHARED_MODELS

from onnxrewrite.checks.structure import check_structure

SHARED = SHARED_MODELS
MODELS = sorted(SHARED.rglob("*.onnx"))


def test_a_good_model_has_no_problems(model: Any, tmp_path: Path) -> None:
    proto = model("g (float[n, 4] x) => (float[n, 4] y) { r = Relu(x) y = com.microsoft.Gelu(r) }")
    assert check_structure(proto) == []
    assert check_structure(ir.from_proto(proto)) == []
    onnx.save(proto, tmp_path / "m.onnx")
    assert check_structure(tmp_path / "m.onnx") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("g (float[n] x) => (float[n] y) { y = NoSuch(x) }", "checker: No Op registered for NoSuch"),
        ("g (float[n] x) => (float[n] y) { y = Relu(z) }", "checker"),
        ("g (float[n] x) => (float[n] y) { y = Relu<alpha=1.0>(x) }", "checker"),
        ("g (float[n] x) => (int64[n] y) { y = Relu(x) }", "shape inference"),
        ("g (float[3] x) => (float[4] y) { y = Relu(x) }", "shape inference"),
        ("g (float[2,3] x, float[4,5] z) => (float[a,b] y) { y = MatMul(x, z) }", "shape inference"),
        ("g (float[n] x) => (float[n] y) { y = com.microsoft.NoSuch(x) }", "ONNX Runtime refuses it"),
        (
            "g (double[n] x) => (double[n] y) { y = Erf(x) }",
            "ONNX Runtime refuses it: Could not find an implementation for Erf",
        ),
        ("g (float[3] x) => (float[4] y) { r = com.microsoft.Gelu(x) y = Relu(r) }", ""),
    ],
)
def test_problems_are_one_line(model: Any, text: str, says: str) -> None:
    found = check_structure(model(text))
    if says:
        assert found[0].startswith(says)
        assert not any("\n" in line for line in found)


def test_missing_opset_import(model: Any) -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = com.microsoft.Gelu(x) }")
    del proto.opset_import[1]
    assert check_structure(proto) == ["the model uses domain com.microsoft without importing its opset"]


def test_kernels_can_be_left_out(model: Any) -> None:
    proto = model("g (double[n] x) => (double[n] y) { y = Erf(x) }")
    assert check_structure(proto, kernels=False) == []


def test_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    assert len(check_structure(path)) == 1
    path.write_bytes(b"")
    assert len(check_structure(path)) == 1
    path.write_bytes(b"no model at all, this is text" * 9)
    assert len(check_structure(path)) == 1


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason=f"{SHARED} is not here")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_shared_models_are_valid(path: Path) -> None:
    assert check_structure(path) == []


def test_a_problem_does_not_hide_another(model: Any) -> None:
    """Many exporters leave out the shape of an output, of which the checker complains; the types are wrong, too."""
    proto = model("g (float[n] x) => (float[n] y) { a = Relu(x)  y = Not(a) }")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    found = check_structure(proto)
    assert [line.partition(":")[0] for line in found] == ["checker", "shape inference", "ONNX Runtime refuses it"]


def test_inference_ends_however_long_a_vector_is_said_to_be(model: Any) -> None:
    """The propagation of shape tensors takes a vector of 2³¹ integers for one, and writes its elements out."""
    proto = model(
        "g (int64[2147483648] x) => (int64[2] y) { c = Constant<value_ints=[0]>()  a = Gather(x, c)  y = Concat<axis=0>(a, c) }"
    )
    assert check_structure(proto, kernels=False) == []
