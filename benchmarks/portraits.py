"""Portraits: graphs as they are compared with one another, by what is computed and not by how it is said.

Two graphs are the same where they are isomorphic: operators, attributes, wiring, names of inputs, and constants but for
rounding.  Names of what is inside, metadata, and the order of the operands of ``+`` do not count.  Nor does what is the
same operator on the same operands, said in another way:

- an attribute at its default, whether it is written, left out, or of an opset that has not got it yet;
- axes that are counted from the other end;
- axes of size 1 in front of a constant that is broadcast;
- a constant weight of Gemm that is stored the other way round;
- a sum or a product in another order, where nothing else reads what is in between;
- a division by a constant as a product with its inverse, and a comparison read from the other side;
- a piece of an axis by a Slice or by a Split, which the lower stage makes of the Slices;
- a Reshape, Flatten, Squeeze or Unsqueeze to a constant shape: each is a view, told by the shape that it makes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.io.statistics import operator_name
from onnxrewrite.ir import views
from onnxrewrite.ir.dims import same_dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import constant_tensor
from onnxrewrite.ir.operators import operators
from onnxrewrite.ir.schema import attribute, schema
from onnxrewrite.pattern.look import COMMUTATIVE
from onnxrewrite.pattern.paths import only_reader

Array: TypeAlias = np.ndarray[Any, Any]

_ROUNDING = 1e-5
"""Constants may differ by so much of the largest element: factors are folded into them in one order or another."""

_SHOWN = 6
"""So many numbers of a constant are shown."""

_BROADCAST = frozenset(operators("broadcast"))
_REDUCE = frozenset(operators("reduce"))
_CHAINS = ("Add", "Mul")
_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
_VIEW = frozenset(operators("view"))
_BY_AXIS = frozenset("Concat Gather Split Softmax LogSoftmax LayerNormalization RMSNormalization".split())
"""Operators whose ``axis`` is counted among those of the first operand."""


@dataclass(eq=False)
class Portrait:
    """A graph as it is compared with others.

    Two graphs of equal ``shades`` and ``outputs`` are isomorphic, as long as no shade occurs twice: a node is found in
    the other graph by its shade.  ``merge-equal-nodes`` sees to that.

    Attributes:
        shades: Of each node, a number that is shared by all nodes that compute the same from the same.
        outputs: The shade of each output.
        nodes: A node in words, by shade, in the order in which they are computed.
        operators: The number of times that each operator occurs.
    """

    shades: Counter[int]
    outputs: tuple[int, ...]
    nodes: dict[int, str]
    operators: Counter[str]

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Portrait) and self.shades == other.shades and self.outputs == other.outputs

    def distance(self, other: Portrait) -> int:
        """By how many operators they differ."""
        return ((self.operators - other.operators) + (other.operators - self.operators)).total()

    def difference(self, other: Portrait) -> str:
        """The operators that the other has more and less, and the first node of each that is not in the other."""
        more, less = other.operators - self.operators, self.operators - other.operators
        counts = [f"{sign}{n} {name}" for sign, each in (("+", more), ("-", less)) for name, n in sorted(each.items())]
        here, there = self._beyond(other), other._beyond(self)
        return f"{' '.join(counts) or 'operators equal'}; {there} for {here}"

    def _beyond(self, other: Portrait) -> str:
        return next((text for shade, text in self.nodes.items() if shade not in other.shades), "nothing")


@dataclass
class Studio:
    """Makes portraits that can be compared with each other."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _constants: defaultdict[Hashable, list[Array]] = field(default_factory=lambda: defaultdict(list))

    def portrait(self, model: ir.Model) -> Portrait:
        """The portrait of ``model``, node by node; a node with a subgraph equals no other."""
        sitting = _Sitting(self, Facts(model.graph, model.opset_imports))
        for node in model.graph:
            if node.op_type != "Constant":
                sitting.add(node)
        found = sitting.found
        found.outputs = tuple(sitting.shade(v) for v in model.graph.outputs)
        return found

    def shade(self, array: Array) -> int:
        """The number of a constant."""
        return self.number(("constant", self._constant(array)))

    def number(self, label: Hashable) -> int:
        """The number of what is described by a label, the same for equal ones."""
        return self._numbers.setdefault(label, len(self._numbers))

    def setting(self, value: Any) -> Hashable:
        """An attribute's value as a part of a label."""
        return self._constant(np.array(value, np.float32)) if isinstance(value, float) else str(value)

    def _constant(self, array: Array) -> Hashable:
        """A key of a constant, the same for constants of its kind that differ by rounding only."""
        kind = array.dtype, array.shape
        known = self._constants[kind]
        place = next((i for i, each in enumerate(known) if _close(each, array)), len(known))
        if place == len(known):
            known.append(array)
        return *kind, place


