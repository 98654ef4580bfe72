"""Parts of a model file that the working model must not, or cannot, have: set aside at load, put back at save.

Overridable initializers, because no library may take their defaults for constants.  The interface, because
inference refines types while we work.  Sparse tensors, types of maps and training information, because onnx_ir has
no place for them.  All of it hangs on ``meta`` of the graph and its values, so that clones of a model keep it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.io.repair import graph_tree
from onnxrewrite.ir import custom
from onnxrewrite.ir.names import Names
from onnxrewrite.ir.protos import nested, subgraphs
from onnxrewrite.ir.schema import normal_domain, schema

OVERRIDABLE_SINCE: Final = 4
"""IR version from which an initializer that is a graph input is a default, no constant."""

_ORIGIN: Final = "onnxrewrite.origin"
_DEFAULT: Final = "onnxrewrite.default"
_SPARSE_MARK: Final = "onnxrewrite.sparse_initializer"
_SPARSE_TEXT: Final = "onnxrewrite:sparse:"
OWN: Final = "onnxrewrite.own."
"""The prefix of the domains of hidden functions."""
_OLD_CONSTANTS: Final = (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


@dataclass(frozen=True)
class Origin:
    """The record of a loaded file.

    ``size`` is in bytes, without external data; ``data_files`` are the names of the files of its external data;
    ``described`` the initializers that have an entry in ``value_info`` (onnx_ir would write one for each);
    ``sparse_defaults`` the sparse initializers that are graph inputs; ``constants`` the initializers that are graph
    inputs in a file of IR version 3 or less.
    """

    path: str | None
    size: int | None
    data_files: tuple[str, ...]
    repairs: tuple[str, ...]
    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    described: frozenset[str]
    training: tuple[onnx.TrainingInfoProto, ...]
    sparse_defaults: tuple[onnx.SparseTensorProto, ...]
    constants: Mapping[str, ir.TensorProtocol] = field(repr=False)


def origin(model: ir.Model) -> Origin | None:
    """The record of the file; None for a model that was not loaded."""
    found = model.graph.meta.get(_ORIGIN)
    return found if isinstance(found, Origin) else None


def remember(model: ir.Model, what: Origin) -> None:
    """Hang the origin on the model."""
    model.graph.meta[_ORIGIN] = what


def renew_interface(model: ir.Model) -> None:
    """Take the inputs and outputs that a loaded model has now for those of its file: they were changed on purpose."""
    known = origin(model)
    if known is not None:
        with quiet():
            inputs, outputs = (tuple(map(ir.to_proto, each)) for each in (model.graph.inputs, model.graph.outputs))
        remember(model, replace(known, inputs=inputs, outputs=outputs))


def default_of(value: ir.Value) -> ir.TensorProtocol | None:
    """The default of an overridable graph input, None for every other value."""
    found: ir.TensorProtocol | None = value.meta.get(_DEFAULT)
    return found


def set_aside(model: ir.Model) -> None:
    """Take the defaults of overridable inputs out of the working model."""
    if model.ir_version < OVERRIDABLE_SINCE:
        return
    for graph in graph_tree(model.graph):
        for value in graph.inputs:
            if value.is_initializer() and value.const_value is not None and value.name:
                graph.initializers.pop(value.name)
                value.meta[_DEFAULT] = value.const_value
                value.const_value = None


def note_on_defaults(model: ir.Model) -> str:
    """A remark on weights that a caller may override, for nothing is computed of them beforehand; empty without any."""
    count = sum(default_of(value) is not None for value in model.graph.inputs)
    if not count:
        return ""
    some = f"{count} weights are inputs, too, which" if count > 1 else "a weight is an input, too, which"
    return (
        f"{some} a caller may override, so that nothing is folded into what they compute; if nobody does, "
        "python -m onnxruntime.tools.remove_initializer_from_input makes constants of them"
    )


@contextlib.contextmanager
def completed(model: ir.Model) -> Iterator[None]:
    """For the time of serialization, the model has all its initializers, and tensors bear their names."""
    known = origin(model)
    constants = known.constants if known is not None else {}
    added: list[tuple[ir.Graph, ir.Value, ir.TensorProtocol | None]] = []
    graphs = list(graph_tree(model.graph))
    for graph in graphs:
        for value in graph.inputs:
            tensor = default_of(value)
            if tensor is None and graph is model.graph:
                tensor = constants.get(value.name or "")
            if tensor is not None and not value.is_initializer():
                added.append((graph, value, value.const_value))
                value.const_value = tensor
                graph.register_initializer(value)
    weights = [v for graph in graphs for v in graph.initializers.values() if v.const_value is not None]
    names = [(v.const_value, v.const_value.name) for v in weights if v.const_value is not None]
    try:
        yield
    finally:
        for tensor, name in reversed(names):
            tensor.name = name
        for graph, value, before in added:
            graph.initializers.pop(value.name or "")
            if default_of(value) is not None:
                value.meta[_DEFAULT] = value.const_value
            value.const_value = before


def hide_sparse(proto: onnx.ModelProto) -> None:
    """Spell sparse tensors so that onnx_ir carries them: text attributes, and Constant nodes with a mark."""
    for body in (proto.graph, *proto.functions):
        _hide_attributes(nested(body.node))
        for graph in [graph for node in nested(body.node) for graph in subgraphs(node)]:
            _hide_initializers(graph)
    _hide_initializers(proto.graph)


def _hide_initializers(graph: onnx.GraphProto) -> None:
    taken = Names(node.name for node in graph.node)
    inputs = {each.name for each in graph.input}
    hidden, kept = [], [t for t in graph.sparse_initializer if t.values.name in inputs]
    for tensor in [t for t in graph.sparse_initializer if t.values.name not in inputs]:
        node = onnx.NodeProto(op_type="Constant", name=taken.fresh(tensor.values.name))
        node.output.append(tensor.values.name)
        node.attribute.append(onnx.helper.make_attribute("sparse_value", tensor))
        _hide_attributes([node])
        node.metadata_props.add(key=_SPARSE_MARK, value="1")
        hidden.append(node)
    nodes = [*hidden, *graph.node]
    if hidden:
        del graph.node[:], graph.sparse_initializer[:]
        graph.node.extend(nodes)
        graph.sparse_initializer.extend(kept)


def _hide_attributes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attr in node.attribute:
            if attr.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
                name, data = attr.name, attr.SerializeToString(deterministic=True)
                attr.Clear()
                attr.name, attr.type = name, onnx.AttributeProto.STRING
                attr.s = _SPARSE_TEXT.encode() + base64.b64encode(data)


def show_sparse(proto: onnx.ModelProto) -> None:
    """Undo ``hide_sparse``."""
    bodies = [proto.graph.node, *(function.node for function in proto.functions)]
    for node in [node for body in bodies for node in nested(body)]:
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.STRING and attr.s.startswith(_SPARSE_TEXT.encode()):
                attr.ParseFromString(base64.b64decode(attr.s[len(_SPARSE_TEXT) :]))
    graphs = [proto.graph, *(g for body in bodies for node in nested(body) for g in subgraphs(node))]
    for graph in graphs:
        marked = [any(p.key == _SPARSE_MARK for p in node.metadata_props) for node in graph.node]
        if not any(marked):
            continue
        for node in itertools.compress(graph.node, marked):
            tensor = next(attr.sparse_tensor for attr in node.attribute if attr.name == "sparse_value")
            graph.sparse_initializer.append(tensor)
            graph.sparse_initializer[-1].values.name = node.output[0]
        kept = [node for node, is_marked in zip(graph.node, marked, strict=True) if not is_marked]
        del graph.node[:]
        graph.node.extend(kept)


def hide_maps(proto: onnx.ModelProto) -> None:
    """Leave the types of values that have maps in them unsaid; those of inputs and outputs are a part of the origin."""
    for value in _with_maps(proto):
        value.ClearField("type")


def deserialized(proto: onnx.ModelProto) -> ir.Model:
    """The model of a message as it is, but for the types of maps; ``io.load`` makes one that can be worked on."""
    if next(_with_maps(proto), None) is not None:
        original, proto = proto, onnx.ModelProto()
        proto.CopyFrom(original)
        hide_maps(proto)
    return ir.from_proto(proto)


def _with_maps(proto: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """The values whose types have maps in them."""
    bodies = [proto.graph.node, *(function.node for function in proto.functions)]
    for graph in (proto.graph, *(g for body in bodies for node in nested(body) for g in subgraphs(node))):
        yield from (v for v in (*graph.input, *graph.output, *graph.value_info) if _has_map(v.type))


def _has_map(kind: onnx.TypeProto) -> bool:
    """True for a map, and for sequences and optionals of some."""
    inner = {"sequence_type": kind.sequence_type.elem_type, "optional_type": kind.optional_type.elem_type}
    which = kind.WhichOneof("value")
    return which == "map_type" or (which in inner and _has_map(inner[which]))


def hide_functions(proto: onnx.ModelProto) -> None:
    """Give functions of the model's own that are called like an operator that is known a domain of their own.

    Such an operator is one of the standard's, of ONNX Runtime's, or a declared one that computes something else: what
    is known of it does not hold for them, and what a rule emits is not their call.
    """
    named = {(normal_domain(f.domain), f.name) for f in proto.functions if not custom.is_own(f)}
    hidden = {(domain, name) for domain, name in named if schema(domain, name, None) is not None}
    _move_functions(proto, {(domain, name): OWN + (domain or "ai.onnx") for domain, name in hidden})


def show_functions(proto: onnx.ModelProto) -> None:
    """Undo ``hide_functions``."""
    hidden = [(f.domain, f.name) for f in proto.functions if is_shadowed(f.domain)]
    _move_functions(proto, {(domain, name): normal_domain(domain.removeprefix(OWN)) for domain, name in hidden})


def shadowed(domain: str, name: str) -> tuple[str, str]:
    """The domain and name in the working model of a function that has the name of this operator."""
    return OWN + (normal_domain(domain) or "ai.onnx"), name


def is_shadowed(domain: str) -> bool:
    """True for the domain, in the working model, of functions that have the name of an operator."""
    return domain.startswith(OWN)


def _move_functions(proto: onnx.ModelProto, domains: Mapping[tuple[str, str], str]) -> None:
    """Change the domains of functions, by domain and name, and of their calls."""
    if not domains:
        return
    for node in [n for body in (proto.graph, *proto.functions) for n in nested(body.node)]:
        node.domain = domains.get((normal_domain(node.domain), node.op_type), node.domain)
    for function in proto.functions:
        function.domain = domains.get((normal_domain(function.domain), function.name), function.domain)
    for owner in (proto, *proto.functions):
        kept = [each for each in owner.opset_import if not each.domain.startswith(OWN)]
        del owner.opset_import[:]
        owner.opset_import.extend(kept)
        own = {n.domain for n in nested((proto.graph if owner is proto else owner).node) if n.domain.startswith(OWN)}
        owner.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in sorted(own))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """onnx_ir logs what is checked here and said better."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def serialized(model: ir.Model) -> onnx.ModelProto:
    """The complete model, with all that was set aside; ModelError if there is something in it that no file can hold,
    such as a name that is no text."""
    try:
        with quiet():
            proto = ir.serde.serialize_model(model)
    except Exception as error:  # SerdeError, and what it wraps
        raise ModelError(f"model: cannot be written: {root_cause(error)}") from None
    known = origin(model)
    if known is not None:
        _restore(proto, known)
    _one_annotation_each(proto.graph)
    show_sparse(proto)
    show_functions(proto)
    if proto.ir_version < OVERRIDABLE_SINCE:
        opset = {normal_domain(each.domain): each.version for each in proto.opset_import}.get("", 1)
        for graph in [
            proto.graph,
            *(g for n in nested(proto.graph.node) for g in subgraphs(n)),
        ]:
            _constants_as_nodes(graph, opset)
    custom.complete(proto)
    for owner, body in ((proto, proto.graph.node), *((f, f.node) for f in proto.functions)):
        imported = {normal_domain(each.domain) for each in owner.opset_import}
        for node in nested(body):
            domain = normal_domain(node.domain)
            if domain not in imported:
                imported.add(domain)
                owner.opset_import.append(onnx.helper.make_opsetid(domain, 1))
            if node.op_type == "Constant":
                _forget_names(node)
    return proto


