"""Another opset: the standard's own converter."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import schema


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
    if model.functions:
        raise UsageError(f"opset {version}: a model with functions of its own cannot be converted")
    original = io.to_proto(model)
    try:
        converted = onnx.version_converter.convert_version(original, version)
    except Exception as error:  # the converter raises whatever its C++ code does
        text = " ".join(str(error).split())[:200]
        raise UsageError(
            f"opset {version}: the model cannot be converted from opset {io.opset(model)}: {text}"
        ) from error
    _restore(converted, original)
    return io.load(converted)


def in_opset(model: ir.Model, version: int | None) -> ir.Model:
    """``model`` itself where it is in that ai.onnx opset or none is asked for, else what ``to_opset`` makes of it."""
    return model if version is None or version == io.opset(model) else to_opset(model, version)


def _restore(converted: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Give back what the converter loses: the interface as it was declared, and what exporters say of nodes."""
    for kind in ("input", "output"):
        declared = {v.name: v for v in getattr(original.graph, kind)}
        for value in getattr(converted.graph, kind):
            if value.name in declared:
                value.CopyFrom(declared[value.name])
    metadata = {n.output[0]: n.metadata_props for n in original.graph.node if n.output}
    for node in converted.graph.node:
        if node.output and not node.metadata_props:
            node.metadata_props.extend(metadata.get(node.output[0], []))
