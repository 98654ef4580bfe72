"""Facts about values: dtype, shape with symbolic dimensions, constants, elements of shape tensors.

Facts are kept on the values themselves (``value.dtype``, ``value.shape``) and in one inference context, node
by node, so that a rewrite costs the inference of its own nodes and of the consumers whose facts it made
sharper. ``onnx_shape_inference`` knows the operators; ``symbolic_elements.py`` and ``shapes.py`` replace what it gets
wrong or leaves out.

Dimensions of one name are equal: that is what ONNX means by ``dim_param``.  An overridable initializer is not
a constant: ``io.models`` takes its default away while the model is worked on, so nothing here can mistake it for
one.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import onnx_ir as ir
import onnx_shape_inference as inference

from onnxrewrite.ir import schema, shapes
from onnxrewrite.ir.dims import UNKNOWN, Dim, declared, is_known, names_in, plain, same_dim, same_shape
from onnxrewrite.ir.graph import dense_tensor, filled, subgraphs
from onnxrewrite.ir.skip_identity import passes
from onnxrewrite.ir.symbolic_elements import LIMIT
from onnxrewrite.ir.value_numbering import ValueNumbering

__all__ = ["Dim", "Facts", "plain", "same_dim", "same_shape"]

# Inference of an operator that it does not know is no news to a user.
logging.getLogger("onnx_shape_inference").setLevel(logging.ERROR)


_NAME = re.compile(r"\w+")

_NO_NUMBERS = (ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
"""The dtypes whose elements are no real numbers."""

_NEWS = 8
"""A node is listened to at most so many times in one refresh."""


class _Context(inference.ShapeInferenceContext):  # type: ignore[misc]
    """The library's context, without its habit of writing what it knows into the model's metadata.

    Elements are kept of integer tensors of rank 0 and 1 only, as many as the tensor has.  While ``mute``,
    nothing is.
    """

    mute = False

    def set_symbolic_value(self, value: ir.Value, data: list[Dim]) -> None:
        if self.mute or not _holds_elements(value, len(data)):
            return
        bits = value.dtype.bitwidth if value.dtype is not None else 0
        new = [d if _fits(d, bits) else UNKNOWN for d in map(plain, data)]
        old = self._symbolic_values.get(value, [])
        if len(old) == len(new):
            new = [n if self.says_more(n, o) else o for o, n in zip(old, new, strict=True)]
        self._symbolic_values[value] = new

    def get_symbolic_value(self, value: ir.Value) -> list[Dim] | None:
        known: list[Dim] | None = self._symbolic_values.get(value)
        tensor = dense_tensor(value) if known is None else None
        if tensor is None:
            return known
        dtype = tensor.dtype
        short = len(tensor.shape) <= 1 and tensor.size <= LIMIT and (dtype.is_integer() or dtype == ir.DataType.BOOL)
        return [int(e) for e in tensor.numpy().ravel()] if short else None

    def says_more(self, new: Dim, old: Dim) -> bool:
        """True if ``new`` is a number, or made of the model's own names, where ``old`` is not."""
        if isinstance(old, int) or isinstance(new, int):
            return not isinstance(old, int)
        invented = self._allocator.generated
        return old.value is None or (is_known(new) and not names_in(new) & invented and bool(names_in(old) & invented))


def _fits(dim: Dim, bits: int) -> bool:
    """True if an element does not wrap around in an integer of ``bits`` bits; symbolic sizes are taken to fit in 32."""
    return -(2 ** (bits - 1)) <= dim < 2**bits if isinstance(dim, int) else bits >= 32


def _holds_elements(value: ir.Value, count: int) -> bool:
    """True if a value can be a shape tensor of ``count`` elements."""
    if value.dtype is None or not (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL):
        return False
    if value.shape is None or len(value.shape) > 1 or count > LIMIT:
        return False
    length = value.shape[0] if len(value.shape) else 1
    return not isinstance(length, int) or length == count


