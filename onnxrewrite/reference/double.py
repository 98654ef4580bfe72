"""A model's double-precision copy.

Every float, float16 and bfloat16 tensor becomes double: inputs, weights, constants, dtype attributes.  What the graph
itself asks to be rounded is rounded all the same: a Cast to a narrower dtype goes through that dtype, and the copy then
has *steps*, at which a number next to the middle of two may become either.
Operators without a double kernel are expanded (``ir.bodies``, ``expand``, ``convolve``, the standard's own
function bodies); what is left runs as a *float32 island* between two Casts and is named in the result.  Parameters
that a schema fixes to float (the scales of Resize) get a Cast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import defs, helper, inliner, numpy_helper, version_converter

from onnxrewrite.io import preserved
from onnxrewrite.ir import custom
from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.bodies.emitter import Body, Constant, Emit, Unsupported
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.schema import normal_domain
from onnxrewrite.reference import convolve, recurrent  # noqa: F401  (register their expansions)
from onnxrewrite.reference.double_kernels import Parameter, has_double_kernel, parameters
from onnxrewrite.reference.expand import EXPANSIONS
from onnxrewrite.runtime.references import referred
from onnxrewrite.runtime.session import one_line

T = onnx.TensorProto
NARROW = {T.FLOAT, T.FLOAT16, T.BFLOAT16}
FLOATS = {*NARROW, T.DOUBLE}
Shape: TypeAlias = tuple[int | None, ...]

_HELD_BY: dict[int | None, tuple[int, ...]] = {
    T.FLOAT16: (T.FLOAT,),
    T.BFLOAT16: (T.FLOAT,),
    T.BOOL: tuple(NARROW),
    T.INT8: tuple(NARROW),
    T.UINT8: tuple(NARROW),
}
"""Dtypes, and the narrow floats in which all their numbers are."""

_DTYPE_ATTRIBUTES = {"to", "dtype", "output_datatype", "softmax_precision", "stash_type"}
_KEEPS_STASH = {
    "LayerNormalization",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
}
_ANY = {"Constant", "CastLike"}
"""Operators without a kernel of their own, which ORT takes in any type."""

_SHORT = 1024
"""The most bytes of an initializer that opset conversion sees: sizes and axes are in such."""

_WINDOWS = frozenset(operators(marks="window"))
_ODD_ATTRIBUTES = {onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS}


class NotDoublable(Exception):
    """No double-precision copy of the model can be made; the message says why."""


@dataclass
class Doubled:
    """The copy, the operators that still compute in float32 in it, and whether anything is rounded because the graph
    asks for that."""

    model: onnx.ModelProto
    islands: set[str] = field(default_factory=set)
    stepped: bool = False


def double_model(model: onnx.ModelProto, forced: frozenset[str] = frozenset()) -> Doubled:
    """The double-precision copy of a model.  Operators in ``forced`` become islands in any case."""
    prepared = _prepare(model)
    opsets = {normal_domain(o.domain): int(o.version) for o in prepared.opset_import}
    result = Doubled(onnx.ModelProto(), set())
    shapes, dtypes = known(prepared)
    work = _Doubler(opsets, forced, result.islands, shapes, dtypes)
    work.graph(prepared.graph, {})
    result.stepped = work.stepped
    del prepared.graph.metadata_props[:]
    result.model = prepared
    return result


def _prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with functions inlined, at opset 13 or later, and standard function operators expanded."""
    copy = _copied(model)
    custom.complete(copy, kernels=False)
    copy = inliner.inline_local_functions(copy) if copy.functions else copy
    opset = next((int(o.version) for o in copy.opset_import if normal_domain(o.domain) == ""), 0)
    if 0 < opset < 13:
        copy, opset = _raised(copy, opset)
    wanted = [("", op) for op in sorted(_ops(copy.graph.node)) if _by_body(op, opset)]
    if wanted:
        _describe_initializers(copy.graph)
        copy = inliner.inline_selected_functions(copy, wanted, inline_schema_functions=True)
    return copy


