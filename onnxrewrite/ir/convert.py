"""Another opset: the standard's own converter."""

from __future__ import annotations

import onnx_ir as ir

from onnxrewrite.errors import UsageError
from onnxrewrite.ir import io, schema


def to_opset(model: ir.Model, version: int) -> ir.Model:
    """A copy of ``model`` in ai.onnx opset ``version``.

    Raises:
        UsageError: The version is unknown, or the converter cannot bring the model there.
    """
    import onnx.version_converter

    if not 7 <= version <= schema.latest_version():
        raise UsageError(f"opset {version}: must lie between 7 and {schema.latest_version()}")
    if io.needs_external_data(model):
        raise UsageError(f"opset {version}: a model of 2 GB or more cannot be converted")
    try:
        converted = onnx.version_converter.convert_version(io.to_proto(model), version)
    except Exception as error:  # the converter raises whatever its C++ code does
        text = " ".join(str(error).split())[:200]
        raise UsageError(f"opset {version}: the model cannot be converted from opset {io.opset(model)}: {text}") from error
    return io.load(converted)