class Facts:
    """The facts about the values of one graph or function, kept current while it changes.

    Args:
        graph: The graph, or the function, whose nodes are inferred at once, subgraphs included.
        opset_imports: Domain to version, for nodes that carry no version of their own.

    """

    def __init__(self, graph: ir.Graph, opset_imports: dict[str, int]):
        inference.registry.collect()
        self.opset_imports = opset_imports
        self._context = _Context(opset_imports, policy="refine")
        self._context.reserve_symbol_names(_symbol_names(graph.inputs))
        self._contexts: dict[int, _Context] = {}
        self._by_elements: dict[tuple[object, ...], ir.Value] = {}
        self._numbering = ValueNumbering()
        self._numbers: dict[int, tuple[ir.TensorProtocol, float | int | None]] = {}
        self._infer_graph(graph)

    # -- what is known ---------------------------------------------------------------------------------------

    @staticmethod
    def dtype(value: ir.Value) -> ir.DataType | None:
        """The element type of a tensor; None when unknown or no tensor."""
        kind = value.type
        return kind.dtype if isinstance(kind, ir.TensorType) else None

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
        """The constant behind a value as an array in its own dtype, read-only, for it is the model's own memory; None
        when the value is not constant."""
        tensor = self.tensor(value)
        if tensor is None:
            return None
        array = tensor.numpy().view()
        array.flags.writeable = False
        return array

    def number(self, tensor: ir.TensorProtocol) -> float | int | None:
        """The real number in a tensor of one element; None for any other tensor."""
        known = self._numbers.get(id(tensor))
        if known is not None:
            return known[1]
        is_number = all(d == 1 for d in tensor.shape) and tensor.dtype not in _NO_NUMBERS
        number: float | int | None = tensor.numpy().reshape(()).item() if is_number else None
        self._numbers[id(tensor)] = tensor, number  # which keeps the tensor, and so its id
        return number

    def elements(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """The elements of an integer tensor of rank 0 or 1, symbolic where they are dimensions."""
        known = self._context.get_symbolic_value(value)
        return None if known is None else tuple(known)

    def version(self, node: ir.Node) -> int:
        """The opset version that a node is written for: its own, or the model's."""
        if node.version is not None:
            return node.version
        return self.opset_imports.get(node.domain, 1)

    def mark(self) -> int:
        """The number of dimensions that inference has made up because they were unknown; for ``made_up_since``."""
        return int(self._context._allocator.counter)

    def made_up_since(self, mark: int) -> frozenset[str]:
        """The names of dimensions that inference has made up since then."""
        generated = self._context._allocator.generated
        return frozenset(n for i in range(mark, self.mark()) if (n := f"_d{i}") in generated)

    def is_made_up(self, dim: ir.SymbolicDim) -> bool:
        """True if inference has made up a name in a dimension."""
        generated = self._context._allocator.generated
        return dim.value is not None and not generated.isdisjoint(_names(dim.value))

    def is_newer(self, node: ir.Node) -> bool:
        """True if a node is written for a newer opset than the model's, so that it has to be lowered."""
        return node.version is not None and node.version > self.opset_imports.get(node.domain, node.version)

    def nbytes(self, value: ir.Value) -> int | None:
        """The size of a tensor in bytes; None when a dimension or the dtype is unknown, and for strings."""
        shape, dtype = self.shape(value), self.dtype(value)
        if dtype is None or dtype == ir.DataType.STRING or shape is None or not all(isinstance(d, int) for d in shape):
            return None
        return math.ceil(math.prod(int(d) for d in shape) * dtype.bitwidth / 8)  # type: ignore[arg-type, misc]

    def is_deterministic(self, node: ir.Node) -> bool:
        """True if a node certainly computes the same from the same inputs."""
        return not schema.is_random(node, self.opset_imports.get(""))

    def twin(self, node: ir.Node) -> ir.Node | None:
        """The first node asked for of the same operator, attributes and inputs; which may be random all the same."""
        return self._numbering.find(node)

    def equal_shape_tensor(self, value: ir.Value) -> ir.Value | None:
        """The first shape tensor of the graph, of those asked for, with the same elements as ``value``."""
        node, known = value.producer(), self._context._symbolic_values.get(value)
        if node is None or known is None or value.shape is None or not all(map(is_known, known)):
            return None
        key = (node.graph, value.dtype, len(value.shape), tuple(map(str, known)))
        first = self._by_elements.setdefault(key, value)
        producer = first.producer()
        if producer is None or producer.graph is not node.graph:
            first = self._by_elements[key] = value
        return None if first is value else first

    # -- keeping it current ----------------------------------------------------------------------------------

    def infer(self, node: ir.Node) -> bool:
        """Infer the outputs of one node; whether they became sharper."""
        before = [self._known(o) for o in node.outputs]
        key = (node.domain, node.op_type)
        own = shapes.RULES.get(key)
        version = self.version(node)
        infer = None if key in shapes.NOT_BELIEVED else self._inference(node, version)
        context = self._context_for(node, version)
        for output in node.outputs:
            output.shape = None
        try:
            with self._constants_shown(node):
                if infer is not None:
                    context.mute = own is not None
                    infer(context, node)
                if own is not None:
                    context.mute = False
                    own(context, node)
        except Exception as error:  # a library's failure on one operator must not lose the rest of the model
            logging.getLogger(__name__).debug("no facts for %s %s: %s", node.op_type, node.name, error)
        context.mute = False
        self._type_by_schema(node, version)
        self._pass_constant(node)
        if key == ("", "ConstantOfShape") and node.outputs[0].const_value is None:
            node.outputs[0].const_value = filled(node)
        for output, (_, shape, *_) in zip(node.outputs, before, strict=True):
            output.shape = self._sharper(shape, output.shape)
            self._context.name_anonymous_dims(output)
        return before != [self._known(o) for o in node.outputs]

    @staticmethod
    def _type_by_schema(node: ir.Node, version: int) -> None:
        """Give outputs of which nothing could be inferred the dtype of the inputs that share their type variable."""
        if all(o.type is not None for o in node.outputs):
            return
        found = schema.schema(node.domain, node.op_type, version)
        if found is None:
            return
        known: dict[str, ir.TypeProtocol] = {}
        for formal, value in zip(found.inputs, node.inputs, strict=False):
            if value is not None and isinstance(value.type, ir.TensorType) and not formal.variadic:
                known.setdefault(formal.type_var, value.type)
        for formal, output in zip(found.outputs, node.outputs, strict=False):
            if output.type is None and not formal.variadic:
                output.type = known.get(formal.type_var)

    @staticmethod
    def _pass_constant(node: ir.Node) -> None:
        """Copy an input's constant to the output that passes the input on as it is."""
        for output in node.outputs[:1]:
            if passes(output) and node.inputs[0] is not None:
                output.const_value = node.inputs[0].const_value

    @staticmethod
    def _inference(node: ir.Node, version: int) -> Callable[[_Context, ir.Node], None] | None:
        """The library's function for an operator, or that of the oldest version that has it.

        ONNX Runtime took LayerNormalization and others before the standard had them.
        """
        get = inference.registry.get
        found: Callable[[_Context, ir.Node], None] | None = get(node.domain, node.op_type, version=version)
        since = None if found is not None else schema.oldest_version(node.domain, node.op_type, version)
        if since is not None:
            found = get(node.domain, node.op_type, version=since)
        return found

    def _known(self, value: ir.Value) -> tuple[ir.TypeProtocol | None, ir.Shape | None, list[Dim] | None, bool]:
        return value.type, value.shape, self._context._symbolic_values.get(value), value.const_value is not None

    @contextlib.contextmanager
    def _constants_shown(self, node: ir.Node) -> Iterator[None]:
        """Let the library see shape tensors whose elements are all numbers as constants."""
        shown = []
        for value in node.inputs:
            known = self._context._symbolic_values.get(value) if value is not None else None
            if known is None or value is None or value.const_value is not None or value.dtype is None:
                continue
            if value.shape is not None and all(isinstance(e, int) for e in known):
                data = np.array(known, dtype=value.dtype.numpy()).reshape([-1] if len(value.shape) else [])
                value.const_value = ir.Tensor(data, dtype=value.dtype)
                shown.append(value)
        try:
            yield
        finally:
            for value in shown:
                value.const_value = None

    def _sharper(self, old: ir.Shape | None, new: ir.Shape | None) -> ir.Shape | None:
        """Two descriptions of one shape merged: of each pair of dimensions the one that says more."""
        if old is None or new is None or len(old) != len(new):
            return new if old is None else old
        if old == new:
            return old
        pairs = zip(old.dims, map(plain, new.dims), strict=True)
        return ir.Shape([b if a != b and self._context.says_more(b, a) else a for a, b in pairs])

    def refresh(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Infer ``nodes``, then all that their news reaches; the nodes whose outputs became sharper.

        News can reach a node by several paths, one after the other, and each of them may have something to add.
        """
        changed: Counter[ir.Node] = Counter()
        queue = dict.fromkeys(nodes)
        while queue:
            node = next(iter(queue))
            del queue[node]
            if self.infer(node) and changed[node] < _NEWS:
                changed[node] += 1
                queue.update(dict.fromkeys(c for o in node.outputs for c in o.consumers()))
        return list(changed)

    def inherit(self, new: ir.Value, old: ir.Value) -> bool:
        """Give ``new``, which equals ``old``, what was known about ``old``; whether it learnt anything."""
        known = self._context._symbolic_values
        learnt = False
        if new is old:
            return False
        if new.type is None and old.type is not None:
            new.type, learnt = old.type, True
        shape = self._sharper(new.shape, old.shape)
        if shape != new.shape:
            new.shape, learnt = shape, True
        if old in known and dense_tensor(new) is None:  # the elements of a constant are known
            before = known.get(new)
            self._context.set_symbolic_value(new, known[old])
            learnt = learnt or known.get(new) != before
        return learnt

    def is_news(self, new: ir.Value, old: ir.Value) -> bool:
        """True if the readers of ``old`` could learn something from reading ``new`` instead."""
        return self._known(new) != self._known(old)

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

    def _infer_graph(self, graph: ir.Graph) -> None:
        for value in graph.inputs:
            if value.shape is not None:
                value.shape = ir.Shape([declared(d) for d in value.shape])
            self._context.name_anonymous_dims(value)
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.shape = ir.Shape(list(value.const_value.shape))  # type: ignore[arg-type]
                value.dtype = value.const_value.dtype
        for node in graph:
            for subgraph in subgraphs(node):
                self._infer_graph(subgraph)
            promised = [(o.type, o.shape) for o in node.outputs]
            for output in node.outputs:
                output.type, output.shape = None, None
            if node.op_type == "Constant" and node.domain == "":
                node.outputs[0].const_value = dense_tensor(node.outputs[0])
            self.infer(node)
            for output, (kind, shape) in zip(node.outputs, promised, strict=True):
                self._believe(output, kind, shape)

    def _believe(self, value: ir.Value, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
        """Fall back on the file's own word for a value that could not be inferred: type and rank, not sizes,
        for exporters write the sizes of the example they traced.
        """
        if value.type is None:
            value.type = kind
        if value.shape is None and shape is not None:
            value.shape = ir.Shape([None] * len(shape))
            self._context.name_anonymous_dims(value)


@functools.lru_cache(maxsize=1 << 14)
def _names(expression: str) -> list[str]:
    """The names in an expression, of which a model has few."""
    return _NAME.findall(expression)


def _symbol_names(values: Iterable[ir.Value]) -> set[str]:
    return {str(d) for v in values if v.shape is not None for d in v.shape if isinstance(d, ir.SymbolicDim)}
