"""Checks that a model is valid and that ORT can run it: checker, types and shapes, opsets, kernels.

Says nothing about numbers.  Operators of domains that the onnx package does not know (``com.microsoft``) are
checked by ORT, which has their schemas; onnx's checker and shape inference pass over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import checker, shape_inference

from onnxrewrite.ir.schema import is_squatter, normal_domain
from onnxrewrite.runtime.session import (
    PROTO_LIMIT,
    ModelLike,
    Session,
    as_proto,
    one_line,
    open_session,
    skeleton,
    weight_bytes,
)

NO_KERNELS = "ONNX Runtime refuses it"
"""The beginning of a problem that only opening a session shows."""

_KNOWN = {"", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"}


def check_structure(model: ModelLike, *, kernels: bool = True, session: Session | str | None = None) -> list[str]:
    """Problems of a model, one line each; empty when there are none.

    Each begins with the check that found it and a colon.  One that fails does not keep the others from running, so that
    what was wrong in an original from the start hides nothing that a rewrite made wrong.
    ``kernels``: also open an ORT session with optimizations off, which fails unless every node has a kernel.
    ``session``: what came of opening it, where it was opened before.
    Models beyond 2 GiB are best given by path; an in-memory one is then checked by ORT alone.
    """
    try:
        bare = skeleton(model)
    except Exception as error:  # a file can be broken in any way
        return [f"cannot be read: {one_line(error)}"]
    problems = [*_opset_problems(bare)]
    if problems:
        return problems
    problems += _standard_checks(model, bare)
    if kernels:
        session = open_session(model) if session is None else session
        if isinstance(session, str):
            problems.append(f"{NO_KERNELS}: {session}")
    return problems


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _opset_problems(model: onnx.ModelProto) -> list[str]:
    if not model.HasField("graph"):
        return ["has no graph"]
    problems = _missing_opsets({normal_domain(o.domain) for o in model.opset_import}, _nodes(model.graph), "the model")
    for function in model.functions:
        imported = {normal_domain(o.domain) for o in function.opset_import}
        problems += _missing_opsets(imported, function.node, f"function {function.name}")
    return problems


def _missing_opsets(imported: set[str], nodes: Iterable[onnx.NodeProto], where: str) -> list[str]:
    used = {normal_domain(n.domain) for n in nodes}
    return [f"{where} uses domain {d or 'ai.onnx'} without importing its opset" for d in sorted(used - imported)]


def _standard_checks(model: ModelLike, bare: onnx.ModelProto) -> list[str]:
    problems = []
    if any(is_squatter(n.domain, n.op_type) for body in (bare.graph, *bare.functions) for n in _nodes(body)):
        model = bare = _told_apart(bare)
    try:
        if isinstance(model, (str, Path)):
            checker.check_model(str(model))
        else:
            checkable = _weightless(_checkable(model))
            if weight_bytes(checkable) <= PROTO_LIMIT:
                checker.check_model(checkable)
    except Exception as error:  # ValidationError, and protobuf's own
        problems.append(f"checker: {one_line(error)}")
    return problems + _inference_problems(_light(bare))


def _told_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with ONNX Runtime's operators in a domain of its own, also those that it has in the standard's."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for body in (copy.graph, *copy.functions):
        for node in _nodes(body):
            node.domain = "com.microsoft" if is_squatter(node.domain, node.op_type) else node.domain
    for owner in (copy, *copy.functions):
        if all(each.domain != "com.microsoft" for each in owner.opset_import):
            owner.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return copy


def _checkable(model: ModelLike) -> onnx.ModelProto:
    return as_proto(model) if isinstance(model, ir.Model) and weight_bytes(model) <= PROTO_LIMIT else skeleton(model)


def _weightless(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs in place of external weights, whose files the checker would look for."""
    outside = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs, names = {i.name for i in model.graph.input}, {t.name for t in outside}
    kept = [t for t in copy.graph.initializer if t.name not in names]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    copy.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in outside if t.name not in inputs
    )
    return copy


def _light(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the data of large weights left out, which inference does not read."""
    if weight_bytes(model) < 50_000_000:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if len(tensor.raw_data) > 4096:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="left-out")
    return copy


def _inference_problems(model: onnx.ModelProto) -> list[str]:
    """Strict inference, without propagation of data: that writes out every element of what might be a shape, of which a
    file may say 2³¹, and finds nothing more.

    Strict mode also complains of operators it has no schema for.  With such operators in the graph, and only
    then, inference runs unstrict: contradictions are still found by ORT when it opens the model.
    """
    bodies = [model.graph, *model.functions]
    used = {normal_domain(n.domain) for body in bodies for n in _nodes(body)}
    foreign = used - _KNOWN - {f.domain for f in model.functions}
    try:
        shape_inference.infer_shapes(model, check_type=not foreign, strict_mode=not foreign)
    except Exception as error:  # InferenceError, and whatever a schema's own code raises
        return [f"shape inference: {one_line(error)}"]
    return []