class _Sitting:
    """A graph that is being portrayed.

    Attributes:
        found: Its portrait, as far as it goes.
    """

    def __init__(self, studio: Studio, facts: Facts):
        self.found = Portrait(Counter(), (), {}, Counter())
        self._studio = studio
        self._facts = facts
        self._shades: dict[ir.Value | None, int] = {None: studio.number(None)}
        self._within: dict[ir.Value | None, list[int]] = {}
        """The operands of a sum within another one, and likewise of a product."""

    def shade(self, value: ir.Value | None) -> int:
        """The number of a value that is computed, of an input, or of a constant."""
        if value not in self._shades:
            assert value is not None
            tensor, free = constant_tensor(value), ("input", value.name)
            self._shades[value] = self._studio.number(free) if tensor is None else self._studio.shade(tensor.numpy())
        return self._shades[value]

    def add(self, node: ir.Node) -> None:
        """Add a node; those that it reads are there."""
        pieces = _pieces(node, self._facts)
        if pieces:
            for value, piece in pieces.items():
                along = piece.axis, piece.elements
                self._count("Piece", self._studio.number(("Piece", along, self.shade(piece.source))), node, [value])
            return
        term = _term(node, self._facts)
        operands = [number for v in term.operands for number in self._operand(v)]
        if _is_inner(node):
            self._within[node.outputs[0]] = operands
            self.found.operators[term.name] += 1
            return
        settings = tuple((name, self._studio.setting(value)) for name, value in term.settings)
        ordered = sorted(operands) if term.name in COMMUTATIVE else operands
        made = self._studio.number((term.name, settings, *ordered))
        self._count(term.name, made, node, node.outputs)

    def _operand(self, given: ir.Value | Array | None) -> list[int]:
        if isinstance(given, np.ndarray):
            return [self._studio.shade(given)]
        return self._within[given] if given in self._within else [self.shade(given)]

    def _count(self, name: str, made: int, node: ir.Node, outputs: Sequence[ir.Value]) -> None:
        self._shades |= {o: self._studio.number((made, place)) for place, o in enumerate(outputs)}
        self.found.shades[made] += 1
        self.found.operators[name] += 1
        self.found.nodes.setdefault(made, _described(node))


def _pieces(node: ir.Node, facts: Facts) -> dict[ir.Value, views.Piece]:
    """What a Slice or a Split cuts out of an axis, and is needed; none where that is not known of all."""
    needed = [o for o in node.outputs if o.uses() or o.is_graph_output()]
    found = {o: views.piece_of(facts, o) for o in needed}
    known = {o: piece for o, piece in found.items() if not isinstance(piece, str)}
    return known if len(known) == len(found) else {}


def _is_inner(node: ir.Node) -> bool:
    """True for a sum that is a term of another one and of nothing else, and likewise for a product."""
    value = node.outputs[0]
    reader = only_reader(value)
    is_same = reader is not None and _same_chain(node) == _same_chain(reader) in _CHAINS
    return is_same and value.dtype is not None and value.dtype.is_floating_point()


def _same_chain(node: ir.Node) -> str:
    """What kind of chain a node is a part of: its operator, that of a product for a division by a constant."""
    return "Mul" if _inverse(node) is not None else operator_name(node)


def _inverse(node: ir.Node) -> Array | None:
    """The inverse of the constant that a node divides floats by; None for another node."""
    divisor = node.inputs[1] if not node.domain and node.op_type == "Div" else None
    tensor = constant_tensor(divisor) if divisor is not None else None
    array = tensor.numpy() if tensor is not None and tensor.dtype.is_floating_point() else None
    return None if array is None or not array.all() else np.asarray(1 / array.astype(np.float64), array.dtype)


def _close(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f" or not a.size:
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=0, atol=_ROUNDING * float(np.abs(a[np.isfinite(a)]).max(initial=0)), equal_nan=True)


@dataclass
class _Term:
    """A node as it is compared: a name, attributes that are not at their default, and values or constants."""

    name: str
    settings: list[tuple[str, Any]]
    operands: list[ir.Value | Array | None]


def _term(node: ir.Node, facts: Facts) -> _Term:
    """A node, whichever way it is said."""
    plain = _Term(operator_name(node), list(_attributes(node, facts)), list(node.inputs))
    if node.domain:
        return plain
    if node.op_type in _REDUCE:
        return _reduction(node, facts) or plain
    if node.op_type in _VIEW:
        return _view(node, facts) or plain
    if node.op_type in _BROADCAST:
        return _elementwise(node, replace(plain, operands=_broadcast(node, facts)))
    if node.op_type == "Gemm":
        return _gemm(node, plain, facts)
    if node.op_type in _BY_AXIS:
        axis = views.axis_of(facts, node, facts.rank(node.inputs[0]) if node.inputs[0] is not None else None)
        return replace(plain, settings=[*(s for s in plain.settings if s[0] != "axis"), ("axis", axis)])
    return plain


