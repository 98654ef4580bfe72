"""The nodes to visit again after a change: those at which a rule could match now that did not match before."""

from __future__ import annotations

import functools
import operator
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.graph import use_count
from onnxrewrite.pattern.chain import MAX_NODES, PRODUCT_OPS, SUM_OPS, plan
from onnxrewrite.pattern.conditions import forms
from onnxrewrite.pattern.look import passes
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
    further down.  The way down is followed as far as some pattern has these operators one above the other, and no
    further.  A run of sums, or of products, counts as one step, for one term can span it.
    """

    def __init__(self, rules: Sequence[Rule]):
        self._depth = max((depth(t) for rule in rules for t in rule.outputs), default=0)
        self._readers = _Readers([r for r in rules if not r.allow_shared])
        self._readers_shared = _Readers([r for r in rules if r.allow_shared])
        self._most = max((n for rule in rules for t in rule.outputs for n in _inner_uses(t).values()), default=1)
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
        start += self._beside(start)
        found = dict.fromkeys(start)
        queue = deque((node, 0, 0) for node in start)
        while queue:
            node, steps, run = queue.popleft()
            for reader in self._below(node):
                is_chained = _is_chained(node, reader)
                ahead = (reader, steps, run + 1) if is_chained else (reader, steps + 1, 0)
                if reader not in found and ahead[1] < self._depth and ahead[2] < MAX_NODES:
                    found[reader] = None
                    (queue.appendleft if is_chained else queue.append)(ahead)
        return list(found)

    def _below(self, node: ir.Node) -> Iterator[ir.Node]:
        """The readers of a node that some pattern can have below it, Identities in between and those behind them.

        What too many nodes read is no inner value of a pattern, unless the rule does not mind.
        """
        above = self._readers_shared.of(node.op_type)
        above_few = above | self._readers.of(node.op_type)
        stack = list(node.outputs)
        while stack:
            value = stack.pop()
            wanted = above_few if use_count(value) <= self._most else above
            for reader in value.consumers() if wanted else ():
                behind = [o for o in reader.outputs if passes(o)]
                if behind or reader.op_type in wanted:
                    yield reader
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
        return [n for n in found if n not in known]


class _Readers:
    """Operator to the operators that patterns have directly below it, on the way to the anchor."""

    def __init__(self, rules: Iterable[Rule]):
        self._readers: dict[str | None, Operators] = {}
        self._linked: set[tuple[int, Operators]] = set()
        for rule in rules:
            for output in rule.outputs:
                self._link(output, frozenset())
        self._of_any = self._readers.get(None)
        if self._of_any is not None:
            self._readers = {o: below | self._of_any for o, below in self._readers.items()}

    def knows(self, op_type: str | None) -> bool:
        """True if an operator occurs in any of the patterns."""
        return self._of_any is not None or op_type in self._readers

    def of(self, op_type: str) -> Operators:
        """The operators below one."""
        return self._readers.get(op_type, self._of_any or _NONE)

    def _link(self, item: Term, below: Operators) -> None:
        if (id(item), below) in self._linked:
            return
        self._linked.add((id(item), below))
        own = _operators(item)
        for op_type in own:
            self._readers[op_type] = self._readers.get(op_type, frozenset[str | None]()) | below
        match item:
            case AnyOf() | Output():
                own = below
            case Sum() | Product():
                for op_type in own:
                    self._readers[op_type] |= own
                if plan(item).required <= 1:  # then the chain can be one operand itself
                    own |= below
        for child in children(item):
            self._link(child, own)


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


def span(item: Term) -> Operators:
    """The operators of all nodes that a match of a term covers, but for those that are seen through."""
    return _operators(item) | inner(item)


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


def _is_chained(node: ir.Node, reader: ir.Node) -> bool:
    """True if one n-ary term can span both nodes."""
    return any(node.op_type in ops and reader.op_type in ops for ops in (SUM_OPS, PRODUCT_OPS))
