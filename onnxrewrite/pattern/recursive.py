"""The plain matcher: terms against values, by recursion, with full backtracking.

It is written to be obviously right rather than fast, and enumerates every match.  ``misses`` collects why
not: the reason of the attempt that got furthest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir

from onnxrewrite.errors import foreign
from onnxrewrite.ir import schema
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.views import is_implied, parameter
from onnxrewrite.pattern import chain, numbers
from onnxrewrite.pattern.blocks import Body, Outer, Repeat
from onnxrewrite.pattern.carried import inputs, is_last, layers
from onnxrewrite.pattern.chain import Piece
from onnxrewrite.pattern.inner_graphs import body, outer_value
from onnxrewrite.pattern.look import COMMUTATIVE, called, passed, passes, resolve
from onnxrewrite.pattern.match import Binding, Match
from onnxrewrite.pattern.misses import Misses, Stands, described, read_by, shown
from onnxrewrite.pattern.nary import ChainMatch
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Attr,
    Call,
    Capture,
    Each,
    Literal,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    Var,
    walk,
)


class RecursiveMatcher:
    """Matches patterns against one graph.

    Args:
        facts: The facts about the graph's values.
        graph: Only nodes of this graph are matched: a pattern never reaches across the border of a subgraph.
            None for nodes that have been built and are in no graph yet.
        misses: Collects the reason of the nearest miss, if given.

    """

    def __init__(self, facts: Facts, graph: ir.Graph | None, misses: Misses | None = None):
        self.facts = facts
        self.graph = graph
        self.misses = misses
        self._place = ("", 0)

    def matches(self, pattern: Sequence[Term], value: ir.Value) -> Iterator[Match]:
        """Every match of ``pattern`` whose first output is ``value``, the most telling ones first."""
        anchor, *others = pattern
        for binding in self._root(anchor, value):
            for outputs, full in self._others(others, (value,), binding):
                yield Match(self.facts, outputs, full)

    # -- outputs ---------------------------------------------------------------------------------------------

    def _root(self, item: Term, value: ir.Value) -> Iterator[Binding]:
        """Matches of the anchor, where a chain may be longer than the pattern."""
        if isinstance(item, Sum | Product):
            yield from self._chain(item, value, Binding(), root=True)
        elif isinstance(item, AnyOf):
            for found in self._any_of(item, value, Binding(), root=True):
                yield found.bind(item, value)
        elif isinstance(item, Repeat):
            yield from (found for found in self.term(item, value, Binding()) if is_last(self, item, value, found))
        else:
            yield from self.term(item, value, Binding())

    def _others(
        self, items: Sequence[Term], outputs: tuple[ir.Value, ...], binding: Binding
    ) -> Iterator[tuple[tuple[ir.Value, ...], Binding]]:
        """Matches of the further outputs, which are reached through consumers of what is bound."""
        if not items:
            yield outputs, binding
            return
        for candidate in self.candidates(items[0], binding):
            if candidate not in outputs:
                for extended in self.term(items[0], candidate, binding):
                    yield from self._others(items[1:], (*outputs, candidate), extended)

    def candidates(self, item: Term, binding: Binding) -> list[ir.Value]:
        """Values that ``item`` could stand for: what is computed from its bound parts in so many steps as it has terms,
        Identities not counted.
        """
        found: dict[ir.Value, None] = {}
        layer = dict.fromkeys(self._starts(item, binding))
        for _ in range(sum(1 for _ in walk(item))):
            found.update(layer)
            layer = dict.fromkeys(v for v in self._below(layer) if v not in found)
        return list(found)

    def _starts(self, item: Term, binding: Binding) -> Iterable[ir.Value]:
        """The values of the parts of ``item`` that are bound."""
        return (v for part in walk(item) if part in binding.bound for v in values_of(binding.bound[part]))

    def _below(self, values: Iterable[ir.Value]) -> Iterator[ir.Value]:
        """The outputs of the nodes of this graph that read ``values``, as they are or through Identities."""
        stack = list(values)
        while stack:
            for node in stack.pop().consumers():
                outputs = node.outputs if node.graph is self.graph else ()
                yield from outputs
                stack.extend(o for o in outputs if passes(o))

    # -- one term against one value --------------------------------------------------------------------------

    def term(self, item: Term, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        """The matches of a term at a value, each with what is bound then."""
        match item:
            case Capture():
                yield from self._capture(item, value, binding)
            case Literal():
                yield from self._literal(item, value, binding)
            case Call():
                yield from self._call(item, 0, value, binding)
            case Output(call=call, index=index):
                yield from self._call(call, index, value, binding)
            case Sum() | Product():
                yield from self._shared(item, value, binding, lambda: self._chain(item, value, binding, root=False))
            case Power():
                yield from self._shared(item, value, binding, lambda: self._power(item, value, binding))
            case AnyNode():
                yield from self._any_node(item, value, binding)
            case AnyOf():
                yield from self._shared(item, value, binding, lambda: self._any_of(item, value, binding, root=False))
            case Repeat():
                yield from self._shared(item, value, binding, lambda: layers(self, item, value, binding))
            case Outer():
                yield from outer_value(self, item, value, binding)

    def _any_of(self, item: AnyOf, value: ir.Value, binding: Binding, root: bool) -> Iterator[Binding]:
        for alternative in item.alternatives:
            found = self._root(alternative, value) if root else self.term(alternative, value, binding)
            yield from (each.bind((item, "alternative"), alternative) for each in found)

    def _shared(
        self, item: Term, value: ir.Value, binding: Binding, match: Callable[[], Iterator[Binding]]
    ) -> Iterator[Binding]:
        """A term that is used twice stands for one value."""
        if item in binding.bound:
            if resolve(binding.bound[item]) is resolve(value):
                yield binding.cover(*passed(value))
            return
        for found in match():
            yield found.bind(item, value)

    def _capture(self, item: Capture, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        if item in binding.bound:
            if self._same(binding.bound[item], value):
                yield binding
            else:
                self.miss(
                    binding,
                    lambda: (
                        f"{item.name} must be the same value in both places, here it is {_name(value)}"
                        f"{self._reader(value, binding)}"
                    ),
                    item,
                )
            return
        if not isinstance(item, Var) and self.facts.tensor(resolve(value)) is None:
            self.miss(
                binding,
                lambda: f"expected a constant for {item.name}, found {self.describe(value, binding)}",
                item,
            )
        elif item.dtypes is not None and self.facts.dtype(value) not in item.dtypes:
            self.miss(
                binding,
                lambda: (
                    f"{item.name} has dtype {_dtype(self.facts.dtype(value))}, which the rule does not take: it is "
                    f"{self._whole(value, binding)}"
                ),
                item,
            )
        elif item.rank is not None and self.facts.rank(value) != item.rank:
            self.miss(
                binding,
                lambda: (
                    f"{item.name} must have rank {item.rank}, found {self.facts.rank(value)}: it is "
                    f"{self._whole(value, binding)}"
                ),
                item,
            )
        elif isinstance(item, Scalar):
            yield from self._scalar(item, value, binding)
        else:
            yield binding.bind(item, resolve(value))

    def _scalar(self, item: Scalar, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        number = numbers.scalar(self.facts, value)
        if number is None:
            self.miss(binding, lambda: f"{item.name} must be a constant with one element", item)
        else:
            yield binding.bind(item, number)

    def _literal(self, item: Literal, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        if numbers.equals(self.facts, value, item.value):
            yield binding
        else:
            self.miss(
                binding, lambda: f"{numbers.unequal(self.facts, value, item.value)}{self._reader(value, binding)}", item
            )

    def _power(self, item: Power, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        node = self._producer(value)
        if node is None or node.op_type not in ("Sqrt", "Pow") or node.domain:
            self.miss(binding, lambda: f"expected {item!r}, found {self.describe(value, binding)}", item, found=value)
            return
        base, *exponent = node.inputs
        if node.op_type == "Sqrt":
            matches = item.exponent == 0.5
        else:
            matches = exponent[0] is not None and numbers.equals(self.facts, exponent[0], item.exponent)
        if matches and base is not None:
            yield from self.term(item.base, base, binding.cover(node, *passed(value)))
        else:
            self.miss(binding, lambda: f"expected the power {item.exponent:g} at {called(node)}", item)

    # -- one node --------------------------------------------------------------------------------------------

    def _call(self, item: Call, index: int, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        node = self._producer(value)
        if node is None or node.op_type not in item.op_types or node.domain != item.domain:
            self.miss(
                binding,
                lambda: f"expected {'|'.join(item.op_types)}, found {self.describe(value, binding)}",
                item,
                found=value,
            )
            return
        if resolve(value).index() != index:
            self.miss(binding, lambda: f"expected output {index} of {called(node)}", item)
            return
        if item in binding.bound:
            if binding.bound[item] is node:
                yield binding.cover(*passed(value))
            return
        named = self._parameters(item, node)
        if named is None:
            self.miss(
                binding,
                lambda: f"{called(node)} of opset {self.facts.version(node)} lacks a parameter of {item!r}",
                item,
            )
            return
        start = binding.bind(item, node).cover(node, *passed(value))
        for positional in self._inputs(item, node, named, start):
            yield from self._named(list(named.items()), node, positional)

    def _any_node(self, item: AnyNode, value: ir.Value, binding: Binding) -> Iterator[Binding]:
        node = value.producer()
        if node is None or node.graph not in (self.graph, None):
            return
        if item.op_types is not None and (node.domain or node.op_type not in item.op_types):
            self.miss(binding, lambda: f"expected {item!r}, found {called(node)}", item)
            return
        with foreign():
            holds = item.where is None or item.where(node, self.facts)
        if isinstance(holds, str):
            self.miss(binding, lambda: f"{holds}, in {shown(node, self.facts)}", item)
        elif holds:
            yield binding.bind(item, value).cover(node)

    def _parameters(self, item: Call, node: ir.Node) -> dict[str, tuple[object, int | None]] | None:
        """Parameter name to what is expected and, where this opset has it as an input, that input's index."""
        found = schema.schema(node.domain, node.op_type, self.facts.version(node))
        result: dict[str, tuple[object, int | None]] = {}
        for name, expected in item.parameters.items():
            index = schema.formal_index(found, name)
            if index is None and found is not None and name not in found.attributes and not _optional(expected):
                return None
            result[name] = (expected, index)
        return result

    def _inputs(
        self, item: Call, node: ir.Node, named: dict[str, tuple[object, int | None]], binding: Binding
    ) -> Iterator[Binding]:
        taken = {index for _, index in named.values() if index is not None}
        rest = next((t for t in item.inputs[-1:] if isinstance(t, Each)), None)
        terms = item.inputs if rest is None else item.inputs[:-1]
        free = [i for i in range(len(node.inputs)) if i not in taken]
        actual = [node.inputs[i] for i in free]
        more = [i for i in free[len(terms) :] if node.inputs[i] is not None]
        extra = [v for v in actual[len(terms) :] if v is not None]
        if rest is None and not all(is_implied(self.facts, node, i) for i in more):
            self.miss(binding, lambda: f"{called(node)} has more inputs than {self._most(item, node)}", item)
            return
        pairs = list(zip(terms, [*actual, *[None] * len(terms)], strict=False))
        orders = [pairs]
        if node.op_type in COMMUTATIVE and not node.domain and len(pairs) == 2 and len(actual) == 2:
            orders.append([(pairs[0][0], actual[1]), (pairs[1][0], actual[0])])
        for order in orders:
            for matched in self._sequence(order, node, binding):
                yield from [matched] if rest is None else inputs(self, rest, extra, node, matched)

    def _most(self, item: Call, node: ir.Node) -> str:
        """The words for what allows fewer inputs than there are, the opset or the pattern."""
        version = self.facts.version(node)
        found = schema.schema(node.domain, node.op_type, version)
        return f"opset {version} has" if found is not None and len(node.inputs) > found.max_inputs else "the pattern"

    def _sequence(
        self, pairs: Sequence[tuple[Any, ir.Value | None]], node: ir.Node, binding: Binding
    ) -> Iterator[Binding]:
        if not pairs:
            yield binding
            return
        (item, value), *others = pairs
        for matched in self._operand(item, value, node, binding):
            yield from self._sequence(others, node, matched)

    def _operand(self, item: Term | None, value: ir.Value | None, node: ir.Node, binding: Binding) -> Iterator[Binding]:
        """One input, which may be absent on either side."""
        if item is None:
            if value is None:
                yield binding
            else:
                self.miss(binding, lambda: f"{called(node)} has an input that the pattern excludes")
        elif value is not None:
            yield from self.term(item, value, binding)
        elif isinstance(item, Capture) and item.optional:
            yield from self._absent(item, binding)
        else:
            self.miss(binding, lambda: f"{called(node)} lacks the input {item!r}", item)

    def _absent(self, item: Capture, binding: Binding) -> Iterator[Binding]:
        """An optional capture without an operand takes its default."""
        if item not in binding.bound:
            yield binding.bind(item, item.default)
        elif binding.bound[item] is item.default:
            yield binding

    def _named(
        self, items: list[tuple[str, tuple[object, int | None]]], node: ir.Node, binding: Binding
    ) -> Iterator[Binding]:
        if not items:
            yield binding
            return
        (name, (expected, index)), *others = items
        for matched in self._parameter(name, expected, index, node, binding):
            yield from self._named(others, node, matched)

    def _parameter(
        self, name: str, expected: object, index: int | None, node: ir.Node, binding: Binding
    ) -> Iterator[Binding]:
        if isinstance(expected, Body):
            yield from body(self, name, expected, node, binding)
            return
        value = node.inputs[index] if index is not None and index < len(node.inputs) else None
        if isinstance(expected, Term) and index is not None:
            yield from self._operand(expected, value, node, binding)
            return
        actual = parameter(self.facts, node, name)
        if actual is schema.UNKNOWN:
            self.miss(binding, lambda: f"expected a constant for {name} of {called(node)}", expected)
        elif isinstance(expected, Attr | Capture):
            yield from self._attribute(name, expected, actual, node, binding)
        elif numbers.same_parameter_at(node, name, actual, expected):
            yield binding
        else:
            self.miss(
                binding,
                lambda: f"expected {name}={expected!r}, found {actual!r} at {called(node)}",
                expected,
            )

    def _attribute(
        self, name: str, expected: Attr[Any] | Capture, actual: object, node: ir.Node, binding: Binding
    ) -> Iterator[Binding]:
        if actual is None:
            if not _optional(expected):
                self.miss(binding, lambda: f"{called(node)} has no {name}", expected)
                return
            actual = expected.default
        if expected not in binding.bound:
            yield binding.bind(expected, actual)
        elif numbers.same_parameter_at(node, name, actual, binding.bound[expected]):
            yield binding
        else:
            self.miss(binding, lambda: f"{expected!r} must be the same in both places, here it is {actual!r}", expected)

    # -- layers and bodies -----------------------------------------------------------------------------------

    def told_of(self, place: str | None, depth: int, found: Iterator[Binding]) -> Iterator[Binding]:
        """The same matches; reasons that come up on the way say where that is, and count as so much further; for no
        place they are not noted."""
        outer, misses = self._place, self.misses
        while True:
            self._place = (f"{outer[0]}, in {place}", outer[1] + depth)
            self.misses = None if place is None else misses
            try:
                binding = next(found, None)
            finally:
                self._place, self.misses = outer, misses
            if binding is None:
                return
            yield binding

    def inside(self, graph: ir.Graph, place: str = "") -> RecursiveMatcher:
        """A matcher of a graph inside or around this one, whose misses are those of this one."""
        other = RecursiveMatcher(self.facts, graph, self.misses)
        other._place = (self._place[0] + place, self._place[1])
        return other

    # -- chains ----------------------------------------------------------------------------------------------

    def _chain(self, item: Sum | Product, value: ir.Value, binding: Binding, root: bool) -> Iterator[Binding]:
        yield from ChainMatch(self, item, value, root).run(binding)

    # -- helpers ---------------------------------------------------------------------------------------------

    def grown(self, value: ir.Value, is_product: bool) -> list[Piece]:
        """The chain above ``value``: see ``chain.grow``."""
        return chain.grow(self.facts, self._producer, value, is_product)

    def _producer(self, value: ir.Value) -> ir.Node | None:
        """The node of this graph that computes ``value``, seen through identities.

        A node of no graph is one that a rewrite has just built.
        """
        node = resolve(value).producer()
        return node if node is not None and node.graph in (self.graph, None) else None

    def _same(self, bound: object, value: ir.Value) -> bool:
        if isinstance(bound, ir.Value):
            return resolve(bound) is resolve(value) or numbers.same_constant(self.facts, bound, value)
        return isinstance(bound, int | float) and numbers.scalar(self.facts, value) == bound

    def describe(self, value: ir.Value, binding: Binding) -> str:
        """An unexpected value in words, and its place."""
        return f"{described(self.facts, self.graph, value)}{self._reader(value, binding)}"

    def _whole(self, value: ir.Value, binding: Binding) -> str:
        """The same with the operands of the node that computes it."""
        node = self._producer(value)
        return (
            self.describe(value, binding)
            if node is None
            else f"{shown(node, self.facts)}{self._reader(value, binding)}"
        )

    def _reader(self, value: ir.Value, binding: Binding) -> str:
        return read_by(self.graph, value, binding)

    def miss(
        self,
        binding: Binding,
        reason: Callable[[], str],
        item: object = None,
        further: int = 0,
        found: ir.Value | None = None,
    ) -> None:
        """Note why not; ``found`` stands where ``item`` must."""
        if self.misses is not None:
            where, depth = self._place
            told = f"{reason()}{where}"
            self.misses.add(len(binding.bound) + further + depth, told, item, binding, self._stands(found))

    def _stands(self, found: ir.Value | None) -> Stands:
        if found is None or resolve(found).producer() is not None:  # of a graph around this one, too
            return Stands.NODE
        return Stands.INPUT if self.facts.tensor(resolve(found)) is None else Stands.CONSTANT


def values_of(bound: object) -> Sequence[ir.Value]:
    """The values that something bound stands for."""
    if isinstance(bound, ir.Node):
        return bound.outputs
    return (bound,) if isinstance(bound, ir.Value) else ()


def _optional(expected: object) -> bool:
    if isinstance(expected, Capture):
        return expected.optional
    return isinstance(expected, Attr) and type(expected.default).__name__ != "_Required"


def _name(value: ir.Value) -> str:
    return f"`{value.name}`"


def _dtype(dtype: ir.DataType | None) -> str:
    return "unknown" if dtype is None else dtype.name.lower()
