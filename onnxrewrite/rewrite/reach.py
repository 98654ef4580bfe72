"""The nodes to visit again after a change: those at which a rule could match now that did not match before."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.graph import use_count
from onnxrewrite.pattern.blocks import Body, Repeat
from onnxrewrite.pattern.chain import MAX_NODES, PRODUCT_OPS, SUM_OPS, plan
from onnxrewrite.pattern.conditions import forms
from onnxrewrite.pattern.look import may_pass, passes
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Call,
    Capture,
    Literal,
    Output,
    Power,
    Product,
    Sum,
    Term,
    children,
    walk,
)
from onnxrewrite.rewrite.rule import Rule

Operators: TypeAlias = frozenset[str | None]
"""Operator names; None stands for any."""

_NONE: Operators = frozenset()

_CROWD = 256
"""A value with more readers is not searched for partners of a pattern with several outputs, nor do rules see all that a
node with more operands reads."""


class Reach:
    """Finds the nodes at which rules could match after a change.

    A change at a node matters to the patterns that the node can be a part of, hence to their anchors, some steps
    further down.  The way down is followed as far as some pattern has these operators one above the other.  A run of
    sums, or of products, can be long, for one term can span it.

    Attributes:
        sees_bodies: True if a change in a body matters to the node that has it.
    """

    def __init__(self, rules: Sequence[Rule]):
        self._depth = max((depth(t) for rule in rules for t in rule.outputs), default=0)
        self._terms = _Terms(rules)
        self._most = max((n for rule in rules for t in rule.outputs for n in _inner_uses(t).values()), default=1)
        self.sees_bodies = any(isinstance(given, Body) for given in _parameters(rules))
        self._sideways = frozenset(o for r in rules if len(r.outputs) > 1 for t in r.outputs for o in _operators(t))

    def after(self, changed: Iterable[ir.Node], released: Iterable[ir.Value] = ()) -> list[ir.Node]:
        """The nodes to visit.

        Args:
            changed: Nodes that are new, or that read something new or better known.
            released: Values that have lost a reader: most rules leave alone what is needed elsewhere too, so what
                computes it, and those who still read it, may match now; but not while many read it.
        """
        few = [v for v in released if use_count(v) <= self._most]
        fresh = dict.fromkeys(n for n in changed if n.graph is not None)
        freed = dict.fromkeys(n for v in few for n in (v.producer(), *v.consumers()) if n is not None)
        start = [*fresh, *(n for n in freed if n not in fresh)]
        return self.below([*start, *self._beside(start)])

    def below(self, start: Sequence[ir.Node], rule: Rule | None = None) -> list[ir.Node]:
        """Nodes, and those on the way down from them that some pattern can have one above the other.

        Args:
            start: The nodes to begin with.
            rule: The rule whose pattern it is; None for any.
        """
        terms = self._terms
        found = {node: terms.at(node.op_type, rule) for node in start}
        queue = deque((node, stands, 0) for node, stands in found.items())
        while queue:
            node, stands, run = queue.popleft()
            for reader, above in self._below(node, stands):
                is_chained = _is_chained(node, reader)
                stands_new = above & terms.at(reader.op_type) & ~found.get(reader, 0)
                if (reader in found and not stands_new) or (is_chained and run + 1 >= MAX_NODES):
                    continue
                found[reader] = found.get(reader, 0) | stands_new
                ahead = (reader, stands_new, run + 1 if is_chained else 0)
                (queue.appendleft if is_chained else queue.append)(ahead)
        return list(found)

    def _below(self, node: ir.Node, stands: int) -> Iterator[tuple[ir.Node, int]]:
        """The readers of a node that can be below it in a pattern, where it stands for certain terms, each with the
        terms that it can stand for there; Identities in between, and those behind them.

        What too many nodes read is no inner value of a pattern, unless the rule does not mind.
        """
        terms = self._terms
        above = terms.above(stands)
        stack = list(node.outputs) if above else []
        while stack:
            value = stack.pop()
            wanted = above if use_count(value) <= self._most else above & terms.shared
            for reader in value.consumers() if wanted else ():
                behind = [o for o in reader.outputs if passes(o)] if may_pass(reader) else []
                if behind or wanted & terms.at(reader.op_type):
                    yield reader, wanted
                stack += behind

    def _beside(self, nodes: Sequence[ir.Node]) -> list[ir.Node]:
        """The readers of the inputs of nodes that can be one of several outputs of a pattern, and of values above."""
        if not self._sideways:
            return []
        known = set(nodes)
        found: dict[ir.Node, None] = {}
        layer = [n for n in nodes if n.op_type in self._sideways or None in self._sideways]
        for _ in range(self._depth):
            values = dict.fromkeys(i for n in layer for i in n.inputs[:_CROWD] if i is not None)
            found.update(dict.fromkeys(c for v in values if use_count(v) <= _CROWD for c in v.consumers()))
            layer = [p for p in (v.producer() for v in values) if p is not None]
            if not layer:
                break
        return [n for n in found if n not in known]


class _Terms:
    """The terms of patterns that nodes can stand for, as sets of bits.

    Attributes:
        shared: Those of rules that do not mind who else reads what they cover.
    """

    def __init__(self, rules: Iterable[Rule]):
        self.shared = 0
        self._of_rule: dict[Rule, int] = {}
        self._of_operator: dict[str | None, int] = {}
        self._above: dict[int, int] = {}
        self._known_above: dict[int, int] = {}
        self._numbers: dict[int, tuple[Term, int]] = {}
        self._linked: set[tuple[int, int]] = set()
        for rule in rules:
            own = 0
            for output in rule.outputs:
                self._link(output, 0)
                own |= functools.reduce(operator.or_, map(self._bit, walk(output)), 0)
            self._of_rule[rule] = own
            self.shared |= own if rule.allow_shared else 0
        self._of_any = self._of_operator.pop(None, 0)
        self._of_operator = {op_type: terms | self._of_any for op_type, terms in self._of_operator.items()}

    def at(self, op_type: str, rule: Rule | None = None) -> int:
        """The terms that a node can stand for, or those of one rule."""
        found = self._of_operator.get(op_type, self._of_any)
        return found if rule is None else found & self._of_rule[rule]

    def above(self, stands: int) -> int:
        """The terms that have one of certain terms as an operand, and those that can span several nodes."""
        known = self._known_above.get(stands)
        if known is None:
            known, left = 0, stands
            while left:
                bit = left & -left
                known |= self._above.get(bit, 0)
                left ^= bit
            self._known_above[stands] = known
        return known

    def _bit(self, item: Term) -> int:
        """The bit of a term; none for one that no operator stands at."""
        return self._numbers[id(item)][1] if id(item) in self._numbers else 0

    def _link(self, item: Term, above: int) -> None:
        """Number a term and all below it, under the terms that it is an operand of."""
        if (id(item), above) in self._linked:
            return
        self._linked.add((id(item), above))
        own = _operators(item)
        if isinstance(item, Repeat):
            self._link_layers(item, above)
            return
        if isinstance(item, AnyOf | Output):
            within = above
        elif own:
            _, within = self._numbers.setdefault(id(item), (item, 1 << len(self._numbers)))
            for op_type in own:
                self._of_operator[op_type] = self._of_operator.get(op_type, 0) | within
            spans = isinstance(item, Sum | Product)
            self._above[within] = self._above.get(within, 0) | above | (within if spans else 0)
            if isinstance(item, Sum | Product) and plan(item).required <= 1:  # the chain can be one operand itself
                within |= above
        else:
            return
        for child in children(item):
            self._link(child, within)

    def _link_layers(self, item: Repeat, above: int) -> None:
        """A layer stands under what the layers stand under, and under all of the layer after it."""
        for part in item.parts:
            self._link(part, above)
        layer = functools.reduce(operator.or_, (self._bit(t) for part in item.parts for t in walk(part)), 0)
        for part in item.parts:
            self._link(part, layer)


def _parameters(rules: Iterable[Rule]) -> Iterator[object]:
    """The things that patterns ask of attributes."""
    calls = (t for rule in rules for output in rule.outputs for t in walk(output) if isinstance(t, Call))
    return (given for call in calls for given in call.parameters.values())


def anchors(item: Term) -> frozenset[str | None] | None:
    """The operators that can compute a term's value; None for any."""
    found = [_operators(form) for form in forms(item)]
    return frozenset[str | None]().union(*found) if all(found) and not any(None in f for f in found) else None


