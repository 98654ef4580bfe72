from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx import parser

MakeModel = Callable[..., onnx.ModelProto]


@pytest.fixture
def model() -> MakeModel:
    """Models from ONNX text: everything behind the header."""

    def make(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
        header = f'<ir_version: {ir_version}, opset_import: ["": {opset}, "com.microsoft": 1]>'
        return parser.parse_model(f"{header} {text}")

    return make
