"""A model that is being spelled anew: a copy whose facts are known, and the few changes that spellings are made of.

This module knows graphs, and neither rules nor patterns.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.ir import views
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import dense_tensor
from onnxrewrite.ir.schema import AttributeValue
from onnxrewrite.rewrite import edit
from onnxrewrite.system.arrays import Array

LARGE = 2**62
"""As an end: whatever the size."""


class Script:
    """A copy of a model, at one place of which something is spelled anew at a time.

    Attributes:
        rng: All that is random in the spelling of the current place.
        place: The node that is spelled anew; new nodes come before it.
    """

    rng: random.Random
    place: ir.Node

    def __init__(self, model: ir.Model):
        self.model = model.clone()
        self.graph = self.model.graph
        self.facts = Facts(self.graph, self.model.opset_imports)
        self._label, self._count = "", 0
        self._name_nodes()

    def _name_nodes(self) -> None:
        """Names that no two nodes share: a place is found again by its name."""
        seen: set[str] = set()
        for number, node in enumerate(self.graph):
            if not node.name or node.name in seen:
                node.name = f"{node.op_type}#{number}"
            seen.add(node.name)

    def at(self, node: ir.Node, label: str, rng: random.Random) -> None:
        """Go to a place.  What is made there is called after the label, whatever was made elsewhere."""
        self.place, self.rng, self._label, self._count = node, rng, label, 0

    def _fresh(self) -> str:
        self._count += 1
        return f"{self._label}.{self._count}"

    # -- what is there ---------------------------------------------------------------------------------------

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return io.opset(self.model)

    def is_constant(self, value: ir.Value | None) -> bool:
        """True for a weight or a Constant that nothing can override."""
        return self.array(value) is not None

    def array(self, value: ir.Value | None) -> Array | None:
        """The constant behind a value; None where it is none."""
        tensor = dense_tensor(value) if value is not None and not value.is_graph_input() else None
        return None if tensor is None else tensor.numpy()

    def number(self, value: ir.Value | None) -> float | None:
        """The number that a constant of one element is; None for any other value."""
        array = self.array(value)
        return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None

    def shape(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The dimensions, as far as they are known."""
        return None if value is None else self.facts.shape(value)

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of dimensions."""
        return None if value is None else self.facts.rank(value)

    def size(self, value: ir.Value | None, axis: int) -> int | None:
        """The size along an axis, where it is a number."""
        shape = self.shape(value)
        found = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
        return found if isinstance(found, int) else None

    def axes(self, node: ir.Node) -> tuple[int, ...] | None:
        """The axes of a reduction, a Squeeze or an Unsqueeze from the front, of any opset; None where unknown."""
        found = views.axes_of(self.facts, node, self.rank(node.inputs[0]))
        return found if isinstance(found, tuple) else None

    @staticmethod
    def is_float(value: ir.Value | None) -> bool:
        """True for a tensor of floating-point numbers."""
        return value is not None and value.dtype is not None and value.dtype.is_floating_point()

    @staticmethod
    def made_by(value: ir.Value | None, *operators: str) -> ir.Node | None:
        """The node that computes a value, if it is of these standard operators."""
        node = value.producer() if value is not None else None
        return node if node is not None and not node.domain and node.op_type in operators else None

    # -- changes ---------------------------------------------------------------------------------------------

    def constant(self, array: object, like: ir.Value | ir.DataType | None) -> ir.Value:
        """A new initializer of the dtype of a value."""
        dtype = like.dtype if isinstance(like, ir.Value) else like
        assert dtype is not None
        data, name = np.asarray(array).astype(dtype.numpy()), self._fresh()
        tensor = ir.tensor(data, dtype=dtype, name=name)
        kind, shape = ir.TensorType(dtype), ir.Shape(data.shape)
        value = ir.Value(name=name, type=kind, shape=shape, const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def integers(self, *numbers: int) -> ir.Value:
        """A list of integers as an initializer."""
        return self.constant(np.array(numbers, np.int64), ir.DataType.INT64)

    def make(self, op_type: str, *inputs: ir.Value | None, outputs: int, **attributes: AttributeValue) -> ir.Node:
        """A new node before the place, its results inferred."""
        settings = ir.convenience.convert_attributes(attributes)
        node = ir.Node("", op_type, inputs, settings, name=self._fresh(), num_outputs=outputs)
        for number, output in enumerate(node.outputs):
            output.name = f"{node.name}:{number}"
        self.graph.insert_before(self.place, node)
        self.facts.infer(node)
        return node

    def new(self, op_type: str, *inputs: ir.Value | None, **attributes: AttributeValue) -> ir.Value:
        """The result of a new node before the place."""
        return self.make(op_type, *inputs, outputs=1, **attributes).outputs[0]

    def reduced(self, op_type: str, x: ir.Value | None, axes: Sequence[int], keepdims: bool = True) -> ir.Value:
        """A reduction, its axes where this opset has them."""
        since = 13 if op_type == "ReduceSum" else 18
        if self.opset >= since:
            return self.new(op_type, x, self.integers(*axes), keepdims=int(keepdims))
        return self.new(op_type, x, axes=tuple(axes), keepdims=int(keepdims))

    def put(self, new: ir.Value | None, old: ir.Value | None = None) -> bool:
        """Let ``new`` be read, and called, as the result of the place was; True, for something was spelled anew."""
        old = self.place.outputs[0] if old is None else old
        assert new is not None
        producer, name = old.producer(), old.name
        self.facts.inherit(new, old)
        edit.redirect(old, new)
        old.name, new.name = f"{self._label}.old", name
        if producer is not None:
            edit.sweep([producer])
        return True

    def operand(self, index: int, new: ir.Value | None) -> bool:
        """Let the place read another value; True."""
        self.place.replace_input_with(index, new)
        return True

    def done(self) -> ir.Model:
        """The model, without what nothing reads and without what was known about its inner values."""
        edit.drop_unused_initializers(self.graph)
        for node in self.graph:
            for output in node.outputs:
                if not output.is_graph_output():
                    output.type, output.shape = None, None
                if node.op_type != "Constant":
                    output.const_value = None
        return self.model