def _raised(model: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, int]:
    """The model at opset 13; as it is where the converter fails and opset 11 will do.  Weights need no converting."""
    candidate = _copied(model)
    inputs = {v.name for v in candidate.graph.input}
    added = [t for t in candidate.graph.initializer if t.name not in inputs]
    for tensor in added:  # the converter takes older models by their word: every initializer is an input
        candidate.graph.input.append(_described(tensor))
    tensors = list(candidate.graph.initializer)
    weights = [t for t in tensors if t.ByteSize() > _SHORT]
    del candidate.graph.initializer[:]
    candidate.graph.initializer.extend(t for t in tensors if t.ByteSize() <= _SHORT)
    try:
        raised = version_converter.convert_version(candidate, 13)
    except Exception as error:  # the converter raises whatever its adapters raise
        if opset >= 11:
            return model, opset
        raise NotDoublable(f"opset {opset} could not be raised to 13: {one_line(error, 120)}") from None
    names = {t.name for t in added}
    kept = [v for v in raised.graph.input if v.name not in names]
    del raised.graph.input[:]
    raised.graph.input.extend(kept)
    raised.graph.initializer.extend(weights)
    raised.ir_version = max(raised.ir_version, 7)
    return raised, 13


def _describe_initializers(graph: onnx.GraphProto) -> None:
    """The inliner wants the type of everything that it passes to a function body."""
    described = {v.name for v in [*graph.input, *graph.value_info]}
    for tensor in graph.initializer:
        if tensor.name not in described:
            graph.value_info.append(_described(tensor))


