"""A model that is being respelled: a copy, and the few changes that spellings and mistakes are made of.

This module knows graphs, and neither rules nor patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir.graph import dense_tensor
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.rewrite import edit
from onnxrewrite.system.arrays import Array


class Draft:
    """A copy of a model whose facts are known.

    Args:
        model: Stays as it is; its nodes and values have names.
    """

    def __init__(self, model: ir.Model):
        self.model = model.clone()
        self.graph = self.model.graph
        self._names = edit.Names(self.model)

    # -- what is there ---------------------------------------------------------------------------------------

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return self.model.opset_imports.get("", 1)

    def nodes(self, names: Sequence[str]) -> list[ir.Node]:
        """The nodes of these names that are still there."""
        wanted = set(names)
        return [n for n in self.graph if n.name in wanted]

    def value(self, name: str) -> ir.Value:
        """The output of a node called ``name``."""
        return next(o for n in self.graph for o in n.outputs if o.name == name)

    @staticmethod
    def tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
        """The constant behind a value, an initializer or a Constant; None for any other, or what can be overridden."""
        if value is None or value.is_graph_input():
            return None
        producer = value.producer()
        return dense_tensor(value) if producer is None or producer.op_type == "Constant" else None

    def array(self, value: ir.Value | None) -> Array | None:
        """The constant behind a value as an array of its own dtype; None for what is no constant of numbers."""
        tensor = self.tensor(value)
        return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()

    # -- changes ---------------------------------------------------------------------------------------------

    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        return self._names.fresh(base)

    def constant(self, array: Array, dtype: ir.DataType) -> ir.Value:
        """A new initializer."""
        data = np.asarray(array).astype(dtype.numpy())
        name = self.fresh("k")
        value = ir.Value(
            name=name,
            type=ir.TensorType(dtype),
            shape=ir.Shape(data.shape),
            const_value=ir.tensor(data, dtype=dtype, name=name),
        )
        self.graph.register_initializer(value)
        return value

    def insert(
        self,
        before: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, AttributeValue] | None = None,
        like: ir.Value | None = None,
    ) -> ir.Value:
        """The output of a new node; ``like`` has its type, its rank is the largest of its inputs' unless unknown."""
        attrs = ir.convenience.convert_attributes(dict(attributes or {}))
        node = ir.Node("", op_type, inputs, attrs, name=self.fresh(f"new/{op_type}"))
        output = node.outputs[0]
        output.name = self.fresh("v")
        output.type = like.type if like is not None else None
        ranks = [None if v is None or v.shape is None else len(v.shape) for v in inputs]
        if ranks and None not in ranks:
            output.shape = ir.Shape([None] * max(r for r in ranks if r is not None))
        self.graph.insert_before(before, node)
        return output

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let ``new`` be read, and called, as ``old`` was; what computed ``old`` goes."""
        producer, name = old.producer(), old.name
        edit.redirect(old, new)
        old.name = self.fresh(f"{name}/old")
        new.name = name
        if producer is not None:
            edit.sweep([producer])

    def add_input(self, base: str, like: ir.Value) -> ir.Value:
        """A new graph input of the type and shape of ``like``."""
        value = ir.Value(name=self.fresh(base), type=like.type, shape=like.shape)
        self.graph.inputs.append(value)
        return value

    def done(self) -> ir.Model:
        """The model, without what nothing reads and without what was known about its inner values."""
        edit.drop_unused_initializers(self.graph)
        for node in self.graph:
            for output in node.outputs:
                output.type, output.shape = None, None
                if node.op_type != "Constant":
                    output.const_value = None
        return self.model