def _attributes(node: ir.Node, facts: Facts) -> Iterator[tuple[str, Any]]:
    """Names and values of attributes that are not what they are by default in the newest opset."""
    version = facts.version(node)
    found, newest = schema(node.domain, node.op_type, version), schema(node.domain, node.op_type, None)
    for name in sorted({*node.attributes, *(found.attributes if found is not None else ())}):
        value = attribute(node, name, version)
        known = newest.attributes.get(name) if newest is not None else None
        if value is not None and (known is None or value != known.default):
            yield name, value


def _reduction(node: ir.Node, facts: Facts) -> _Term | None:
    found = views.reduce_of(facts, node)
    if isinstance(found, str):
        return None
    others = [s for s in _attributes(node, facts) if s[0] not in ("axes", "axis", "keepdims", "noop_with_empty_axes")]
    return _Term(node.op_type, [*others, ("along", (sorted(found.axes), found.keepdims))], [found.source])


def _view(node: ir.Node, facts: Facts) -> _Term | None:
    """A view by the sizes of its result, those of its operand by their axis; None where they are computed."""
    x = node.inputs[0]
    before, after = (None if v is None else facts.shape(v) for v in (x, node.outputs[0]))
    is_computed = any(v is not None and constant_tensor(v) is None for v in node.inputs[1:])
    if before is None or after is None or is_computed:
        return None
    sizes: list[Hashable] = []
    for d in after:
        same = next((i for i, each in enumerate(before) if same_dim(each, d)), None)
        if isinstance(d, ir.SymbolicDim) and same is None and facts.is_made_up(d):
            return None
        sizes.append(d if isinstance(d, int) else str(d) if same is None else f"axis {same}")
    return _Term("View", [("shape", sizes)], [x])


def _elementwise(node: ir.Node, plain: _Term) -> _Term:
    """A division by a constant as a product, a comparison as that by which its second operand is the larger."""
    first, second = (*plain.operands, None)[:2]
    inverse = _inverse(node)
    if inverse is not None:
        divisor = second if isinstance(second, np.ndarray) else inverse
        return replace(plain, name="Mul", operands=[first, inverse.reshape(divisor.shape)])
    turned = _TURNED.get(node.op_type)
    return plain if turned is None else replace(plain, name=turned, operands=[second, first])


def _broadcast(node: ir.Node, facts: Facts) -> list[ir.Value | Array | None]:
    """Operands, constants among them without the axes of size 1 in front that another operand has."""
    ranks = [facts.rank(v) for v in node.inputs if v is not None and constant_tensor(v) is None]
    widest = max((r for r in ranks if r is not None), default=0)
    made: list[ir.Value | Array | None] = []
    for value in node.inputs:
        tensor = constant_tensor(value) if value is not None else None
        if tensor is None or len(tensor.shape) > widest:
            made.append(value)
            continue
        array = tensor.numpy()
        ones = next((i for i, d in enumerate(array.shape) if d != 1), array.ndim)
        made.append(array.reshape(array.shape[ones:]))
    return made


def _gemm(node: ir.Node, plain: _Term, facts: Facts) -> _Term:
    weight = node.inputs[1]
    tensor = constant_tensor(weight) if weight is not None else None
    if tensor is None or not attribute(node, "transB", facts.version(node)):
        return plain
    settings = [s for s in plain.settings if s[0] != "transB"]
    return replace(plain, settings=settings, operands=[node.inputs[0], tensor.numpy().T, *node.inputs[2:]])


def _described(node: ir.Node) -> str:
    operands = (("" if v is None else _value(v)) for v in node.inputs)
    settings = "".join(f" {a.name}={a.value}" for a in node.attributes.values())
    return f"{operator_name(node)}({', '.join(operands)}{settings})"


def _value(value: ir.Value) -> str:
    producer, tensor = value.producer(), constant_tensor(value)
    if tensor is not None:
        numbers = ", ".join(f"{x:g}" for x in tensor.numpy().ravel()[:_SHOWN])
        return f"{{{numbers}}}" if tensor.size <= _SHOWN else f"{tensor.dtype.name.lower()}{list(tensor.shape)}"
    return f"{operator_name(producer)}(…)" if producer is not None else f"{value.name}"
