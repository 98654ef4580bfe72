"""From what was read to a ``ModelProto``: names resolved, literals typed, nothing left to guess.

Must not know: rules, facts, targets, files.  Nothing here looks at a node beyond its ONNX schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
import onnx_ir as ir

from onnxrewrite.ir.schema import Schema, normal_domain
from onnxrewrite.ir.schema import schema as schema_of
from onnxrewrite.ir.text.grammar import Parser, Source
from onnxrewrite.ir.text.literals import Values, formal_of, literal_dtype, opset_of, tensor_type
from onnxrewrite.ir.text.syntax import (
    DTYPES,
    Attribute,
    AttrType,
    Declaration,
    FunctionText,
    GraphText,
    Literal,
    NodeText,
    Token,
)
from onnxrewrite.system.arrays import Array

_SMALL = 64
"""Elements of a constant whose values are worth giving to ONNX's inference, such as a shape."""


@dataclass(slots=True)
class Scope:
    """The known types and constants by name, of one graph and of the graphs around it."""

    opsets: Mapping[str, int]
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def inner(self, hidden: Collection[str]) -> Scope:
        """A scope that sees this one, but for the ``hidden`` names, and tells it nothing."""
        types = {name: type_ for name, type_ in self.types.items() if name not in hidden}
        tensors = {name: tensor for name, tensor in self.tensors.items() if name not in hidden}
        return Scope(self.opsets, types, tensors)

    def know(self, tensor: onnx.TensorProto) -> None:
        """Take in an initializer."""
        self.types[tensor.name] = tensor_type(ir.DataType(tensor.data_type), tensor.dims)
        if np.prod(tensor.dims) <= _SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
            self.tensors[tensor.name] = tensor

    def dtype(self, name: str) -> ir.DataType | None:
        """The dtype of a tensor, None where unknown."""
        type_ = self.types.get(name)
        return ir.DataType(type_.tensor_type.elem_type) if type_ is not None and type_.tensor_type.elem_type else None


