"""All small graphs of a family of operators, and which of them compute the same.

Graphs are made of smaller ones, bottom up.  Of those that compute the same only the cheapest is built upon: what holds
of a part is not found again in the whole.   Bansal and Aiken, Automatic generation of peephole superoptimizers, 2006;
Jia et al., TASO, 2019.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.operators import TRAITS
from onnxrewrite.ir.target import type_string
from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.suite.discovery.graph_families import OPSET, Family, Form
from onnxrewrite.suite.discovery.region_cost import Cost, cost_of
from onnxrewrite.suite.discovery.result_fingerprint import is_same, rounded
from onnxrewrite.suite.discovery.sampled_region import Operand, is_finite
from onnxrewrite.suite.discovery.substitute import Inner, Operator, Read, Substitute, model_of
from onnxrewrite.system.arrays import Array, is_tensor

NODES = 4
"""A small graph has so many nodes at the most."""

_TOGETHER = 500
"""So many graphs are evaluated at a time."""

_COUNTED = 1_000_000
"""What is left out is counted so far."""


@dataclass(frozen=True)
class Term:
    """A small graph of one result.

    Attributes:
        graph: It, over the operands of its family.
        results: What it computes of ordinary numbers, and of numbers among which there are zeros and equal ones.
        value: Its result as an operand of larger ones.
        number: The graphs of a family are numbered as they are met.
    """

    graph: Substitute
    results: tuple[Array, Array] = field(repr=False)
    value: ir.Value = field(repr=False)
    number: int

    @property
    def nodes(self) -> int:
        """The number of its operators."""
        return len(self.graph.nodes)

    def is_same(self, other: Term) -> bool:
        """True if both compute the same of all numbers that were tried."""
        ordinary, special = zip(self.results, other.results, strict=True)
        return is_same(*ordinary) and special[0].shape == special[1].shape and _is_alike(*special)


def _is_alike(one: Array, other: Array) -> bool:
    """True if two results are near each other, infinite and not a number at the same places."""
    with np.errstate(invalid="ignore"):
        return bool(np.allclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=one.dtype.kind == "f"))


_Made: TypeAlias = tuple[Form, tuple[Term, ...]]
"""A graph that is made of others: its last operator, and what that reads."""


@dataclass(frozen=True)
class Pair:
    """Two graphs that compute the same, of which the one costs more."""

    dear: Term
    cheap: Term


class Pool:
    """The small graphs of a family, one of each class, and the pairs that were met.

    Args:
        family: The operators and operands.
        seed: Of the numbers.

    Attributes:
        pairs: Graphs with cheaper ones, in the order in which they were met.
        graphs: The number of graphs that were evaluated.
        classes: The number of classes.
        left: The number of graphs that were left out, as far as they were counted.
    """

    def __init__(self, family: Family, seed: int = 0):
        self.family = family
        self.operands = family.operands(seed)
        self._special = family.operands(seed, is_special=True)
        self.pairs: list[Pair] = []
        self.graphs = self.classes = self.left = 0
        self._layers: list[list[Term]] = [
            [
                Term(Substitute((), (i,)), (o.array, s.array), o.value, i)
                for i, (o, s) in enumerate(zip(self.operands, self._special, strict=True))
            ]
        ]
        self._refused: set[object] = set()
        self._cheapest: dict[int, Term] = {}
        self._met = len(self.operands)
        self._known: dict[object, list[Term]] = defaultdict(list)
        for term in self._layers[0]:
            self._known[rounded(term.results[0])].append(term)

    def grow(self, nodes: int, most: int) -> None:
        """Make all graphs, small ones first.

        Args:
            nodes: The most nodes of a graph.
            most: The most graphs.
        """
        for size in range(1, nodes + 1):
            made = self._made(size)
            layer: dict[int, list[Term]] = {}
            while those := list(itertools.islice(made, min(_TOGETHER, most - self.graphs))):
                self.graphs += len(those)
                for term in self._evaluated(those):
                    self._sort(term, layer)
            self._layers.append([self._settled(members) for members in layer.values()])
            self.left = sum(1 for _ in itertools.islice(made, _COUNTED))
            if self.left:
                return

    def _sort(self, term: Term, layer: dict[int, list[Term]]) -> None:
        """Put a graph to those that compute the same: a class of smaller ones, or of this layer."""
        known = self._known[rounded(term.results[0])]
        same = next((each for each in known if each.is_same(term)), None)
        if same is None:
            known.append(term)
            layer[term.number] = [term]
            self.classes += 1
            return
        if same.number in layer:
            layer[same.number].append(term)
            return
        cheapest = self._cheapest.get(same.number, same)
        if self._cost(cheapest) < self._cost(term):
            self.pairs.append(Pair(term, cheapest))

    def _settled(self, members: Sequence[Term]) -> Term:
        """The cheapest graph of a class, which is built upon; the others are dearer, or not needed."""
        if len(members) == 1:
            return members[0]
        costs = [self._cost(m) for m in members]
        best = min(range(len(members)), key=lambda i: costs[i])
        self._cheapest[members[0].number] = members[best]
        self.pairs += [Pair(m, members[best]) for m, c in zip(members, costs, strict=True) if costs[best] < c]
        return members[best]

    def _cost(self, term: Term) -> Cost:
        return cost_of(model_of(term.graph, self.operands, OPSET))

    # -- graphs of smaller ones ------------------------------------------------------------------------------

    def _made(self, size: int) -> Iterator[_Made]:
        """The graphs of so many nodes, if nothing is shared in them: those of the first large parts first."""
        widths = sorted({form.width for form in self.family.forms})
        for width in widths:
            forms = [form for form in self.family.forms if form.width == width]
            for sizes in _splits(size - 1, width):
                largest = max(range(width), key=lambda k: sizes[k])
                order = [largest, *(k for k in range(width) if k != largest)]
                for chosen in itertools.product(*(self._layers[sizes[k]] for k in order)):
                    parts = tuple(chosen[order.index(k)] for k in range(width))
                    yield from ((form, parts) for form in forms if self._fits(form, parts))

    def _fits(self, form: Form, parts: Sequence[Term]) -> bool:
        """True if an operator takes these operands, in this order."""
        if all(self._is_constant(p) for p in parts) or _kind(form, parts) in self._refused:
            return False
        numbers = [p.number for p in parts]
        if "commutative" in TRAITS[form.op_type].marks and numbers != sorted(numbers):
            return False
        known = schema.schema("", form.op_type, OPSET)
        assert known is not None
        types: dict[str, ir.DataType] = {}
        for place, part in enumerate(parts):
            formal = known.inputs[min(place, len(known.inputs) - 1)]
            dtype = part.value.dtype
            assert dtype is not None
            if type_string(dtype) not in formal.types or types.setdefault(formal.type_var, dtype) != dtype:
                return False
        return form.takes([p.results[0].shape for p in parts])

    def _is_constant(self, term: Term) -> bool:
        return all(self.operands[i].is_constant for i in term.graph.read())

    # -- evaluation ------------------------------------------------------------------------------------------

    def _evaluated(self, made: Sequence[_Made]) -> Iterator[Term]:
        """Graphs with what they compute; those are left out that are infinite somewhere, or the same everywhere."""
        parts = list({id(p): p for _, those in made for p in those}.values())
        number = {id(p): i for i, p in enumerate(parts)}
        nodes = tuple(Operator("", f.op_type, tuple(number[id(p)] for p in those), f.parameters) for f, those in made)
        whole = Substitute(nodes, tuple(Inner(i) for i in range(len(nodes))))
        operands = [
            Operand(p.value, f"part_{i}", p.results[0], is_constant=self._is_constant(p), is_size=False)
            for i, p in enumerate(parts)
        ]
        model = model_of(whole, operands, OPSET)
        reference = build_reference(model, threads=1)
        if not reference.trusted:
            yield from self._one_by_one(made)
            return
        feeds = ({o.name: p.results[k] for o, p in zip(operands, parts, strict=True)} for k in (0, 1))
        names = {value.name for value in model.graph.input}
        ordinary, special = (reference.run({n: a for n, a in each.items() if n in names}) or {} for each in feeds)
        for (form, those), output in zip(made, model.graph.output, strict=True):
            one, other = ordinary.get(output.name), special.get(output.name)
            if not is_tensor(one) or not is_tensor(other) or not one.size:
                continue
            if is_finite(one) and np.ptp(one.astype(np.float64)):
                dtype = ir.DataType.BOOL if one.dtype == np.bool_ else ir.DataType.FLOAT
                value = ir.Value(type=ir.TensorType(dtype), shape=ir.Shape(one.shape))
                self._met += 1
                yield Term(composed(form, [p.graph for p in those]), (one, other), value, self._met)

    def _one_by_one(self, made: Sequence[_Made]) -> Iterator[Term]:
        """Graphs of which one does not run, in halves; what does not run is not made again of such operands."""
        if len(made) == 1:
            self._refused.add(_kind(*made[0]))
            return
        for half in (made[: len(made) // 2], made[len(made) // 2 :]):
            kept = [each for each in half if _kind(*each) not in self._refused]
            if kept:
                yield from self._evaluated(kept)


def _kind(form: Form, parts: Sequence[Term]) -> object:
    """Equal for operators that run for the same reasons."""
    return form, tuple(p.value.dtype for p in parts)


def _splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """The ways to share a number of nodes among parts, a large first part first."""
    if parts == 1:
        yield (total,)
        return
    for first in reversed(range(total + 1)):
        yield from ((first, *others) for others in _splits(total - first, parts - 1))


def composed(form: Form, parts: Sequence[Substitute]) -> Substitute:
    """An operator over small graphs, equal nodes once."""
    nodes: dict[Operator, int] = {}
    ends: list[Read] = []
    for part in parts:
        own: list[int] = []

        def moved(read: Read, own: Sequence[int] = own) -> Read:
            return Inner(own[read.node], read.output) if isinstance(read, Inner) else read

        for node in part.nodes:
            copied = replace(node, inputs=tuple(map(moved, node.inputs)))
            own.append(nodes.setdefault(copied, len(nodes)))
        ends.append(moved(part.results[0]))
    last = Operator("", form.op_type, tuple(ends), form.parameters)
    number = nodes.setdefault(last, len(nodes))
    return Substitute(tuple(nodes), (Inner(number),))
