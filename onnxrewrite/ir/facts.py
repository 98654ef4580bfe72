"""What is known about values: dtype, shape with symbolic dimensions, constants, elements of shape tensors.

Facts are kept on the values themselves (``value.dtype``, ``value.shape``) and in one inference context, node by
node, so that a rewrite costs the inference of its own nodes and of the consumers whose facts it made sharper.
``onnx_shape_inference`` knows the operators; ``elements.py`` replaces what it gets wrong or leaves out.

Dimensions of one name are equal: that is what ONNX means by ``dim_param``.  An overridable initializer is not a
constant: ``io.py`` takes its default away while the model is worked on, so nothing here can mistake it for one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import onnx_shape_inference as inference

from onnxrewrite.ir import elements, schema, twins
from onnxrewrite.ir.graph import subgraphs

Dim: TypeAlias = int | ir.SymbolicDim

# Inference of an operator that it does not know is no news to a user.
logging.getLogger("onnx_shape_inference").setLevel(logging.ERROR)


class _Context(inference.ShapeInferenceContext):  # type: ignore[misc]
    """The library's context, without its habit of writing what it knows into the model's metadata."""

    def set_symbolic_value(self, value: ir.Value, data: list[Dim]) -> None:
        self._symbolic_values[value] = [plain(d) for d in data]


class Facts:
    """What is known about the values of one graph or function, kept current while it changes.

    Args:
        graph: The graph, or the function, whose nodes are inferred at once, subgraphs included.
        opset_imports: Domain to version, for nodes that carry no version of their own.
    """

    def __init__(self, graph: ir.Graph | ir.Function, opset_imports: dict[str, int]):
        inference.registry.collect()
        self.opset_imports = opset_imports
        self._context = _Context(opset_imports, policy="refine")
        self._context.reserve_symbol_names(_symbol_names(graph.inputs))
        self._contexts: dict[int, _Context] = {}
        self._infer_graph(graph)

    # -- what is known ---------------------------------------------------------------------------------------

    @staticmethod
    def dtype(value: ir.Value) -> ir.DataType | None:
        """The element type of a tensor; None when unknown or no tensor."""
        return value.dtype if isinstance(value.type, ir.TensorType) else None

    @staticmethod
    def shape(value: ir.Value) -> tuple[Dim, ...] | None:
        """The dimensions, each an int or a symbolic dimension; None when the rank is unknown."""
        return None if value.shape is None else value.shape.dims

    @staticmethod
    def rank(value: ir.Value) -> int | None:
        """The number of dimensions; None when unknown."""
        return None if value.shape is None else len(value.shape)

    @staticmethod
    def tensor(value: ir.Value) -> ir.TensorProtocol | None:
        """The constant tensor behind a value, not loaded; None when the value is not constant."""
        return value.const_value

    def constant(self, value: ir.Value) -> np.ndarray | None:
        """The constant behind a value as an array in its own dtype; None when the value is not constant."""
        tensor = self.tensor(value)
        return None if tensor is None else tensor.numpy()

    def elements(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """The elements of an integer tensor of rank 0 or 1, symbolic where they are dimensions."""
        known = self._context.get_symbolic_value(value)
        return None if known is None else tuple(known)

    def version(self, node: ir.Node) -> int:
        """The opset version that a node is written for: its own, or the model's."""
        if node.version is not None:
            return node.version
        return self.opset_imports.get(node.domain, 1)

    def symbols(self) -> frozenset[str]:
        """The names of dimensions that inference made up, for it could not tell them."""
        names: frozenset[str] = self._context.generated_dim_names
        return names

    def is_newer(self, node: ir.Node) -> bool:
        """Whether a node is written for a newer opset than the model's, so that it has to be lowered."""
        return node.version is not None and node.version > self.opset_imports.get(node.domain, node.version)

    def nbytes(self, value: ir.Value) -> int | None:
        """The size of a tensor in bytes; None when a dimension or the dtype is unknown."""
        shape, dtype = self.shape(value), self.dtype(value)
        if shape is None or dtype is None or not all(isinstance(d, int) for d in shape):
            return None
        return math.ceil(math.prod(int(d) for d in shape) * dtype.bitwidth / 8)  # type: ignore[arg-type]

    def is_deterministic(self, node: ir.Node) -> bool:
        """Whether a node computes the same from the same inputs, for certain."""
        return not schema.is_random(node, self.opset_imports.get(""))

    def twin(self, node: ir.Node) -> ir.Node | None:
        """Another node of the same operator, attributes and inputs; that is not yet to say that it is not random."""
        return twins.twin(node)

    # -- keeping it current ----------------------------------------------------------------------------------

    def infer(self, node: ir.Node) -> bool:
        """Infer the outputs of one node; whether they became sharper."""
        before = [(o.type, o.shape, self._context._symbolic_values.get(o)) for o in node.outputs]
        own = elements.RULES.get(node.op_type) if node.domain == "" else None
        version = self.version(node)
        infer = inference.registry.get(node.domain, node.op_type, version=version)
        context = self._context_for(node, version)
        try:
            if infer is not None:
                infer(context, node)
            if own is not None:
                if node.op_type in elements.REPLACED:
                    node.outputs[0].shape = before[0][1]
                own(context, node)
        except Exception as error:  # a library's failure on one operator must not lose the rest of the model
            logging.getLogger(__name__).debug("no facts for %s %s: %s", node.op_type, node.name, error)
        for output in node.outputs:
            self._context.name_anonymous_dims(output)
            if output.shape is not None:
                output.shape = ir.Shape([plain(d) for d in output.shape])
        after = [(o.type, o.shape, self._context._symbolic_values.get(o)) for o in node.outputs]
        return before != after

    def refresh(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Infer ``nodes``, then all consumers that their news reaches; the nodes whose outputs became sharper."""
        changed: dict[ir.Node, None] = {}
        queue = list(nodes)
        while queue:
            node = queue.pop(0)
            if self.infer(node) and node not in changed:
                changed[node] = None
                for output in node.outputs:
                    queue.extend(output.consumers())
        return list(changed)

    def inherit(self, new: ir.Value, old: ir.Value) -> bool:
        """Give ``new``, which replaces ``old`` and equals it, what was known about ``old``; whether it learnt anything."""
        known = self._context._symbolic_values
        learnt = False
        if new is old:
            return False
        if new.type is None and old.type is not None:
            new.type, learnt = old.type, True
        if old.shape is not None:
            if new.shape is None:
                new.shape, learnt = old.shape.copy(), True
            elif len(new.shape) == len(old.shape):
                dims = [self._sharper(a, b) for a, b in zip(new.shape, old.shape, strict=True)]
                learnt |= dims != list(new.shape)
                new.shape = ir.Shape(dims)
        if old in known and new not in known:
            known[new], learnt = known[old], True
        return learnt

    def _sharper(self, a: Dim, b: Dim) -> Dim:
        """Of two names for one size the one that says more: a number, then a name that the model gave."""
        if isinstance(a, int) or not isinstance(b, ir.SymbolicDim):
            return a if isinstance(a, int) else b
        made_up = self.symbols()
        return b if a.free_symbols() & made_up and not b.free_symbols() & made_up else a

    def forget(self, value: ir.Value) -> None:
        """Drop what is kept about a value that left the graph."""
        self._context._symbolic_values.pop(value, None)

    def _context_for(self, node: ir.Node, version: int) -> _Context:
        """The context with the opset that ``node`` is written for; all of them share what they know."""
        if node.version is None or node.version == self.opset_imports.get(node.domain):
            return self._context
        if version not in self._contexts:
            context = _Context({**self.opset_imports, "": version}, policy="refine", allocator=self._context._allocator)
            context._symbolic_values = self._context._symbolic_values
            self._contexts[version] = context
        return self._contexts[version]

    def _infer_graph(self, graph: ir.Graph | ir.Function) -> None:
        for value in graph.inputs:
            self._context.name_anonymous_dims(value)
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                if value.const_value is not None:
                    value.shape = ir.Shape(value.const_value.shape)
                    value.dtype = value.const_value.dtype
        for node in graph:
            for subgraph in subgraphs(node):
                self._infer_graph(subgraph)
            declared = [(o.type, o.shape) for o in node.outputs]
            for output in node.outputs:
                output.type, output.shape = None, None
            if node.op_type == "Constant" and node.domain == "":
                node.outputs[0].const_value = ir.convenience.get_const_tensor(node.outputs[0])
            self.infer(node)
            for output, (kind, shape) in zip(node.outputs, declared, strict=True):
                self._believe(output, kind, shape)

    def _believe(self, value: ir.Value, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
        """Fall back on the file's own word for a value that could not be inferred: type and rank, not sizes,
        for exporters write the sizes of the example they traced."""
        if value.type is None:
            value.type = kind
        if value.shape is None and shape is not None:
            value.shape = ir.Shape([None] * len(shape))
            self._context.name_anonymous_dims(value)


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are provably equal."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    if a.value is None or b.value is None:
        return False
    return a.value == b.value or bool((a - b).simplify() == ir.SymbolicDim("0"))


def same_shape(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    """Whether two shapes are known and provably equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(same_dim(x, y) for x, y in zip(a, b, strict=True))


def plain(dim: Dim) -> Dim:
    """A symbolic dimension that is a number after all, such as the expression ``6``, as that number."""
    if isinstance(dim, ir.SymbolicDim) and dim.value is not None and dim.value.lstrip("-").isdigit():
        return int(dim.value)
    return int(dim) if not isinstance(dim, ir.SymbolicDim) else dim


def _symbol_names(values: Iterable[ir.Value]) -> set[str]:
    return {str(d) for v in values if v.shape is not None for d in v.shape if isinstance(d, ir.SymbolicDim)}