def _described(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _by_body(op: str, opset: int) -> bool:
    if ("", op) in EXPANSIONS or has_double_kernel("", op, opset) or not defs.has(op):
        return False
    try:
        schema: Any = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _ops(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    found = set()
    for node in nodes:
        if normal_domain(node.domain) == "":
            found.add(node.op_type)
        for attribute in node.attribute:
            found |= _ops(attribute.g.node) if attribute.HasField("g") else set()
    return found


def known(model: onnx.ModelProto) -> tuple[dict[str, Shape], dict[str, int]]:
    """Shapes and dtypes by value name, as far as they are known; None for a dimension that is no number."""
    try:
        graph = preserved.deserialized(model).graph
        Facts(graph, dict(graph.opset_imports))
    except Exception:  # inference is a help here, nothing depends on it
        return {}, {}
    graphs = (graph, *graph.subgraphs())
    values = [v for g in graphs for v in (*g.inputs, *g.initializers.values(), *(o for n in g for o in n.outputs))]
    shapes = {v.name: v.shape for v in values if v.name and v.shape is not None}
    return (
        {name: tuple(d if isinstance(d, int) else None for d in shape) for name, shape in shapes.items()},
        {v.name: int(v.dtype) for v in values if v.name and v.dtype is not None},
    )


def doubled_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The same numbers as double; other dtypes unchanged."""
    if tensor.data_type not in NARROW:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def _double_value(value: onnx.ValueInfoProto) -> None:
    kind = value.type.WhichOneof("value")
    if kind == "tensor_type" and value.type.tensor_type.elem_type in NARROW:
        value.type.tensor_type.elem_type = T.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        inner = getattr(value.type, kind).elem_type
        if inner.WhichOneof("value") == "tensor_type" and inner.tensor_type.elem_type in NARROW:
            inner.tensor_type.elem_type = T.DOUBLE


@dataclass
class _Doubler:
    opsets: dict[str, int]
    forced: frozenset[str]
    islands: set[str]
    shapes: dict[str, Shape]
    dtypes: dict[str, int]
    constants: dict[Constant, str] = field(default_factory=dict)
    count: int = 0
    stepped: bool = False

    def graph(self, graph: onnx.GraphProto, outer: dict[str, bool]) -> list[bool]:
        """Convert in place; whether each output is a float.  ``outer``: float or not, by value name."""
        floats = dict(outer)
        if graph.sparse_initializer:
            raise NotDoublable("sparse initializers")
        for value in graph.input:
            floats[value.name] = _is_float_value(value)
            _double_value(value)
        nodes: list[onnx.NodeProto] = []
        for i, tensor in enumerate(graph.initializer):
            floats[tensor.name] = tensor.data_type in FLOATS
            if tensor.data_type in NARROW and referred(tensor) is not None:
                nodes.append(helper.make_node("Cast", [f"{tensor.name}::narrow"], [tensor.name], to=T.DOUBLE))
                tensor.name = f"{tensor.name}::narrow"
            elif tensor.data_type in NARROW:
                graph.initializer[i].CopyFrom(doubled_tensor(tensor))
        del graph.value_info[:]
        around, self.constants = self.constants, {}
        for node in graph.node:
            nodes.extend(self.node(node, floats))
        self.constants = around
        del graph.node[:]
        graph.node.extend(nodes)
        for value in graph.output:
            _double_value(value)
        return [floats.get(v.name, False) for v in graph.output]

    def node(self, node: onnx.NodeProto, floats: dict[str, bool]) -> list[onnx.NodeProto]:
        """The nodes that take its place."""
        domain, opset = normal_domain(node.domain), self.opsets.get(normal_domain(node.domain), 1)
        key = domain, node.op_type
        body = None if self._has_kernel(node) else BODIES.get(key)
        if body is not None:
            try:
                return self._defined(node, body, floats)
            except Unsupported:
                pass
        inputs, outputs = parameters(domain, node.op_type, opset)
        if not outputs and domain == "" and key not in EXPANSIONS:
            raise NotDoublable(f"unknown operator {node.op_type}")
        rounding = self._rounding(node)
        if rounding is not None:
            floats[node.output[0]] = True
            return self._rounded(node, rounding)
        original_cast = next((a.i for a in node.attribute if a.name == "to"), None)
        bodies, output = self._attributes(node, floats), node.output[0]
        touches = [floats.get(i, False) for i in node.input]
        made = _float_outputs(node, inputs, outputs, touches, original_cast, bodies)
        floats.update(zip(node.output, made, strict=True))
        if not any(touches) and not any(made):
            return [node]
        if node.op_type == "BitCast" or (node.op_type == "Cast" and original_cast == T.STRING):
            raise NotDoublable(f"{node.op_type} looks at a float's representation")
        has_kernel = self._has_kernel(node)
        if key in EXPANSIONS and not has_kernel and node.op_type not in self.forced:
            try:
                return self._spelled(node, EXPANSIONS[key])
            except Unsupported:
                pass
        island = node.op_type in self.forced or not (bodies or has_kernel)
        nodes = self._with_casts(node, inputs, outputs, touches, made, island)
        scale = self.dtypes.get(output) if node.op_type == "DequantizeLinear" else None
        return nodes if scale not in (T.FLOAT16, T.BFLOAT16) else [*nodes, *self._rounded_after(nodes[-1], scale)]

    def _rounded_after(self, node: onnx.NodeProto, to: int) -> list[onnx.NodeProto]:
        """Casts by way of a dtype after a node: a dequantized number is one of the dtype of its scale."""
        output, node.output[0] = node.output[0], f"{node.output[0]}::exact"
        rounding = helper.make_node("Cast", [node.output[0]], [output], to=to)
        return self._rounded(rounding, to)

    def _rounding(self, node: onnx.NodeProto) -> int | None:
        """The dtype that a node asks its input to be rounded to; None where nothing is lost."""
        if normal_domain(node.domain) or node.op_type not in ("Cast", "CastLike"):
            return None
        to = self.dtypes.get(node.output[0], next((a.i for a in node.attribute if a.name == "to"), T.UNDEFINED))
        known = self.dtypes.get(node.input[0])
        if to not in NARROW or known == to or (known is None and to == T.FLOAT) or to in _HELD_BY.get(known, ()):
            return None
        return int(to)

    def _rounded(self, node: onnx.NodeProto, to: int) -> list[onnx.NodeProto]:
        """A Cast by way of the dtype, to double in the end.  What is an integer has no neighbour to become."""
        self.stepped = self.stepped or self.dtypes.get(node.input[0]) in (None, *FLOATS)
        self.count += 1
        narrow = f"{node.output[0]}::rounded{self.count}"
        return [
            helper.make_node("Cast", [node.input[0]], [narrow], to=to),
            helper.make_node("Cast", [narrow], [node.output[0]], to=T.DOUBLE),
        ]

    def _attributes(self, node: onnx.NodeProto, floats: dict[str, bool]) -> list[bool]:
        """Convert attributes in place; float or not, for the outputs of the first body."""
        bodies: list[bool] = []
        for attribute in list(node.attribute):
            if attribute.type in _ODD_ATTRIBUTES:
                raise NotDoublable("sparse constants")
            if attribute.HasField("g"):
                found = self.graph(attribute.g, floats)
                bodies = bodies or found
            elif attribute.HasField("t"):
                attribute.t.CopyFrom(doubled_tensor(attribute.t))
            elif attribute.name in _DTYPE_ATTRIBUTES and attribute.i in NARROW:
                if attribute.name != "stash_type" or node.op_type not in _KEEPS_STASH:
                    attribute.i = T.DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
                attribute.CopyFrom(helper.make_attribute("value", tensor))
        _explicit_dtype(node)
        return bodies

    def _has_kernel(self, node: onnx.NodeProto) -> bool:
        """True if some kernel computes a node in double."""
        domain = normal_domain(node.domain)
        return node.op_type in _ANY or has_double_kernel(domain, node.op_type, self.opsets.get(domain, 1))

    def _spelled(self, node: onnx.NodeProto, body: Body) -> list[onnx.NodeProto]:
        """The nodes of a body, all of which are of double already."""
        self.count += 1
        emit = Emit(self.opsets.get("", 13), f"{node.output[0]}::{self.count}", self.shapes, self.constants)
        nodes = emit.define(body, node)
        self.constants = emit.constants
        return nodes

    def _defined(self, node: onnx.NodeProto, body: Body, floats: dict[str, bool]) -> list[onnx.NodeProto]:
        """The nodes of a definition, each in double in turn; better one island than several of its parts."""
        before = self.constants
        nodes = self._spelled(node, body)
        used = {node.op_type, *(n.op_type for n in nodes)}
        if used & self.forced or not all(("", n.op_type) in EXPANSIONS or self._has_kernel(n) for n in nodes):
            self.constants = before
            raise Unsupported("a part that does not compute in double")
        return [made for each in nodes for made in self.node(each, floats)]

    def _with_casts(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Parameter],
        outputs: Sequence[Parameter],
        touches: list[bool],
        made: list[bool],
        island: bool,
    ) -> list[onnx.NodeProto]:
        """The node with a Cast wherever its parameter cannot be double; everywhere for an island."""
        before, after = [], []
        if island:
            self.islands.add(node.op_type)
        for i, name in enumerate(node.input):
            if touches[i] and (island or not _may_be_double(inputs, i)):
                self.count += 1
                fresh = f"{name}::float{self.count}"
                before.append(helper.make_node("Cast", [name], [fresh], to=T.FLOAT))
                node.input[i] = fresh
        for i, name in enumerate(node.output):
            if name and made[i] and (island or not _may_be_double(outputs, i)):
                self.count += 1
                fresh = f"{name}::float{self.count}"
                after.append(helper.make_node("Cast", [fresh], [name], to=T.DOUBLE))
                node.output[i] = fresh
        if island and any(a.name in _DTYPE_ATTRIBUTES and a.i == T.DOUBLE for a in node.attribute):
            for attribute in node.attribute:
                if attribute.name in _DTYPE_ATTRIBUTES and attribute.i == T.DOUBLE:
                    attribute.i = T.FLOAT
        return [*before, node, *after]


def _is_float_value(value: onnx.ValueInfoProto) -> bool:
    kind = value.type
    if kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = getattr(kind, str(kind.WhichOneof("value"))).elem_type
    return kind.tensor_type.elem_type in FLOATS


def _explicit_dtype(node: onnx.NodeProto) -> None:
    """Spell out dtype defaults that mean float."""
    names = {a.name for a in node.attribute}
    if node.op_type == "ConstantOfShape" and "value" not in names:
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float64))))
    if node.op_type in _WINDOWS and "output_datatype" not in names:
        node.attribute.append(helper.make_attribute("output_datatype", T.DOUBLE))


def _formal(formals: Sequence[Parameter], index: int) -> Parameter | None:
    return formals[min(index, len(formals) - 1)] if formals else None


def _may_be_double(formals: Sequence[Parameter], index: int) -> bool:
    found = _formal(formals, index)
    return found is None or found.double


def _float_outputs(
    node: onnx.NodeProto,
    inputs: Sequence[Parameter],
    outputs: Sequence[Parameter],
    touches: Sequence[bool],
    to: int | None,
    bodies: list[bool],
) -> list[bool]:
    """True for each output that is a float, from the schema's type variables."""
    if node.op_type == "Cast" and to is not None:
        return [to in FLOATS]
    if node.op_type == "Constant":
        return [any(a.HasField("t") and a.t.data_type in FLOATS for a in node.attribute)]
    if node.op_type == "ConstantOfShape":
        return [any(a.HasField("t") and a.t.data_type in FLOATS for a in node.attribute)]
    if bodies and node.op_type in ("If", "Loop", "Scan"):
        return (bodies[1:] if node.op_type == "Loop" else bodies)[: len(node.output)]
    dtype = next((a.i for a in node.attribute if a.name in ("dtype", "output_datatype")), None)
    if dtype is not None:
        return [dtype in FLOATS for _ in node.output]
    by_variable: dict[str, bool] = {}
    for i, touched in enumerate(touches):
        formal = _formal(inputs, i)
        if formal is not None and node.input[i]:
            by_variable[formal.variable] = by_variable.get(formal.variable, False) or touched
    return [_is_float_output(_formal(outputs, i), by_variable, touches) for i in range(len(node.output))]


def _is_float_output(formal: Parameter | None, by_variable: dict[str, bool], touches: Sequence[bool]) -> bool:
    if formal is None:
        return any(touches)
    if formal.variable in by_variable:
        return by_variable[formal.variable]
    if formal.variable.startswith(("tensor(", "seq(", "map(")) or not formal.floating:
        return formal.floating
    return any(touches)
