"""A pattern laid over a graph as well as it goes: what of it is there, and each thing that is not as it must be.

The best alignment of two graphs, as of two sequences: an operator of the pattern is at its place, or another one
stands there instead, or a node stands before it that should not, or it is left out, or nothing of it is there.  What is
best at one value does not depend on what lies below, so that each pair of term and value is asked once; wherever a part
of a pattern is right, it is found, whatever is wrong above it.

What one node or one number must be is asked of the plain matcher, with the operands taken for granted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import onnx_ir as ir

from onnxrewrite.explanation.cover import PART, WHOLE, Cover, Fault, head, joined, only, rank
from onnxrewrite.explanation.near_miss import size
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.blocks import Outer, Repeat
from onnxrewrite.pattern.carried import layer_from_last
from onnxrewrite.pattern.chain import Piece, is_optional, plan
from onnxrewrite.pattern.look import COMMUTATIVE, called, resolve
from onnxrewrite.pattern.match import Binding
from onnxrewrite.pattern.misses import Misses, shown
from onnxrewrite.pattern.nary import ChainMatch
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.pattern.terms import (
    AnyNode,
    AnyOf,
    Call,
    Capture,
    Const,
    Each,
    Literal,
    Output,
    Power,
    Product,
    Sum,
    Term,
    Var,
    children,
    flipped,
    walk,
)

_SKIPS = 2
"""So many nodes in a row may stand where none should."""

_TRIED = 4
"""So many pieces of a chain are tried for one of its operands, the best ones."""

_BETWEEN = {"Cast": 0.4, "Identity": 0.4}
"""The cost of a node that stands where none should; of any other, little less than that of a whole operator."""

_LEFT_OUT = 0.1
"""The extra cost of an operator that is left out, where another one can stand in its place."""

_END = 0.25
"""The extra cost of something that is missing where the graph ends: any graph does."""


class _Pinned(ChainMatch):
    """A chain of which some operands have their piece: the number of it, as the chain is walked.

    A value that stands in a chain many times is then not tried at each of its places.
    """

    def __init__(
        self, matcher: RecursiveMatcher, item: Sum | Product, value: ir.Value, root: bool, places: Mapping[Var, int]
    ):
        super().__init__(matcher, item, value, root)
        walked = list(self.tree.walk())
        self._places: dict[Term, Sequence[Piece]] = {v: (walked[number],) for v, number in places.items()}

    def _candidates(self, index: int) -> Sequence[Piece]:
        return self._places.get(self.operands[index][0], self.pieces)


class Overlay:
    """Lays patterns over one graph.

    Args:
        facts: The facts about its values.
        graph: Nodes of others are not looked at.
    """

    def __init__(self, facts: Facts, graph: ir.Graph):
        self.facts = facts
        self.graph = graph
        self._plain = RecursiveMatcher(facts, graph)
        self._known: dict[tuple[object, ...], Cover] = {}

    def lay(self, pattern: Sequence[Term], value: ir.Value) -> Cover:
        """The best cover whose first output is ``value``, the anchor itself right or wrong."""
        found = self._at(pattern[0], value, None, skips=0, root=True)
        for item in pattern[1:]:
            below = self._plain.candidates(item, Binding(dict(found.bound)))
            options = [joined([found, self._at(item, v, None)]) for v in below if v is not value]
            found = min([*options, joined([found, self._absent(item, "nothing")])], key=rank)
        return found

    # -- one term at one value -------------------------------------------------------------------------------

    def _at(
        self, item: Term, value: ir.Value, reader: ir.Node | None, skips: int = _SKIPS, root: bool = False
    ) -> Cover:
        """The best cover of ``item`` at a value, which ``reader`` reads."""
        if isinstance(item, Capture | Literal | Outer):
            return self._leaf(item, value, reader)
        key = item, value, reader, skips, root
        if key not in self._known:
            right = self._right(item, value, reader, skips, root)
            options = [right] if right is not None else []
            if not options or options[0].cost >= WHOLE:
                others = self._otherwise(item, value, reader, skips)
                options += others if right is None else islice(others, 1)  # only that nothing of it is there
            self._known[key] = min(options, key=rank)
        return self._known[key]

    def _leaf(self, item: Term, value: ir.Value, reader: ir.Node | None) -> Cover:
        found, misses = self._plainly(item, value, Binding(nodes=(reader,) if reader is not None else ()))
        if found is not None:
            return Cover(found.bound)
        bound: dict[Hashable, object] = {} if isinstance(item, Literal) else {item: resolve(value)}
        return Cover().having(bound, Fault(misses.reason or f"expected {item!r}", item))

    def _right(self, item: Term, value: ir.Value, reader: ir.Node | None, skips: int, root: bool) -> Cover | None:
        """``item`` where its own operator is at its place; None where another one is."""
        match item:
            case AnyOf(alternatives=alternatives):
                each = ((a, self._at(a, value, reader, skips, root)) for a in alternatives)
                which, found = min(each, key=lambda pair: rank(pair[1]))
                return found.having({(item, "alternative"): which, item: value})
            case AnyNode():
                return self._node(item, value)
            case Repeat():
                return self._row(item, value, reader)
            case Sum() | Product():
                return self._chain(item, value, root)
            case Power(base=base):
                return self._power(item, base, value)
            case Output(call=call, index=index):
                return self._call(call, item, index, value)
            case Call():
                return self._call(item, item, 0, value)
        return None

    def _otherwise(self, item: Term, value: ir.Value, reader: ir.Node | None, skips: int) -> Iterator[Cover]:
        """``item`` where its operator is not at its place: another one, one before it, none, or nothing of it."""
        found = f"{self._plain.describe(value, Binding(nodes=(reader,) if reader is not None else ()))}"
        yield self._absent(item, found, 0.0 if self._producer(value) is not None else _END)
        call = item.call if isinstance(item, Output) else item
        if not isinstance(call, Call | Sum | Product | Power):
            return
        wrong = Fault(f"expected {head(item)}, found {found}", call, 1, WHOLE)
        below = [t for t in children(call) if not is_optional(t)]
        node = self._producer(value)
        inputs = [v for v in node.inputs if v is not None] if node is not None else []
        if node is not None and inputs and below:
            if isinstance(call, Sum | Product):
                others = self._among(call, inputs, value, node)
            else:
                others = self._instead(below, inputs, node)
            yield from (c.having({}, wrong) for c in others)
        for child in (t for t in below if size(t)):  # left out
            rest = [self._absent(t, "nothing") for t in below if t is not child and size(t)]
            yield joined([self._at(child, value, reader, 0), *rest]).having({}, replace(wrong, cost=WHOLE + _LEFT_OUT))
        for source in inputs if skips else ():
            if node is not None and self.facts.tensor(resolve(source)) is None:
                cost = _BETWEEN.get(node.op_type, 0.9)
                before = Fault(f"expected {head(item)}, found {found} before it", (call, node), cost=cost)
                behind = self._at(item, source, node, skips - 1)
                yield behind.having({}, before)

    def _instead(self, below: Sequence[Term], inputs: Sequence[ir.Value], node: ir.Node) -> Iterator[Cover]:
        """The operands of the pattern at those of another operator, in any order if they are two."""
        orders = [inputs] if len(inputs) != 2 else [inputs, inputs[::-1]]
        for order in orders:
            given = [self._at(t, v, node) for t, v in zip(below, order, strict=False)]
            yield joined([*given, *(self._absent(t, "nothing") for t in below[len(inputs) :])])

    def _among(
        self, item: Sum | Product, inputs: Sequence[ir.Value], value: ir.Value, node: ir.Node
    ) -> Iterator[Cover]:
        """The operands of a chain among those of another operator, and of what is a chain above it."""
        parts, leaves = list[Piece](), 0
        for each in inputs:
            grown = self._plain.grown(each, isinstance(item, Product))
            for piece in grown:
                piece.leaves <<= leaves.bit_length()
            parts.append(grown[0])
            leaves |= grown[0].leaves
        tree = Piece(value, 1, node, tuple(parts), leaves)
        operands = [t for t in plan(item).operands if not is_optional(t[0])]
        for given in self._spread(operands, tree, (Piece(None, 1),)):
            yield joined(cover for _, _, cover in given)

    def _absent(self, item: Term, found: str, more: float = 0.0) -> Cover:
        """Nothing of it is there."""
        lacking = size(item)
        cost = max(lacking * WHOLE, PART) + more
        fault = Fault(f"expected {head(item)}, found {found}", item, lacking, cost)
        return Cover(faults=only(fault), cost=fault.cost)

    # -- nodes -----------------------------------------------------------------------------------------------

    def _node(self, item: AnyNode, value: ir.Value) -> Cover:
        found, misses = self._plainly(item, value, Binding())
        if found is not None:
            return Cover(found.bound)
        reason = misses.reason or f"expected {item!r}, found {self._plain.describe(value, Binding())}"
        node = value.producer()
        if node is not None and misses.reason and node.op_type in (item.op_types or ()) and not node.domain:
            return Cover().having({item: value}, Fault(reason, item, cost=WHOLE))
        return Cover().having({}, Fault(reason, item, 1, WHOLE))

    def _row(self, item: Repeat, value: ir.Value, reader: ir.Node | None) -> Cover:
        """The cover of layers: of the last one, and what is wrong with the next one above it that must be there."""
        found, misses = self._plainly(item, value, Binding())
        if found is not None:
            return Cover(found.bound)
        last = layer = self._at(item.block, value, reader)
        alike = {term for each in item.shared if isinstance(each, Term) for term in walk(each)}
        own = next(capture for capture, term in item.carry.items() if term is item.block)
        for left in range(1, item.at_least):
            above = layer.bound.get(own)
            if layer.faults or not isinstance(above, ir.Value):
                break
            shared: dict[Hashable, object] = {term: to for term, to in last.bound.items() if term in alike}
            layer = _placed(joined([Cover(shared), self._at(item.block, above, None)]), left)
        faults = layer.faults or {item: Fault(misses.reason, item)}
        return last if last.faults else joined([last, Cover({item: value}, faults)])

    def _call(self, item: Call, whole: Term, index: int, value: ir.Value) -> Cover | None:
        node = self._producer(value)
        if node is None or node.op_type not in item.op_types or node.domain != item.domain:
            return None
        if resolve(value).index() != index:
            found = self._plain.describe(value, Binding())
            fault = Fault(f"expected output {index} of {called(node)}, found another one of {found}", whole, cost=WHOLE)
            return Cover().having({item: node}, fault)
        named = self._plain._parameters(item, node) or {}
        taken = {place for _, place in named.values()}
        actual = [v for i, v in enumerate(node.inputs) if i not in taken]
        terms = [t for t in item.inputs if not isinstance(t, Each)]
        own = self._own(item, terms, actual, node)
        orders = [actual]
        if len(terms) == len(actual) == 2 and node.op_type in COMMUTATIVE and not node.domain:
            orders.append(actual[::-1])
        operands = [
            joined(self._at(t, v, node) for t, v in zip(terms, order, strict=False) if t is not None and v is not None)
            for order in orders
        ]
        given = min(operands, key=rank)
        rest = next((t for t in item.inputs[-1:] if isinstance(t, Each)), None)
        more = [v for v in actual[len(terms) :] if v is not None]
        return joined([own, given, *(self._each(rest, more, node) if rest is not None else ())])

    def _each(self, rest: Each[Any], values: Sequence[ir.Value], node: ir.Node) -> Iterator[Cover]:
        """The faults of the remaining inputs; of those that carry something on with their place in the row."""
        for left, value in enumerate(reversed(values) if rest.of is not None else ()):
            assert rest.of is not None
            found = self._at(rest.of, value, node)
            yield Cover(faults=(_placed(found, left) if rest.carry else found).faults)

    def _own(
        self,
        item: Call,
        terms: Sequence[Term | None],
        actual: Sequence[ir.Value | None],
        node: ir.Node,
    ) -> Cover:
        """The cover of a call's own node: the number of inputs, and its parameters, whichever output it is about."""
        present = [i < len(actual) and actual[i] is not None for i in range(len(terms))]
        taken: list[Term | Each[Any] | None] = [
            Var(head(t)) if t is not None and there else t for t, there in zip(terms, present, strict=True)
        ]
        taken += [Each(t.name, at_least=t.at_least) for t in item.inputs if isinstance(t, Each)]
        asked = Call(item.op_types, taken, item.parameters, item.domain)
        found, misses = self._plainly(asked, node.outputs[0], Binding())
        if found is None:
            return Cover().having({item: node}, Fault(misses.reason, misses.item if misses.item is not asked else item))
        return Cover({item: node, **{t: b for t, b in found.bound.items() if t is not asked and t not in taken}})

    def _power(self, item: Power, base: Term, value: ir.Value) -> Cover | None:
        node = self._producer(value)
        if node is None or node.op_type not in ("Sqrt", "Pow") or node.domain or node.inputs[0] is None:
            return None
        asked = Power(Var("base"), item.exponent)
        found, misses = self._plainly(asked, value, Binding())
        wrong = [Fault(misses.reason, item)] if found is None else []
        return self._at(base, node.inputs[0], node).having({item: value}, *wrong)

    # -- sums and products -----------------------------------------------------------------------------------

    def _chain(self, item: Sum | Product, value: ir.Value, root: bool) -> Cover | None:
        """Every operand at the piece of the chain where it goes best; the numbers are compared last."""
        asked = plan(item)
        tree = self._plain.grown(value, isinstance(item, Product))[0]
        if not tree.parts and asked.required > 1:
            return None
        best: Cover | None = None
        for given in self._spread([t for t in asked.operands if not is_optional(t[0])], tree, ()):
            whole = joined(c for _, _, c in given)
            if best is None or whole.cost <= best.cost:
                full = joined([whole, self._numbers(item, value, tree, root, given)]).having({item: value})
                best = full if best is None else min(best, full, key=rank)
        return best

    def _spread(
        self, operands: Sequence[tuple[Term, int]], tree: Piece, taken: tuple[Piece, ...]
    ) -> Iterator[list[tuple[Term, Piece | None, Cover]]]:
        """Ways to give each operand a piece of its own."""
        if not operands:
            yield []
            return
        (item, sign), *others = operands
        used = sum(p.leaves for p in taken)
        free = [p for p in tree.walk() if p.value is not None and not p.leaves & used]
        free = [p for p in free if p is not tree or not (taken or others)]
        options = [(piece, self._operand(item, sign, piece, tree)) for piece in free]
        options.sort(key=lambda pair: (rank(pair[1]), -bool(pair[0].parts)))
        for piece, cover in options[:_TRIED]:
            yield from ([(item, piece, cover), *rest] for rest in self._spread(others, tree, (*taken, piece)))
            if cover.cost == 0 and size(item):
                return
        if not options or options[0][1].cost >= size(item) > 0:
            absent = self._absent(item, f"only {shown(tree.node, self.facts)}" if tree.node is not None else "nothing")
            yield from ([(item, None, absent), *rest] for rest in self._spread(others, tree, taken))

    def _operand(self, item: Term, sign: int, piece: Piece, tree: Piece) -> Cover:
        """One operand at one piece; one that is subtracted or divided by where it must not be is wrong."""
        assert piece.value is not None
        constant = self.facts.tensor(resolve(piece.value)) is not None
        if piece.sign == sign or (constant and isinstance(item, Const)):
            found = self._at(item, piece.value, None)
            return found.having({}) if not constant or not isinstance(item, Var) else Cover(found.bound, cost=0.01)
        opposite = flipped(item, True) or flipped(item, False)
        if opposite is not None:
            return self._at(opposite, piece.value, None)
        reader = next((p.node for p in tree.walk() if piece in p.parts), None)
        how = f"it with the other sign, or as a divisor, `{piece.value.name}`"
        where = f", in {called(reader)}" if reader is not None else ""
        return self._at(item, piece.value, reader).having({}, Fault(f"expected {head(item)}, found {how}{where}", item))

    def _numbers(
        self,
        item: Sum | Product,
        value: ir.Value,
        tree: Piece,
        root: bool,
        given: Sequence[tuple[Term, Piece | None, Cover]],
    ) -> Cover:
        """The cover of the numbers of a chain and of what is left over, its operands taken for granted."""
        asked = plan(item)
        pinned = [(Var(head(t)), p) for t, p, _ in given if p is not None]
        if len(pinned) < len(given) or not (pinned or asked.needs_numbers or asked.scalars):
            return Cover()
        operands: list[tuple[Term, int]] = [(v, p.sign) for v, p in pinned]
        operands += [*((Literal(n), s) for n, s in asked.literals), *asked.scalars]
        operands += [t for t in asked.operands if is_optional(t[0])]
        shallow = type(item)(operands)
        misses = Misses()
        matcher = RecursiveMatcher(self.facts, self.graph, misses)
        start = Binding({v: resolve(p.value) for v, p in pinned if p.value is not None})
        places = {v: next(n for n, each in enumerate(tree.walk()) if each is p) for v, p in pinned}
        found = next(_Pinned(matcher, shallow, value, root, places).run(start), None)
        if found is not None:
            return Cover({t: b for t, b in found.bound.items() if isinstance(t, Capture) and t not in start.bound})
        is_short = plan(shallow).required > tree.leaves.bit_count()
        reason = misses.reason
        if tree.node is not None and (not reason or misses.item in start.bound):  # the operands do not go together
            reason = f"expected {head(item)}, found {shown(tree.node, self.facts)}"
        fault = Fault(reason, item, cost=WHOLE + _LEFT_OUT if is_short else PART)
        return Cover().having({}, fault) if reason else Cover()

    # -- helpers ---------------------------------------------------------------------------------------------

    def _plainly(self, item: Term, value: ir.Value, binding: Binding) -> tuple[Binding | None, Misses]:
        """The plain matcher's binding of a term at a value, or None, and its misses."""
        misses = Misses()
        return next(RecursiveMatcher(self.facts, self.graph, misses).term(item, value, binding), None), misses

    def _producer(self, value: ir.Value) -> ir.Node | None:
        return self._plain._producer(value)


def _placed(cover: Cover, left: int) -> Cover:
    """The cover of a layer, its faults with its place: so many layers are left behind it."""
    where = f", in {layer_from_last(left)}"
    return replace(cover, faults={k: replace(f, reason=f"{f.reason}{where}") for k, f in cover.faults.items()})
