"""A model read into tensors: inputs are functions of their indices, and each node is what the table says.

What the table has no row for is expanded by the operator's body where sums have a meaning, and is else a function that
nothing is known of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import z3
from onnx import helper, numpy_helper

from onnxrewrite.ir import schema
from onnxrewrite.ir.bodies import BODIES
from onnxrewrite.ir.bodies.emitter import Emit, Unsupported
from onnxrewrite.ir.dims import FAR, names_in
from onnxrewrite.ir.graph import ELEMENTS
from onnxrewrite.proof import (  # noqa: F401  (register)
    semantics_elements,
    semantics_selections,
    semantics_sums,
    semantics_views,
)
from onnxrewrite.proof.domains import Reals
from onnxrewrite.proof.index_terms import Integer, OutOfTime, Term, Unprovable, all_numbers, plain, product
from onnxrewrite.proof.tensors import SEMANTICS, Call, Encoding, Tensor

_OF_ROWS = frozenset({"SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
"""Operators whose kernels refuse rows of nothing, of which their bodies say nothing."""


class Reader:
    """Reads models into one encoding; inputs of one name are one tensor, sizes of one name are one size.

    Args:
        encoding: The encoding.
        not_empty: True if no size is zero.
    """

    def __init__(self, encoding: Encoding, *, not_empty: bool = False):
        self.encoding = encoding
        self.sizes: dict[str, Term] = {}
        self.inputs: dict[str, Tensor] = {}
        self._least = 1 if not_empty else 0
        self._reasons: dict[ir.Value, str] = {}

    def read(self, model: ir.Model) -> list[Tensor]:
        """The outputs of a model.

        Raises:
            Unprovable: Something has no meaning here.
        """
        known: dict[ir.Value, Tensor | None] = {}
        for value in model.graph.inputs:
            known[value] = self._input(value)
        self._run(model.graph, dict(model.opset_imports), known)
        return [self._known(value, known) for value in model.graph.outputs]

    # -- inputs ----------------------------------------------------------------------------------------------

    def _input(self, value: ir.Value) -> Tensor:
        name = value.name or ""
        if name not in self.inputs:
            if not isinstance(value.type, ir.TensorType) or value.shape is None:
                raise Unprovable(f"the input {name} has no rank")
            dims = [self._size(d, f"{name}.{k}") for k, d in enumerate(value.shape.dims)]
            dtype = value.type.dtype
            if dtype == ir.DataType.STRING:
                raise Unprovable("an input of text")
            found = self.encoding.input(name, dtype, dims)
            self.inputs[name] = self._with_elements(value, found)
        return self.inputs[name]

    def _size(self, dim: Term, place: str) -> Integer:
        if isinstance(dim, int):
            return dim
        name = dim.value if dim.value is not None else f"?{place}"
        if name not in self.sizes:
            self.sizes[name] = z3.Int(f"size {name}", self.encoding.domain.context)
            self.encoding.define(self.sizes[name] >= self._least)
            self.encoding.define(self.sizes[name] < FAR)
        return self.sizes[name]

    def _with_elements(self, value: ir.Value, found: Tensor) -> Tensor:
        """A shape tensor whose elements are told, as numbers or by the names of sizes."""
        told = value.metadata_props.get(ELEMENTS)
        if told is None or found.rank > 1 or not all_numbers(found.dims):
            return found
        elements = json.loads(told)
        exact = [self._told(e) for e in elements]
        if any(e is None for e in exact):
            return found
        made = semantics_views.of_list(self.encoding, exact, found.dtype)
        return made if found.rank else self.encoding.tensor(found.dtype, (), lambda _: exact[0])

    def _told(self, element: int | str) -> Integer | None:
        """An element as a number or a size; None for one that is unknown, or computed."""
        if isinstance(element, int):
            return element
        return self._size(ir.SymbolicDim(element), "") if element.isidentifier() and element != "None" else None

    # -- nodes -----------------------------------------------------------------------------------------------

    def _run(
        self, graph: ir.Graph | ir.Function, imports: Mapping[str, int], known: dict[ir.Value, Tensor | None]
    ) -> None:
        for node in graph:
            try:
                outputs = self._outputs(node, imports, known)
            except OutOfTime:
                raise
            except Unprovable as error:  # which matters only to who reads it
                self._reasons.update({value: str(error) for value in node.outputs})
                continue
            for value, tensor in zip(node.outputs, outputs, strict=False):
                known[value] = tensor

    def _outputs(
        self, node: ir.Node, imports: Mapping[str, int], known: dict[ir.Value, Tensor | None]
    ) -> Sequence[Tensor | None]:
        if node.op_type == "If" and not node.domain:
            return self._branch(node, imports, known)
        call = _call(node, imports, [self._operand(v, known) for v in node.inputs])
        return self._evaluated(replace(call, known=tuple((o.dtype, self._inferred(o)) for o in node.outputs)))

    def _inferred(self, value: ir.Value) -> tuple[Integer | None, ...] | None:
        """The sizes that shape inference found, as far as they are made of the sizes of inputs."""
        if value.shape is None:
            return None
        return tuple(d if isinstance(d, int) else self._polynomial(d) for d in value.shape.dims)

    def _polynomial(self, dim: ir.SymbolicDim) -> Integer | None:
        if dim.value is None or not names_in(dim) <= set(self.sizes):
            return None
        return _in_names(dim._expr, self.sizes)

    def _operand(self, value: ir.Value | None, known: dict[ir.Value, Tensor | None]) -> Tensor | None:
        return None if value is None else self._known(value, known)

    def _known(self, value: ir.Value, known: dict[ir.Value, Tensor | None]) -> Tensor:
        if value not in known and value.const_value is not None:
            known[value] = self._constant(value.const_value)
        found = known.get(value)
        if found is None:
            raise Unprovable(self._reasons.get(value) or f"{value.name} is computed by what has no meaning here")
        return found

    def _constant(self, tensor: ir.TensorProtocol) -> Tensor:
        return self.encoding.constant(tensor.numpy(), tensor.dtype)

    def _branch(self, node: ir.Node, imports: Mapping[str, int], known: dict[ir.Value, Tensor | None]) -> list[Tensor]:
        """The branch of an If that is decided."""
        condition = self._operand(node.inputs[0], known)
        decided = condition.at((0,) * condition.rank) if condition is not None else None
        if not isinstance(decided, bool):
            raise Unprovable("an If that is not decided")
        branch = node.attributes["then_branch" if decided else "else_branch"].as_graph()
        self._run(branch, imports, known)
        return [self._known(v, known) for v in branch.outputs]

    def _evaluated(self, call: Call) -> Sequence[Tensor | None]:
        e = self.encoding
        if not call.domain and call.op_type == "Constant":
            return [_literal(e, call)]
        meaning = SEMANTICS.get((call.domain, call.op_type))
        reason = ""
        if meaning is not None:
            try:
                found = meaning(e, call)
                return [found] if isinstance(found, Tensor) else list(found)
            except Unprovable as error:
                reason = str(error)
        body = BODIES.get((call.domain, call.op_type))
        if meaning is None and body is not None and isinstance(e.domain, Reals):
            return self._by_body(call, body)
        if schema.schema(call.domain, call.op_type, call.version) is None or _is_random(call):
            raise Unprovable(f"{call.op_type} has no meaning here")
        try:
            return e.opaque(_without_names(call) if call.op_type == "Reshape" else call)
        except Unprovable as error:
            raise Unprovable(reason or str(error)) from None

    def _by_body(self, call: Call, body: Term) -> Sequence[Tensor | None]:
        """By the operators of the standard that the body of an operator is made of."""
        if call.op_type in _OF_ROWS:
            self.encoding.require_sizes(call.tensor().dims[-1:], "rows of nothing")
        names = [f"in{k}" if t is not None else "" for k, t in enumerate(call.inputs)]
        outs = [f"out{k}" for k in range(len(call.known))]
        node = helper.make_node(call.op_type, names, outs, domain=call.domain, **_raw(call.attributes))
        sizes = {
            n: tuple(d if isinstance(d, int) else None for d in t.dims)
            for n, t in zip(names, call.inputs, strict=True)
            if t is not None
        }
        newest = schema.latest_version()
        try:
            written = Emit(newest, call.op_type, sizes).define(body, node)
        except Unsupported as error:
            raise Unprovable(str(error)) from None
        values: dict[str, Tensor | None] = dict(zip(names, call.inputs, strict=True))
        own = next((t.dtype for t in call.inputs if t is not None and t.dtype.is_floating_point()), ir.DataType.FLOAT)
        for each in written:
            inner = _of_proto(each, newest, [values.get(n) if n else None for n in each.input], own)
            values.update(zip(each.output, self._evaluated(inner), strict=False))
        return [values.get(name) for name in outs]


def _without_names(call: Call) -> Call:
    """A Reshape without the sizes that shape inference found, which takes none to be -1 by being computed so."""
    known = tuple(
        (dtype, None if sizes is None else tuple(d if isinstance(d, int) else None for d in sizes))
        for dtype, sizes in call.known
    )
    return replace(call, known=known)


def _is_random(call: Call) -> bool:
    found = schema.schema(call.domain, call.op_type, call.version)
    return found is None or not found.deterministic


def _call(node: ir.Node, imports: Mapping[str, int], inputs: Sequence[Tensor | None]) -> Call:
    if any(a.is_ref() for a in node.attributes.values()):
        raise Unprovable("a node that refers to an attribute of its function")
    version = node.version if node.version is not None else imports.get(node.domain, imports.get("", 1))
    attributes = {a.name: schema.plain(a.value) for a in node.attributes.values()}
    known = tuple((None, None) for _ in node.outputs)
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    return Call(schema.normal_domain(node.domain), node.op_type, version, attributes, tuple(given), known)


def _of_proto(node: onnx.NodeProto, version: int, inputs: Sequence[Tensor | None], own: ir.DataType) -> Call:
    """A node of a body; floating-point constants, which bodies give in double, get the dtype of the operands."""
    attributes: dict[str, Term] = {}
    for each in node.attribute:
        value = helper.get_attribute_value(each)
        if isinstance(value, onnx.TensorProto):
            array = numpy_helper.to_array(value)
            array = array.astype(own.numpy()) if array.dtype.kind == "f" else array
            attributes[each.name] = ir.tensor(array, dtype=own if array.dtype.kind == "f" else None)
        else:
            attributes[each.name] = schema.plain(value)
    known = tuple((None, None) for _ in node.output)
    domain_version = version if not node.domain else 1
    return Call(schema.normal_domain(node.domain), node.op_type, domain_version, attributes, tuple(inputs), known)


def _raw(attributes: Mapping[str, Any]) -> dict[str, Term]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in attributes.items()}


def _in_names(expression: Term, sizes: Mapping[str, Any]) -> Integer | None:
    """A polynomial of sympy as a size; None for what is none."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return sizes.get(expression.name)
    parts: list[Term] = [_in_names(each, sizes) for each in expression.args]
    if not (expression.is_Add or expression.is_Mul) or any(p is None for p in parts):
        return None
    return product(parts) if expression.is_Mul else plain(sum(parts[1:], parts[0]))


_NUMBERS = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}


def _literal(e: Encoding, call: Call) -> Tensor:
    for name, dtype in _NUMBERS.items():
        if name in call.attributes:
            array = np.asarray(call.attributes[name], dtype)
            return e.constant(array, ir.DataType.from_numpy(array.dtype))
    tensor = call.attributes.get("value")
    if tensor is None:
        raise Unprovable("a constant of text")
    return e.constant(tensor.numpy(), tensor.dtype)
