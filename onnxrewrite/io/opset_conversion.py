"""Another opset: the standard's own converter."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import schema
from onnxrewrite.ir.protos import nested

_ASIDE = "onnxrewrite.aside"
"""The domain of what the converter is not to see."""


def to_opset(model: ir.Model, version: int) -> ir.Model:
    """A copy of ``model`` in ai.onnx opset ``version``.

    Raises:
        UsageError: The version is unknown, or the converter cannot bring the model there.
    """
    import onnx.version_converter

    if not 7 <= version <= schema.latest_version():
        raise UsageError(f"opset {version}: must lie between 7 and {schema.latest_version()}")
    if model.functions:
        raise UsageError(f"opset {version}: a model with functions of its own cannot be converted")
    original, weights = io.to_weightless(model)
    given = _with_inputs(original, weights)
    _hide_squatters(given)
    try:
        converted = onnx.version_converter.convert_version(given, version)
    except Exception as error:  # the converter raises whatever its C++ code does
        text = " ".join(str(error).split())[:200]
        raise UsageError(
            f"opset {version}: the model cannot be converted from opset {io.opset(model)}: {text}"
        ) from error
    _show_squatters(converted)
    _restore(converted, original)
    return io.load_weightless(converted, weights)


def in_opset(model: ir.Model, version: int | None) -> ir.Model:
    """``model`` itself where it is in that ai.onnx opset or none is asked for, else what ``to_opset`` makes of it."""
    return model if version is None or version == io.opset(model) else to_opset(model, version)


def _hide_squatters(model: onnx.ModelProto) -> None:
    """Give ONNX Runtime's operators in the standard's domain another domain, which the converter passes by: those that
    the standard does not know, and those that it knows from a newer opset on (LayerNormalization in opset 14)."""
    opset = next((each.version for each in model.opset_import if not schema.normal_domain(each.domain)), 1)
    model.opset_import.add(domain=_ASIDE, version=1)
    for node in nested(model.graph.node):
        is_newer = not schema.normal_domain(node.domain) and schema.schema("", node.op_type, opset) is None
        if is_newer or schema.is_squatter(node.domain, node.op_type):
            node.domain = _ASIDE


def _show_squatters(model: onnx.ModelProto) -> None:
    """Undo ``_hide_squatters``."""
    imports = [each for each in model.opset_import if each.domain != _ASIDE]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    for node in nested(model.graph.node):
        if node.domain == _ASIDE:
            node.domain = ""


def _with_inputs(model: onnx.ModelProto, weights: Mapping[str, object]) -> onnx.ModelProto:
    """A copy with inputs in place of weights, whose numbers the converter wants; it has no use for them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    own, inputs = [t for t in copy.graph.initializer if t.name not in weights], {v.name for v in copy.graph.input}
    taken = [t for t in copy.graph.initializer if t.name in weights and t.name not in inputs]
    copy.graph.input.extend(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in taken)
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(own)
    return copy


def _restore(converted: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Give back what the converter loses or never had: the interface, what exporters say of nodes, and weights."""
    inputs = {v.name for v in original.graph.input}
    kept = [v for v in converted.graph.input if v.name in inputs]
    del converted.graph.input[:]
    converted.graph.input.extend(kept)
    made = {t.name: t for t in converted.graph.initializer}
    old = [made.pop(t.name, t) for t in original.graph.initializer]
    initializers = [*old, *made.values()]
    del converted.graph.initializer[:]
    converted.graph.initializer.extend(initializers)
    for kind in ("input", "output"):
        declared = {v.name: v for v in getattr(original.graph, kind)}
        for value in getattr(converted.graph, kind):
            if value.name in declared:
                value.CopyFrom(declared[value.name])
    metadata = {n.output[0]: n.metadata_props for n in original.graph.node if n.output}
    for node in converted.graph.node:
        if node.output and not node.metadata_props:
            node.metadata_props.extend(metadata.get(node.output[0], []))
