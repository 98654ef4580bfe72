"""A place as a graph in text form of small sizes, weights left out: the example that a rule is read and tested by.

Sizes are replaced by small ones so that products stay products; where the graph does not run like that, it keeps its
own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.naming import Names, of_step
from onnxrewrite.authoring.occurrences import Place
from onnxrewrite.authoring.staged_model import in_example, matched
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.inputs.workload import workload
from onnxrewrite.ir import text
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.skip_identity import resolve
from onnxrewrite.ir.text.printer import INLINE_ELEMENTS, Printer
from onnxrewrite.pattern.numbers import is_product
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.system.arrays import Floats

_SMALL = 8
"""Sizes up to this stay."""

_COUNTS = frozenset("split group num_heads q_num_heads kv_num_heads num_groups hidden_size".split())
"""Attributes that are sizes."""

_DIGITS = 2
"""Of the numbers in a vector that is written out."""


@dataclass(frozen=True)
class Cut:
    """An example.

    Attributes:
        text: The graph.
        opset: Its opset.
        runs: True if it runs on inputs made up for it.
    """

    text: str
    opset: int
    runs: bool


def cut(
    place: Place, facts: Facts, names: Mapping[ir.Value, str], rule: Rule, *, keeps_products: bool = False
) -> Cut | None:
    """A place in text.

    Args:
        place: The place of the region.
        facts: The facts about that graph.
        names: The names of the values that are captured.
        rule: The rule whose example it is.
        keeps_products: True if a vector that is the product of two constants is to stay that: as others, it is rounded.

    Returns:
        The example, at small sizes if it runs at these; None if the rule's pattern is not found in it.
    """
    opset = facts.opset_imports.get("", 1)
    sizes = _sizes(place, facts)
    choices: tuple[dict[int, int], ...] = _small_sizes(sizes), _small_sizes(sizes - _products_of_small(sizes)), {}
    texts = [_Writer(place, facts, names, choice, keeps_products).text() for choice in choices]
    matching = [text for text in texts if _matches(rule, text, opset)]
    running = next((text for text in matching if _runs(text, opset)), None)
    if running is not None:
        return Cut(running, opset, True)
    return Cut(matching[0], opset, False) if matching else None


def snippet(model: ir.Model, declared: str = "") -> str:
    """A model as the text of an example: what is fed, then a line for each node.

    Args:
        model: The model.
        declared: Lines that declare its inputs and weights, where there is a text already.
    """
    printer = Printer(canonical=False, opsets=model.opset_imports)
    inputs = [f"{printer.declared(v)};" for v in model.graph.inputs] if not declared else declared.splitlines()
    nodes = list(model.graph)
    names = [n.name for n in nodes]
    for node in nodes:
        node.name = None
    lines = [line.strip() for node in nodes for line in printer.node(node)]
    for node, name in zip(nodes, names, strict=True):
        node.name = name
    return "\n".join([*inputs, *lines])


def declarations(text: str) -> str:
    """The lines of an example that declare inputs and weights."""
    return "\n".join(line for line in text.splitlines() if line.endswith((";", "~")))


def _matches(rule: Rule, graph: str, opset: int) -> bool:
    try:
        return bool(matched(rule, in_example(rule, graph, opset)))
    except OnnxRewriteError:
        return False


def _runs(graph: str, opset: int) -> bool:
    try:
        workload(io.load(text.parse(graph, opset=opset)))
    except OnnxRewriteError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------- sizes


def _sizes(place: Place, facts: Facts) -> set[int]:
    """The sizes that occur at a place."""
    found: set[int] = set()
    nodes = list(place.nodes.values())
    for value in dict.fromkeys(v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None):
        found.update(d for d in facts.shape(resolve(value)) or () if isinstance(d, int))
        if _may_be_sizes(resolve(value), facts):
            found.update(e for e in facts.elements(resolve(value)) or () if isinstance(e, int))
    for node in nodes:
        found.update(i for a in node.attributes.values() if a.name in _COUNTS for i in _whole(a))
    return {size for size in found if 1 < size < 2**31 - 1}


def _whole(attribute: ir.Attr) -> list[int]:
    if attribute.is_ref() or attribute.type not in (ir.AttributeType.INT, ir.AttributeType.INTS):
        return []
    return list(attribute.value) if attribute.type == ir.AttributeType.INTS else [attribute.value]


def _small_sizes(sizes: set[int]) -> dict[int, int]:
    """Small sizes in the place of large ones: where one is the product of others, its replacement is that of theirs,
    and what a small size that occurs divides, it still divides."""
    found: dict[int, int] = {}
    used: set[int] = set()
    large = sorted(size for size in sizes if size > _SMALL)
    for size in large:
        factor = next(
            (f for f in reversed(found) if size % f == 0 and (size // f in found or size // f <= _SMALL)), None
        )
        if factor is not None:
            found[size] = found[factor] * found.get(size // factor, size // factor)
        else:
            least = math.lcm(2, *(s for s in sizes if s <= _SMALL and size % s == 0))
            multiples = (n * least for n in range(-(-_SMALL // 2 // least), size + 1))
            found[size] = next((n for n in multiples if n not in used), size)
        used.add(found[size])
    return found


def _products_of_small(sizes: set[int]) -> set[int]:
    """The products of two sizes that stay, as the 49 rows of seven by seven patches."""
    small = [size for size in sizes if size <= _SMALL]
    return {one * other for one in small for other in small}


def _may_be_sizes(value: ir.Value, facts: Facts) -> bool:
    """True for a value of a dtype and a rank that shapes and places have: a zero point of 12 is no size."""
    rank = facts.rank(value)
    return facts.dtype(value) in (ir.DataType.INT32, ir.DataType.INT64) and rank is not None and rank <= 1


# ------------------------------------------------------------------------------------------------------ writing


class _Writer:
    """Writes one place at one choice of sizes."""

    def __init__(
        self,
        place: Place,
        facts: Facts,
        names: Mapping[ir.Value, str],
        sizes: Mapping[int, int],
        keeps_products: bool,
    ):
        self._place = place
        self._facts = facts
        self._given = names
        self._sizes = sizes
        self._keeps_products = keeps_products
        self._names = Names(names.values())
        self._copies: dict[ir.Value, ir.Value] = {}
        self._inputs: list[ir.Value] = []
        self._constants: list[ir.Value] = []
        self._dummies: list[str] = []
        self._made: list[ir.Node] = []
        self._letters: dict[str, ir.SymbolicDim] = {}

    def text(self) -> str:
        """Declarations, then a line for each node."""
        for node in self._place.nodes.values():  # an order that suits the region suits the place
            made = self._node(node)
            self._made.append(made)
        nodes = self._made
        outputs = [o for n in nodes for o in n.outputs]
        graph = ir.Graph(
            self._inputs, outputs, nodes=nodes, initializers=self._constants, opset_imports=self._facts.opset_imports
        )
        for node in nodes:
            node.name = None  # the graph has given it one
        printer = Printer(canonical=False, opsets=graph.opset_imports)
        lines = [f"{printer.declared(v)};" for v in self._inputs]
        return "\n".join([*lines, *self._dummies, *(line.strip() for n in nodes for line in printer.node(n))])

    def _node(self, node: ir.Node) -> ir.Node:
        inputs = [None if v is None else self._value(resolve(v), node) for v in node.inputs]
        attributes = [self._attribute(a) for a in node.attributes.values()]
        made = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs), name="")
        for old, new in zip(node.outputs, made.outputs, strict=True):
            is_last = old in self._place.outputs and len(self._place.outputs) == 1
            is_used = bool(old.uses()) or old.is_graph_output()
            new.name = self._names.fresh("y" if is_last else of_step(node)) if is_used else ""
            self._copies[old] = new
        return made

    def _attribute(self, attribute: ir.Attr) -> ir.Attr:
        if attribute.name not in _COUNTS or not _whole(attribute):
            return attribute
        sizes = [self._size(i) for i in _whole(attribute)]
        return ir.Attr(attribute.name, attribute.type, sizes if attribute.type == ir.AttributeType.INTS else sizes[0])

    # -- what is read from outside ---------------------------------------------------------------------------

    def _value(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if value not in self._copies:
            tensor = self._facts.tensor(value)
            elements = self._target(value, reader) if tensor is None else None
            shaped = self._shaped_like(value) if tensor is None and elements is None else None
            if tensor is not None:
                self._copies[value] = self._constant(value, tensor)
            elif shaped is not None:
                self._copies[value] = shaped
            elif elements is not None:
                self._copies[value] = self._initializer(value, np.array(elements, np.int64))
            else:
                self._copies[value] = self._copy(value)
                self._inputs.append(self._copies[value])
        return self._copies[value]

    def _copy(self, value: ir.Value) -> ir.Value:
        shape = self._facts.shape(value)
        dims = None if shape is None else ir.Shape([self._size(d) for d in shape])
        return ir.Value(name=self._name(value), type=value.type, shape=dims)

    def _name(self, value: ir.Value) -> str:
        return self._given.get(value) or self._names.fresh("c")

    def _size(self, dim: Dim) -> Dim:
        """A number that is small, or a name; what is computed outside gets a name of its own."""
        if isinstance(dim, int):
            return self._sizes.get(dim, dim)
        if str(dim).isidentifier():
            return dim
        return self._letters.setdefault(str(dim), ir.SymbolicDim(f"n{len(self._letters) + 1}"))

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        """A constant of the new sizes: cut to size, and rounded, where it is short, else made up."""
        if tensor.dtype == ir.DataType.STRING:
            return self._as_it_is(value, tensor)
        shape = [self._sizes.get(d, d) for d in tensor.shape.numpy()]
        is_float = tensor.dtype.is_floating_point()
        if np.prod(shape) > INLINE_ELEMENTS:
            made = ir.Value(name=self._name(value), type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape))
            dims = ",".join(map(str, shape))
            self._dummies.append(f"{made.name} = {tensor.dtype.name.lower()}[{dims}] ~")
            return made
        factors = self._products.get(value) if self._keeps_products else None
        array = tensor.numpy()[tuple(slice(0, d) for d in shape)]
        if factors is not None:
            array = np.asarray(math.prod(map(self._written, factors))).reshape(array.shape)
        elif _may_be_sizes(value, self._facts):
            array = np.array([self._sizes.get(int(e), int(e)) for e in array.ravel()], array.dtype).reshape(array.shape)
        elif is_float and array.size > 1:
            array = np.array([float(f"{e:.{_DIGITS}g}") for e in array.astype(np.float64).ravel()]).reshape(array.shape)
        return self._initializer(value, array, tensor.dtype)

    @cached_property
    def _products(self) -> Mapping[ir.Value, tuple[ir.Value, ir.Value]]:
        """The vectors that are products of two constants, as the scale of a quantized bias is."""
        read = dict.fromkeys(resolve(v) for n in self._place.nodes.values() for v in n.inputs if v is not None)
        tensors = {v: t for v in read if (t := self._facts.tensor(v)) is not None and t.dtype.is_floating_point()}
        found: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        factors = set[ir.Value]()
        for value, tensor in tensors.items():
            others = [v for v, t in tensors.items() if t.size in (1, tensor.size) and v not in (value, *found)]
            for pair in itertools.combinations(others if len(tensor.shape) == 1 and value not in factors else (), 2):
                if is_product(self._facts, value, *pair):
                    found[value] = pair
                    factors.update(pair)
                    break
        return found

    def _written(self, constant: ir.Value) -> Floats:
        """A constant as it is written."""
        tensor = self._facts.tensor(constant)
        assert tensor is not None
        if constant not in self._copies:
            self._copies[constant] = self._constant(constant, tensor)
        written = self._copies[constant].const_value
        return np.asarray(tensor.numpy() if written is None else written.numpy(), np.float64)

    def _initializer(self, value: ir.Value, array: np.ndarray, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        return self._as_it_is(value, ir.tensor(array.astype(dtype.numpy()), dtype=dtype))

    def _as_it_is(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        made = ir.Value(name=self._name(value), type=ir.TensorType(tensor.dtype), const_value=tensor)
        self._constants.append(made)
        return made

    def _shaped_like(self, value: ir.Value) -> ir.Value | None:
        """A shape that is computed, as that of something that is read before it; None for what is no such shape."""
        elements = self._facts.elements(value)
        if elements is None or self._facts.rank(value) != 1:
            return None
        known = (v for v in self._copies if self._facts.shape(v) == elements)
        source = next(known, None)
        if source is None:
            return None
        made = ir.Node("", "Shape", [self._copies[source]])
        made.outputs[0].name = self._name(value)
        self._made.append(made)
        return made.outputs[0]

    def _target(self, value: ir.Value, reader: ir.Node) -> list[int] | None:
        """The elements of a shape that is computed: what is as it was is 0, one that is not known -1."""
        elements = self._facts.elements(value)
        if elements is None or value is not resolve(reader.inputs[-1] or value):
            return None
        data = self._facts.shape(resolve(reader.inputs[0])) if reader.inputs[0] is not None else None
        same = {"Reshape": 0, "Expand": 1}.get(reader.op_type)
        found: list[int] = []
        for place, element in enumerate(elements):
            if isinstance(element, int):
                found.append(self._sizes.get(element, element))
            elif same is not None and data is not None and place < len(data) and data[place] == element:
                found.append(same)
            elif reader.op_type == "Reshape" and -1 not in found:
                found.append(-1)
            else:
                return None
        return found