class Elaborator:
    """From what was read to a ``ModelProto``: names resolved, literals typed, nothing left to guess."""

    def __init__(self, parser: Parser, opset: int, domains: Mapping[str, int], weights: Mapping[str, Array]) -> None:
        self.fail = parser.source.fail
        self.text = parser.model()
        self.opset, self.domains = opset, domains
        self.values = Values(self.fail, weights)
        taken = {token.text for token in parser.tokens}
        self.fresh = (name for name in (f"c{n}" for n in range(2**62)) if name not in taken)

    def model(self, ir_version: int) -> onnx.ModelProto:
        header = dict(self.text.header or {})
        opsets = header.pop("opset_import", None) or self.opsets(self.text.graph)
        metadata = header.pop("metadata_props", {})
        model = onnx.ModelProto(**{"ir_version": ir_version, **header})
        model.opset_import.extend(_opset_protos(opsets))
        model.metadata_props.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in metadata.items())
        model.graph.CopyFrom(self.graph(self.text.graph, Scope(opsets), is_main=True))
        model.functions.extend(self.function(function) for function in self.text.functions)
        return model

    def opsets(self, graph: GraphText) -> dict[str, int]:
        """The default domain, then the others that nodes use, by name."""
        used = {domain for domain in _domains(graph) if domain not in ("", "ai.onnx")}
        return {"": self.domains.get("", self.opset), **{d: self.domains.get(d, 1) for d in sorted(used)}}

    def function(self, text: FunctionText) -> onnx.FunctionProto:
        header = dict(text.header)
        scope = Scope(header.pop("opset_import", None) or self.opsets(text.body))
        function = onnx.FunctionProto(name=text.name.text, **header)
        function.opset_import.extend(_opset_protos(scope.opsets))
        for parameter in text.parameters:
            if isinstance(parameter, Token):
                function.attribute.append(parameter.text)
            else:
                function.attribute_proto.append(self.attribute(parameter, None, scope, ""))
        graph = self.graph(text.body, scope)
        function.input.extend(value.name for value in graph.input)
        function.output.extend(value.name for value in graph.output)
        typed = (*graph.input, *graph.output, *graph.value_info)
        function.value_info.extend(value for value in typed if value.HasField("type"))
        function.node.extend(_constant_node(tensor) for tensor in graph.initializer)
        function.node.extend(graph.node)
        return function

    # -- graphs

    def graph(self, text: GraphText, outer: Scope, *, is_main: bool = False, is_inner: bool = False) -> onnx.GraphProto:
        """One graph.  Only the main one may leave inputs to be found; only an inner one reads outer names."""
        inputs = self.inputs(text, is_main)
        input_names = {declared.name.text for declared in inputs}
        self.check_names(text, input_names, is_inner)
        scope = outer.inner(hidden=text.defined().keys() | input_names)
        for declared in (*inputs, *text.declarations, *(text.outputs or ())):
            if declared.type is not None:
                scope.types[declared.name.text] = declared.type
        graph = onnx.GraphProto(name=text.name or "graph", input=map(_value_info, inputs))
        for declared in (*inputs, *text.declarations):
            if declared.value is not None:
                graph.initializer.append(self.initializer(declared.name, declared.value, scope))
            elif declared.name.text not in input_names:
                graph.value_info.append(_value_info(declared))
        for node in text.nodes:
            self.node(node, scope, graph)
        for declared in self.outputs(text):
            is_known = (is_main and not self.text.is_complete) or declared.name.text in input_names
            type_ = declared.type or (scope.types.get(declared.name.text) if is_known else None)
            graph.output.append(_value_info(Declaration(declared.name, type_)))
        return graph

    def inputs(self, text: GraphText, is_main: bool) -> list[Declaration]:
        """The inputs in order: as the header lists them, or by where the text mentions them first."""
        if text.inputs is not None or not is_main:
            found = [*(text.inputs or ()), *(d for d in text.declarations if d.is_input)]
        else:
            found = self.found_inputs(text)
        if not is_main or self.text.is_complete:
            return found
        return [d if d.type is not None else Declaration(d.name, self.input_type(d), d.value) for d in found]

    def input_type(self, declared: Declaration) -> onnx.TypeProto:
        """The type of an input without one: that of its default value, else float of unknown rank."""
        if declared.value is None:
            return tensor_type(ir.DataType.FLOAT)
        dtype, array = self.values.array(declared.value, self.values.own_dtype(declared.value), declared.name.text)
        return tensor_type(dtype, array.shape)

    def found_inputs(self, text: GraphText) -> list[Declaration]:
        defined = text.defined()
        first = {d.name.text: d.name for d in text.outputs or ()}
        for name, token in text.used().items():
            first[name] = min(token, first.get(name, token), key=lambda t: t.offset)
        found = {name: Declaration(token) for name, token in first.items() if name not in defined}
        for declared in text.declarations:
            name = declared.name.text
            if declared.is_input or name not in defined:
                found[name] = declared
        return sorted(found.values(), key=lambda d: min(d.name.offset, first.get(d.name.text, d.name).offset))

    def check_names(self, text: GraphText, inputs: Collection[str], is_inner: bool) -> None:
        """Every name is made once and, but for outer names in an inner graph, made before it is read."""
        made = [name for node in text.nodes for name in node.outputs if name.text]
        valued = [d.name for d in (*(text.inputs or ()), *text.declarations) if d.value is not None]
        seen: set[str] = set()
        for names, taken in ((valued, ()), (made, inputs)):
            for name in names:
                if name.text in seen or name.text in taken:
                    self.fail("a second definition of this name", name)
                seen.add(name.text)
        if is_inner:
            return
        for name in (*text.used().values(), *(d.name for d in text.outputs or ())):
            if name.text not in seen and name.text not in inputs:
                self.fail("a name that nothing defines and that is no input", name)

    def outputs(self, text: GraphText) -> list[Declaration]:
        """The outputs: as the header lists them, or every value made by a node that no node reads."""
        if text.outputs is not None:
            return text.outputs
        used = text.used()
        return [Declaration(n) for node in text.nodes for n in node.outputs if n.text and n.text not in used]

    def initializer(self, name: Token, value: Literal, scope: Scope) -> onnx.TensorProto:
        tensor = self.values.tensor(value, self.values.own_dtype(value), name.text, has_bits=self.text.is_complete)
        scope.know(tensor)
        return tensor

    # -- nodes

    def node(self, text: NodeText, scope: Scope, graph: onnx.GraphProto) -> None:
        schema = schema_of(text.domain, text.op.text, opset_of(scope.opsets, text.domain))
        node = onnx.NodeProto(name=text.name, op_type=text.op.text, domain=text.domain, overload=text.overload)
        node.output.extend(name.text for name in text.outputs)
        seed = text.outputs[0].text
        node.attribute.extend(self.attribute(attribute, schema, scope, seed) for attribute in text.attributes)
        dtypes = [o.dtype if isinstance(o, Literal) else scope.dtype(o.text) for o in text.operands]
        for position, operand in enumerate(text.operands):
            if isinstance(operand, Literal):
                dtype = operand.dtype or self.operand_dtype(operand, schema, position, dtypes)
                graph.initializer.append(self.values.tensor(operand, dtype, next(self.fresh)))
                scope.know(graph.initializer[-1])
                node.input.append(graph.initializer[-1].name)
            else:
                node.input.append(operand.text)
        graph.node.append(node)
        for name, type_ in _inferred_types(node, schema, scope).items():
            scope.types.setdefault(name, type_)

    def operand_dtype(
        self,
        literal: Literal,
        schema: Schema | None,
        position: int,
        dtypes: Sequence[ir.DataType | None],
    ) -> ir.DataType:
        own = self.values.own_dtype(literal)
        if own in (ir.DataType.BOOL, ir.DataType.STRING):
            return own
        return literal_dtype(schema, position, dtypes, is_fractional=own is ir.DataType.FLOAT)

    # -- attributes

    def attribute(self, text: Attribute, schema: Schema | None, scope: Scope, seed: str) -> onnx.AttributeProto:
        formal = schema.attributes.get(text.name.text) if schema is not None else None
        wanted = text.type or (formal.type if formal is not None else None)
        proto = onnx.AttributeProto(name=text.name.text)
        if text.is_reference:
            if wanted is None:
                self.fail("a reference to an attribute needs a type, as in 'a: float = @b'", text.name)
            proto.type = onnx.AttributeProto.AttributeType.Value(wanted.name)
            proto.ref_attr_name = text.value.text
            return proto
        is_list = isinstance(text.value, tuple)
        values = text.value if is_list else (text.value,)
        type_ = self.attribute_type(text, values, is_list, wanted)
        if text.type is not None and type_ is not text.type:
            self.fail(f"an attribute said to be {text.type.name.lower()} that is {type_.name.lower()}", text.name)
        proto.type = onnx.AttributeProto.AttributeType.Value(type_.name)
        converted = [self.attribute_value(value, type_, scope, seed) for value in values]
        _fill(proto, type_, converted)
        return proto

    def attribute_type(
        self, text: Attribute, values: Sequence[object], is_list: bool, wanted: ir.AttributeType | None
    ) -> ir.AttributeType:
        kinds = {_kind(value) for value in values}
        if not kinds:
            if wanted is None or wanted not in _LIST_OF.values():
                self.fail("an empty list needs a type, as in 'a: ints = []'", text.name)
            return wanted
        if kinds == {AttrType.INT} and wanted in (AttrType.FLOAT, AttrType.FLOATS):
            kinds = {AttrType.FLOAT}
        if len(kinds) > 1 and not kinds <= {AttrType.INT, AttrType.FLOAT}:
            self.fail("a list of values of different kinds", text.name)
        kind = next(iter(kinds)) if len(kinds) == 1 else AttrType.FLOAT
        return _LIST_OF[kind] if is_list else kind

    def attribute_value(self, value: Any, type_: ir.AttributeType, scope: Scope, seed: str) -> Any:
        if isinstance(value, Literal):
            return self.values.tensor(
                value, self.values.own_dtype(value), "", seed=seed, has_bits=self.text.is_complete
            )
        if isinstance(value, GraphText):
            return self.graph(value, scope, is_inner=True)
        if isinstance(value, onnx.TypeProto):
            return value
        if type_ in (AttrType.INT, AttrType.INTS):
            return self.values.whole(value, -(2**63), 2**63 - 1, "int64")
        if type_ in (AttrType.FLOAT, AttrType.FLOATS):
            return float(value.text)
        return value.text.encode("utf-8", "surrogateescape")


