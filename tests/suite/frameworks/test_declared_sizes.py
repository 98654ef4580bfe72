"""Sizes that a model declares of its outputs and does not keep are left open; the others stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from onnxrewrite.suite.frameworks.declared_sizes import DeclaredSizes

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, t] x) => (float[n, 7] y, float[2] z) { y = Relu(x) z = Shape(x) }"""


def dims(path: Path) -> list[list[str | int]]:
    outputs = onnx.load(path).graph.output
    return [[d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim] for o in outputs]


def test_only_what_a_run_contradicts_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    sizes = DeclaredSizes(path)
    sizes.see({"y": np.ones((3, 7)), "z": np.ones(2)}, "the example")
    assert sizes.mend() == []
    sizes.see({"y": np.ones((3, 5)), "z": np.ones(2)}, "sample 0")
    assert sizes.mend() == ["output y declares 7 for axis 1, which is 5 on sample 0: left open"]
    assert dims(path) == [["n", 0], [2]]


def test_what_has_another_rank_or_is_no_tensor_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    sizes = DeclaredSizes(path)
    sizes.see({"y": [np.ones(3)], "z": np.ones((1, 3))}, "sample 0")
    assert sizes.mend() == []
