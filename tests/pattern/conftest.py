"""What the tests of patterns share."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnxrewrite import io

GOLDEN = Path(__file__).resolve().parents[2] / "golden_models"


@pytest.fixture(params=["vit", "mobilenet_hardswish", "nhwc_cnn", "qdq_cnn", "resnext_inception"])
def golden_graph(request: pytest.FixtureRequest) -> ir.Model:
    """Some whole models."""
    return io.load(GOLDEN / request.param / "model.onnx")