_LIST_OF = {
    AttrType.INT: AttrType.INTS,
    AttrType.FLOAT: AttrType.FLOATS,
    AttrType.STRING: AttrType.STRINGS,
    AttrType.TENSOR: AttrType.TENSORS,
    AttrType.GRAPH: AttrType.GRAPHS,
    AttrType.TYPE_PROTO: AttrType.TYPE_PROTOS,
}
_FIELDS = {AttrType.INT: "i", AttrType.FLOAT: "f", AttrType.STRING: "s"}
_MESSAGES = {AttrType.TENSOR: "t", AttrType.GRAPH: "g", AttrType.TYPE_PROTO: "tp"}


def _kind(value: object) -> ir.AttributeType:
    """The attribute type of one value as written."""
    if isinstance(value, Token):
        return {"int": AttrType.INT, "str": AttrType.STRING}.get(value.kind, AttrType.FLOAT)
    by_class = {Literal: AttrType.TENSOR, GraphText: AttrType.GRAPH, onnx.TypeProto: AttrType.TYPE_PROTO}
    return by_class[type(value)]


def _fill(proto: onnx.AttributeProto, type_: ir.AttributeType, values: Sequence[object]) -> None:
    if type_ in _FIELDS:
        setattr(proto, _FIELDS[type_], values[0])
    elif type_ in _MESSAGES:
        getattr(proto, _MESSAGES[type_]).CopyFrom(values[0])
    else:
        getattr(proto, type_.name.lower()).extend(values)


