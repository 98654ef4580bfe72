"""Portraits: graphs as they are compared with one another, by what is computed and not by how it is said.

Two graphs are the same where they are isomorphic: operators, attributes, wiring, names of inputs, and constants but for
rounding.  Names of what is inside, metadata, and the order of the operands of ``+`` do not count.  Nor does what is the
same operator on the same operands, said in another way:

- an attribute at its default, whether it is written, left out, or of an opset that has not got it yet;
- axes that are counted from the other end;
- axes of size 1 in front of a constant that is broadcast;
- a constant weight of Gemm that is stored the other way round;
- a Reshape, Flatten, Squeeze or Unsqueeze to a constant shape: each is a view, told by the shape that it makes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
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

Array: TypeAlias = np.ndarray[Any, Any]

_ROUNDING = 1e-5
"""Constants may differ by so much of the largest element: factors are folded into them in one order or another."""

_SHOWN = 6
"""So many numbers of a constant are shown."""

_BROADCAST = frozenset(operators("broadcast"))
_REDUCE = frozenset(operators("reduce"))
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
        shades: dict[ir.Value | None, int] = {None: self._number(None)}
        found = Portrait(Counter(), (), {}, Counter())

        def shade(value: ir.Value | None) -> int:
            if value not in shades:
                assert value is not None
                tensor = constant_tensor(value)
                free = ("input", value.name)
                shades[value] = self._number(free) if tensor is None else self._shade(tensor.numpy())
            return shades[value]

        facts = Facts(model.graph, model.opset_imports)
        for node in model.graph:
            if node.op_type == "Constant":
                continue
            term = _term(node, facts)
            operands = [shade(v) if not isinstance(v, np.ndarray) else self._shade(v) for v in term.operands]
            settings = tuple((name, self._setting(value)) for name, value in term.settings)
            ordered = sorted(operands) if term.name in COMMUTATIVE else operands
            made = self._number((term.name, settings, *ordered))
            shades |= {o: self._number((made, place)) for place, o in enumerate(node.outputs)}
            found.shades[made] += 1
            found.operators[term.name] += 1
            found.nodes.setdefault(made, _described(node))
        found.outputs = tuple(shade(v) for v in model.graph.outputs)
        return found

    def _shade(self, array: Array) -> int:
        return self._number(("constant", self._constant(array)))

    def _number(self, label: Hashable) -> int:
        return self._numbers.setdefault(label, len(self._numbers))

    def _setting(self, value: Any) -> Hashable:
        return self._constant(np.array(value, np.float32)) if isinstance(value, float) else str(value)

    def _constant(self, array: Array) -> Hashable:
        """A key of a constant, the same for constants of its kind that differ by rounding only."""
        kind = array.dtype, array.shape
        known = self._constants[kind]
        place = next((i for i, each in enumerate(known) if _close(each, array)), len(known))
        if place == len(known):
            known.append(array)
        return *kind, place


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
        return replace(plain, operands=_broadcast(node, facts))
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
