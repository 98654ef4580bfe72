"""Weights in blocks of few bits, in place of those of products and tables: one after the other, the rest left where it
lies.

MatMul(x, w) ⟶ com.microsoft.MatMulNBits(x, w₄, scales)
Gather(t, i) ⟶ com.microsoft.GatherBlockQuantized(t₄, i, scales)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.ir.names import Names
from onnxrewrite.suite.quantization import engine
from onnxrewrite.suite.quantization.weight_format import EXACT, WeightFormat
from onnxrewrite.system.arrays import Array

_MICROSOFT = "com.microsoft"


Reads: TypeAlias = Callable[[str], Sequence[Array]]
"""Gives arrays [rows, inner] that the product of a name reads."""


def _nothing(name: str) -> Sequence[Array]:
    return ()


def in_forms(model: ir.Model, forms: Mapping[str, WeightFormat], reads: Reads = _nothing) -> ir.Model:
    """A copy of a model with the weights of some nodes in blocks.

    Args:
        model: Not changed; its nodes have names of their own.
        forms: Names of nodes of the main graph, MatMul or Gather with constant weights, to forms that fit.
        reads: For forms of the algorithm ``gptq``.

    Raises:
        ModelError: onnxruntime.quantization fails on the weights of one.
    """
    made = model.clone()
    writer = _Writer(made, reads)
    for node in [node for node in made.graph if node.name in forms]:
        writer.rewrite(node, forms[node.name or ""])
    return made


def at_levels(model: ir.Model, levels: Mapping[str, int]) -> ir.Model:
    """A copy of a model with products in blocks computed at accuracy levels, by the names of their nodes."""
    made = model.clone()
    for node in made.graph:
        name = node.name or ""
        if node.op_type == "MatMulNBits" and name in levels:
            _set_level(node, levels[name])
    return made


def at_level(model: ir.Model, level: int) -> ir.Model:
    """The same with all of them at one level; the model itself where there are none."""
    names = [node.name or "" for node in model.graph if node.op_type == "MatMulNBits"]
    return at_levels(model, dict.fromkeys(names, level)) if names else model


def _set_level(node: ir.Node, level: int) -> None:
    node.attributes.pop("accuracy_level", None)
    if level != EXACT:  # the default
        node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", level)


class _Writer:
    """Puts weights in blocks into a model, which is changed; equal ones are there once."""

    def __init__(self, model: ir.Model, reads: Reads) -> None:
        self.model, self.graph, self.reads = model, model.graph, reads
        values = [*self.graph.inputs, *(value for node in self.graph.all_nodes() for value in node.outputs)]
        self.names = Names([*self.graph.initializers, *(value.name or "" for value in values)])
        self.made: dict[tuple[ir.Value, str, WeightFormat, str], list[ir.Value]] = {}

    def rewrite(self, node: ir.Node, form: WeightFormat) -> None:
        """Give a node its weights in a form."""
        table = node.op_type == "Gather"
        weight, read = node.inputs[0 if table else 1], node.inputs[1 if table else 0]
        assert weight is not None
        assert weight.const_value is not None
        shape = tuple(weight.const_value.shape.numpy())
        blocks = self._blocks(weight, node, form)
        if table:
            how = {"gather_axis": node.attributes.get_int("axis", 0), "quantize_axis": 1, "block_size": form.block}
            operands = [blocks[0], read, *blocks[1:]]
            nodes = [ir.node("GatherBlockQuantized", operands, how, domain=_MICROSOFT, name=node.name)]
        else:
            how = {"K": shape[-2], "N": shape[-1], "bits": form.bits, "block_size": form.block}
            nodes = [ir.node("MatMulNBits", [read, *blocks], how, domain=_MICROSOFT, name=node.name)]
            _set_level(nodes[0], form.level)
            nodes += self._broadcast(nodes[0], read, len(shape))
        self._replace(node, nodes)
        self.graph.opset_imports.setdefault(_MICROSOFT, 1)
        if not weight.uses() and not weight.is_graph_output():
            self.graph.initializers.pop(weight.name or "", None)

    def _replace(self, node: ir.Node, nodes: list[ir.Node]) -> None:
        old, new = node.outputs[0], nodes[-1].outputs[0]
        new.name, new.type, new.shape = old.name, old.type, old.shape
        ir.convenience.replace_nodes_and_values(self.graph, node, [node], nodes, [old], [new])

    def _broadcast(self, product: ir.Node, read: ir.Value | None, rank: int) -> list[ir.Node]:
        """The nodes that give a product by weights [1, ..., inner, outer] as many dimensions as these have."""
        if rank == 2 or (read is not None and read.shape is not None and len(read.shape) >= rank):
            return []
        product.outputs[0].name = self.names.fresh(f"{product.name}/product")
        ones = self._initializer(f"{product.name}/ones", ir.tensor(np.ones(rank, np.int64)))
        return [ir.node("Expand", [product.outputs[0], ones], name=self.names.fresh(f"{product.name}/expand"))]

    def _blocks(self, weight: ir.Value, node: ir.Node, form: WeightFormat) -> list[ir.Value]:
        """The packed weights, their scales, and their zero points if there are any, as initializers."""
        operator, name = node.op_type, node.name or ""
        key = weight, operator, form.stored, name if form.algorithm == "gptq" else ""
        if key not in self.made:
            assert weight.const_value is not None
            array = weight.const_value.numpy()
            whole = array if operator == "Gather" else array.reshape(array.shape[-2:])
            found = engine.in_blocks(operator, whole, form, self.reads(name) if form.algorithm == "gptq" else ())
            tensors = [ir.tensor(found.packed), ir.tensor(found.scales)]
            tensors += [] if found.zeros is None else [ir.tensor(found.zeros)]
            if operator == "Gather":
                shapes = array.shape, found.scales.shape
                tensors[::2] = [_in_4_bits(t.numpy(), s, form) for t, s in zip(tensors[::2], shapes, strict=False)]
                self.model.ir_version = max(self.model.ir_version or 0, _FOUR_BITS_SINCE)
            parts = (f"{form.bits} bits", "scales", "zeros")
            named = [f"{weight.name}/{part}" for part in parts[: len(tensors)]]
            self.made[key] = [self._initializer(each, tensor) for each, tensor in zip(named, tensors, strict=True)]
        return self.made[key]

    def _initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        name = self.names.fresh(name)
        tensor.name = name
        value = ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value


_FOUR_BITS_SINCE = 10
"""The version of the format that has dtypes of 4 bits."""


def _in_4_bits(packed: Array, shape: tuple[int, ...], form: WeightFormat) -> ir.TensorProtocol:
    """Numbers of 4 bits, two a byte, as a tensor."""
    kind = onnx.TensorProto.INT4 if form.symmetric else onnx.TensorProto.UINT4
    return ir.serde.TensorProtoTensor(onnx.TensorProto(data_type=kind, dims=shape, raw_data=packed.tobytes()))