def _forget_names(constant: onnx.NodeProto) -> None:
    """The name of a tensor in a Constant says nothing, and onnx_ir changes it in all models that share the tensor: what
    is written must not depend on what else was tried."""
    for attribute in constant.attribute:
        if attribute.HasField("t"):
            attribute.t.ClearField("name")


def root_cause(error: BaseException) -> str:
    """The first line of what an error comes from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _restore(proto: onnx.ModelProto, known: Origin) -> None:
    """Interface as it was read, where it still is the interface; no descriptions that onnx_ir made up."""
    for now, before in ((proto.graph.input, known.inputs), (proto.graph.output, known.outputs)):
        recorded = {each.name: each for each in before}
        is_same = [each.name for each in now] == [each.name for each in before]
        for i, each in enumerate(now):
            if each.name in recorded:
                each.CopyFrom(before[i] if is_same else recorded[each.name])
    weights = {tensor.name for tensor in proto.graph.initializer} - known.described
    kept = [info for info in proto.graph.value_info if info.name not in weights]
    if len(kept) != len(proto.graph.value_info):
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(kept)
    proto.training_info.extend(known.training)
    proto.graph.sparse_initializer.extend(known.sparse_defaults)


def _one_annotation_each(graph: onnx.GraphProto) -> None:
    """onnx_ir repeats the quantization annotation of a value that is two things at once."""
    by_name = {each.tensor_name: each for each in graph.quantization_annotation}
    if len(by_name) != len(graph.quantization_annotation):
        kept = list(by_name.values())
        del graph.quantization_annotation[:]
        graph.quantization_annotation.extend(kept)


def _constants_as_nodes(graph: onnx.GraphProto, opset: int) -> None:
    """IR version 3 wants every initializer to be an input; new ones become Constant nodes instead."""
    inputs = {each.name for each in graph.input}
    new = [tensor for tensor in graph.initializer if tensor.name not in inputs]
    if not new:
        return
    taken = Names(node.name for node in graph.node)
    nodes = [node for tensor in new for node in _constant_nodes(tensor, opset, taken)]
    kept = [tensor for tensor in graph.initializer if tensor.name in inputs]
    nodes += graph.node
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)


def _constant_nodes(tensor: onnx.TensorProto, opset: int, taken: Names) -> list[onnx.NodeProto]:
    """A Constant of ``tensor``; before opset 9 Constant makes floats only, so what is none is cast from double."""
    name = taken.fresh(tensor.name)
    if opset >= 9 or tensor.data_type in _OLD_CONSTANTS:
        return [onnx.helper.make_node("Constant", [], [tensor.name], name=name, value=tensor)]
    array = onnx.numpy_helper.to_array(tensor)
    wide = array.astype(np.float64)
    if tensor.data_type == onnx.TensorProto.STRING or not (wide.astype(array.dtype) == array).all():
        return [onnx.helper.make_node("Constant", [], [tensor.name], name=name, value=tensor)]
    source = f"{tensor.name}/double"
    to = tensor.data_type if opset >= 6 else onnx.TensorProto.DataType.Name(tensor.data_type)
    return [
        onnx.helper.make_node(
            "Constant", [], [source], name=taken.fresh(source), value=onnx.numpy_helper.from_array(wide, source)
        ),
        onnx.helper.make_node("Cast", [source], [tensor.name], name=name, to=to),
    ]
