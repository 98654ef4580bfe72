"""Changing the dtype of some nodes of a graph, with a Cast wherever precisions meet and weights converted in place.

This module does not ask whether a value fits, nor whether a kernel exists: that was decided before.  Why it is not one
of the converters that exist: docs/decisions/0018.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from onnxrewrite import io
from onnxrewrite.io import preserved
from onnxrewrite.io.inlining import inlined
from onnxrewrite.ir.facts import Facts
from onnxrewrite.rewrite.edit import Names, drop_unused_initializers
from onnxrewrite.suite.precision.formats import Format
from onnxrewrite.suite.precision.support import Places, is_float


def prepared(source: io.Source) -> ir.Model:
    """A copy to convert: functions inlined, constants made weights, dtypes and shapes inferred."""
    model = io.load(inlined(io.load(source)).model)
    with preserved.quiet():
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    Facts(model.graph, model.graph.opset_imports)
    return model


def versions(model: ir.Model, node: ir.Node) -> int:
    """The opset version that a node is written for."""
    return node.version if node.version is not None else model.graph.opset_imports.get(node.domain, 1)


def is_weight(value: ir.Value) -> bool:
    """True if a value is a constant of the model, not an input that has a default."""
    return value.is_initializer() and not value.is_graph_input() and value.const_value is not None


def convert(model: ir.Model, plan: Mapping[str, Places], form: Format, *, keep_io: bool = True) -> ir.Model:
    """Give some nodes of a ``prepared`` model half precision; it is changed, and returned.

    Args:
        model: The model.
        plan: Name of a node of the main graph to what of it becomes half.
        form: The half-precision format.
        keep_io: Keep the model's inputs and outputs in float32.
    """
    _Conversion(model, plan, form, keep_io).run()
    return model


def rounded(model: ir.Model, plan: Mapping[str, Places], form: Format) -> ir.Model:
    """The same nodes in float32, but every value that would be half rounded to it: what a runtime computes that lacks
    the kernels.  The ``prepared`` model is changed, and returned."""
    names = Names(model)
    for node in [n for n in model.graph if n.name in plan]:
        where = plan[node.name or ""]
        for index in where.inputs:
            value = node.inputs[index]
            if value is not None and is_weight(value):
                node.replace_input_with(index, _weight(model.graph, value, form, names, back=True))
        for index in where.outputs:
            value = node.outputs[index]
            readers = list(value.uses())
            half = _cast(names, value, form.dtype, form.name)
            back = _cast(names, half.outputs[0], ir.DataType.FLOAT, "float32")
            model.graph.insert_after(node, (half, back))
            for reader, i in readers:
                reader.replace_input_with(i, back.outputs[0])
            if value.is_graph_output():
                _stand_for_output(model.graph, value, back.outputs[0], names)
    drop_unused_initializers(model.graph)
    return model


class _Conversion:
    """One call of ``convert``."""

    def __init__(self, model: ir.Model, plan: Mapping[str, Places], form: Format, keep_io: bool):
        self.graph = model.graph
        self.model = model
        self.plan = plan
        self.form = form
        self.keep_io = keep_io
        self.names = Names(model)
        self.nodes = {n: plan[n.name or ""] for n in model.graph if n.name in plan}

    def run(self) -> None:
        """Convert."""
        before = list(self.graph)
        for value in [v for v in self.graph.initializers.values() if is_float(v) and is_weight(v)]:
            self._convert_weight(value)
        for value in self.graph.inputs:
            if is_float(value):
                self._convert(value, half=self._is_redeclared(value))
        for node in before:
            where = self.nodes.get(node)
            if where is not None and node.op_type == "Cast" and where.outputs:
                node.attributes["to"] = ir.AttrInt64("to", int(self.form.dtype))
            for index, value in enumerate(node.outputs):
                if is_float(value):
                    self._convert(value, half=where is not None and index in where.outputs)
        drop_unused_initializers(self.graph)
        if not self.keep_io:
            self._redeclare()

    def _wants_half(self, node: ir.Node, index: int) -> bool:
        where = self.nodes.get(node)
        return where is not None and index in where.inputs

    def _convert_weight(self, value: ir.Value) -> None:
        """Weights are converted, not cast: for those who want half, and for others as they were."""
        uses = [(n, i) for n, i in value.uses() if self._wants_half(n, i)]
        if uses:
            made = _weight(self.graph, value, self.form, self.names)
            for node, index in uses:
                node.replace_input_with(index, made)
        if value.is_graph_output() and not self.keep_io:
            self._convert(value, half=False)

    def _convert(self, value: ir.Value, *, half: bool) -> None:
        """Set the dtype of a value, and cast it for those who want the other one."""
        others = [(n, i) for n, i in value.uses() if self._wants_half(n, i) != half]
        as_output = value.is_graph_output() and half == self.keep_io
        if half:
            value.type = ir.TensorType(self.form.dtype)
        if not others and not as_output:
            return
        to = ir.DataType.FLOAT if half else self.form.dtype
        cast = _cast(self.names, value, to, "float32" if half else self.form.name)
        producer = value.producer()
        if producer is not None:
            self.graph.insert_after(producer, cast)
        elif len(self.graph):
            self.graph.insert_before(self.graph[0], cast)
        else:
            self.graph.append(cast)
        for node, index in others:
            node.replace_input_with(index, cast.outputs[0])
        if as_output:
            _stand_for_output(self.graph, value, cast.outputs[0], self.names)

    def _is_redeclared(self, value: ir.Value) -> bool:
        """True if an input becomes half; one with a default keeps the dtype of that."""
        return not self.keep_io and preserved.default_of(value) is None

    def _redeclare(self) -> None:
        """The interface that is written is of half precision, too."""
        known = preserved.origin(self.model)
        if known is not None:
            inputs, outputs = (tuple(map(self._as_half, each)) for each in (known.inputs, known.outputs))
            preserved.remember(self.model, replace(known, inputs=inputs, outputs=outputs))

    def _as_half(self, declared: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(declared)
        kept = {v.name for v in self.graph.inputs if preserved.default_of(v) is not None}
        if copy.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and copy.name not in kept:
            copy.type.tensor_type.elem_type = int(self.form.dtype)
        return copy


def _stand_for_output(graph: ir.Graph, value: ir.Value, instead: ir.Value, names: Names) -> None:
    """Let ``instead`` be the graph's output in place of ``value``, and take its name."""
    name = value.name or ""
    value.name = names.fresh(f"{name}_inner")
    instead.name = name
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = instead


def _cast(names: Names, value: ir.Value, to: ir.DataType, called: str) -> ir.Node:
    output = ir.Value(name=names.fresh(f"{value.name}_{called}"), type=ir.TensorType(to), shape=value.shape)
    name = names.fresh(f"{value.name}_to_{called}")
    return ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to))], outputs=[output], name=name)


def _weight(graph: ir.Graph, value: ir.Value, form: Format, names: Names, *, back: bool = False) -> ir.Value:
    """A weight rounded to half; ``back`` in float32 again."""
    assert value.const_value is not None
    name = names.fresh(f"{value.name}_{form.name}")
    array = form.rounded(value.const_value.numpy())
    tensor = ir.tensor(array.astype("float32") if back else array, name=name)
    made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=value.shape, const_value=tensor)
    graph.register_initializer(made)
    return made


def float_values(nodes: Iterable[ir.Node], within: Collection[str] | None = None) -> list[ir.Value]:
    """The float32 tensors that these nodes read and make, weights left out, each once."""
    found: dict[ir.Value, None] = {}
    for node in nodes:
        if within is None or node.name in within:
            found |= {v: None for v in (*node.inputs, *node.outputs) if v is not None and v.name and is_float(v)}
    return [v for v in found if not is_weight(v)]