def _value_info(declared: Declaration) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=declared.name.text, type=declared.type)


def _constant_node(tensor: onnx.TensorProto) -> onnx.NodeProto:
    """A Constant node in place of an initializer, which a function cannot have."""
    return onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)


def _opset_protos(opsets: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in opsets.items()]


def _domains(graph: GraphText) -> Iterator[str]:
    for node in graph.nodes:
        yield node.domain
        for inner in node.graphs():
            yield from _domains(inner)


def _inferred_types(node: onnx.NodeProto, schema: Schema | None, scope: Scope) -> Mapping[str, onnx.TypeProto]:
    """The known types of the outputs of one node: as ONNX infers them, else by the schema's type variables."""
    if schema is None:
        return {}
    variables = {formal.type_var: formal.types for formal in schema.outputs}
    known = {v: DTYPES[next(iter(t))[7:-1]] for v, t in variables.items() if len(t) == 1 and "tensor(" in min(t)[:7]}
    for position, name in enumerate(node.input):
        formal, dtype = formal_of(schema, position), scope.dtype(name)
        if formal is not None and not formal.variadic and dtype is not None:
            known.setdefault(formal.type_var, dtype)
    last = schema.outputs[-1:] * len(node.output) if schema.outputs and schema.outputs[-1].variadic else ()
    pairs = zip((*schema.outputs, *last), node.output, strict=False)
    bound = {n: tensor_type(known[f.type_var]) for f, n in pairs if n and f.type_var in known}
    return {**bound, **_inferred_by_onnx(node, scope)}


def _inferred_by_onnx(node: onnx.NodeProto, scope: Scope) -> Mapping[str, onnx.TypeProto]:
    version = opset_of(scope.opsets, node.domain)
    if version is None or any(name and name not in scope.types for name in node.input):
        return {}
    has_graph = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
    types = scope.types if has_graph else {name: scope.types[name] for name in node.input if name}
    imports = _opset_protos(scope.opsets)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, normal_domain(node.domain))
        return onnx.shape_inference.infer_node_outputs(schema, node, types, scope.tensors, opset_imports=imports)
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return {}
    except (RuntimeError, ValueError):  # what pybind makes of the rest
        return {}


def build(
    text: str, opset: int, domains: Mapping[str, int], ir_version: int, weights: Mapping[str, Array]
) -> onnx.ModelProto:
    """The ``ModelProto`` of a text; raises ``ModelError``."""
    return Elaborator(Parser(Source(text)), opset, domains, weights).model(ir_version)