@functools.cache
def inner(item: Term) -> Operators:
    """The operators that can compute the values below a term."""
    found = frozenset[str | None]()
    for below in children(item):
        found |= _operators(below) | inner(below)
    return found


@functools.cache
def covered(item: Term) -> Operators:
    """The operators that a match of a term can cover, besides those that are looked through; None for any."""
    found = frozenset[str | None]().union(*map(_operators, forms(item)))
    return found.union(*map(covered, children(item)))


@functools.cache
def depth(item: Term) -> int:
    """The height of a term in nodes, from the anchor up; an n-ary term may span a chain."""
    match item:
        case Capture() | Literal():
            return 0
        case Sum(operands=operands) | Product(operands=operands):
            return len(operands) + max((depth(t) for t, _ in operands), default=0)
        case AnyOf(alternatives=alternatives):
            return max(map(depth, alternatives))
        case Output(call=call):
            return depth(call)
        case _:
            return 1 + max(map(depth, children(item)), default=0)


def _operators(item: Term) -> Operators:
    """The operators that stand at a term itself."""
    match item:
        case Call(op_types=op_types) | Output(call=Call(op_types=op_types)):
            return frozenset(op_types)
        case AnyNode(op_types=op_types):
            return frozenset(op_types if op_types is not None else (None,))
        case Power():
            return frozenset({"Sqrt", "Pow"})
        case Sum():
            return SUM_OPS
        case Product():
            return PRODUCT_OPS
        case _:
            return frozenset()


@functools.cache
def _inner_uses(item: Term) -> Counter[Term]:
    """The number of uses that a pattern makes of each of its inner values, at the most."""
    if isinstance(item, AnyOf):
        return functools.reduce(operator.or_, map(_inner_uses, item.alternatives))
    operands = [t for t, _ in item.operands] if isinstance(item, Sum | Product) else children(item)
    below = (_inner_uses(t) for t in dict.fromkeys(operands))
    return sum(below, Counter(t for t in operands if not isinstance(t, Capture | Literal)))


_CHAINED = frozenset(pair for ops in (SUM_OPS, PRODUCT_OPS) for pair in itertools.product(ops, repeat=2))


def _is_chained(node: ir.Node, reader: ir.Node) -> bool:
    """True if one n-ary term can span both nodes."""
    return (node.op_type, reader.op_type) in _CHAINED
